"""Files that have left the master's disks for storage nodes: who is known to have them now.

A node is known to have what it said in this life of the master that it has all of, by the list of a
tablet, as long as it is heard from and misses no directory (`held_copies`).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from receiver.placement.copies_there.tablet_files import rows_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.placement.copies_there.held_copies import HeldCopiesBook
    from receiver.placement.placeable_nodes import PlaceableNode

__all__ = ["ReleasedCount", "ReleasedFiles"]

_SHOWN: Final = 20
_MOST_LOOKS: Final = 100_000
"""For one answer: some tenths of a second."""
_PAGE: Final = 1000
"""Files that are looked at without a commit in between."""


class ReleasedCount(NamedTuple):
    """Files that lie in no data directory.

    Attributes:
        files: how many.
        size: bytes of them.
        first: physical names of some.
    """

    files: int = 0
    size: int = 0
    first: tuple[str, ...] = ()


class ReleasedFiles:
    """Answers about them; any thread may ask that does not read the state."""

    def __init__(
        self,
        engine: Engine,
        book: HeldCopiesBook,
        nodes: Callable[[], Mapping[str, PlaceableNode]],
        reports: Callable[[str, str], bool],
        seems_here: Callable[[str], bool],
    ) -> None:
        """Prepare.

        Args:
            engine: of the master.
            book: of what nodes have.
            nodes: as they are now, by uuid.
            reports: whether a node reports a tablet.
            seems_here: whether a file lies in a data directory; asked of many.
        """
        self._engine = engine
        self._book = book
        self._nodes = nodes
        self._reports = reports
        self._seems_here = seems_here

    def all(self) -> ReleasedCount:
        """Those that lie in no data directory."""
        return self._count(self._tablets())

    def has(self, physical: str) -> bool:
        """Whether a node is known to have a file now that may have left the data directories."""
        with self._engine.reading() as state:
            row = state.released_table.rows.get(physical)
        return row is not None and bool(self._holders(row.tablet))

    def nowhere(self) -> ReleasedCount:
        """Files in no data directory that no node is known to have now: it is silent, say.

        Where a tablet is whole at no node that is all of the tablet's. Those too that no commit has
        let go, as far as no object store has them: see `alone_at`. Of very many files that were
        looked for these are the first.
        """
        return _counted(row for row in islice(self._every(), _MOST_LOOKS) if row is not None)

    def looks_for_nowhere(self) -> Iterator[bool]:
        """The same, a look at a time: true for each such file, false for what is somewhere."""
        return (row is not None for row in self._every())

    def _every(self) -> Iterator[FileRow | None]:
        """A look at each file of the tablets that are whole at no node; None for what is somewhere.

        Of one that is whole at a node that is one look.
        """
        with self._engine.reading() as state:
            placed = list(state.placement_table.rows)
        for tablet in dict.fromkeys([*self._tablets(), *placed]):
            if self._holders(tablet):
                yield None
            else:
                yield from self._looks(tablet)

    def alone_at(self, uuid: str) -> ReleasedCount:
        """Files in no data directory that a node may have, and no other one is known to have now.

        Those too that no commit has let go: a stand-by has begun with empty directories, or a disk
        is lost. What the object store has is not among them, unless it has left for nodes.
        """
        with self._engine.reading() as state:
            every = list(state.tablet_table.rows)
        tablets = []
        for each in every:
            with self._engine.reading() as state:
                row, table = state.placement_table.rows.get(each), state.released_table
                proved = any(uuid in table.rows[name].nodes for name in table.of_tablet(each))
            # Who has proved to have them may have them still, though nobody heard it in this life.
            is_placed = row is not None and uuid in row.nodes
            is_there = proved or is_placed or self._reports(uuid, each)
            if is_there and not self._holders(each) - {uuid}:
                tablets.append(each)
        return _counted(row for each in tablets for row in self._of_tablet(each))

    def _of_tablet(self, tablet: str) -> Iterator[FileRow]:
        """Its files in no data directory, as far as no object store has them."""
        return (row for row in self._looks(tablet) if row is not None)

    def _looks(self, tablet: str) -> Iterator[FileRow | None]:
        """The same, a look at a time: None for each file that is in a data directory."""
        with self._engine.reading() as state:
            names = state.released_table.of_tablet(tablet)
            gone = [row for each in names if (row := state.files.get(each)) is not None]
        yield from map(self._if_away, gone)
        after: str | None = None
        while True:
            with self._engine.reading() as state:
                its = state.tablet_table.rows.get(tablet)
                table = None if its is None else state.loaded_tables.rows[its.table]
                if its is None or table is None or table.dropped:
                    return
                rows = list(islice(rows_behind(state, its, table.name, after), _PAGE))
                alone = [
                    row
                    for row in rows
                    if row.physical not in state.released_table.rows
                    and not state.uploaded_table.parts(row).file
                ]
            yield from map(self._if_away, alone)
            if len(rows) < _PAGE:
                return
            after = rows[-1].physical

    def _if_away(self, row: FileRow) -> FileRow | None:
        return None if self._seems_here(row.physical) else row

    def _tablets(self) -> list[str]:
        with self._engine.reading() as state:
            return state.released_table.tablets()

    def _holders(self, tablet: str) -> set[str]:
        """Nodes that are heard from and known to have all of a tablet.

        They are of its placement: one of an earlier generation has told nothing of this one.
        """
        nodes = self._nodes()
        with self._engine.reading() as state:
            row, its = state.placement_table.rows.get(tablet), state.tablet_table.rows.get(tablet)
            whole = () if row is None or its is None else self._book.complete(state, its, row)
            return {each for each in whole if each in nodes and nodes[each].counts}

    def _count(self, tablets: Iterable[str]) -> ReleasedCount:
        return _counted(self._away(tablets))

    def _away(self, tablets: Iterable[str]) -> Iterator[FileRow]:
        for tablet in tablets:
            with self._engine.reading() as state:
                names = state.released_table.of_tablet(tablet)
                rows = [row for each in names if (row := state.files.get(each)) is not None]
            yield from (row for row in rows if self._if_away(row) is not None)


def _counted(rows: Iterable[FileRow]) -> ReleasedCount:
    files = size = 0
    first: list[str] = []
    for row in rows:
        files, size = files + 1, size + row.size
        if len(first) < _SHOWN:
            first.append(row.physical)
    return ReleasedCount(files, size, tuple(first))
