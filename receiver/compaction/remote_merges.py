"""Merges by executors elsewhere: what they are asked, what they send, and what is made of it.

An executor is asked as the process beside the server is, without paths. It sends its outputs block
by block to where the process would have written them; they are checked there (`output_checks`) and
committed as those are, by this attempt alone. What an attempt has sent that is over goes, whoever
ended it.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from common import crash
from common.errors import (
    BusyError,
    DigestError,
    NoSpaceError,
    OffsetError,
    ProtocolError,
    TooLargeError,
    TsferryError,
)
from common.wire import check_block
from receiver.background.side_process import ProcessDied
from receiver.compaction.merge_process import MergeRefused, MergeReply
from receiver.compaction.output_checks import OutputRefusedError, TimesOfInputs, checked_output
from receiver.compaction.worth_merging.merge_asked import MergeQuestion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from receiver.background.work_queue import WorkQueue
    from receiver.compaction.compactor import Compactor
    from receiver.compaction.merge_run import StagedMerge
    from receiver.compaction.worth_merging.merge_asked import MergeOutput
    from receiver.metadata.state.work_rows import WorkRow

__all__ = ["RemoteMerge", "RemoteMerges"]

log = logging.getLogger(__name__)

_MOST_OUTPUTS: Final = 10_000
_AT_ONCE: Final = 2
"""Outputs that are read again at a time: senders need the disk, too."""
_PATIENCE: Final = 20.0
"""Seconds of checking, after which whoever waits for an answer is told to ask again."""


class RemoteMerges:
    """Begins attempts."""

    def __init__(
        self,
        compactor: Compactor,
        work: WorkQueue,
        *,
        block: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            compactor: chooses what is merged, and hears what came of it.
            work: the queue.
            block: bytes that come at once, at most.
            monotonic: seconds.
        """
        self.compactor = compactor
        self.work = work
        self.block = block
        self.monotonic = monotonic
        self.checking = threading.BoundedSemaphore(_AT_ONCE)

    def begin(self, row: WorkRow) -> RemoteMerge:
        """An attempt at some work."""
        return RemoteMerge(self, row)

    def is_open(self) -> bool:
        """Whether anything is to be begun now: merging keeps its hours, and loads go first."""
        return self.compactor.may_be_taken() and not self.compactor.is_held()


class RemoteMerge:
    """One attempt, which is asked one question; calls come one at a time."""

    def __init__(self, merges: RemoteMerges, row: WorkRow) -> None:
        self._merges = merges
        self._row = row
        self._merge: StagedMerge | None = None
        self._sizes: dict[int, int] = {}
        self._checked: dict[int, MergeOutput] = {}

    def question(self) -> bytes | None:
        """A `MergeQuestion`, packed; None: nothing is to be merged, or it cannot be now."""
        if self._merge is None:
            compactor = self._merges.compactor
            found = compactor.first_of(self._row)
            if found is None:
                self._merges.work.end(self._row, "done", reason="nothing is to be merged")
                return None
            try:
                self._merge = compactor.run.begin(self._row, *found)
            except (TsferryError, OSError) as error:
                compactor.ended(self._row, *found, error)
                return None
        asked = self._merges.compactor.run.asked(self._merge)
        files = tuple(msgspec.structs.replace(each, path=None) for each in asked.files)
        asked = msgspec.structs.replace(asked, files=files, directory="")
        return msgspec.msgpack.encode(MergeQuestion(asked, self._merges.block))

    def put(self, number: int, offset: int, content: memoryview, xxh3: str) -> None:
        """Take a block of an output; the same once more changes nothing.

        Args:
            number: of the output, from 1.
            offset: of the block in it.
            content: its bytes.
            xxh3: of them, as they were sent.

        Raises:
            BusyError: files are loaded, which goes first.
            DigestError: the bytes are not what was sent.
            NoSpaceError: the disk has no room for them.
            OffsetError: bytes before these are missing.
            ProtocolError: nothing was asked, or there is no such output.
            TooLargeError: no merge of these files is as large.
        """
        merge, run = self._begun(), self._merges.compactor.run
        if not 0 < number <= _MOST_OUTPUTS or not content:
            raise ProtocolError(f"no block of output {number}")
        rel = merge.staged(number)
        check_block(content, xxh3, rel)
        if self._merges.compactor.is_held():
            raise BusyError("files are loaded first", retry_after=1.0)
        end, size = offset + len(content), self._sizes.get(number, 0)
        if offset > size:
            raise OffsetError(f"{size} bytes of {rel} are here, and byte {offset} came")
        others = sum(self._sizes.values()) - size
        if others + max(size, end) > merge.most_bytes:
            raise TooLargeError(
                f"{rel}: byte {end} of it, and {others} bytes of other outputs: merged, these "
                f"files take {merge.most_bytes} at most"
            )
        room = run.room()
        if room < len(content):
            raise NoSpaceError(f"{len(content)} bytes are to come, and {room} may be written")
        self._checked.pop(number, None)
        try:
            file = merge.tree.open_write(rel) if offset else merge.tree.create(rel)
        except FileExistsError:  # its first block came, or the disk was full in the middle of it
            file = merge.tree.open_write(rel)
        with file:
            file.write(content, at=offset)
            file.begin_sync()
        self._sizes[number] = max(size, end)
        crash.point("merge.block_came")

    def answer(self, content: bytes) -> None:
        """Check the outputs that came, and commit them; the work has ended then.

        Raises:
            BusyError: not all is checked yet; the same answer once more goes on.
            ConflictError, GuardFailed: the work is not this attempt's any more, or something has
                come between.
            OutputRefusedError: an output is not what was said, or no merge of these files.
            ProtocolError: it is no answer.
        """
        try:
            reply = msgspec.msgpack.decode(content, type=MergeReply)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"no answer of a merge: {error}") from error
        merge = self._begun()
        if reply.answer is None:
            self._over(ProcessDied(reply.why) if reply.died else MergeRefused(reply.why))
            return
        try:
            outputs = tuple(self._made(merge, reply.answer.outputs))
            answer = msgspec.structs.replace(
                reply.answer,
                outputs=outputs,
                points=sum(row.points for row in merge.choice.rows),
                read_bytes=merge.choice.size,
            )
            self._merges.compactor.run.commit(merge, answer)
        except BusyError:
            raise
        except (OutputRefusedError, DigestError) as error:
            said = f"{self._row.executor}: {error.message}"
            self._over(OutputRefusedError(said))
            raise
        except Exception as error:
            self._over(error)
            raise
        self._merge = None
        self._merges.compactor.ended(self._row, merge.there, merge.choice)

    def end(self, end: Literal["failed", "pending"], reason: str) -> None:
        """The executor gives it back, or has failed.

        Raises:
            ConflictError: it is not this attempt's any more.
        """
        merge = self._merge
        if merge is None or end != "failed":
            self.drop()
            self._merges.work.end(self._row, end, reason=reason)
            return
        self._over(TsferryError(f"{self._row.executor}: {reason}"))

    def drop(self) -> None:
        """Leave nothing of it that is not committed."""
        merge, self._merge = self._merge, None
        if merge is not None:
            self._merges.compactor.run.give_up(merge)

    def _begun(self) -> StagedMerge:
        if self._merge is None:
            raise ProtocolError("nothing was asked")
        return self._merge

    def _over(self, error: Exception) -> None:
        """End it with an error, of which the compactor hears: it knows what is to be done next."""
        merge = self._begun()
        self.drop()
        self._merges.compactor.ended(self._row, merge.there, merge.choice, error)

    def _made(self, merge: StagedMerge, said: Sequence[MergeOutput]) -> list[MergeOutput]:
        """What the outputs are, read again."""
        until = self._merges.monotonic() + _PATIENCE
        times = TimesOfInputs(merge.choice.rows)
        for number, each in enumerate(said, 1):
            if number not in self._checked:
                left = until - self._merges.monotonic()
                if left <= 0 or not self._merges.checking.acquire(timeout=left):
                    raise BusyError(
                        f"{number - 1} of {len(said)} outputs are checked", retry_after=1.0
                    )
                try:
                    self._checked[number] = checked_output(
                        merge.tree, merge.staged(number), each, merge.there.key.sg
                    )
                finally:
                    self._merges.checking.release()
            times.take(merge.staged(number), self._checked[number].devices)
            if (each.size, each.md5) != (self._checked[number].size, self._checked[number].md5):
                raise OutputRefusedError(f"{merge.staged(number)}: it is another than was said")
        if len(self._sizes) > len(said):
            raise OutputRefusedError(f"{len(self._sizes)} outputs came, and {len(said)} were made")
        return [self._checked[number] for number, _ in enumerate(said, 1)]
