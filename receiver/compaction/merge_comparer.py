"""Has a merge compared with what it stands for, in another process than merged, and commits that.

What an executor elsewhere has sent is compared with its inputs by nobody here when it comes, and
what was merged here by the very process that merged it. So before a merged file takes the place of
its inputs somebody else looks: `tsferry-verify`, or this. It reads the files as they lie on the
disks by now, each compared with its MD5; what agrees is committed with the bytes that it is said of
(`records.CompactionVerified`), what does not is dissolved.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from common import crash
from common.errors import TsferryError
from receiver.background.side_process import ProcessDied, SideProcess
from receiver.compaction.worth_merging.merge_asked import (
    ComparisonAsked,
    ComparisonReply,
    MergeAsked,
)
from receiver.datadirs.disks import home_of, place_of
from receiver.load.merge_verdicts import (
    BadMerge,
    ProvedMerge,
    dissolve_bad,
    record_merges,
)
from receiver.superseding.asking import FileAsked
from receiver.superseding.due import file_asked, notes_asked, notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from common.durable import Tree
    from receiver.datadirs.disks import Disks
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.deletion_rows import DeletionsRow
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import (
        CompactedOutput,
        CompactedRow,
    )

__all__ = ["ComparesMerges", "MergeComparer"]

log = logging.getLogger(__name__)

_AGAIN: Final = 86_400.0
"""Seconds until one is tried again that could not be compared."""


class ComparesMerges(Protocol):
    """What compares: a process, or a test's own."""

    def ask(
        self,
        asked: ComparisonAsked,
        stopped: Callable[[], bool],
        paused: Callable[[], bool] = ...,
    ) -> ComparisonReply:
        """Have a merge compared; see `SideProcess.ask`."""
        ...

    def close(self) -> int | None:
        """End it."""
        ...


class _Inputs(NamedTuple):
    """What a compaction stands for, as of a commit."""

    rows: Sequence[FileRow]
    notes: Sequence[DeletionsRow]
    note_devices: Mapping[str, Sequence[str]]
    at: int


class MergeComparer:
    """Compares one at a time; see the module."""

    def __init__(
        self,
        engine: Engine,
        disks: Disks,
        *,
        memory: int,
        here: bool = True,
        rate: int = 0,
        stopped: Callable[[], bool] = lambda: False,
        paused: Callable[[], bool] = lambda: False,
        process: ComparesMerges | None = None,
    ) -> None:
        """Prepare.

        Args:
            engine: the metadata engine.
            disks: the data directories.
            memory: bytes that the process may take.
            here: whether this machine compares; false leaves it to `tsferry-verify`.
            rate: bytes a second that are read at most; 0 for no limit.
            stopped: whether to stop.
            paused: whether others go first.
            process: that compares; one of its own if left out.
        """
        self._engine = engine
        self._disks = disks
        self._memory = memory
        self._here = here
        self._rate = rate
        self._stopped = stopped
        self._paused = paused
        self._process: ComparesMerges = process or SideProcess(
            "receiver.compaction.making.comparing_worker", ComparisonReply, memory=memory
        )
        self._tried: dict[int, tuple[float, str]] = {}

    def why_unverified(self, row: CompactedRow) -> str | None:
        """Compare a merge that holds, and commit that it is right; why that cannot be said, if not.

        Args:
            row: of the compaction, as it is now.

        Returns:
            None if it is right; empty if it holds no more, was moved, or if it was stopped.
        """
        if not self._here:
            return "tsferry-verify has not compared it with its files yet (merge.here is false)"
        now = self._engine.clock.cautious()
        at, why = self._tried.get(row.id, (0.0, ""))
        if why and now < at + _AGAIN:
            return why
        try:
            reply = self._compared(row)
        except (TsferryError, OSError, ProcessDied) as error:
            reply = None if self._stopped() else ComparisonReply(unknown=str(error))
        finally:
            self._process.close()
        if reply is None:
            return ""
        crash.point("merge.compared")
        if reply.apart:
            log.warning("a merged file is bad", extra={"compaction": row.id, "why": reply.apart})
            dissolve_bad(self._engine, [BadMerge(row.id, f"compared anew: {reply.apart}")])
            return ""
        if reply.unknown:
            why = f"it could not be compared with its files: {reply.unknown}"
            others = {
                ident: tried for ident, tried in self._tried.items() if now < tried[0] + _AGAIN
            }
            self._tried = {**others, row.id: (now, why)}
            return why
        made = ProvedMerge.of(row)
        if not record_merges(self._engine, [made], by="receiver"):
            return ""
        crash.point("merge.verified")
        self._tried.pop(row.id, None)
        return None

    def _compared(self, row: CompactedRow) -> ComparisonReply | None:
        """What came of it; None where it holds no more, or files were moved meanwhile."""
        with self._engine.reading() as state:
            if state.compacted_table.rows.get(row.id) is not row:
                return None
            inputs = [state.files[each] for each in row.inputs]
            notes, devices = notes_of(state, {each.sender for each in inputs}, row.sg)
            found = _Inputs(inputs, notes, devices, state.newest)
        with self._disks.pinned(inputs):
            asked = self._asked(row, found, self._disks.standing())
            reply = self._process.ask(asked, self._stopped, self._paused)
            is_right = reply == ComparisonReply()
            if not is_right and self._asked(row, found, self._disks.standing()) != asked:
                return None  # a directory is drained: where it was looked for nothing is any more
            return reply

    def _asked(self, row: CompactedRow, inputs: _Inputs, trees: Sequence[Tree]) -> ComparisonAsked:
        merge = MergeAsked(
            files=tuple(file_asked(each, place_of(trees, each)) for each in inputs.rows),
            notes=tuple(notes_asked(inputs.notes, inputs.note_devices, inputs.at)),
            database=row.sg,
            directory="",
            name="",
            target_bytes=0,
            memory=self._memory // 4,
            bytes_per_second=self._rate,
        )
        outputs = tuple(_output_asked(each, trees) for each in row.outputs)
        return ComparisonAsked(merge, outputs)


def _output_asked(output: CompactedOutput, trees: Sequence[Tree]) -> FileAsked:
    home = home_of(trees, output)
    near = [home] if home is not None else []
    tree = next((each for each in (*near, *trees) if each.exists(output.physical)), None)
    return FileAsked(
        physical=output.physical,
        path=None if tree is None else str(tree.path / output.physical),
        sender="",
        size=output.size,
        md5=output.md5,
        series=output.series,
        points=output.points,
        start=output.first,
        end=output.last,
        name=None,
        first=0,
        closed=0,
        last=0,
        loaded=0,
    )
