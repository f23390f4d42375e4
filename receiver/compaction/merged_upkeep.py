"""Outputs of compactions that nobody reads any more, or that are not as they were made.

A dissolved compaction's outputs go when no question about the past can see them, and `keep_deleted`
after; first the bytes, then the row, so that a crash in between means one more unlink of nothing.
Where space is short they do not wait: what they hold is in the inputs, which readers then read; and
compactions that hold are dissolved for it, the oldest first. They are the first to make room.

A merged file that took the place of others for good is a file like others. Where one is nowhere at
a start (its machine was lost before it was in the store), and all that it is made of is still
somewhere, that is read again: readers would miss what is there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from common import crash
from common.errors import ConflictError
from receiver.load.deciding.told_deletions.operators_deletions import deleted_with
from receiver.load.merged_files import remove, sweep
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.state.placed_files import parts_elsewhere
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from receiver.datadirs.disks import Disks
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow
    from receiver.metadata.state.tables.file_tables.retired import PartitionKey

__all__ = ["MergedUpkeep"]

log = logging.getLogger(__name__)

_BATCH = 1000


class MergedUpkeep:
    """Keeps the table of compactions and the disks in step; see the module."""

    def __init__(
        self,
        engine: Engine,
        disks: Disks,
        *,
        keep_deleted: float,
        is_pressed: Callable[[], bool],
        is_full: Callable[[], bool] = lambda: False,
        made_room: Callable[[PartitionKey], object] = lambda _: None,
    ) -> None:
        """Prepare.

        Args:
            engine: the metadata engine.
            disks: the data directories.
            keep_deleted: seconds.
            is_pressed: whether the disk is so full that outputs have to go.
            is_full: whether loaded files take all that they may; what went is counted later.
            made_room: is told of which partition one that holds had to go for want of space.
        """
        self._engine = engine
        self._disks = disks
        self._keep_deleted = keep_deleted
        self._is_pressed = is_pressed
        self._is_full = is_full
        self._made_room = made_room

    def recover(self) -> None:
        """Take away what lives that were cut off made, and dissolve what has lost an output.

        What lost an output that is a file by now gives way to its inputs, if these are all there.
        Only while nothing is being merged. Where a data directory is away nothing is called lost.
        """
        with self._engine.reading() as state:
            known = frozenset(state.compacted_table.rows)
            holding = list(state.compacted_table.holding())
        trees = self._disks.standing()
        swept = sweep(trees, known)
        if swept:
            log.info("what unfinished merges left is gone", extra={"merges": swept})
        if self._disks.away():
            return
        lost = [
            row
            for row in holding
            if not all(any(tree.exists(each.physical) for tree in trees) for each in row.outputs)
        ]
        for row in lost:
            self._dissolve(row, "a merged file is lost")
        self._fall_back()

    def _fall_back(self) -> None:
        """Have the inputs of final files read again, where those are nowhere and these are not."""
        with self._engine.reading() as state:
            finals = [
                (row, _unstored(state, row.became)) for row in state.compacted_table.finals.all()
            ]
        trees = self._disks.standing()
        for row, files in finals:
            lost = [each for each in files if not any(tree.exists(each) for tree in trees)]
            if not lost:
                continue
            with self._engine.reading() as state:
                known = all(each in state.files for each in row.inputs)
                inputs = _unstored(state, row.inputs)
            if known and all(any(tree.exists(each) for tree in trees) for each in inputs):
                log.warning("a merged file is lost, and no point of it", extra={"path": lost[0]})
                self._engine.commit([records.FileQuarantined(lost[0], "a merged file is lost")])

    def let_go(self, now: float) -> int:
        """Remove what nobody reads any more; returns how many compactions are forgotten.

        Args:
            now: seconds since the epoch, early rather than late.
        """
        if self._disks.away():  # rows would go, and their bytes come back with the disk
            return 0
        is_full = self._is_full()
        gone = self._forget(self._due(now, pressed=is_full or self._is_pressed()))
        while is_full or self._is_pressed():
            is_full = False  # one at a time, where it is not seen at once what that gives
            with self._engine.reading() as state:
                several = [row for row in state.compacted_table.holding() if row.outputs]
            if not several:
                break
            oldest = min(several, key=lambda row: row.created)
            self._dissolve(oldest, "its room is needed")
            self._made_room(oldest.key)
            gone += self._forget(self._due(now, pressed=True))
        return gone

    def _due(self, now: float, *, pressed: bool) -> list[CompactedRow]:
        self._forget_final()
        oldest = self._engine.oldest_answerable
        with self._engine.reading() as state:
            seconds = state.clock.times.seconds
            return [
                row
                for row in state.compacted_table.dissolved()
                if pressed
                or (row.dissolved <= oldest and seconds(row.dissolved) + self._keep_deleted <= now)
            ]

    def _forget_final(self) -> None:
        """Forget what files were made of that are forgotten themselves; their bytes went before.

        What an operator deleted with those stays known.
        """
        with self._engine.reading() as state:
            gone = [
                row
                for row in state.compacted_table.finals.all()
                if not any(each in state.files for each in row.became)
            ]
        for row in gone:
            with self._engine.reading() as state:
                notes = deleted_with(state, row)
            for begin in range(0, len(notes), _BATCH):  # one may be made of very many
                self._engine.commit(notes[begin : begin + _BATCH])
            crash.point("merge.noted")
            self._engine.commit([records.CompactionForgotten(row.id)])

    def _forget(self, rows: Iterable[CompactedRow]) -> int:
        count = 0
        for row in rows:
            if remove(self._disks.trees, [each.physical for each in row.outputs]):
                crash.point("merge.removed")
                self._engine.commit([records.CompactionForgotten(row.id)])
                crash.point("merge.forgotten")
                count += 1
        return count

    def _dissolve(self, row: CompactedRow, why: str) -> None:
        try:
            self._engine.commit([records.CompactionDissolved(row.id, why)])
        except (ConflictError, RefusedCommitError) as error:
            log.info("a compaction has ended meanwhile", extra={"error": str(error)})


def _unstored(state: State, physicals: Iterable[str]) -> list[str]:
    """Those of some files that are kept, and are neither in the object store nor at nodes."""
    rows = (row for each in physicals if (row := state.files.get(each)) is not None)
    return [
        row.physical
        for row in rows
        if (row.visible or row.state is FileState.SUPERSEDED)
        and not parts_elsewhere(state, row).file
    ]
