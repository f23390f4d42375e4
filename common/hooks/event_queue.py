"""A durable, bounded queue of events for one way out, and how far a log has been told of by it.

What is a commit is not written twice: of the log there is a place, behind which all is still to be
told. What is no commit (an edge is late, the disk is full) waits here. What was handed out and not
acknowledged is handed out again after a restart: each event is delivered at least once, those of a
kind in order. Where the disk takes nothing more the queue goes on in memory, for just that is to be
told; it is written whole once the disk takes it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from common import crash
from common.durable import Closing
from common.errors import TsferryError
from common.hooks.hook_event import EventKind, HookEvent
from common.hooks.queue_lines import (
    QUEUE_VERSION,
    DeliveredLine,
    DroppedLine,
    FailedLine,
    LogPlace,
    PutLine,
    QueueLine,
    StandingLine,
    read_lines,
    written_line,
)

if TYPE_CHECKING:
    from common.durable import AppendFile, Tree

__all__ = ["EventQueue", "QueueStanding", "queue_standing"]

_log = logging.getLogger(__name__)

_SLACK = 256 << 10
"""Bytes that a file may grow by, beyond twice what it was, until it is written anew."""
_LONGEST_ERROR = 500
NOTHING: Mapping[str, int] = MappingProxyType({})


class QueueStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands with one way out.

    Attributes:
        way: `command` or `webhook`.
        waiting: events that wait and are no commits.
        delivered: events, since the queue was made.
        failed: tries that did not come through.
        dropped: events that are told to nobody.
        delivered_at: when the last was delivered; None for never.
        failed_at: when the last try failed; None for never.
        failing_since: since when no try came through; None if the last one did.
        error: of the last try that failed; empty for none.
        place: newest commit that was told of; None where no log is followed.
    """

    way: str
    waiting: int
    delivered: int
    failed: int
    dropped: int
    delivered_at: float | None
    failed_at: float | None
    failing_since: float | None
    error: str
    place: int | None


class EventQueue(Closing):
    """The queue of one way out; any thread may call. One process has it open, under a lock."""

    def __init__(self, tree: Tree, way: str, *, limit: int, clock: Callable[[], float]) -> None:
        """Not to be called: see `open`."""
        self._tree = tree
        self._rel = f"{way}.queue"
        self._limit = limit
        self._clock = clock
        self._lock = threading.RLock()
        self._file: AppendFile | None = None
        self._base = 0
        self._closed = False
        self._now = StandingLine()
        self._waiting: deque[PutLine] = deque()
        self.way = way
        self.problem: str | None = None
        """Why nothing is written; None while it is."""

    @classmethod
    def open(cls, tree: Tree, way: str, *, limit: int, clock: Callable[[], float]) -> EventQueue:
        """Open the queue, or make it.

        Args:
            tree: directory of it; stays the caller's to close.
            way: `command` or `webhook`.
            limit: events that wait, at most.
            clock: seconds since the epoch.
        """
        queue = cls(tree, way, limit=limit, clock=clock)
        bad = 0
        try:
            for line in read_lines(tree.read(queue._rel)):
                if line is None:
                    bad += 1
                else:
                    queue._take(line)
        except FileNotFoundError:
            pass
        if bad:
            _log.warning("%s: %d lines are not whole", tree.path / queue._rel, bad)
        queue._write(None)
        return queue

    def close(self) -> None:
        """Close the file; what is said from then on is written nowhere."""
        with self._lock:
            self._closed = True
            self._let_go()

    # -- what happens ------------------------------------------------------------------------------

    def put(self, event: HookEvent, *, key: str = "", standing: str = "") -> bool:
        """Let an event wait; whether it is on the disk.

        Args:
            event: it.
            key: what stands or is over with it; empty for nothing.
            standing: what stands there from now on; empty if it is over.
        """
        with self._lock:
            while len(self._waiting) >= self._limit:
                oldest = self._waiting[0]
                self._say(DroppedLine(self._clock(), oldest.event.kind, oldest.seq))
            crash.point("hooks.put")
            return self._say(PutLine(self._now.next_seq, event, key, standing))

    def stands(self, key: str) -> str:
        """What was told of a key last; empty for nothing, or that it is over."""
        return self._now.stands.get(key, "")

    def keys(self, prefix: str) -> list[str]:
        """The keys under which something stands, of those that begin so."""
        with self._lock:
            return [key for key in self._now.stands if key.startswith(prefix)]

    # -- delivering --------------------------------------------------------------------------------

    def head(self) -> PutLine | None:
        """The event that has waited longest; it stays until it is delivered or dropped."""
        with self._lock:
            return self._waiting[0] if self._waiting else None

    @property
    def place(self) -> LogPlace | None:
        """How far the log has been told of."""
        return self._now.place

    @property
    def untold(self) -> dict[str, int]:
        """Kind -> how many were dropped of it, that nobody was told of yet."""
        with self._lock:
            return dict(self._now.untold)

    @property
    def untold_since(self) -> float:
        """When the first of those was dropped."""
        return self._now.untold_since

    def delivered(
        self,
        *,
        seq: int = 0,
        place: LogPlace | None = None,
        count: int = 1,
        told: Mapping[str, int] = NOTHING,
    ) -> None:
        """Events were taken: one of the queue, or all of the log up to a place.

        Args:
            seq: of the one of the queue.
            place: in the log.
            count: how many.
            told: kind -> how many events that were dropped were told of by it.
        """
        with self._lock:
            crash.point("hooks.delivered")
            self._say(DeliveredLine(self._clock(), seq, place, count, dict(told)))

    def reached(self, place: LogPlace) -> None:
        """Nothing is to be told of the log up to a place."""
        with self._lock:
            self._say(DeliveredLine(self._now.delivered_at, 0, place, 0))

    def failed(self, error: str, trying: str = "") -> None:
        """A try did not come through.

        Args:
            error: what came of it, in words.
            trying: names what was tried; empty for nothing that is to be given up.
        """
        said = error[:_LONGEST_ERROR].encode("utf-8", "replace").decode()
        with self._lock:
            self._say(FailedLine(self._clock(), said, trying))

    def tried_since(self, trying: str) -> float | None:
        """When a try of this failed first, if nothing else was tried since; None if none did."""
        with self._lock:
            return self._now.tried_since if self._now.trying == trying else None

    def drop(
        self,
        kind: EventKind | None,
        *,
        seq: int = 0,
        place: LogPlace | None = None,
        count: int = 1,
    ) -> None:
        """Give events up: that is told before anything else is.

        Args:
            kind: of it; None for commits that are no more known.
            seq: of the one of the queue.
            place: in the log, up to which nothing is told any more.
            count: how many.
        """
        with self._lock:
            self._say(DroppedLine(self._clock(), kind, seq, place, count))

    @property
    def standing(self) -> QueueStanding:
        """How it stands."""
        with self._lock:
            now = self._now
            return QueueStanding(
                way=self.way,
                waiting=len(self._waiting),
                delivered=now.delivered,
                failed=now.failed,
                dropped=now.dropped,
                delivered_at=now.delivered_at or None,
                failed_at=now.failed_at or None,
                failing_since=now.failing_since or None,
                error=now.error,
                place=None if now.place is None else now.place.ts,
            )

    # -- inside ------------------------------------------------------------------------------------

    def _say(self, line: QueueLine) -> bool:
        """Make a line true, and write it; whether it is on the disk."""
        self._take(line)
        return self._write(line)

    def _write(self, line: QueueLine | None) -> bool:
        """Write a line, or all anew; whether that is on the disk."""
        if self._closed:
            return False
        file = self._file
        try:
            if line is None or file is None or file.size > 2 * self._base + _SLACK:
                self._rewrite()
            else:
                file.append(written_line(line))
        except (TsferryError, OSError) as error:
            if self.problem is None:
                _log.error("%s takes nothing more: %s", self._tree.path / self._rel, error)
            self.problem = str(error)
            self._let_go()  # it lacks what is true by now: it is written whole next
            return False
        self.problem = None
        return True

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rewrite(self) -> None:
        """Replace the file by one that says the same in few lines."""
        lines = [written_line(self._now), *map(written_line, self._waiting)]
        self._tree.write_atomic(self._rel, b"".join(lines))
        crash.point("hooks.rewritten")
        self._let_go()
        self._file = self._tree.append_file(self._rel)
        self._base = self._file.size

    def _take(self, line: QueueLine) -> None:
        now = self._now
        match line:
            case StandingLine():
                if line.version != QUEUE_VERSION:
                    raise TsferryError(
                        f"{self._tree.path / self._rel} is of version {line.version}, which is "
                        "not known here: move it away, or run the newer program"
                    )
                self._now = line
                self._waiting.clear()
            case PutLine():
                self._waiting.append(line)
                now.next_seq = line.seq + 1
                if line.key and line.standing:
                    now.stands[line.key] = line.standing
                elif line.key:
                    now.stands.pop(line.key, None)
            case DeliveredLine():
                self._remove(line.seq)
                now.place = line.place or now.place
                now.delivered += line.count
                if line.count:
                    now.delivered_at, now.failing_since = line.at, 0.0
                self._now_told(line.told)
            case FailedLine():
                now.failed += 1
                now.failed_at, now.error = line.at, line.error
                now.failing_since = now.failing_since or line.at
                if line.trying and line.trying != now.trying:
                    now.trying, now.tried_since = line.trying, line.at
            case DroppedLine():
                self._remove(line.seq)
                now.place = line.place or now.place
                now.dropped += line.count
                kind = line.kind or ""
                now.untold[kind] = now.untold.get(kind, 0) + line.count
                now.untold_since = now.untold_since or line.at

    def _now_told(self, told: Mapping[str, int]) -> None:
        now = self._now
        left = {kind: count - told.get(kind, 0) for kind, count in now.untold.items()}
        now.untold = {kind: count for kind, count in left.items() if count > 0}
        now.untold_since = now.untold_since if now.untold else 0.0

    def _remove(self, seq: int) -> None:
        while seq and self._waiting and self._waiting[0].seq <= seq:
            self._waiting.popleft()


def queue_standing(tree: Tree, way: str) -> QueueStanding | None:
    """How it stands with a way out, by its file, also while another process has it open.

    None if there is none.

    Args:
        tree: directory of it.
        way: `command` or `webhook`.
    """
    queue = EventQueue(tree, way, limit=1, clock=lambda: 0.0)
    try:
        content = tree.read(queue._rel)
    except FileNotFoundError:
        return None
    for line in read_lines(content):
        if line is not None:
            queue._take(line)
    return queue.standing
