"""What nodes are going to have: the files of their tablets, and those that are still to come there.

A tablet is placed while it is empty, and the last one of a table grows. Counted by what nodes
report, the one with the fewest bytes would be given all tablets of one midnight, and take all bytes
of the day. So such a tablet counts for as much as the tablets of its table have by the mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["ExpectedLoad", "PlacedTablet"]


class PlacedTablet(NamedTuple):
    """A tablet, and where it is.

    Attributes:
        tablet: its id.
        table: id of its table.
        begin: of its time partitions.
        size: bytes of its files now.
        nodes: where it is placed.
    """

    tablet: str
    table: str
    begin: int
    size: int
    nodes: Sequence[str] = ()


class ExpectedLoad:
    """As of one look at all tablets, which is first made when somebody asks."""

    def __init__(self, tablets: Callable[[], Iterable[PlacedTablet]]) -> None:
        """Look at nothing yet.

        Args:
            tablets: gives all tablets of tables that are there, each time that it is called.
        """
        self._tablets = tablets
        self._made: tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]] | None = None

    def of_tablet(self, tablet: str, size: int) -> int:
        """Bytes that a tablet is going to have; what it has if nothing more is expected."""
        _, _, growing = self._known()
        return max(size, growing.get(tablet, size))

    def of_node(self, node: str, used: int) -> int:
        """Bytes that a node is going to have.

        Args:
            node: its uuid.
            used: that it reports; more than the catalogue knows of, or less while files come.
        """
        placed, coming, _ = self._known()
        return max(used, placed.get(node, 0)) + coming.get(node, 0)

    def _known(self) -> tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]]:
        if self._made is None:
            growing = _growing(self._tablets())
            placed: dict[str, int] = {}
            coming: dict[str, int] = {}
            for each in self._tablets():
                more = growing.get(each.tablet, each.size) - each.size
                for node in each.nodes:
                    placed[node] = placed.get(node, 0) + each.size
                    if more > 0:
                        coming[node] = coming.get(node, 0) + more
            self._made = placed, coming, growing
        return self._made


def _growing(every: Iterable[PlacedTablet]) -> dict[str, int]:
    """Tablets that files are going to come to, each with the mean of its table, or else of all."""
    filled: dict[str, tuple[int, int]] = {}
    last: dict[str, PlacedTablet] = {}
    growing: dict[str, str] = {}
    for each in every:
        if each.size:
            count, total = filled.get(each.table, (0, 0))
            filled[each.table] = count + 1, total + each.size
        else:
            growing[each.tablet] = each.table
        if each.table not in last or each.begin > last[each.table].begin:
            last[each.table] = each
    growing.update({each.tablet: each.table for each in last.values()})
    count = sum(count for count, _ in filled.values())
    mean = sum(total for _, total in filled.values()) // count if count else 1
    means = {table: total // count for table, (count, total) in filled.items()}
    return {tablet: max(means.get(table, mean), 1) for tablet, table in growing.items()}
