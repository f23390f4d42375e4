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
from common.console.terminal import size_text
from common.errors import ConflictError, NoSpaceError, TsferryError
from receiver.compaction.worth_merging.merge_due import asked_of
from receiver.load.merged_files import clear_staged, output_path, place, stage, take_back
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.durable import Tree
    from receiver.background.work_queue import WorkQueue
    from receiver.compaction.merge_process import MergesFiles
    from receiver.compaction.worth_merging.choosing import MergeChoice
    from receiver.compaction.worth_merging.merge_asked import MergeAnswer, MergeAsked, MergeOutput
    from receiver.compaction.worth_merging.merge_due import MergeRules, PartitionFiles
    from receiver.datadirs.disks import Disks
    from receiver.metadata.state.work_rows import WorkRow

__all__ = ["LeaseLost", "MergeRun", "StagedMerge"]

log = logging.getLogger(__name__)

_SLACK: Final = 64 << 20
"""Bytes that outputs may be larger than their inputs: indexes, and what compresses worse."""


class LeaseLost(Exception):
    """The work is somebody else's by now, or was cancelled."""


@dataclass(frozen=True, slots=True)
class StagedMerge:
    """A merge that has begun.

    Attributes:
        row: the work, as taken.
        there: what the files were chosen from.
        choice: what is merged.
        tree: the data directory that the outputs go to.
        directory: of that, where they are made.
    """

    row: WorkRow
    there: PartitionFiles
    choice: MergeChoice
    tree: Tree
    directory: str

    @property
    def ident(self) -> int:
        """Of the compaction: the commit in which this attempt began, which is nobody else's."""
        return self.row.changed

    @property
    def most_bytes(self) -> int:
        """That the outputs may take."""
        return self.choice.size + _SLACK

    def staged(self, number: int) -> str:
        """Where an output is made; they are numbered from 1."""
        return f"{self.directory}/{self.name}-{number}.tsfile"

    @property
    def name(self) -> str:
        """That the outputs begin with."""
        return f"merged-{self.ident}"


@dataclass(frozen=True, slots=True)
class MergeRun:
    """Carries out merges.

    Attributes:
        disks: the data directories; outputs go to the roomiest.
        work: the queue that the work is from.
        process: gives what merges.
        rules: say where files are.
        memory: bytes for decoded points.
        room: bytes that may be written now.
        stopped: whether to stop.
        paused: whether others go first.
        rate: bytes a second that a merge reads and writes at most; 0 for no limit.
    """

    disks: Disks
    work: WorkQueue
    process: Callable[[], MergesFiles]
    rules: MergeRules
    memory: int
    room: Callable[[], int]
    stopped: Callable[[], bool]
    paused: Callable[[], bool]
    rate: int = 0

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
        merge = self.begin(row, there, choice)
        try:
            return self.commit(merge, self._merged(merge))
        except Exception:
            self.give_up(merge)
            raise

    def begin(self, row: WorkRow, there: PartitionFiles, choice: MergeChoice) -> StagedMerge:
        """See that there is room, and make a place for the outputs; see `carry_out`.

        Raises:
            NoSpaceError: the disk has no room for it.
            AwayError: the data directory is away.
        """
        tree = self.disks.roomiest()
        need, room = choice.size + _SLACK, self.room()
        if room < need:
            raise NoSpaceError(
                f"merging {len(choice.rows)} files of {'/'.join(there.key)} may take {need} bytes, "
                f"and {room} may be written"
            )
        return StagedMerge(row, there, choice, tree, stage(tree, there.key, row.changed))

    def asked(self, merge: StagedMerge) -> MergeAsked:
        """What is to be merged, as who merges is asked."""
        return asked_of(
            merge.there,
            merge.choice,
            self.rules,
            directory=str(merge.tree.path / merge.directory),
            name=merge.name,
            memory=self.memory,
            rate=self.rate,
        )

    def commit(self, merge: StagedMerge, answer: MergeAnswer) -> int:
        """Give the outputs their names, and have readers read them: one commit, which is returned.

        Args:
            merge: of which all outputs are staged, flushed and compared.
            answer: what was made.

        Raises:
            ConflictError, GuardFailed: something has come between, or the work is no more ours.
            Transient: an output cannot be put in its place.
        """
        tree, ident, there = merge.tree, merge.ident, merge.there
        made = self._outputs(there, ident, answer.outputs, str(tree.path))
        staged = [merge.staged(number) for number, _ in enumerate(made, 1)]
        names = [output_path(there.key, ident, at) for at, _ in enumerate(made, 1)]
        place(tree, ident, list(zip(staged, names, strict=True)))
        rows = merge.choice.rows
        inputs = [each.physical for each in rows]
        op = records.FilesCompacted(ident, there.at, inputs, made)
        guards = [Guard("file", each.physical, each.changed) for each in rows]
        told = _told(answer, inputs)
        commit = self.work.end(merge.row, "done", reason=told, ops=[op], guards=guards)
        crash.point("merge.committed")
        try:
            clear_staged(tree, ident)
        except (OSError, TsferryError) as error:  # committed it is; the next start clears it
            log.warning("what a merge left stays", extra={"error": str(error)})
        log.info(
            "files are merged",
            extra={
                "partition": "/".join(there.key),
                "files": len(inputs),
                "outputs": len(made),
                "executor": merge.row.executor,
                "bytes": answer.read_bytes,
                "output_bytes": sum(each.size for each in made),
                "points": answer.points,
                "output_points": sum(each.points for each in made),
                "seconds": round(answer.seconds, 1),
            },
        )
        return commit

    def give_up(self, merge: StagedMerge) -> None:
        """Leave nothing of a merge that is not committed; what may be is left to the next start."""
        try:
            if self.work.came_true(merge.row):  # its answer was lost: readers have the outputs
                clear_staged(merge.tree, merge.ident)
            else:
                take_back(merge.tree, merge.ident)
        except (OSError, TsferryError) as error:  # the next start takes it back
            log.warning("what a merge left stays", extra={"error": str(error)})

    def _merged(self, merge: StagedMerge) -> MergeAnswer:
        """Have the process beside the server merge."""
        lost: list[ConflictError] = []

        def is_over() -> bool:
            if self.stopped():
                return True
            try:
                self.work.renew(merge.row)
            except ConflictError as error:
                lost.append(error)
            return bool(lost)

        with self.disks.pinned(merge.choice.rows):
            try:
                return self.process().ask(self.asked(merge), is_over, self.paused)
            except Exception as error:
                if lost:
                    raise LeaseLost(str(lost[0])) from error
                raise

    def _outputs(
        self, there: PartitionFiles, ident: int, outputs: Sequence[MergeOutput], data_dir: str
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
            for number, each in enumerate(outputs, 1)
        ]


def _told(answer: MergeAnswer, inputs: Sequence[str]) -> str:
    """What a merge did."""
    size = sum(each.size for each in answer.outputs)
    points = sum(each.points for each in answer.outputs)
    return (
        f"{len(inputs)} files, {size_text(answer.read_bytes)}, {answer.points} points, into "
        f"{len(answer.outputs)}, {size_text(size)}, {points} points; {answer.seconds:.1f} s"
    )
