"""Empties data directories that are drained, in the background; see `docs/placement.md`.

A file is copied into another directory, flushed, and compared with the digest that was committed;
then it gets its name there, and one commit says that it lies there. From then on it is read there.
What is here still stays for those who know of this place, as bytes of deleted files do, and goes
when the other copy was read through once more. Whatever is cut off, each file is whole in at least
one of both, and the catalogue names one that has it.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from common import crash
from common.durable import free_bytes
from common.errors import NoSpaceError, StoppedError, TsferryError
from common.names import FilePath
from common.threads import PeriodicThread
from receiver.datadirs.disks import NAMING, AwayError, disk_room
from receiver.load.folder.obstacles import is_of_one_path, obstacle
from receiver.load.moving.copied_files import (
    clear_copies,
    copy_batch,
    known_file,
    name_copies,
    sweep_copies,
    take_copy_back,
)
from receiver.load.moving.drained_directory import look_through
from receiver.load.moving.kept_files import carry_bare_resource, carry_kept, carry_resource
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from common.durable import Tree
    from receiver.datadirs.disks import Disk, Disks
    from receiver.load.folder.sender_folder import Folders
    from receiver.load.moving.copied_files import CataloguedFile, FileCopy
    from receiver.load.moving.drained_directory import DrainedDirectory
    from receiver.metadata.engine import Engine

__all__ = ["DrainProgress", "Mover"]

log = logging.getLogger(__name__)

_PERIOD: Final = 60.0
_AT_ONCE: Final = 32
"""Files of a commit, at most."""
_AT_ONCE_BYTES: Final = 256 << 20
"""Bytes of them, unless one alone has more."""
_LOOK: Final = 1024
"""Files that one look through a directory names."""
_PATIENCE: Final = 600.0
"""Seconds until a file goes without a resource that was told of, and is not there."""
_TRY_AGAIN: Final = 300.0
"""Seconds until a file is tried again that could not be moved."""
_SHOWN: Final = 20


class DrainProgress(NamedTuple):
    """How far the draining of a data directory is, as it was looked at last.

    Attributes:
        files: that are to be moved still.
        bytes: of them.
        moved: files that were moved since this process runs.
        moved_bytes: of them.
        copies: that are here still of files that were moved, for those who read them here.
        senders: folders of senders that stand here still.
        unknown: files that the catalogue does not have.
        stuck: why some are not moved, the first of them, as (name, why).
        is_empty: whether the directory can be taken out.
    """

    files: int = 0
    bytes: int = 0
    moved: int = 0
    moved_bytes: int = 0
    copies: int = 0
    senders: int = 0
    unknown: int = 0
    stuck: tuple[tuple[str, str], ...] = ()
    is_empty: bool = False


class _Trouble(NamedTuple):
    why: str
    since: float
    at: float


class Mover:
    """Moves files off the directories that are drained, in a thread of its own."""

    def __init__(
        self,
        engine: Engine,
        disks: Disks,
        folders: Folders,
        *,
        keep: float,
        keep_free: int,
        rate: int | None = None,
        leave_folders: Callable[[], int] = lambda: 0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is looked at before `run_once`.

        Args:
            engine: the metadata engine.
            disks: the data directories.
            folders: of the senders.
            keep: seconds that a copy stays which was moved.
            keep_free: bytes that have to stay free where files come to.
            rate: bytes a second that are copied at most; None for no limit.
            leave_folders: lets senders go on elsewhere; returns how many did.
            monotonic: seconds.
        """
        self._engine = engine
        self._disks = disks
        self._folders = folders
        self._keep = keep
        self._keep_free = keep_free
        self._rate = rate
        self._leave_folders = leave_folders
        self.letting_go: Callable[[str], AbstractContextManager[bool]]
        self.letting_go = lambda _: nullcontext(True)
        self._monotonic = monotonic
        self._every = min(_PERIOD, max(1.0, keep / 4))
        self._thread = PeriodicThread(
            "mover", self._pass, log, "moving files has to wait", retry=self._every
        )
        self._passing = threading.Lock()
        self._progress: dict[str, DrainProgress] = {}
        self._done: dict[str, tuple[int, int]] = {}
        self._trouble: dict[str, _Trouble] = {}
        self._moved_at: dict[str, float] = {}
        self._doubled: set[str] = set()
        self._number = 0

    # -- the thread --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; the first pass puts right what a life that was cut off left."""
        self._thread.start()

    def recover(self) -> int:
        """Put right what a life, or a pass, that was cut off left; how many batches that were."""
        return sweep_copies(self._engine, self._disks.standing())

    def wake(self) -> None:
        """Look now: something is drained, or is not any more."""
        self._thread.wake()

    def clear_copies_of(self, uuid: str) -> None:
        """A directory that is not drained has copies of files that were moved from it: they go."""
        self._doubled.add(uuid)
        self.wake()

    def close(self) -> None:
        """Stop at the next block; what is under way is done again by the next start."""
        self._thread.close()

    def _pass(self) -> float:
        busy = False
        with suppress(AwayError):
            busy = self.run_once() > 0
        return 0.0 if busy else self._every

    def progress(self, uuid: str) -> DrainProgress | None:
        """How far the draining of a directory is; None before it was looked at."""
        return self._progress.get(uuid)

    # -- passes ------------------------------------------------------------------------------

    def run_once(self) -> int:
        """Move what can be moved now, and take away what may go; how many files were either.

        Raises:
            TsferryError, OSError: of a disk; what was under way is whole where it was.
        """
        with self._passing:
            self.recover()
            count = 0
            draining = [each for each in self._disks.every() if self._is_drained(each)]
            for uuid in set(self._progress) - {each.uuid for each in draining}:
                if self._progress.pop(uuid).copies:
                    self._doubled.add(uuid)
            if draining:
                self._leave_folders()
            for disk in draining:
                count += self._drain(disk)
            self._doubled -= {each.uuid for each in draining}
            for disk in self._disks.every():
                if disk.uuid in self._doubled and disk.why_away() is None:
                    count += self._clear(disk)
            return count

    def _is_drained(self, disk: Disk) -> bool:
        with self._engine.reading() as state:
            row = state.node_table.rows.get(disk.uuid)
        if row is None or not row.draining or row.lost:
            return False
        return disk.why_away() is None

    def _drain(self, disk: Disk) -> int:
        tree = disk.tree
        assert tree is not None
        found = self._look(tree)
        self._note(disk, found)
        count = 0
        for rel, folder in found.kept:
            with self._troubled(tree, rel):
                count += carry_kept(tree, rel, folder)
        for known in found.bare:
            target = self._target(_room(known))
            if target is None:
                break
            with self._troubled(tree, known.physical):
                count += carry_bare_resource(tree, target, known)
        for batch in _batches(found.to_move):
            target = self._target(sum(map(_room, batch)))
            if target is None:
                why = "no other data directory has room for it"
                self._note_trouble(batch[0].physical, why)
                break
            moved = self._move(disk, tree, target, batch)
            count += len(moved)
            found.files -= len(moved)
            found.bytes -= sum(each.size for each in moved)
            found.copies += len(moved)
            self._note(disk, found)
        for known, home in found.to_go:
            with self._troubled(tree, known.physical):
                count += self._let_go(tree, known, home)
        if count:
            found = self._look(tree)
        self._note(disk, found)
        return count

    def _clear(self, disk: Disk) -> int:
        """Take copies away that were here when a drain was ended; how many went."""
        tree = disk.tree
        assert tree is not None
        found, count = self._look(tree), 0
        for known, home in found.to_go:
            with self._troubled(tree, known.physical):
                count += self._let_go(tree, known, home)
        if count == found.copies:
            self._doubled.discard(disk.uuid)
        return count

    def _look(self, tree: Tree) -> DrainedDirectory:
        return look_through(
            self._engine,
            tree,
            self._disks.standing(),
            self._folders,
            most=_LOOK,
            is_wanted=self._may_be_tried,
            may_go=self._may_go,
        )

    def _note(self, disk: Disk, found: DrainedDirectory) -> None:
        moved, size = self._done.get(disk.uuid, (0, 0))
        assert disk.tree is not None
        here = [name for name in self._trouble if disk.tree.exists(name)]
        stuck = [(name, self._trouble[name].why) for name in here[:_SHOWN]]
        stuck += [(name, "the catalogue does not have it") for name in found.strangers]
        is_empty = found.is_empty
        before = self._progress.get(disk.uuid)
        if is_empty and not (before and before.is_empty):
            log.info(
                "a data directory is empty and can be taken out", extra={"path": str(disk.path)}
            )
        self._progress[disk.uuid] = DrainProgress(
            files=found.files,
            bytes=found.bytes,
            moved=moved,
            moved_bytes=size,
            copies=found.copies,
            senders=found.folders,
            unknown=found.unknown,
            stuck=tuple(stuck),
            is_empty=is_empty,
        )

    def _may_be_tried(self, physical: str) -> bool:
        trouble = self._trouble.get(physical)
        return trouble is None or self._monotonic() - trouble.at >= _TRY_AGAIN

    def _may_go(self, physical: str) -> bool:
        """Whether a copy was here long enough; of an earlier life, since this one has seen it."""
        now = self._monotonic()
        return self._may_be_tried(physical) and (
            now - self._moved_at.setdefault(physical, now) >= self._keep
        )

    @contextmanager
    def _troubled(self, tree: Tree, rel: str) -> Iterator[None]:
        """Work on one file; what is in its way is noted, and stops no other."""
        try:
            yield
        except (OSError, TsferryError) as error:
            if not is_of_one_path(error):
                raise
            self._note_trouble(rel, obstacle(tree, rel, error))

    def _note_trouble(self, physical: str, why: str) -> None:
        now = self._monotonic()
        before = self._trouble.get(physical)
        self._trouble[physical] = _Trouble(why, before.since if before else now, now)
        log.warning("a file stays where it is", extra={"file": physical, "why": why})

    # -- moving ------------------------------------------------------------------------------

    def _move(
        self, disk: Disk, source: Tree, target: Tree, batch: Sequence[CataloguedFile]
    ) -> list[CataloguedFile]:
        """Move files; those that were moved."""
        number = self._next_number()
        done = self._commit(disk, target, self._copy(source, target, number, batch))
        for each in done:
            self._trouble.pop(each.physical, None)
            self._moved_at[each.physical] = self._monotonic()
        clear_copies(target, number)
        crash.point("move.settled")
        moved, size = self._done.get(disk.uuid, (0, 0))
        self._done[disk.uuid] = moved + len(done), size + sum(each.size for each in done)
        return done

    def _next_number(self) -> int:
        self._number = max(self._number + 1, time.time_ns())
        return self._number

    def _copy(
        self, source: Tree, target: Tree, number: int, batch: Sequence[CataloguedFile]
    ) -> list[FileCopy]:
        """Copy files, and name the copies; those that were."""
        try:
            copies, unfit = copy_batch(
                source, target, number, batch, pace=self._pace, without=self._goes_without
            )
        except (NoSpaceError, StoppedError):
            clear_copies(target, number)
            raise
        for physical, why in unfit.items():
            self._note_trouble(physical, why)
        in_the_way = name_copies(target, number, copies)
        for physical, why in in_the_way.items():
            self._note_trouble(physical, why)
            take_copy_back(self._engine, self._disks.standing(), target, physical)
        return [each for each in copies if each.file.physical not in in_the_way]

    def _commit(self, disk: Disk, target: Tree, copies: Sequence[FileCopy]) -> list[CataloguedFile]:
        """Say that files lie elsewhere now; what became something else meanwhile is taken back."""
        if not copies:
            return []
        self._disks.check(target)
        ops = [_record(disk, target, each) for each in copies]
        try:
            self._engine.commit(ops)
        except RefusedCommitError as error:
            if len(copies) > 1:
                return [each for copy in copies for each in self._commit(disk, target, [copy])]
            take_copy_back(self._engine, self._disks.standing(), target, copies[0].file.physical)
            log.info("a file is not moved", extra={"why": error.message})
            return []
        crash.point("move.committed")
        return [each.file for each in copies]

    def _target(self, size: int) -> Tree | None:
        tree = self._disks.roomiest()
        return tree if free_bytes(tree.path) - size >= 2 * self._keep_free else None

    def _goes_without(self, known: CataloguedFile) -> bool:
        """Whether a file goes without its resource, which decides nothing; not at once."""
        trouble = self._trouble.get(known.physical)
        return trouble is not None and self._monotonic() - trouble.since >= _PATIENCE

    def _pace(self, size: int) -> None:
        pause = 0.0 if self._rate is None else size / self._rate
        stopping = self._thread.stopping
        if stopping.wait(pause) if pause else stopping.is_set():
            raise StoppedError("told to stop")

    # -- taking away -------------------------------------------------------------------------

    def _let_go(self, tree: Tree, known: CataloguedFile, home: Tree) -> int:
        """Take a copy away that was moved to another directory, if that has it; 1 if it went."""
        physical = known.physical
        if not home.has_bytes(physical, known.size, known.md5, pace=self._pace):
            self._note_trouble(physical, f"its copy in {home.path} is damaged, and made again")
            number = self._next_number()
            self._copy(tree, home, number, [known])
            clear_copies(home, number)
            return 0
        carry_resource(tree, home, known)
        with self.letting_go(physical) as may, NAMING:
            now = known_file(self._engine, physical)
            if not may or (now is not None and now.data_dir != known.data_dir):
                return 0
            self._disks.check(home)
            there = home.stat(physical)
            if there is None or there.st_size != known.size:
                return 0
            tree.unlink(physical)
            crash.point("move.half_gone")
            tree.unlink(FilePath.parse(physical).resource.text)
        crash.point("move.gone")
        self._moved_at.pop(physical, None)
        self._trouble.pop(physical, None)
        return 1


def _record(disk: Disk, target: Tree, copy: FileCopy) -> records.FileMoved:
    known = copy.file
    return records.FileMoved(
        known.physical, disk.uuid, str(target.path), known.size, known.md5, copy.resource
    )


def _room(known: CataloguedFile) -> int:
    return disk_room(known.size) + (0 if known.resource is None else disk_room(known.resource.size))


def _batches(files: Sequence[CataloguedFile]) -> Iterator[list[CataloguedFile]]:
    batch: list[CataloguedFile] = []
    size = 0
    for each in files:
        if batch and (len(batch) == _AT_ONCE or size + each.size > _AT_ONCE_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += each.size
    if batch:
        yield batch
