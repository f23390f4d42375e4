"""A slow look over what the data directories have, against the catalogue: an `fsck` that goes on.

A round goes over the names on the disks, then over the files of the catalogue, so many a second. It
opens no file and changes nothing: what is missing, has another size, or is there and nobody knows
it, is shown. Whether bytes are those that were loaded is for `fsck` and verifications.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from common.errors import StoppedError
from common.names import RESOURCE, Kind
from common.threads import PeriodicThread
from receiver.datadirs.disks import home_of
from receiver.load.moving.copied_files import known_file
from receiver.load.placing import tree_of
from receiver.load.upkeep.loaded_file_checks import is_to_be_there
from receiver.load.upkeep.strays import strays_among
from receiver.metadata.state.placed_files import parts_elsewhere
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from common.durable import Tree
    from receiver.datadirs.disks import Disks
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.uploaded import InStore

__all__ = ["DirectoryChecks", "DirectoryReport"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_PAGE: Final = 200
"""Rows of the catalogue that are taken at once."""
_REST: Final = 0.25
"""Seconds that are slept at once, when that many are due."""
_SHOWN: Final = 20
_MOST_UNNAMED: Final = 10_000
_SOONEST: Final = 1.0


class DirectoryReport(NamedTuple):
    """What the last whole round found of a data directory.

    Attributes:
        at: when it ended, seconds since the epoch.
        files: of the directory, with their resources.
        missing: files that the catalogue has there, and that are in no directory and no store.
        wrong: files of another size than were loaded.
        foreign: files that the catalogue does not have.
        some: the first of these, as (kind, name).
    """

    at: float
    files: int = 0
    missing: int = 0
    wrong: int = 0
    foreign: int = 0
    some: tuple[tuple[str, str], ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether it found nothing."""
        return not (self.missing or self.wrong or self.foreign)


class _Counts:
    def __init__(self) -> None:
        self.files = 0
        self.found: dict[str, int] = defaultdict(int)
        self.some: list[tuple[str, str]] = []

    def note(self, kind: str, name: str) -> None:
        self.found[kind] += 1
        if len(self.some) < _SHOWN:
            self.some.append((kind, name))


class DirectoryChecks:
    """Looks, in a thread of its own."""

    def __init__(
        self,
        engine: Engine,
        disks: Disks,
        *,
        every: float | None,
        rate: int,
        doubled: Callable[[str], object] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; nothing is looked at before `run_once`.

        Args:
            engine: the metadata engine.
            disks: the data directories.
            every: seconds from the begin of a round to the next; None for no rounds.
            rate: names a second.
            doubled: is told the uuid of a directory with a file that lies in another one, by the
                catalogue: its drain was ended, and a start came between.
            clock: seconds since the epoch.
        """
        self._engine = engine
        self._disks = disks
        self._every = every
        self._rate = rate
        self._doubled = doubled
        self._clock = clock
        self._owed = 0
        self._thread = PeriodicThread(
            "directory-checks",
            self._round,
            log,
            "the data directories cannot be looked over",
            first=min(every or 0.0, 60.0),  # a start has other things to do
            retry=max(_SOONEST, every or 0.0),
        )
        self._reports: dict[str, DirectoryReport] = {}

    def start(self) -> None:
        """Start the thread, if there are to be rounds."""
        if self._every is not None:
            self._thread.start()

    def close(self) -> None:
        """Stop at the next name."""
        self._thread.close()

    def report(self, uuid: str) -> DirectoryReport | None:
        """What the last whole round found of a directory; None before there was one."""
        return self._reports.get(uuid)

    def _round(self) -> float:
        began = time.monotonic()
        self.run_once()
        return max(_SOONEST, (self._every or 0.0) - (time.monotonic() - began))

    def run_once(self) -> None:
        """Make a round over the directories that are there.

        Raises:
            StoppedError: told to stop.
        """
        trees = self._disks.standing()
        counts = {str(tree.path): _Counts() for tree in trees}
        self._look_at_disks(trees, counts)
        is_whole = not self._disks.away()
        if is_whole:  # on a disk that is not mounted nothing is missing
            self._look_at_rows(trees, counts)
        for disk in self._disks.every():
            found = counts.get(str(disk.path))
            if found is None or not disk.uuid:
                self._reports.pop(disk.uuid, None)
                continue
            report = DirectoryReport(
                at=self._clock(),
                files=found.files,
                missing=found.found["missing"],
                wrong=found.found["wrong"],
                foreign=found.found["foreign"],
                some=tuple(found.some),
            )
            if not report.is_good:
                extra = {"path": str(disk.path), "some": report.some}
                log.warning("a data directory is not as the catalogue has it", extra=extra)
            self._reports[disk.uuid] = report

    def _look_at_disks(self, trees: Sequence[Tree], counts: dict[str, _Counts]) -> None:
        unnamed: list[tuple[Tree, str]] = []
        doubled: set[str] = set()
        for tree in trees:
            here = counts[str(tree.path)]
            for rel, found in self._paced(each for kind in Kind for each in tree.files(kind)):
                here.files += 1
                known = known_file(self._engine, rel.removesuffix(RESOURCE))
                if known is None:
                    unnamed.append((tree, rel))
                elif known.physical == rel and found.st_size != known.size:
                    here.note("wrong", rel)
                elif known.data_dir in counts and known.data_dir != str(tree.path):
                    doubled.add(str(tree.path))
                if len(unnamed) >= _MOST_UNNAMED:
                    self._note_foreign(trees, unnamed, counts)
                    unnamed = []
        self._note_foreign(trees, unnamed, counts)
        for disk in self._disks.every():
            if str(disk.path) in doubled:
                self._doubled(disk.uuid)

    def _note_foreign(
        self, trees: Sequence[Tree], unnamed: list[tuple[Tree, str]], counts: dict[str, _Counts]
    ) -> None:
        there = [(tree, rel) for tree, rel in unnamed if tree.exists(rel)]  # what went has no row
        for tree, rel in strays_among(self._engine, trees, there) if there else ():
            counts[str(tree.path)].note("foreign", rel)

    def _look_at_rows(self, trees: Sequence[Tree], counts: dict[str, _Counts]) -> None:
        for row, stored in self._paced(self._rows()):
            if stored.file or tree_of(trees, row) is not None:
                continue
            if not self._is_so_still(row):
                continue
            home = home_of(trees, row)
            at = str(trees[0].path if home is None else home.path) if trees else ""
            if at:
                counts[at].note("missing", row.physical)

    def _is_so_still(self, row: FileRow) -> bool:
        """Whether a file is to be there now: it may have been deleted, or have moved, meanwhile."""
        with self._engine.reading() as state:
            now = state.files.get(row.physical)
        return (
            now is not None
            and is_to_be_there(now)
            and tree_of(self._disks.standing(), now) is None
            and not self._disks.away()
        )

    def _rows(self) -> Iterator[tuple[FileRow, InStore]]:
        for wanted in (FileState.LIVE, FileState.SUPERSEDED):
            after: str | None = None
            while True:
                with self._engine.reading() as state:
                    page = state.file_table.among(wanted, after, _PAGE)
                    told = [(row, parts_elsewhere(state, row)) for row in page]
                yield from told
                if not page:
                    break
                after = page[-1].physical

    def _paced(self, things: Iterator[T]) -> Iterator[T]:
        for each in things:
            self._owed += 1
            if self._owed >= self._rate * _REST:
                if self._thread.stopping.wait(self._owed / self._rate):
                    raise StoppedError("told to stop")
                self._owed = 0
            yield each
