"""One merge, from what was chosen to the commit: all of it or nothing.

    room -> staged -> merged and compared by the process -> placed -> one commit

Whatever cuts it off, the inputs are as they were, and what was made and is not committed goes, at
once or at the next start. The commit holds only if this attempt is still the one that counts, every
input is unchanged, and nothing came that would stand between them (the engine looks at that).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from common import crash
from common.errors import ConflictError, NoSpaceError, TsferryError
from receiver.compaction.merge_due import asked_of
from receiver.load.merged_files import clear_staged, output_path, place, stage, take_back
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Callable

    from common.durable import Tree
    from receiver.compaction.choosing import MergeChoice
    from receiver.compaction.merge_asked import MergeAnswer
    from receiver.compaction.merge_due import MergeRules, PartitionFiles
    from receiver.compaction.merge_process import MergesFiles
    from receiver.disks import Disks
    from receiver.metadata.state.table_rows import WorkRow
    from receiver.work_queue import WorkQueue

__all__ = ["LeaseLost", "MergeRun"]

log = logging.getLogger(__name__)

_SLACK: Final = 64 << 20
"""Bytes that outputs may be larger than their inputs: indexes, and what compresses worse."""


class LeaseLost(Exception):
    """The work is somebody else's by now, or was cancelled."""


@dataclass(frozen=True, slots=True)
class MergeRun:
    """Carries out merges.

    Attributes:
        disks: the data directories; outputs go to the first.
        work: the queue that the work is from.
        process: gives what merges.
        rules: say where files are.
        memory: bytes for decoded points.
        room: bytes that may be written now.
        stopped: whether to stop.
        paused: whether others go first.
    """

    disks: Disks
    work: WorkQueue
    process: Callable[[], MergesFiles]
    rules: MergeRules
    memory: int
    room: Callable[[], int]
    stopped: Callable[[], bool]
    paused: Callable[[], bool]

    def carry_out(self, row: WorkRow, there: PartitionFiles, choice: MergeChoice) -> int:
        """Merge what was chosen; the work has ended then, in the commit that this returns.

        Args:
            row: the work, as taken.
            there: what it was chosen from.
            choice: what to merge.

        Raises:
            NoSpaceError: the disk has no room for it.
            MergeRefused: the files are not to be merged as they are.
            ProcessDied: the process that merges ended; or it is to stop.
            LeaseLost: the work is no more ours.
            ConflictError, GuardFailed: something has come between.
            AwayError: a data directory is away.
        """
        tree = self.disks.roomiest()
        need, room = choice.size + _SLACK, self.room()
        if room < need:
            raise NoSpaceError(
                f"merging {len(choice.rows)} files of {'/'.join(there.key)} may take {need} bytes, "
                f"and {room} may be written"
            )
        ident = row.changed  # of the commit in which this attempt began: nobody else's
        directory = stage(tree, there.key, ident)
        try:
            return self._merge(row, there, choice, tree, directory)
        except Exception:
            try:
                take_back(tree, ident)
            except (OSError, TsferryError) as error:  # the next start takes it back
                log.warning("what a merge left stays", extra={"error": str(error)})
            raise

    def _merge(
        self,
        row: WorkRow,
        there: PartitionFiles,
        choice: MergeChoice,
        tree: Tree,
        directory: str,
    ) -> int:
        ident = row.changed
        asked = asked_of(
            there,
            choice,
            self.rules,
            directory=str(tree.path / directory),
            name=f"merged-{ident}",
            memory=self.memory,
        )
        lost: list[ConflictError] = []

        def is_over() -> bool:
            if self.stopped():
                return True
            try:
                self.work.renew(row)
            except ConflictError as error:
                lost.append(error)
            return bool(lost)

        with self.disks.pinned(choice.rows):
            try:
                answer = self.process().ask(asked, is_over, self.paused)
            except Exception as error:
                if lost:
                    raise LeaseLost(str(lost[0])) from error
                raise
        made = self._outputs(there, ident, answer, str(tree.path))
        staged = [f"{directory}/{each.path.rpartition('/')[2]}" for each in answer.outputs]
        names = [output_path(there.key, ident, at) for at, _ in enumerate(made, 1)]
        place(tree, ident, list(zip(staged, names, strict=True)))
        inputs = [each.physical for each in choice.rows]
        op = records.FilesCompacted(ident, there.at, inputs, made)
        guards = [Guard("file", each.physical, each.changed) for each in choice.rows]
        commit = self.work.end(row, "done", ops=[op], guards=guards)
        crash.point("merge.committed")
        clear_staged(tree, ident)
        log.info(
            "files are merged",
            extra={
                "partition": "/".join(there.key),
                "files": len(inputs),
                "outputs": len(made),
                "seconds": round(answer.seconds, 1),
            },
        )
        return commit

    def _outputs(
        self, there: PartitionFiles, ident: int, answer: MergeAnswer, data_dir: str
    ) -> list[records.CompactionOutput]:
        return [
            records.CompactionOutput(
                physical=output_path(there.key, ident, number).text,
                size=each.size,
                md5=each.md5,
                version=each.version,
                devices=each.devices,
                first=each.first,
                last=each.last,
                series=each.series,
                points=each.points,
                data_dir=data_dir,
            )
            for number, each in enumerate(answer.outputs, 1)
        ]
