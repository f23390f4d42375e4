"""Which revision of etcd shows the keys as they were at a timestamp.

Each commit sets one more key, the *head*, in the transaction that sets the others: it holds the
timestamp, and timestamps and revisions of the few commits before. So the head as of a revision
tells the time of all keys as of that revision, and a revision for a timestamp is found by bisecting
revisions with the head as the guide. Others write to the cluster too, so most revisions may not be
ours; but each head says at which revision it was set itself, and what came before it.

A look brings what is asked for along, so finding a value takes at most log2(revisions) + 1 requests
with nothing known before, and one within the ring.

What is read for a commit is not the revision at which it was made, but the last one before the next
commit: both show the same keys, and the later one outlives compaction by others longer.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from common.errors import DamagedError
from receiver.metadata.etcd.messages import Get, KeyValue, Range
from receiver.metadata.kv.ring import Ring
from receiver.metadata.model.errors import CompactedError, NewerLogError

if TYPE_CHECKING:
    from receiver.metadata.etcd.gateway import EtcdClient

__all__ = ["Marker", "RevisionView", "SeenRevision", "Timeline", "TimelineHead", "nothing"]


_VERSION = 1
PAST = 8
"""Commits before its own that a head knows."""


class Marker(msgspec.Struct, frozen=True, omit_defaults=True):
    """A batch that is true and not yet unpacked; its parts stand under the head's `id`."""

    parts: int
    digest: str


class TimelineHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest commit, as the head key holds it, in JSON.

    Attributes:
        ts: timestamp of the commit.
        id: of the commit, so that whoever does not know whether his came through can tell.
        past: (timestamp, revision) of the commits before, up to `PAST`, the newest last.
        batch: of the commit, if it is a large one that is not yet unpacked.
        first: revision of the commit, where the head was set again since; otherwise 0.
        barred: id of a commit that was given up by setting the head again: it can never be.
        version: of all that stands beneath the prefix.
    """

    ts: int
    id: str
    past: tuple[tuple[int, int], ...] = ()
    batch: Marker | None = None
    first: int = 0
    barred: str = ""
    version: int = _VERSION


class SeenRevision(NamedTuple):
    """A head as it was found.

    Attributes:
        head: its content.
        created: revision at which there first was one.
        changed: revision at which it was set like this.
    """

    head: TimelineHead
    created: int
    changed: int

    @property
    def begun(self) -> int:
        """The revision of the commit."""
        return self.head.first or self.changed

    @property
    def commits(self) -> tuple[tuple[int, int], ...]:
        """(timestamp, revision) of the commits that it knows, itself the last."""
        return (*self.head.past, (self.head.ts, self.begun))

    @property
    def is_all(self) -> bool:
        """Whether there were no commits before those."""
        return len(self.head.past) < PAST

    @classmethod
    def of(cls, found: Range) -> SeenRevision | None:
        """The head in an answer, None if there was none.

        Raises:
            DamagedError: the key holds something else.
            NewerLogError: a newer version of tsferry wrote it.
        """
        if not found.keys:
            return None
        key: KeyValue = found.keys[0]
        try:
            head = _decoder.decode(key.value)
        except msgspec.MsgspecError as error:
            raise DamagedError(
                f"{key.key.decode(errors='replace')} in etcd is no head of a key-value store: "
                f"{error}",
                extra={"key": key.key.decode(errors="replace")},
            ) from error
        if head.version > _VERSION:
            raise NewerLogError(
                f"{key.key.decode(errors='replace')} in etcd has version {head.version}, written "
                f"by a newer tsferry; this one reads versions up to {_VERSION}"
            )
        return cls(head, key.created, key.changed)

    @staticmethod
    def past_of(before: SeenRevision | None) -> tuple[tuple[int, int], ...]:
        """What a head that follows this one knows of the past."""
        return () if before is None else before.commits[-PAST:]


class RevisionView(NamedTuple):
    """What was read, all as of one revision.

    Attributes:
        seen: the head, None before the first commit.
        revision: that shows it.
        found: what else was asked for.
    """

    seen: SeenRevision | None
    revision: int
    found: tuple[Range, ...]


Question = Callable[[int], Sequence[Get]]
"""What to read besides the head, as of a revision (0: the newest)."""


def nothing(_: int) -> Sequence[Get]:
    """No question but for the head."""
    return ()


class Timeline:
    """Finds revisions; see the module. May be used by several threads at once."""

    def __init__(self, client: EtcdClient, head: bytes, ring: Ring) -> None:
        """Nothing is read yet.

        Args:
            client: of the cluster.
            head: the key of the head.
            ring: for the newest commits; empty.
        """
        self._client = client
        self._head = head
        self._ring = ring
        self._last: SeenRevision | None = None
        self._lock = threading.Lock()

    def read(self, question: Question, revision: int = 0) -> RevisionView:
        """Head and answer as of a revision, the newest for 0.

        Raises:
            CompactedError: the revision is compacted away.
        """
        gets = [Get(self._head, revision=revision), *question(revision)]
        result = self._client.transaction([], gets)
        view = RevisionView(
            SeenRevision.of(result.found[0]), revision or result.revision, result.found[1:]
        )
        if not revision and view.seen is not None:
            self.note(view.seen)
        return view

    def at(self, question: Question, ts: int) -> RevisionView:
        """Head and answer as they were at a timestamp; an answer without a head: before all.

        Raises:
            CompactedError: with the oldest timestamp that can be asked for.
        """
        with self._lock:
            found = self._ring.find(ts)
            oldest = self._ring.oldest_revision
            created = 0 if self._last is None else self._last.created
        try:
            if found is not None and found.next_revision:
                return self.read(question, found.next_revision - 1)
            if found is None and oldest:
                return self._search(question, ts, created - 1, oldest)
        except CompactedError:
            pass  # the newest head is there, and tells what can still be asked for
        newest = self.read(question)
        if newest.seen is None or newest.seen.head.ts <= ts:
            return newest
        try:
            return self._search(question, ts, newest.seen.created - 1, newest.seen)
        except CompactedError as error:
            oldest = self._oldest_time()
            raise CompactedError(
                f"etcd was compacted beyond timestamp {ts}; the oldest that can be asked for is "
                f"{oldest}",
                extra={"oldest": oldest},
            ) from error

    def _search(
        self, question: Question, ts: int, low: int, later: int | SeenRevision
    ) -> RevisionView:
        """Bisect revisions.

        Args:
            question: what to read.
            ts: as of when.
            low: a revision before all commits.
            later: a commit later than `ts`, by its revision or as it was seen.

        Raises:
            CompactedError: what is looked for is compacted away.
        """
        before_all = RevisionView(None, low, ())
        best: RevisionView | None = before_all
        gone: CompactedError | None = None
        high, close = (later, False) if isinstance(later, int) else _step_back(later, ts)
        while high - low > 1 and not close:
            # A head that is too late rules out the commits that it knows, too: beyond the middle.
            middle = min(high - 1, (low + high + PAST) // 2)
            try:
                view = self.read(question, middle)
            except CompactedError as error:
                low, best, gone = middle, None, error
                continue
            if view.seen is None or view.seen.head.ts <= ts:
                low, best, gone = middle, view, None
            else:
                high, close = _step_back(view.seen, ts)
        if close:
            return before_all if high == _NEVER else self.read(question, high - 1)
        if gone is not None:
            raise gone
        assert best is not None
        return best

    def _oldest_time(self) -> int:
        """The timestamp of the oldest commit that compaction has left."""
        seen = self.read(nothing).seen
        low = 0
        while seen is not None and seen.begun - low > 1:
            middle = (low + seen.begun) // 2
            try:
                seen = self.read(nothing, middle).seen
            except CompactedError:
                low = middle
        return 0 if seen is None else seen.head.ts

    def note(self, seen: SeenRevision) -> None:
        """Remember a head that is, or was, the newest."""
        with self._lock:
            last, newest = self._last, self._ring.newest
            if last is not None and seen.changed <= last.changed:
                return
            self._last = seen
            commits = seen.commits
            if newest is not None and (
                last is None
                or last.created != seen.created
                or all(ts != newest for ts, _ in commits)
            ):
                # Others have committed more than is known: a gap would be a wrong answer.
                self._ring.clear()
                newest = None
            for ts, revision in commits:
                if newest is None or ts > newest:
                    self._ring.push(ts, revision)


def _step_back(seen: SeenRevision, ts: int) -> tuple[int, bool]:
    """The revision of the first commit after `ts` that a head knows, later than `ts` itself.

    Returns:
        the revision, and whether it is known that there is none between `ts` and that one; `_NEVER`
        if there was none before `ts` at all.
    """
    commits = seen.commits
    place = bisect_right(commits, ts, key=itemgetter(0))
    if place == 0 and seen.is_all:
        return _NEVER, True
    return commits[place][1], place > 0


_NEVER = 0
_decoder = msgspec.json.Decoder(TimelineHead)
