"""What leaves the disk, and when: bytes of deleted files, stale uploads, forgotten leftovers.

A deleted file's bytes go when `keep_deleted` has passed since the commit that deleted it, by the
engine's clock, which believes no wrong one and knows the moments of its commits; and when no
question about the past can see the file any more (the engine's history window). First the file
goes, then its row: a crash in between means one more unlink of nothing. What has no row at all is
never removed here; `fsck` shows it.

A superseded file goes in the same way, counted from the proof that took it out of sight; where
space is short it does not wait for the history to end, for its points are all given by others. If
an operator gives it up, or its TTL has passed, it stays from that on as any deleted file: it may be
called back, and the time before the proof be asked about. One that is in the object store, or at
storage nodes, stays until the merged files are there which it is in for good: with the edge's own
file gone, what is on one disk alone proves less.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from common import crash
from common.errors import TsferryError
from common.names import FilePath
from common.threads import PeriodicThread
from receiver.load.deciding.told_deletions.hidden_files import older_names
from receiver.load.folder.manifests import kept_tasks, remove_tables
from receiver.load.folder.obstacles import is_of_one_path
from receiver.load.placing import tree_of
from receiver.load.upkeep.undeleting import bring_back_unproved
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.state.placed_files import parts_elsewhere, placed_nodes
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.datadirs.disks import Disks
    from receiver.load.folder.sender_folder import Folders, SenderFolder
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["Reaper"]

log = logging.getLogger(__name__)

_PERIOD = 60.0
_BATCH = 1000
_PRESSED_BATCH = 200
"""Superseded files that go before it is seen whether that is enough."""


class Reaper:
    """Removes what nobody needs any more, in a thread of its own.

    Attributes:
        chores: called with the time at each pass, for what others have to let go.
        looks: called so too, and while ages of files are not known as well.
        nodes_with: how many storage nodes are known to have a file now.
        nodes_perhaps: how many have one, or may have it.
        is_awaited: whether a deleted file may come again, and is to be known then: that is noted
            when it is forgotten.
    """

    def __init__(
        self,
        engine: Engine,
        disks: Disks,
        folders: Folders,
        *,
        keep_deleted: float,
        leftover_age: float,
        is_pressed: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._disks = disks
        self._folders = folders
        self._keep_deleted = keep_deleted
        self._leftover_age = leftover_age
        self._is_pressed = is_pressed
        self._every = min(_PERIOD, max(1.0, keep_deleted / 4))
        self._thread = PeriodicThread(
            "reaper",
            self._pass,
            log,
            "removing files has to wait",
            first=self._every,
            retry=self._every,
        )
        self._unproved_due = True
        """Whether files may be there that an earlier version deleted without a proof."""
        self._tables_due = True
        """Whether tables may be there that no row needs: after a crash, and when rows went."""
        self.chores: list[Callable[[float], object]] = []
        self.looks: list[Callable[[float], object]] = []
        self.nodes_with: Callable[[State, FileRow], int] = lambda state, row: 0
        self.nodes_perhaps: Callable[[State, FileRow], int] = lambda state, row: 0
        self.is_awaited: Callable[[State, FileRow], bool] = lambda state, row: False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the pass that is being made."""
        self._thread.close()

    def run_once(self) -> int:
        """Make one pass; returns how many deleted files have left the disk."""
        self._engine.collect()  # what was learnt of the clock is committed behind it
        now = self._engine.clock.cautious()
        self._let_superseded_go(now)
        gone = self._reap(now)
        if self._ages_are_known(now):
            for chore in self.chores:
                chore(now)
            with self._engine.reading() as state:
                kept = {row.kept for row in state.quarantine.values()}
            for folder in self._folders.all():
                with folder.beside("data"):
                    self._clear_leftovers(folder, now - self._leftover_age, kept)
            for folder in self._folders.left():
                self._clear_quarantine(folder, now - self._leftover_age, kept)
        if self._tables_due:
            self._clear_tables()
            self._tables_due = False
        for look in self.looks:
            look(now)
        return gone

    def _ages_are_known(self, now: float) -> bool:
        """Whether leftovers are as old as their times say: not those of before a correction."""
        with self._engine.reading() as state:
            corrected = state.clock.row.changed
            since = state.clock.times.seconds(corrected)
        return not corrected or now - since >= self._leftover_age

    def _pass(self) -> float:
        self.run_once()
        return self._every

    def _reap(self, now: float) -> int:
        if self._disks.away():  # rows would go, and their bytes come back with the disk
            return 0
        if self._unproved_due:
            self._unproved_due = bool(bring_back_unproved(self._engine, self._disks).waiting)
            if self._unproved_due:
                return 0
        oldest = self._engine.oldest_answerable
        with self._engine.reading() as state:
            seconds = state.clock.times.seconds
            due = [
                row
                for row in state.file_table.deleted()
                if (row.superseded and row.reason == "superseded")  # by `_let_superseded_go`
                or (
                    seconds(row.deleted) + self._keep_deleted <= now
                    and row.deleted <= oldest  # visible at T: not deleted, or deleted after T
                )
            ]
            stored = {row.physical for row in due if parts_elsewhere(state, row).file}
            told = {row.physical: state.deletion_table.of_file(row.physical) for row in due}
        # The records of a deleted file go on hiding points of others: where only its devices tell
        # what they name, its row stays.
        explaining = {
            row.physical
            for row in due
            if any(older_names(each, row) for each in told[row.physical])
        }
        count = 0
        for low in range(0, len(due), _BATCH):
            with self._disks.leaving:
                batch = self._still_deleted(due[low : low + _BATCH])
                gone = [row for row in batch if self._unlink(FilePath.parse(row.physical))]
                crash.point("reaper.unlinked")
                gone = [row for row in gone if row.physical not in explaining]
                if not gone:
                    continue
                notes = self._noted(gone)
                forgotten = (records.FileForgotten(row.physical) for row in gone)
                self._engine.commit([*notes, *forgotten])
            for physical in stored.intersection(row.physical for row in gone):
                self._unlink(FilePath.parse(physical))  # it may have been fetched in between
            count += len(gone)
            self._tables_due = True
            crash.point("reaper.forgotten")
        return count

    def _still_deleted(self, rows: list[FileRow]) -> list[FileRow]:
        """Those that nobody has brought back since they were due."""
        with self._engine.reading() as state:
            now = [(row, state.files.get(row.physical)) for row in rows]
        return [
            found
            for row, found in now
            if found is not None
            and found.state is FileState.DELETED
            and found.deleted == row.deleted
        ]

    def _noted(self, rows: list[FileRow]) -> list[records.Op]:
        """What stays known of files that are forgotten; of content that came since, nothing."""
        with self._engine.reading() as state:
            return [
                records.LetGoNoted(
                    row.sender, path, row.md5, row.deleted, row.tail if row.points else ""
                )
                for row in rows
                if self.is_awaited(state, row)
                for path in row.paths
            ]

    def _let_superseded_go(self, now: float) -> None:
        """Delete superseded files that nobody reads any more; `_reap` then takes them at once.

        Where space is short, those go too that questions about the past would still see: the
        longest superseded first, and no more than it takes.
        """
        while not self._disks.away():
            pressed = self._is_pressed()
            batch = self._superseded_due(now, pressed=pressed)
            for low in range(0, len(batch), _BATCH):
                part = batch[low : low + _BATCH]
                guards = [Guard("file", row.physical, row.changed) for row in part]
                ops = [records.FileDeleted(row.physical, "superseded") for row in part]
                try:
                    self._engine.commit(ops, guards)
                except GuardFailed:
                    return  # some have come back: the next pass looks again
                crash.point("reaper.superseded")
            if not pressed or not batch:
                return
            self._reap(now)

    def _superseded_due(self, now: float, *, pressed: bool) -> list[FileRow]:
        oldest = self._engine.oldest_answerable
        due: list[FileRow] = []
        with self._engine.reading() as state:
            seconds = state.clock.times.seconds
            for physical in state.file_table.gone.superseded():
                row = state.files[physical]
                read = seconds(row.superseded) + self._keep_deleted > now
                is_past = row.superseded <= oldest
                if read or not (is_past or pressed):
                    break  # in the order of their proofs
                if not is_past and self._is_remote(state, row):
                    continue  # it takes no room here
                if _waits_for_copy(state, row) or self._waits_for_nodes(state, row):
                    continue
                due.append(row)
                if pressed and len(due) == _PRESSED_BATCH:
                    break
        return due

    def _is_remote(self, state: State, row: FileRow) -> bool:
        stored = parts_elsewhere(state, row).file
        return stored and tree_of(self._disks.trees, row) is None

    def _waits_for_nodes(self, state: State, row: FileRow) -> bool:
        """Whether more nodes may have a superseded file than have a merged one with its points."""
        merged = [found for each in row.rests if (found := _merged(state, each)) is not None]
        if not merged:
            return False
        wanted = self.nodes_perhaps(state, row)
        released = state.released_table.rows.get(row.physical)
        if released is not None:  # who has proved it has it, heard from or not
            placed = placed_nodes(state, row.physical)
            wanted = max(1, min(len(released.nodes), len(placed)))
        return any(
            self.nodes_with(state, each) < wanted
            for each in merged
            if not parts_elsewhere(state, each).file
        )

    def _unlink(self, physical: FilePath) -> bool:
        """Whether a file is gone; one that cannot be reached keeps its row for the next pass."""
        try:
            for tree in self._disks.trees:
                tree.unlink(physical.resource.text, sync=False)
                tree.unlink(physical.text)
        except (OSError, TsferryError) as error:
            if not is_of_one_path(error):
                raise
            log.warning("a deleted file stays", extra={"path": physical.text, "error": str(error)})
            return False
        return True

    def _clear_tables(self) -> None:
        """Remove what senders said of the series of tasks of which no file is left."""
        folders = [*self._folders.all(), *self._folders.left()]
        kept = [(folder, task) for folder in folders for task in kept_tasks(folder)]
        if not kept:
            return
        used = self._used_tasks()
        for folder, task in kept:
            if (folder.uuid, task) in used:
                continue
            with folder.lock:  # a load holds it from before it writes tables until it is committed
                under_way = folder.task is not None and folder.task.id == task
                if not under_way and (folder.uuid, task) not in self._used_tasks():
                    remove_tables(folder, task)
                    crash.point("reaper.tables")

    def _used_tasks(self) -> set[tuple[str, str]]:
        with self._engine.reading() as state:
            return {(row.sender, row.task) for row in state.files.values()}

    def _clear_leftovers(self, folder: SenderFolder, oldest: float, kept: set[str | None]) -> None:
        """Drop verified files that no task has asked for in a long time, and lost quarantine."""
        with folder.lock:
            if folder.task is None:
                stale = [each for each in folder.staged.all() if each.at < oldest]
                folder.staged.discard(each.path for each in stale if each.single is None)
        self._clear_quarantine(folder, oldest, kept)

    def _clear_quarantine(self, folder: SenderFolder, oldest: float, kept: set[str | None]) -> None:
        with folder.beside("quarantine"):
            for name, found in folder.tree.listing(folder.quarantine):
                rel = f"{folder.quarantine}/{name}"
                if rel not in kept and found.st_mtime < oldest:
                    folder.tree.unlink(rel)


def _waits_for_copy(state: State, row: FileRow) -> bool:
    """Whether the store has a superseded file, and lacks a merged one that it is in for good."""
    if not state.uploaded_table.parts(row).file:
        return False
    above = (_merged(state, each) for each in row.rests)
    return any(each is not None and not state.uploaded_table.parts(each).file for each in above)


def _merged(state: State, physical: str) -> FileRow | None:
    """A merged file that took the place of others for good; None of any other file."""
    return state.files.get(physical) if is_merged(physical) else None
