"""The log of the engine in etcd: every commit, whole, under a number.

Beneath the prefix stand

    owner, epoch           who may write, see `receiver.metadata.etcd.ownership`
    engine                 uuid of the engine
    head                   LSN of the next commit, and which frame was the last
    log/, parts/           the frames, see `receiver.metadata.etcd.stored_frames`
    checkpoint, pieces/    see `receiver.metadata.etcd.stored_checkpoints`
    notes/                 see `RemoteNotes`; who wrote them says in them of which engine they are

A frame is one transaction: its key and the head, on the conditions that this process is the owner
and the head is as it left it. The parts of a large one are staged before; nobody looks at them
until the frame names them. What a process that died left staged is removed by the next owner.

After an append without an answer nobody knows whether it came true, and it may come true later. So
the head is set again, to what it was, on the same conditions: if that succeeds the append never
can; if not, the head says whether it was first.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from common import crash
from common.decoders import from_json
from common.errors import (
    ConflictError,
    DamagedError,
    ForbiddenError,
    NoSpaceError,
    TsferryError,
    UnauthorizedError,
    UnreachableError,
)
from receiver.metadata.etcd.gateway import EtcdClient
from receiver.metadata.etcd.messages import (
    Compare,
    Delete,
    Get,
    KeyValue,
    Operation,
    Put,
    TransactionResult,
    prefix_end,
)
from receiver.metadata.etcd.ownership import Ownership
from receiver.metadata.etcd.patience import DEFAULT_PATIENCE, Patience, insist
from receiver.metadata.etcd.stored_checkpoints import Checkpoints, EtcdCheckpoint
from receiver.metadata.etcd.stored_frames import Frame, Frames
from receiver.metadata.model.errors import NewerLogError, UnknownOutcomeError
from receiver.metadata.model.remote_log import RemoteLog

if TYPE_CHECKING:
    from common.errors import TsferryError
    from receiver.metadata.etcd.gateway import EtcdSettings

__all__ = ["EtcdLog", "open_remote"]

_VERSION = 2
"""Version 1 knew no operation above 27: see the versions of the local log."""
_MARGIN = 2.0
"""Seconds that a lease may outlive its time."""
_log = logging.getLogger(__name__)


class _Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the log ends.

    Attributes:
        next: LSN of the next commit.
        id: of the last frame.
        barred: id of a frame that was given up: it can never be.
        version: of all that stands beneath the prefix.
    """

    next: int = 1
    id: str = ""
    barred: str = ""
    version: int = 1


class _Sent(NamedTuple):
    """A frame whose append was not answered."""

    head: _Head
    why: UnknownOutcomeError


def open_remote(settings: EtcdSettings) -> EtcdLog:
    """The log that a configuration names (`[metadata.etcd]`); `acquire` is the first to be called.

    Raises:
        ConfigError: a file of it cannot be read.
    """
    return EtcdLog(
        EtcdClient(settings),
        settings.prefix,
        lease=settings.lease,
        patience=Patience(settings.timeout),
        url=settings.url,
    )


class EtcdLog(RemoteLog):
    """See `RemoteLog` and the module."""

    def __init__(
        self,
        client: EtcdClient,
        prefix: str,
        *,
        lease: float = 15.0,
        patience: Patience = DEFAULT_PATIENCE,
        url: str | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            client: of the cluster; closed with this object.
            prefix: of all keys, such as /tsferry.
            lease: seconds without a sign of life, until another process may take over.
            patience: for requests that were not answered.
            url: where this receiver is found, for whoever meets the one before it.
        """
        self._client = client
        self._prefix = prefix.rstrip("/").encode() + b"/"
        self._head_key = self._prefix + b"head"
        self._engine_key = self._prefix + b"engine"
        self._notes = self._prefix + b"notes/"
        self._frames = Frames(client, self._prefix)
        self._patience = patience
        self._lease = lease
        self._ownership = Ownership(client, self._prefix, lease, patience, url=url)
        self._checkpoints = Checkpoints(client, self._prefix, self._change)
        self._uuid: str | None = None
        self._head = _Head()
        self._head_changed = 0
        self._after = 0
        """LSN behind which the first frame goes; the head says so from that frame on."""
        self._sent: _Sent | None = None

    # -- taking over -------------------------------------------------------------------------

    def acquire(self, *, wait: float | None = None) -> None:
        """See `RemoteLog.acquire`.

        Raises:
            LockedError: as there.
            NewerLogError: a newer version of tsferry has written there.
        """
        self._ownership.acquire(self._lease + _MARGIN if wait is None else wait)
        try:
            self._look()
            self._raise_version()
        except BaseException:
            self._ownership.close()  # what cannot be read is not held on to
            raise
        try:
            self._sweep()
        except TsferryError as error:  # it is rubbish, and in nobody's way
            _log.warning("what was left staged in etcd is still there: %s", error)

    def stand_by(self) -> None:
        """Wait until nobody writes there; see `Ownership.wait_until_free`."""
        self._ownership.wait_until_free()

    def look_on(self) -> str | None:
        """See how far the log is, for somebody who does not write; nothing is taken or changed.

        Returns:
            Who writes there; None for nobody.

        Raises:
            UnreachableError: etcd does not answer.
            NewerLogError: as `acquire`.
        """
        self._look()
        return self._ownership.holder()

    def _look(self) -> None:
        """Where the log stands."""
        got = [Get(self._head_key), Get(self._engine_key)]
        head, engine = self._client.transaction([], got).found
        self._take_head(head.keys)
        self._uuid = engine.keys[0].value.decode(errors="replace") if engine.keys else None

    def _raise_version(self) -> None:
        """Have older programs refuse it from now on, as they do with a local log."""
        if not self._head_changed or self._head.version == _VERSION:
            return
        head = msgspec.structs.replace(self._head, version=_VERSION)
        self._change([Put(self._head_key, msgspec.json.encode(head))])
        self._look()

    @property
    def fenced(self) -> bool:
        """Whether another process has taken over."""
        return self._ownership.fenced

    @property
    def trouble(self) -> str | None:
        """See `RemoteLog.trouble`."""
        return self._ownership.trouble

    def displaced(self) -> TsferryError | None:
        """See `RemoteLog.displaced`."""
        return self._ownership.displaced()

    @property
    def uuid(self) -> str | None:
        """See `RemoteLog.uuid`."""
        return self._uuid

    def begin(self, uuid: str, after: int = 0) -> None:
        """See `RemoteLog.begin`."""
        if self.newest():
            raise ConflictError(
                f"{self._prefix.decode()} in etcd has {self.newest()} commits of engine "
                f"{self._uuid}; expected an empty prefix"
            )
        # One of another engine, which began here and did not live to append, stands for nothing.
        stale = [] if after else [self._checkpoints.removal()]
        self._change([Put(self._engine_key, uuid.encode()), *stale])
        self._uuid, self._after = uuid, after

    def _take_head(self, found: Sequence[KeyValue]) -> None:
        if not found:
            self._head, self._head_changed = _Head(), 0
            return
        try:
            self._head = from_json(found[0].value, _Head)
        except msgspec.MsgspecError as error:
            what = self._head_key.decode()
            raise DamagedError(
                f"{what} in etcd is no head of a log: {error}", extra={"key": what}
            ) from error
        self._head_changed = found[0].changed
        if self._head.version > _VERSION:
            raise NewerLogError(
                f"{self._prefix.decode()} in etcd has version {self._head.version}, written by a "
                f"newer tsferry; this one reads versions up to {_VERSION}"
            )

    # -- reading -----------------------------------------------------------------------------

    def newest(self) -> int:
        """See `RemoteLog.newest`."""
        return max(self._head.next - 1, self._after)

    def oldest(self) -> int:
        """See `RemoteLog.oldest`."""
        return self._frames.oldest() or self.newest() + 1

    def frames(self, first_lsn: int) -> Iterator[tuple[int, bytes]]:
        """See `RemoteLog.frames`."""
        return self._frames.read(first_lsn, self.newest())

    # -- appending ---------------------------------------------------------------------------

    def append(self, first_lsn: int, commits: int, payload: bytes) -> None:
        """See `RemoteLog.append`."""
        if self.fenced:
            raise self._ownership.error()
        if self._sent is not None:
            raise UnknownOutcomeError(f"what became of the last frame? {self._sent.why.message}")
        if first_lsn != self.newest() + 1:
            raise ConflictError(
                f"a frame from LSN {first_lsn}; the log in etcd goes on with {self.newest() + 1}"
            )
        head = _Head(first_lsn + commits, secrets.token_hex(8), version=_VERSION)
        frame = Frame.of(commits, head.id, payload)
        with _refusals_pass():
            for part in self._frames.staged(first_lsn, frame, payload):
                self._change([part])
                crash.point("etcd.append.part")
            crash.point("etcd.append.before")
            self._decide(head, self._frames.put(first_lsn, frame))
        crash.point("etcd.append.after")

    def _decide(self, head: _Head, put: Put) -> None:
        """The one transaction that makes a frame true."""
        then = [Put(self._head_key, msgspec.json.encode(head)), put]
        got = Get(self._head_key)
        while True:
            conditions = [self._ownership.condition(), self._head_unchanged()]
            try:
                result = self._client.transaction(conditions, then, [got])
            except UnknownOutcomeError as error:
                self._sent = _Sent(head, error)
                self._find_out()
                return
            except NoSpaceError:
                # The one that goes over the quota is told so, and is done nevertheless.
                self._take_head(self._client.get(got).keys)
                if self._head.id != head.id:
                    raise
                return
            if result.succeeded:
                self._head, self._head_changed = head, result.revision
                return
            self._regain(result)

    def _head_unchanged(self) -> Compare:
        return Compare(self._head_key, changed=self._head_changed)

    def _regain(self, refused: TransactionResult) -> None:
        """A condition did not hold: was it the lease alone?

        Raises:
            FencedError: no, the log has gone on without us.
        """
        self._ownership.regain()
        found = refused.found[0].keys
        if (found[0].changed if found else 0) != self._head_changed:
            self._ownership.fenced = True
            raise self._ownership.error()

    def _find_out(self) -> None:
        """What became of the frame that was sent; it is kept if this returns."""
        sent = self._sent
        assert sent is not None
        try:
            kept = self._ask(sent.head)
        except UnreachableError as error:
            raise UnknownOutcomeError(
                f"commits up to {sent.head.next - 1} were sent to etcd, which has not answered "
                f"since; they may be kept or not: {sent.why.message}",
                extra={"lsn": sent.head.next - 1},
            ) from error
        self._sent = None
        if not kept:
            raise UnreachableError(f"nothing was written: {sent.why.message}") from sent.why

    def settle(self) -> bool | None:
        """See `RemoteLog.settle`."""
        if self._sent is None:
            return None
        kept = self._ask(self._sent.head)
        self._sent = None
        return kept

    def _ask(self, sent: _Head) -> bool:
        """Whether a frame is kept; from now on it never will be, if it is not.

        Raises:
            UnreachableError: it cannot be told yet.
            FencedError: another process has taken over, and gone on from here.
        """
        barrier = msgspec.structs.replace(self._head, barred=sent.id)
        put = Put(self._head_key, msgspec.json.encode(barrier))
        conditions = [self._ownership.condition(), self._head_unchanged()]
        got = Get(self._head_key)
        with _refusals_pass():
            result = insist(self._client, self._patience, conditions, [put, got], [got])
        before = self._head_changed
        self._take_head(result.found[0].keys)
        if self._head.id == sent.id:
            return True
        if self._head.barred == sent.id or self._head_changed == before:
            # Barred; or the owner key is gone, and with it every write that had it for a condition.
            return False
        self._ownership.fenced = True
        raise self._ownership.error()

    # -- checkpoints, cleaning ---------------------------------------------------------------

    def put_checkpoint(self, lsn: int, files: Mapping[str, Path]) -> None:
        """See `RemoteLog.put_checkpoint`."""
        self._checkpoints.put(lsn, files)

    def checkpoint(self) -> EtcdCheckpoint | None:
        """See `RemoteLog.checkpoint`."""
        return self._checkpoints.newest()

    def trim(self, lsn: int) -> None:
        """See `RemoteLog.trim`."""
        checkpoint = self.checkpoint()
        if checkpoint is None or checkpoint.lsn < lsn:
            have = "there is no checkpoint" if checkpoint is None else f"it is at {checkpoint.lsn}"
            raise ConflictError(f"the log can go up to {lsn} behind a checkpoint of it; {have}")
        last = self._frames.last_at(lsn)
        if last is None:
            return
        begin, frame = last
        end = begin + frame.commits
        keep = end if end <= lsn + 1 else begin
        crash.point("etcd.trim.before")
        # Frames first: parts without a frame are rubbish, a frame without parts is damage.
        self._change([Delete(self._frames.log, self._frames.key(keep))])
        crash.point("etcd.trim.frames")
        self._change([Delete(self._frames.parts, self._frames.first_part(keep))])

    # -- notes -------------------------------------------------------------------------------

    def note(self, name: str) -> bytes | None:
        """See `RemoteNotes.note`."""
        found = self._client.get(Get(self._notes + name.encode())).keys
        return found[0].value if found else None

    def put_note(self, name: str, content: bytes) -> None:
        """See `RemoteNotes.put_note`."""
        self._change([Put(self._notes + name.encode(), content)])

    def _sweep(self) -> None:
        """Remove what an owner before this one has staged and did not live to use."""
        below = self._frames.parts
        every = Get(below, prefix_end(below), keys_only=True)
        staged = {each.key.rsplit(b"/", 1)[0] + b"/" for each in self._client.get(every).keys}
        for parts in sorted(staged):
            lsn, _, ident = parts[len(below) : -1].partition(b"-")
            found = self._client.get(Get(self._frames.log + lsn)).keys
            if not found or self._frames.decode(found[0]).id.encode() != ident:
                self._change([Delete(parts, prefix_end(parts))])
        self._checkpoints.sweep()

    def _change(self, operations: Sequence[Operation]) -> None:
        """Operations that may be done twice, if this process is the owner."""
        while True:
            conditions = [self._ownership.condition()]
            if insist(self._client, self._patience, conditions, operations).succeeded:
                return
            self._ownership.regain()

    def close(self) -> None:
        """See `RemoteLog.close`."""
        self._ownership.close()
        self._client.close()


@contextmanager
def _refusals_pass() -> Iterator[None]:
    """A password or a role that etcd took at the start was changed there, and may come back.

    Nothing is written by what is refused.
    """
    try:
        yield
    except (UnauthorizedError, ForbiddenError) as error:
        raise UnreachableError(f"etcd refuses: {error.message}") from error
