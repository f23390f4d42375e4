"""The key-value store in a cluster of etcd.

Beneath its prefix stand

    head               the newest commit, see `receiver.metadata.kv.timeline`
    kv/<key>           the keys themselves, so that other programs can read them
    batch/<id>/<part>  parts of a large commit

A commit is one transaction: the keys, and the head with the timestamp, on the condition that the
head is as it was when the timestamp was allocated. So of two processes that write at the same time
one gets a conflict, and no timestamp goes back.

A transaction of etcd holds 128 operations. A larger commit is staged as parts that nobody looks at;
then one transaction sets the head with a marker that names them, and from that revision on every
reader lays them over the keys. Then they are unpacked into the keys, by this process or by the next
one that writes, and last the marker and the parts go, in one transaction. At any revision a reader
sees all of the commit or nothing.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from common import crash
from common.errors import DamagedError, TooLargeError, TsferryError
from receiver.metadata.etcd.messages import (
    MAX_OPERATIONS,
    PART_SIZE,
    Compare,
    Delete,
    Get,
    Operation,
    Put,
    prefix_end,
)
from receiver.metadata.etcd.patience import DEFAULT_PATIENCE, Patience, insist
from receiver.metadata.kv.conditional_commits import Decider
from receiver.metadata.kv.packed_commit import Batch, digest_of
from receiver.metadata.kv.ring import DEFAULT_SIZE, Ring
from receiver.metadata.kv.timeline import (
    Marker,
    RevisionView,
    SeenRevision,
    Timeline,
    TimelineHead,
    nothing,
)
from receiver.metadata.model.errors import (
    KeyMissingError,
    TimestampRefusedError,
)
from receiver.metadata.model.snapshot_kv import (
    KeyAddition,
    SnapshotKV,
    check_keys,
    check_prefixes,
    check_something,
)
from receiver.metadata.model.timestamps import Allocator, hybrid

if TYPE_CHECKING:
    from receiver.metadata.etcd.gateway import EtcdClient
    from receiver.metadata.etcd.messages import KeyValue

__all__ = ["MAX_COMMIT", "EtcdKV"]

MAX_COMMIT = 64 << 20
"""Bytes of a packed commit: etcd keeps all of it in memory, several times."""
_PAGE = 4096
_log = logging.getLogger(__name__)


class EtcdKV(SnapshotKV):
    """See `SnapshotKV` and the module. May be used by several threads at once."""

    def __init__(
        self,
        client: EtcdClient,
        prefix: str,
        *,
        allocate: Allocator | None = None,
        ring: int = DEFAULT_SIZE,
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        """Nothing is asked yet: a cluster that is down, or compacted, stops no start.

        Args:
            client: of the cluster.
            prefix: of all keys, such as /tsferry/keys; no other program writes there.
            allocate: gives timestamps.
            ring: commits whose revision is known without a search.
            patience: to find out what became of a write without an answer.
        """
        self._client = client
        self._prefix = prefix.encode().rstrip(b"/")
        self._head = self._prefix + b"/head"
        self._keys = self._prefix + b"/kv/"
        self._batches = self._prefix + b"/batch/"
        self._patience = patience
        self._allocate = allocate or hybrid()
        self._timeline = Timeline(client, self._head, Ring(ring))
        self._decider = Decider(client, self._head, self._timeline, patience)
        self._writing = threading.Lock()
        self._swept = False

    def close(self) -> None:
        """Close the connections of the client; closing twice is harmless."""
        self._client.close()

    # -- reading -----------------------------------------------------------------------------

    def load(self, key: str, ts: int | None = None) -> str:
        """See `SnapshotKV.load`; `CompactedError` is its `HistoryGoneError`."""
        at = self._keys + _raw(key)
        view = self._view(lambda revision: [Get(at, revision=revision)], ts)
        value = None
        if view.seen is not None:
            found = view.found[0].keys
            value = _text(found[0], found[0].value) if found else None
            if view.seen.head.batch is not None:
                value = self._batch(view.seen, view.revision).lay_over(key, value)
        if value is None:
            when = "" if ts is None else f" at {ts}"
            raise KeyMissingError(f"there is no key {key!r}{when}")
        return value

    def load_with_prefix(self, prefix: str, ts: int | None = None) -> tuple[list[str], list[str]]:
        """See `SnapshotKV.load_with_prefix`."""
        view = self._view(nothing, ts)
        if view.seen is None:
            return [], []
        found = dict(self._pages(prefix, view.revision))
        if view.seen.head.batch is not None:
            found = self._batch(view.seen, view.revision).lay_over_all(prefix, found)
        keys = sorted(found)
        return keys, [found[key] for key in keys]

    def _view(self, question: Callable[[int], Sequence[Get]], ts: int | None) -> RevisionView:
        return self._timeline.read(question) if ts is None else self._timeline.at(question, ts)

    def _pages(self, prefix: str, revision: int) -> Iterator[tuple[str, str]]:
        at = self._keys + _raw(prefix)
        end = prefix_end(at)
        more = True
        while more:
            page = self._client.get(Get(at, end, revision=revision, limit=_PAGE))
            for found in page.keys:
                key = _text(found, found.key[len(self._keys) :])
                yield key, _text(found, found.value)
                at = found.key + b"\0"
            more = page.more

    def _batch(self, seen: SeenRevision, revision: int) -> Batch:
        """The batch of a head that has one, as of a revision that shows this head."""
        marker = seen.head.batch
        assert marker is not None
        parts = self._parts(seen.head.id)
        found = self._client.get(Get(parts, prefix_end(parts), revision=revision)).keys
        what = parts.decode()
        if len(found) != marker.parts:
            raise DamagedError(
                f"{what} in etcd has {len(found)} parts, its marker says {marker.parts}",
                extra={"key": what},
            )
        return Batch.unpack((each.value for each in found), marker.digest, what)

    def _parts(self, commit: str) -> bytes:
        return self._batches + commit.encode() + b"/"

    # -- writing -----------------------------------------------------------------------------

    def multi_save_and_remove_with_prefix(
        self, saves: Mapping[str, str], removals: Sequence[str], *additions: KeyAddition
    ) -> int:
        """See `SnapshotKV.multi_save_and_remove_with_prefix`."""
        check_something(saves, removals, additions)
        check_keys(saves)
        check_prefixes(removals)
        with self._writing:
            before = self._settled()
            newest = 0 if before is None else before.head.ts
            ts = self._allocate(newest)
            if not newest < ts < 1 << 63:
                raise TimestampRefusedError(
                    f"commit timestamp {ts} does not follow {newest}, the newest in etcd",
                    extra={"newest": newest},
                )
            merged = dict(saves)
            merged.update(addition(ts) for addition in additions)
            check_keys(merged)
            head = TimelineHead(ts, secrets.token_hex(8), SeenRevision.past_of(before))
            self._commit(before, head, Batch(removals, merged))
            return ts

    def _settled(self) -> SeenRevision | None:
        """The newest head, without a batch: one that its writer did not live to unpack is now."""
        view = self._timeline.read(nothing)
        if not self._swept:
            self._sweep(view.seen)
        while view.seen is not None and view.seen.head.batch is not None:
            view = self._unpack(view.seen, self._batch(view.seen, view.revision))
        return view.seen

    def _commit(self, before: SeenRevision | None, head: TimelineHead, batch: Batch) -> None:
        operations = self._operations(batch)
        if operations is not None:
            crash.point("kv.etcd.commit.before")
            self._decider.decide(before, head, [], operations)
            crash.point("kv.etcd.commit.after")
            return
        parts = batch.pack()
        if sum(map(len, parts)) > MAX_COMMIT:
            raise TooLargeError(f"a commit of more than {MAX_COMMIT} bytes")
        head = msgspec.structs.replace(head, batch=Marker(len(parts), digest_of(parts)))
        self._swept = False  # until it is done: what an error leaves is for the next one to remove
        condition = self._stage(before, head, parts)
        crash.point("kv.etcd.batch.staged")
        seen = self._decider.decide(before, head, [condition], [])
        crash.point("kv.etcd.batch.marked")
        self._swept = True
        try:
            self._unpack(seen, batch)
        except TsferryError as error:  # the commit is true all the same
            _log.warning("a commit is not unpacked yet; the next one does it: %s", error)

    def _operations(self, batch: Batch) -> list[Operation] | None:
        """The operations of a commit, None if one transaction cannot hold them."""
        # Removals first: etcd refuses a transaction that removes and sets the same key, so what is
        # removed goes around what is set.
        if len(batch.saves) + len(batch.removals) >= MAX_OPERATIONS:
            return None  # one is for the head
        operations: list[Operation] = []
        saves = sorted(
            (self._keys + key.encode(), value.encode()) for key, value in batch.saves.items()
        )
        for prefix in batch.removals:
            at = self._keys + prefix.encode()
            end = prefix_end(at)
            for key, _ in saves:
                if at <= key < end:
                    operations += [Delete(at, key)] if at < key else []
                    at = key + b"\0"
            operations += [Delete(at, end)] if at < end else []
        operations += [Put(key, value) for key, value in saves]
        size = sum(len(key) + len(value) for key, value in saves)
        return operations if len(operations) < MAX_OPERATIONS and size <= PART_SIZE else None

    # -- large commits -----------------------------------------------------------------------

    def _stage(
        self, before: SeenRevision | None, head: TimelineHead, parts: Sequence[bytes]
    ) -> Compare:
        """Put the parts where nobody looks; returns what holds as long as they are there."""
        conditions = [self._decider.unchanged(before)]
        for number, part in enumerate(parts):
            key = self._parts(head.id) + b"%06d" % number
            result = insist(self._client, self._patience, conditions, [Put(key, part), Get(key)])
            if not result.succeeded:
                raise self._decider.conflict(head)
        # Whoever sweeps takes all parts of a commit at once, so one speaks for all.
        return Compare(key, created=result.found[0].keys[0].created)

    def _unpack(self, seen: SeenRevision, batch: Batch) -> RevisionView:
        """Put a batch into its keys, take its marker away; the newest head then.

        Doing it twice is harmless, and as long as the marker stands nobody sees it half done.
        """
        conditions = [Compare(self._head, changed=seen.changed)]
        steps: list[list[Operation]] = []
        ranges = [self._keys + prefix.encode() for prefix in batch.removals]
        for at in range(0, len(ranges), MAX_OPERATIONS):
            steps.append([Delete(key, prefix_end(key)) for key in ranges[at : at + MAX_OPERATIONS]])
        for piece in batch.pieces(MAX_OPERATIONS):
            steps.append(
                [Put(self._keys + key.encode(), value.encode()) for key, value in piece.items()]
            )
        for step in steps:
            if not insist(self._client, self._patience, conditions, step).succeeded:
                return self._timeline.read(nothing)  # another process was faster
            crash.point("kv.etcd.batch.unpacking")
        parts = self._parts(seen.head.id)
        plain = msgspec.structs.replace(seen.head, batch=None, first=seen.begun)
        last: list[Operation] = [
            Put(self._head, msgspec.json.encode(plain)),
            Delete(parts, prefix_end(parts)),
        ]
        insist(self._client, self._patience, conditions, last)
        return self._timeline.read(nothing)

    def _sweep(self, seen: SeenRevision | None) -> None:
        """Remove parts of commits that were given up before their marker was set."""
        keep = b"" if seen is None or seen.head.batch is None else self._parts(seen.head.id)
        every = Get(self._batches, prefix_end(self._batches), keys_only=True)
        ids = {each.key.rsplit(b"/", 1)[0] + b"/" for each in self._client.get(every).keys}
        for parts in sorted(ids - {keep}):
            # On the condition that this head still is the newest: another one may name them.
            removal = Delete(parts, prefix_end(parts))
            insist(self._client, self._patience, [self._decider.unchanged(seen)], [removal])
        self._swept = True


def _raw(text: str) -> bytes:
    # What is no Unicode text cannot have been written: it is looked for, and not found.
    return text.encode(errors="surrogatepass")


def _text(found: KeyValue, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        key = found.key.decode(errors="replace")
        raise DamagedError(
            f"{key} in etcd is no UTF-8, some other program wrote it: {error}", extra={"key": key}
        ) from error
