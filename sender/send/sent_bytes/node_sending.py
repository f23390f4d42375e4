"""A large file by a storage node: its bytes go there, and the receiver reads them from there.

The file counts when the receiver says that it has it, with the MD5 of what was sent; what a node
says counts for nothing but where to go on. Whatever goes wrong with a node, the file is planned
anew: for another node, or for the receiver, which goes on from as far as it has read already.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from common import wire
from common.errors import DigestError, ForbiddenError, StoppedError, TsferryError, UnreachableError
from common.wire import Action, PullState
from sender.send.calls import UploadState
from sender.send.connection.backoff import retrying
from sender.send.sent_bytes.content import OpenFile, Prepared
from sender.send.sent_bytes.node_lines import NodeLines
from sender.send.sent_bytes.upload import ReceivedFile, RunningMd5, TusUpload
from sender.send.task_calls import TaskCalls

__all__ = ["NodeOffer", "NodeSending"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_AHEAD = 4 << 20
"""Bytes that are at the node, until the receiver is told to read them ahead: what it has not read
at the end is what a file takes longer by this way."""
_PARTS = 8
_LEAST_PART = 1 << 20
"""A block is an eighth of a file, or this: several files are on their way at a time, and their
first blocks come to an end at the same time on a busy disk. Until then the receiver has nothing to
read, and behind the last ones the node's disk has nothing to do."""
_AHEAD_S = 0.5
"""Seconds between two such calls, at least."""
_NODES = 4
"""Plans of one file, at most, until it goes to the receiver whatever these say."""
_RETRIES = 2
_WAIT_S = 20.0
_PATIENCE_S = 120.0
"""Without a byte that the receiver has read, until the file is planned anew."""
_PAUSE_S = 0.5


class NodeOffer(msgspec.Struct, frozen=True):
    """A node that a file may be sent to, and until when its ticket opens an upload there."""

    node: wire.UploadNode
    until: float


class _NodeFailedError(Exception):
    """A node was of no use for a file."""

    def __init__(self, error: TsferryError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass
class NodeSending:
    """Sends files of one task by nodes.

    Attributes:
        calls: of the task, to the receiver.
        lines: to the nodes.
        plan: asks anew what to do with a file, and until when a ticket in the answer is good.
        monotonic: seconds.
    """

    calls: TaskCalls
    lines: NodeLines
    plan: Callable[[Prepared], tuple[wire.PlanDecision, NodeOffer | None]]
    monotonic: Callable[[], float] = time.monotonic

    def send(
        self,
        prepared: Prepared,
        content: OpenFile,
        offer: NodeOffer,
        begin: UploadState | None,
        upload: Callable[[TaskCalls, UploadState], TusUpload],
    ) -> ReceivedFile | UploadState | None:
        """Send one file.

        Args:
            prepared: the file.
            content: its bytes.
            offer: where they may go.
            begin: a partial upload at the receiver, which it has begun.
            upload: makes an upload that goes on from somewhere, by the calls that it is given.

        Returns:
            what was received; or what the receiver has of the file already, to which the rest is to
            go, None for nothing.

        Raises:
            ChangedWhileSentError: the file changed.
            StoppedError: told to stop.
            TsferryError: the receiver is out of reach, or refuses.
        """
        was_refused = False
        wanted: NodeOffer | None = offer
        for _ in range(_NODES):
            if wanted is None:
                return begin
            if self.monotonic() < wanted.until:
                try:
                    return self._by(wanted.node, prepared, content, begin, upload)
                except _NodeFailedError as failure:
                    is_refused = isinstance(failure.error, ForbiddenError)
                    # A ticket that has grown old is no fault of the node.
                    if was_refused or not is_refused:
                        self.lines.failed(wanted.node, failure.error)
                    was_refused = was_refused or is_refused
            decision, wanted = self.plan(prepared)
            if decision.action in (Action.HAVE, Action.ALREADY):
                return self._had(prepared, content, decision)
            begin = None
            if decision.action is Action.RESUME and decision.upload is not None:
                begin = UploadState(decision.upload, decision.offset)
        return begin

    def _had(
        self, prepared: Prepared, content: OpenFile, decision: wire.PlanDecision
    ) -> ReceivedFile | None:
        """The receiver has it by now, if it is this one."""
        md5 = prepared.entry.md5 or RunningMd5(content).hexdigest()
        return ReceivedFile(md5, 0, None) if decision.md5 == md5 else None

    def _by(
        self,
        node: wire.UploadNode,
        prepared: Prepared,
        content: OpenFile,
        begin: UploadState | None,
        upload: Callable[[TaskCalls, UploadState], TusUpload],
    ) -> ReceivedFile | UploadState | None:
        path = prepared.entry.path
        try:
            tries = self.calls.tries
            tries = msgspec.structs.replace(tries, retries=min(tries.retries, _RETRIES))
            nudging = _Nudging(self.calls, path, node.uuid, self.monotonic)
            calls = replace(
                self.calls,
                client=self.lines.client(node),
                epoch=None,  # is the receiver's
                tries=tries,
                sent=nudging,
            )
            made = self._patiently(
                lambda: calls.create_upload(path, prepared.entry.size), tries.retries
            )
            if begin is not None and made.offset < begin.offset:
                return begin
            if prepared.entry.size - made.offset >= _AHEAD:
                nudging.tell()
            sending = upload(calls, made)
            part = max(prepared.entry.size // _PARTS, _LEAST_PART)
            sending.block_bytes = min(sending.block_bytes, part)
            received = sending.run()
        except StoppedError:
            raise
        except TsferryError as error:
            raise _NodeFailedError(error) from error
        return self._pulled(node, path, received)

    def _pulled(self, node: wire.UploadNode, path: str, received: ReceivedFile) -> ReceivedFile:
        """Wait until the receiver has read the file, and has found it to be what was sent."""
        request = wire.PullRequest(path=path, node=node.uuid, md5=received.md5)
        calls, seen, since = self.calls, -1, self.monotonic()
        while True:
            asked = self.monotonic()
            answer = self._patiently(
                lambda: calls.client.pull(calls.task, calls.epoch, request, _WAIT_S),
                calls.tries.retries,
            )
            if answer.state is PullState.HERE:
                if answer.md5 != received.md5:
                    raise _NodeFailedError(DigestError(f"{path}: other bytes came from the node"))
                return received
            if answer.state is PullState.FAILED:
                raise _NodeFailedError(UnreachableError(answer.reason or "nothing came from it"))
            now = self.monotonic()
            if answer.offset > seen:
                seen, since = answer.offset, now
            elif now - since > _PATIENCE_S:
                raise _NodeFailedError(UnreachableError(f"{path}: the receiver gets nothing of it"))
            if now - asked < _PAUSE_S and calls.tries.sleep(_PAUSE_S):
                raise StoppedError("told to stop")

    def _patiently(self, call: Callable[[], T], retries: int) -> T:
        tries = self.calls.tries
        if self.calls.stop():
            raise StoppedError("told to stop")
        return retrying(
            call,
            retries=retries,
            backoff=tries.backoff,
            sleep=tries.sleep,
            tell=lambda error, pause: tries.tell("", error, pause),
        )


@dataclass
class _Nudging:
    """Counts what a node has taken, and has the receiver read it ahead now and then."""

    calls: TaskCalls
    path: str
    node: str
    monotonic: Callable[[], float]
    _waiting: int = field(default=0, init=False)
    _told: float = field(default=0.0, init=False)

    def __call__(self, size: int) -> None:
        self.calls.sent(size)
        self._waiting += size
        now = self.monotonic()
        if self._waiting < _AHEAD or now - self._told < _AHEAD_S:
            return
        self._waiting, self._told = 0, now
        self.tell()

    def tell(self) -> None:
        """Have the receiver read what comes from now on, for some seconds."""
        request = wire.PullRequest(path=self.path, node=self.node)
        try:
            self.calls.client.pull(self.calls.task, self.calls.epoch, request)
        except TsferryError as error:  # it reads all of it later
            _log.debug("%s is not read ahead: %s", self.path, error.message)
