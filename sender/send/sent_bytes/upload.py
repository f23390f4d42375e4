"""One file on its way by tus: create, ask how far it came, send block after block, until it ends.

The receiver's word is checked, never believed: an offset beyond the file, or beyond what was ever
sent, or an answer about other bytes makes the upload start afresh. Every failure costs one of
`max_retries`; only bytes that the receiver had never acknowledged before give them back, so that a
file of any size gets through a bad line, and a receiver that lies gets to an end.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from common import crash, wire
from common.digests import md5
from common.errors import (
    BusyError,
    DigestError,
    GoneError,
    NotFoundError,
    OffsetError,
    ProtocolError,
    StoppedError,
    TsferryError,
    UnreachableError,
)
from sender.send.calls import UploadState
from sender.send.connection.backoff import retry_helps
from sender.send.connection.paced_body import Departure
from sender.send.sent_bytes.ahead import AHEAD, BlocksAhead
from sender.send.task_calls import TaskCalls

__all__ = ["ChangedWhileSentError", "Content", "ReceivedFile", "RunningMd5", "TusUpload"]

SMALLEST_BLOCK = 1 << 16
_FIRST_BLOCK = 1 << 20
"""Of a line that nobody knows yet, or that is slow: an answer waits for all before it."""


class Content(Protocol):
    """The bytes of one file, held open: what is read is what was chosen."""

    @property
    def path(self) -> str:
        """As it stands on the wire."""

    @property
    def size(self) -> int:
        """Bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Bytes at an offset; fewer only at the end."""

    def unchanged(self) -> bool:
        """Whether the file is still the one that was chosen."""


class ReceivedFile(msgspec.Struct, frozen=True):
    """A file that the receiver has whole and verified.

    Attributes:
        md5: of the bytes that were sent.
        sent: bytes that travelled, those sent twice counted twice.
        resumed: where the transfer was taken up again after an earlier break, if it was.
    """

    md5: str
    sent: int
    resumed: int | None


class RunningMd5:
    """MD5 of a file that is read out of order: what was passed over is read, nothing twice.

    Where there is a pool, one of its threads digests a block while the next is read.
    """

    def __init__(self, content: Content, pool: Executor | None = None) -> None:
        self._content = content
        self._pool = pool
        self._digest = md5()
        self._at = 0
        self._under_way: Future[None] | None = None

    def take(self, offset: int, block: bytes) -> None:
        """Take in the bytes up to the end of `block`, which begins at `offset`.

        Returns once the block before it is taken in; so two are in memory for it at most.
        """
        self._await()
        self._up_to(offset)
        if offset + len(block) > self._at:
            fresh = memoryview(block)[self._at - offset :]
            self._at = offset + len(block)
            if self._pool is None:
                self._digest.update(fresh)
            else:
                self._under_way = self._pool.submit(self._digest.update, fresh)

    def hexdigest(self) -> str:
        """Of the whole file; reads what was not taken in."""
        self._await()
        self._up_to(self._content.size)
        return self._digest.hexdigest()

    def _await(self) -> None:
        if self._under_way is not None:
            self._under_way.result()

    def _up_to(self, end: int) -> None:
        while self._at < end:
            block = self._content.read(self._at, min(1 << 20, end - self._at))
            if not block:
                raise ChangedWhileSentError(self._content.path)
            self._digest.update(block)
            self._at += len(block)


class _KnownMd5:
    """MD5 of a file that was read before."""

    def __init__(self, md5: str) -> None:
        self._md5 = md5

    def take(self, offset: int, block: bytes) -> None:
        """Nothing is left to be known."""

    def hexdigest(self) -> str:
        return self._md5


class ChangedWhileSentError(Exception):
    """The file is not any more what was chosen; it is dropped from the task, nobody's fault."""


@dataclass
class TusUpload:
    """Brings one file to the receiver.

    Attributes:
        calls: of the task it belongs to.
        content: the bytes.
        block_bytes: of one request, at most.
        begin: a partial upload to go on with, as the plan has it.
        ask: what the receiver would have done with the file now: True when it has it whole.
        pool: sends blocks ahead of the answers to those before them; None: one after the other.
        most_ahead: blocks that may be on their way at once.
        md5: of the content, where it is known; the receiver finds out if it is wrong.
    """

    calls: TaskCalls
    content: Content
    block_bytes: int
    begin: UploadState | None = None
    ask: Callable[[], bool] = lambda: False
    pool: Executor | None = None
    most_ahead: int = AHEAD
    md5: str | None = None
    _upload: str | None = field(default=None, init=False)
    _offset: int | None = field(default=None, init=False)
    _in_doubt: int = field(default=0, init=False)
    _furthest: int = field(default=0, init=False)
    _failures: int = field(default=0, init=False)
    _travelled: int = field(default=0, init=False)
    _resumed: int | None = field(default=None, init=False)
    _ask_first: bool = field(default=False, init=False)
    _is_read: bool = field(default=False, init=False)

    def run(self) -> ReceivedFile:
        """Send what is missing; returns once the receiver has verified the whole file.

        Raises:
            ChangedWhileSentError: the file changed; nothing of it is to be believed.
            StoppedError: told to stop; what was acknowledged stays at the receiver.
            TsferryError: it failed for good, or once too often.
        """
        self._digest = (
            RunningMd5(self.content, self.pool) if self.md5 is None else _KnownMd5(self.md5)
        )
        self._block_bytes = min(self.block_bytes, _FIRST_BLOCK)
        self._take_up()
        while True:
            if self.calls.stop():
                raise StoppedError("told to stop")
            try:
                if self._step():
                    return ReceivedFile(self._digest.hexdigest(), self._travelled, self._resumed)
            except TsferryError as error:
                self._after(error)

    def _take_up(self) -> None:
        begin = self.begin
        if begin is not None and 0 <= begin.offset <= self.content.size:
            self._upload, self._offset = begin.id, begin.offset
            self._in_doubt = self.content.size
            self._resumed = begin.offset or None

    def _step(self) -> bool:
        """One request; whether the file is there whole."""
        if self._ask_first:
            self._ask_first = False
            if self.ask():
                return True
        if self._upload is None:
            made = self.calls.create_upload(self.content.path, self.content.size)
            self._upload, self._offset, self._in_doubt = made.id, made.offset, 0
            self._is_read = True
            if made.offset != 0:
                raise ProtocolError(f"{self.content.path}: a new upload begins at {made.offset}")
        if self._offset is None:
            self._offset = self._asked(self._upload)
        if self._may_go_ahead(self._offset):
            return self._send_ahead(self._upload, self._offset)
        return self._send_block(self._upload, self._offset)

    def _asked(self, upload: str) -> int:
        """The receiver's offset after a break, which may be past a block whose answer was lost."""
        state = self.calls.client.head_upload(upload, self.content.size)
        if state.offset > self._in_doubt:
            raise ProtocolError(
                f"{self.content.path}: the receiver claims {state.offset} bytes, "
                f"{self._in_doubt} were sent"
            )
        self._note_progress(state.offset)
        return state.offset

    def _send_block(self, upload: str, offset: int) -> bool:
        block = self._read_block(offset)
        end = offset + len(block)
        last = self._digest.hexdigest() if end == self.content.size else None
        crash.point("upload.block.before")
        acknowledged = self.calls.patch_upload(upload, offset, block, last)
        return self._acknowledged(acknowledged, end, len(block))

    def _read_block(self, offset: int, most: int | None = None) -> bytes:
        """The block that begins at an offset, in the digest and as good as sent."""
        left = self.content.size - offset
        wanted = self._block_bytes if most is None else min(most, self._block_bytes)
        limit = min(self.calls.client.bandwidth.block(wanted), left)
        block = self.content.read(offset, limit)
        if len(block) < limit or not self.content.unchanged():
            raise ChangedWhileSentError(self.content.path)
        self._digest.take(offset, block)
        self._in_doubt = max(self._in_doubt, offset + len(block))
        self._travelled += len(block)
        return block

    def _acknowledged(self, answer: int, end: int, size: int) -> bool:
        crash.point("upload.block.acknowledged")
        if answer != end:
            raise ProtocolError(
                f"{self.content.path}: {end} bytes were sent, the receiver answers {answer}"
            )
        self._offset, self._is_read = end, True
        self.calls.sent(size)
        self._block_bytes = min(self.block_bytes, self._block_bytes * 2)
        self._note_progress(end)
        return end == self.content.size

    def _may_go_ahead(self, offset: int) -> bool:
        """Whether the receiver need not read what it has first, and there are more to come."""
        return (
            self.pool is not None
            and self._is_read
            and self._failures == 0
            and offset + self._block_bytes < self.content.size
            and self.calls.client.bandwidth.rate() is None
        )

    def _send_ahead(self, upload: str, offset: int) -> bool:
        """Send the rest with several blocks on the way; what fails is gone on with one by one."""
        assert self.pool is not None
        size, at = self.content.size, offset

        def send(begin: int, block: bytes, departure: Departure) -> int:
            last = self._digest.hexdigest() if begin + len(block) == size else None
            crash.point("upload.block.before")
            return self.calls.patch_upload(upload, begin, block, last, departure)

        ahead = BlocksAhead(self.pool, send, self.most_ahead)
        try:
            while at < size or ahead:
                if self.calls.stop():
                    raise StoppedError("told to stop")
                if at < size and not ahead.full:
                    block = self._read_block(at, _FIRST_BLOCK if ahead.slow else None)
                    ahead.put(at, block)
                    at += len(block)
                else:
                    self._acknowledged(*ahead.next())
        except (OffsetError, BusyError):
            ahead.settle()
            # One overtook the one before it, those before it are there; or the offset was wrong,
            # which the next block finds out, sent alone.
            self._is_read = self._offset != offset
            return False
        except Exception:
            ahead.settle()
            raise
        return True

    def _note_progress(self, offset: int) -> None:
        if offset > self._furthest:
            self._furthest, self._failures = offset, 0

    # -- after a failure -------------------------------------------------------------------

    def _after(self, error: TsferryError) -> None:
        """Decide where to go on; raises `error` when there is no way on."""
        if isinstance(error, StoppedError) or not self._way_on(error):
            raise error
        self._failures += 1
        if self._failures > self.calls.tries.retries:
            raise error
        # A line that breaks in every block may carry smaller ones; so may a receiver that has no
        # memory left for those of all its senders.
        if isinstance(error, UnreachableError | BusyError):
            self._block_bytes = max(min(SMALLEST_BLOCK, self.block_bytes), self._block_bytes // 2)
        self.calls.pause(self.content.path, self._failures, error)

    def _way_on(self, error: TsferryError) -> bool:
        creating = self._upload is None
        if isinstance(error, DigestError) and error.extra.get("status") == wire.CHECKSUM_MISMATCH:
            self._offset = None  # one block was damaged on the way
            return True
        if isinstance(error, DigestError | ProtocolError):
            self._give_up_upload()  # the whole is not what was sent, or answers are not about it
            if isinstance(error, DigestError):
                return self.md5 is None  # what is known stays; another try would find the same
            return not creating
        if isinstance(error, NotFoundError | GoneError):
            # After the last block it may have been taken in, and only that answer was lost.
            self._ask_first = self._in_doubt == self.content.size
            self._afresh()
            return not creating  # an upload may expire; a task that is gone is no matter of a file
        if isinstance(error, OffsetError) or retry_helps(error):
            self._offset = None
            return True
        return False

    def _give_up_upload(self) -> None:
        if self._upload is not None:
            with suppress(TsferryError):
                self.calls.client.drop_upload(self._upload)
        self._afresh()

    def _afresh(self) -> None:
        self._upload, self._offset, self._in_doubt = None, None, 0
