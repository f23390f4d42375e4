"""The lines of a hook's queue, `hooks/<way>.queue`, version 1.

UTF-8, one entry a line: 16 hex digits, the xxh3-64 of what follows the space behind them, then one
JSON object whose `is` says which kind it is. The first line stands for all before it (`standing`);
the file is replaced by one with a new first line when it has grown. A line that is not whole, or
not as it was written, is passed over: what it said is told once more, or, if it was an event of
what is no commit, is lost with it, and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import xxhash

from common.hooks.hook_event import EventKind, HookEvent

__all__ = [
    "QUEUE_VERSION",
    "DeliveredLine",
    "DroppedLine",
    "FailedLine",
    "LogPlace",
    "PutLine",
    "QueueLine",
    "StandingLine",
    "read_lines",
    "written_line",
]

QUEUE_VERSION = 1


class LogPlace(msgspec.Struct, frozen=True):
    """How far a log has been told of.

    Attributes:
        log: which one: the engine's uuid.
        ts: of the newest commit that was told whole.
        lsn: of that commit.
    """

    log: str
    ts: int
    lsn: int


class PutLine(msgspec.Struct, frozen=True, tag_field="is", tag="put", omit_defaults=True):
    """An event waits.

    Attributes:
        seq: its number in this queue.
        event: it.
        key: what stands or is over with it; empty for nothing.
        standing: what stands under this key from now on; empty: it is over.
    """

    seq: int
    event: HookEvent
    key: str = ""
    standing: str = ""


class DeliveredLine(
    msgspec.Struct, frozen=True, tag_field="is", tag="delivered", omit_defaults=True
):
    """Events were taken.

    Attributes:
        at: when, in seconds since the epoch.
        seq: this one of the queue; 0 for none of it.
        place: all of the log up to there.
        count: events.
        told: kind -> how many events that were dropped were told of by it.
    """

    at: float
    seq: int = 0
    place: LogPlace | None = None
    count: int = 1
    told: dict[str, int] = msgspec.field(default_factory=dict)


class FailedLine(msgspec.Struct, frozen=True, tag_field="is", tag="failed", omit_defaults=True):
    """A try did not come through.

    Attributes:
        at: when.
        error: what came of it, in words.
        trying: what was tried: the id of the event; empty for none that is given up.
    """

    at: float
    error: str
    trying: str = ""


class DroppedLine(msgspec.Struct, frozen=True, tag_field="is", tag="dropped", omit_defaults=True):
    """Events are told to nobody.

    Attributes:
        at: when that was decided.
        kind: of it; empty for commits that are no more known.
        seq: this one of the queue; 0 for none of it.
        place: and the log up to there.
        count: how many.
    """

    at: float
    kind: EventKind | None = None
    seq: int = 0
    place: LogPlace | None = None
    count: int = 1


class StandingLine(msgspec.Struct, tag_field="is", tag="standing", kw_only=True):
    """All that a queue knows beside the events that wait.

    Attributes:
        version: of the form of the file.
        next_seq: number of the next event.
        place: how far the log has been told of.
        stands: key -> what stands under it.
        delivered: events, since the queue was made.
        failed: tries that did not come through.
        dropped: events that are told to nobody.
        untold: of these, kind -> how many, that nobody was told of yet; the empty kind stands for
            commits that are no more known.
        untold_since: when the first of them was dropped.
        delivered_at: the last time.
        failed_at: the last time.
        failing_since: the first failure behind the last delivery; 0 for none.
        error: of the last failure.
        trying: what was tried when a try failed last.
        tried_since: when the first try of that failed.
    """

    version: int = QUEUE_VERSION
    next_seq: int = 1
    place: LogPlace | None = None
    stands: dict[str, str] = msgspec.field(default_factory=dict)
    delivered: int = 0
    failed: int = 0
    dropped: int = 0
    untold: dict[str, int] = msgspec.field(default_factory=dict)
    untold_since: float = 0.0
    delivered_at: float = 0.0
    failed_at: float = 0.0
    failing_since: float = 0.0
    error: str = ""
    trying: str = ""
    tried_since: float = 0.0


QueueLine = PutLine | DeliveredLine | FailedLine | DroppedLine | StandingLine

_decoder = msgspec.json.Decoder(QueueLine)


def written_line(line: QueueLine) -> bytes:
    """A line with its newline."""
    said = msgspec.json.encode(line)
    return f"{xxhash.xxh3_64_hexdigest(said)} ".encode() + said + b"\n"


def read_lines(content: bytes) -> Iterator[QueueLine | None]:
    """Each line of a file; None for one that is not as it was written."""
    for line in _cut(content):
        digest, _, said = line.partition(b" ")
        try:
            is_whole = digest == xxhash.xxh3_64_hexdigest(said).encode()
            yield _decoder.decode(said) if is_whole else None
        except msgspec.MsgspecError:
            yield None


def _cut(content: bytes) -> Iterable[bytes]:
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines
