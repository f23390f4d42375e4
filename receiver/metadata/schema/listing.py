"""Questions with many answers: in path order and in pages, or counted in columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from receiver.metadata.model.paths import MANY, ROOT, Nodes, Pattern
from receiver.metadata.schema.columns import view
from receiver.metadata.schema.looking import Looking
from receiver.metadata.schema.rows import DeviceRow
from receiver.metadata.schema.tree import KIND, LEAF
from receiver.metadata.schema.walk import matching, path_order, select, sort_keys, walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Listing"]

_SORTED_AT_ONCE: Final = 20_000
"""So many rows are put into path order by sorting them; more are met on a walk over the tree."""
_SPARSE: Final = 16
_ALL: Final = (ROOT, MANY)


class Listing(Looking):
    """Questions with a pattern."""

    # -- in path order ----------------------------------------------------------------------------

    def match_series(
        self,
        pattern: Pattern,
        at: int | None = None,
        after: Nodes | None = None,
        limit: int | None = None,
    ) -> list[int]:
        """Rows of the series that match, by path (children by name), from behind `after`."""
        return list(islice(self.iter_series(pattern, at, after), limit))

    def iter_series(
        self, pattern: Pattern, at: int | None = None, after: Nodes | None = None
    ) -> Iterator[int]:
        """`match_series` one by one; not across a commit."""
        if pattern.is_path:
            row = self.find_series(pattern.prefix, at, alias=False)
            if row >= 0 and (after is None or pattern.prefix > after):
                yield row
            return
        yield from walk(self.tree, pattern, at, "leaf", after)

    def match_devices(
        self,
        pattern: Pattern,
        at: int | None = None,
        after: Nodes | None = None,
        limit: int | None = None,
    ) -> list[DeviceRow]:
        """The devices that match, by path, from behind `after`."""
        rows = islice(walk(self.tree, pattern, at, "device", after), limit)
        return [self.device_row(row, at) for row in rows]

    def match_nodes(
        self,
        pattern: Pattern,
        at: int | None = None,
        after: Nodes | None = None,
        limit: int | None = None,
    ) -> list[Nodes]:
        """All nodes that match, of any kind but alias, by path, from behind `after`."""
        rows = islice(walk(self.tree, pattern, at, "node", after), limit)
        return [self.tree.nodes(row) for row in rows]

    def in_path_order(self, rows: Iterable[int]) -> list[int]:
        """Rows sorted by their paths."""
        listed = rows if isinstance(rows, np.ndarray) else np.array(list(rows), np.int64)
        found: list[int] = listed[path_order(self.tree, listed)].tolist() if len(listed) else []
        return found

    def page_of(
        self,
        rows: NDArray[Any],
        at: int | None = None,
        after: Nodes | None = None,
        limit: int | None = None,
    ) -> list[int]:
        """Of series that were found at a time in no order, those behind `after` in path order."""
        # A walk meets few of them on its way where they are sparse.
        if len(rows) > max(_SORTED_AT_ONCE, len(self.tree) // _SPARSE):
            wanted = np.zeros(len(self.tree), np.uint8)
            wanted[rows] = 1
            marks = wanted.tobytes()
            found = (row for row in self.iter_series(Pattern(_ALL), at, after) if marks[row])
            return list(islice(found, limit))
        listed = self.in_path_order(rows)
        begin = 0 if after is None else bisect_right(listed, after, key=self.tree.nodes)
        return listed[begin : None if limit is None else begin + limit]

    # -- by heat ----------------------------------------------------------------------------------

    def by_heat(
        self, rows: Iterable[int], at: int | None = None, count: int | None = None
    ) -> list[int]:
        """Rows with the hottest first, those without heat last, equal ones by path.

        Args:
            rows: of series that were found at that time.
            at: the time.
            count: so many of them.
        """
        found = np.fromiter(rows, np.int64) if not isinstance(rows, np.ndarray) else rows
        heats = self.heats.get_many(found, at)
        if count is None or count >= len(found):
            return self._sorted_by_heat(found, heats)
        if count <= 0:
            return []
        least = np.partition(heats, len(heats) - count)[len(heats) - count]
        hotter = heats > least
        first = self._sorted_by_heat(found[hotter], heats[hotter])
        return first + self.page_of(found[heats == least], at, None, count - len(first))

    def _sorted_by_heat(self, rows: NDArray[Any], heats: NDArray[np.int64]) -> list[int]:
        listed = rows.tolist()
        keys = sort_keys(self.tree, listed)
        own = heats.tolist()
        return [listed[i] for i in sorted(range(len(listed)), key=lambda i: (-own[i], keys[i]))]

    # -- by tag -----------------------------------------------------------------------------------

    def tagged(
        self,
        key: str,
        text: str,
        pattern: Pattern | None = None,
        at: int | None = None,
        *,
        contains: bool = False,
    ) -> NDArray[np.int32]:
        """Series with that tag (`contains`: whose value has the text in it), in no order."""
        rows = (self.index.contains if contains else self.index.find)(key, text, at)
        if pattern is None or pattern.steps == _ALL:
            return rows
        if len(rows) > _SORTED_AT_ONCE:
            return np.intersect1d(rows, select(self.tree, pattern, at, "leaf"))
        return np.array(matching(self.tree, pattern, rows.tolist()), np.int32)

    def find_tagged(
        self,
        key: str,
        text: str,
        pattern: Pattern | None = None,
        at: int | None = None,
        *,
        contains: bool = False,
        after: Nodes | None = None,
        limit: int | None = None,
    ) -> list[int]:
        """`tagged` in path order, from behind `after`."""
        return self.page_of(
            self.tagged(key, text, pattern, at, contains=contains), at, after, limit
        )

    def tag_keys(self, pattern: Pattern | None = None, at: int | None = None) -> list[str]:
        """Tag keys of matching series, sorted."""
        return sorted(self.tree.names.texts(self.index.keys(at, self._marked(pattern, at))))

    def tag_values(
        self, key: str, pattern: Pattern | None = None, at: int | None = None
    ) -> list[str]:
        """Values of a tag key of matching series, sorted."""
        number = self.tree.names.find(key)
        values = self.index.values(number, at, self._marked(pattern, at))
        return sorted(self.tree.names.texts(values))

    def _marked(self, pattern: Pattern | None, at: int | None) -> NDArray[np.bool_] | None:
        if pattern is None or pattern.steps == _ALL:
            return None
        marked = np.zeros(len(self.tree), bool)
        marked[select(self.tree, pattern, at, "leaf")] = True
        return marked

    # -- at once, in no order ---------------------------------------------------------------------

    def select(self, pattern: Pattern, at: int | None = None) -> NDArray[np.int32]:
        """Rows of the series that match, in no order, as an array of the caller's own."""
        return select(self.tree, pattern, at, "leaf")

    def count_series(self, pattern: Pattern, at: int | None = None) -> int:
        """How many series match."""
        if pattern.is_path:
            return int(self.find_series(pattern.prefix, at, alias=False) >= 0)
        if pattern.steps == _ALL:
            return self._series if at is None else len(self._leaves(at))
        return len(select(self.tree, pattern, at, "leaf"))

    def count_devices(self, pattern: Pattern, at: int | None = None) -> int:
        """How many devices match."""
        if pattern.steps == _ALL and at is None:
            return self._devices
        return len(select(self.tree, pattern, at, "device"))

    def count_nodes(self, pattern: Pattern, at: int | None = None) -> int:
        """How many nodes match, of any kind but alias."""
        return len(select(self.tree, pattern, at, "node"))

    def count_by_level(
        self, pattern: Pattern, level: int, at: int | None = None
    ) -> list[tuple[Nodes, int]]:
        """Matching series by their ancestor at a level (root is 0), in path order.

        A series above that level is in none of the groups; one at it is its own.
        """
        rows = self._ancestors(select(self.tree, pattern, at, "leaf"), level)
        groups, counts = np.unique(rows, return_counts=True)
        nodes: Callable[[int], Nodes] = self.tree.nodes
        found = zip(map(nodes, groups.tolist()), counts.tolist(), strict=True)
        return sorted(found)

    def count_nodes_at(self, pattern: Pattern, level: int, at: int | None = None) -> int:
        """How many nodes at a level (root is 0) match, or have nodes below them that do."""
        return len(np.unique(self._ancestors(select(self.tree, pattern, at, "node"), level)))

    def _ancestors(self, rows: NDArray[np.int32], level: int) -> NDArray[np.int32]:
        """The ancestor at a level, or the node itself, of each node that is no higher."""
        depth, parent = view(self.tree.depth), view(self.tree.parent)
        rows = rows[depth[rows] >= level]
        while len(below := np.flatnonzero(depth[rows] > level)):
            rows[below] = parent[rows[below]]
        return rows

    def _leaves(self, at: int) -> NDArray[np.int64]:
        rows = np.flatnonzero(view(self.tree.kind) & KIND == LEAF)
        return rows[self.tree.visible(rows, at)]
