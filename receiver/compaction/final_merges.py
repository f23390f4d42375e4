"""Has merged files take the place of what they were made of for good, so that those give back room.

Looked for are compactions of which all inputs are gone at the edge, or were loaded at the centre,
and that for `after`; their sender has been here since; nobody forwards from this receiver, for whom
they would be missing; and the engine finds nothing that could still come between
(`becoming_final`). Unless it is configured otherwise, somebody has to have compared them with what
they stand for, in another process than merged: the verification, or who is asked here
(`merge_comparer`). Then the outputs are read again from the disk, and one commit makes files of
them. From then on the inputs are superseded: their bytes go as those of all superseded files do.

An output that is not what was made dissolves its compaction: the inputs are still there.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from common import crash
from common.digests import md5, read_blocks
from common.errors import ConflictError, StoppedError
from common.tsfile.tail_digest import tail_digest
from receiver.compaction.merge_pace import MergePace
from receiver.metadata.commit.replaced.becoming_final import owners_of, why_not_final
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import is_centre
from receiver.metadata.model.errors import RefusedCommitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.durable import Tree
    from receiver.datadirs.disks import Disks
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import (
        CompactedOutput,
        CompactedRow,
    )
    from receiver.metadata.state.tables.file_tables.retired import PartitionKey

__all__ = ["FinalMerges"]

log = logging.getLogger(__name__)

_SENDERS: Final = "sync-sender"
"""Of a data directory: what a sender keeps that forwards from this receiver."""
_LOOK_AGAIN: Final = 3600.0
"""Seconds until a compaction is looked at again that was not ripe, at the most."""


class FinalMerges:
    """Finds compactions that can become final, and makes them so; see the module."""

    def __init__(
        self,
        engine: Engine,
        disks: Disks,
        *,
        after: float | None,
        awaits_proof: Callable[[PartitionKey, FileRow], bool],
        why_unverified: Callable[[CompactedRow], str | None] | None = None,
        is_time: Callable[[], bool] = lambda: True,
        stopped: Callable[[], bool] = lambda: False,
        stand_back: Callable[[], object] = lambda: None,
        pace: MergePace | None = None,
        is_awaited: Callable[[], bool] = lambda: False,
    ) -> None:
        """Prepare.

        Args:
            engine: the metadata engine.
            disks: the data directories.
            after: seconds since the last input ended; None for never.
            awaits_proof: whether a retired file may soon be superseded by others.
            why_unverified: has one compared that nobody has compared yet, and says why it is not
                found to be right; empty for no more to be said. None if no verdict is waited for.
            is_time: whether anything is done at this hour.
            stopped: whether to stop between two.
            stand_back: waits while others go first; called before each block that is read.
            pace: of reading; without one it is as fast as it can be.
            is_awaited: whether others are to have their turn; asked behind each that was read.
        """
        self._engine = engine
        self._disks = disks
        self._after = after
        self._awaits_proof = awaits_proof
        self._why_unverified = why_unverified
        self._is_time = is_time
        self._stopped = stopped
        self._stand_back = stand_back
        self._pace = pace or MergePace(0)
        self._is_awaited = is_awaited
        self._not_before: dict[int, float] = {}
        self.kept_back: dict[int, str] = {}
        """Why compactions are not final that are old enough, by their ids."""

    def run_once(self) -> int:
        """Make final what is ripe; returns how many compactions that were.

        It takes as long as merging did; where others wait, the rest is left for the next time.
        """
        if self._after is None or not self._is_time():
            return 0
        now = self._engine.clock.cautious()
        with self._engine.reading() as state:
            holding = {row.id: row for row in state.compacted_table.holding()}
        for known in (self._not_before, self.kept_back):
            for ident in known.keys() - holding.keys():
                del known[ident]
        made = 0
        for ident, row in holding.items():
            if self._stopped():
                break
            if now < self._not_before.get(ident, 0.0):
                continue
            self._not_before[ident] = now + min(_LOOK_AGAIN, self._after / 4)
            why = self._why_not(row, now)
            was_read = why is None
            if why is None and self._why_unverified is not None and not row.verified:
                why = self._why_unverified(row)
            if why is None:
                why = self._make_final(row)
                made += why is None
            if why:
                self.kept_back[ident] = why
            else:
                self.kept_back.pop(ident, None)
            if was_read and self._is_awaited():
                break
        return made

    def _why_not(self, row: CompactedRow, now: float) -> str | None:
        """Why a compaction does not become final now; empty if it is only too early."""
        assert self._after is not None
        with self._engine.reading() as state:
            if state.compacted_table.rows.get(row.id) is not row:
                return ""
            inputs = [state.files[each] for each in row.inputs]
            of_centre = is_centre(row.sender)
            if not (of_centre or all(each.retired for each in inputs)):
                return ""
            last = max(each.changed for each in inputs)
            if state.clock.times.seconds(last) + self._after > now:
                return ""
            if any(_was_away(state, each, last) for each in _awaited(state, row, inputs)):
                return "its sender has not been here since"
            why = why_not_final(state, row)
        if why is not None:
            return why
        if any(each.retired and self._awaits_proof(row.key, each) for each in inputs):
            return "files of it may yet be given by others"
        if self._disks.away():
            return "a data directory is away"
        if any(list(tree.listing(_SENDERS)) for tree in self._disks.trees):
            return "this receiver is forwarded from: what is above it takes the files themselves"
        return None

    def _make_final(self, row: CompactedRow) -> str | None:
        """Read the outputs again, and commit; why not, if not."""
        found: list[records.FinalOutput] = []
        for output in row.outputs:
            try:
                tail = self._read_again(output)
            except StoppedError:
                return ""
            except OSError as error:  # of this one alone: others are looked at behind it
                log.warning("a merged file cannot be read", extra={"why": str(error)})
                return f"{output.physical} cannot be read: {error.strerror or error}"
            if tail is None:
                self._dissolve(row, f"{output.physical} is not what was made")
                return ""
            found.append(records.FinalOutput(output.physical, tail))
        crash.point("merge.reread")
        try:
            self._engine.commit([records.CompactionFinal(row.id, found)])
        except (ConflictError, RefusedCommitError) as error:
            return error.message
        crash.point("merge.final")
        log.info(
            "merged files take the place of their inputs for good",
            extra={
                "partition": "/".join(row.key),
                "files": row.count,
                "outputs": len(found),
            },
        )
        return None

    def _read_again(self, output: CompactedOutput) -> str | None:
        """The digest of an output's tail, if all of its bytes are what was made.

        These very bytes were decoded and compared with the inputs.

        Raises:
            OSError: it cannot be read; that says nothing of it.
            StoppedError: it is to stop, and the file is read half.
        """
        tree = _home_of(self._disks.trees, output.physical)
        if tree is None:
            return None
        fd = tree.open_read(output.physical)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # from the disk, not from memory
            if os.fstat(fd).st_size != output.size or self._md5_of(fd) != output.md5:
                return None
            return tail_digest(fd)
        finally:
            os.close(fd)

    def _md5_of(self, fd: int) -> str:
        digest = md5()
        for block in read_blocks(fd):
            self._stand_back()
            self._pace.take(len(block))
            if self._stopped():
                raise StoppedError("told to stop while a merged file is read again")
            digest.update(block)
        return digest.hexdigest()

    def _dissolve(self, row: CompactedRow, why: str) -> None:
        log.warning("a merged file is bad", extra={"compaction": row.id, "why": why})
        try:
            self._engine.commit([records.CompactionDissolved(row.id, why)])
        except (ConflictError, RefusedCommitError) as error:
            log.info("a compaction has ended meanwhile", extra={"error": str(error)})


def _awaited(state: State, row: CompactedRow, inputs: Sequence[FileRow]) -> set[str]:
    """Senders that may still bring what they first looked at while the files came.

    With what one load at the centre brought nobody looked at anything between: all of it has one
    look.
    """
    if not is_centre(row.sender):
        return {row.sender}
    if len({each.rank.first for each in inputs}) == 1:
        return set()
    return owners_of(state, inputs) - {row.sender}


def _was_away(state: State, sender: str, since: int) -> bool:
    known = state.senders.get(sender)
    return known is None or known.last_commit <= since


def _home_of(trees: Sequence[Tree], physical: str) -> Tree | None:
    return next((tree for tree in trees if tree.exists(physical)), None)
