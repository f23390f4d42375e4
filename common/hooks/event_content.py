"""What events say, by kind; `docs/hooks.md` is made of these types."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from common.wire.base import CommitTs, Time

__all__ = [
    "NAMED",
    "DroppedEvents",
    "FilesLoadedEvent",
    "FilesTold",
    "LateEdge",
    "RoundEnded",
    "StandingTrouble",
    "TestEvent",
    "ToldFile",
    "told_files",
]

NAMED = 20
"""Files that an event names; the rest is counted."""
_LONGEST_REASON = 500


class RoundEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A round ended; a receiver tells it of each task that it has committed.

    Attributes:
        sender: uuid of the edge.
        label: of the edge.
        receiver: its name in the sender's configuration; empty at a receiver.
        tasks: ids of the tasks that are committed.
        loaded: files that are loaded by it.
        already: files that were there already.
        deleted: files that went.
        retired: files that are gone at the edge and stay at the centre.
        conflicts: files with a device of another owner, or other content under their path.
        quarantined: files that were put aside.
        refused: files that are not allowed.
        failed: files that did not come through; the next round tries again.
        held: deletions that wait.
        bytes: that travelled; 0 at a receiver.
        duration: seconds; 0 at a receiver.
        pending: closed files that are not loaded after it; 0 at a receiver.
        exit_code: as `sync` ends with; 0 at a receiver.
        error: what ended it early; empty if nothing did.
        commit: of the task; 0 at a sender.
    """

    sender: str
    label: str
    receiver: str = ""
    tasks: tuple[str, ...] = ()
    loaded: int = 0
    already: int = 0
    deleted: int = 0
    retired: int = 0
    conflicts: int = 0
    quarantined: int = 0
    refused: int = 0
    failed: int = 0
    held: int = 0
    bytes: int = 0
    duration: float = 0.0
    pending: int = 0
    exit_code: int = 0
    error: str = ""
    commit: CommitTs = 0


class FilesLoadedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Files are loaded: readers see them.

    Attributes:
        sender: uuid of the edge.
        label: of the edge.
        receiver: its name in the sender's configuration; empty at a receiver.
        task: id of the task; the last one of a round.
        files: how many.
        bytes: of them; at a sender those that travelled.
        points: in them; 0 at a sender.
        first: earliest timestamp of the data; null where it is not known.
        last: latest one.
        named: paths at the edge of the first 20; empty at a sender.
        commit: by which they are seen; 0 at a sender.
    """

    sender: str
    label: str
    receiver: str = ""
    task: str = ""
    files: int
    bytes: int
    points: int = 0
    first: Time | None = None
    last: Time | None = None
    named: tuple[str, ...] = ()
    commit: CommitTs = 0


class ToldFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, and what is with it.

    Attributes:
        path: at the edge.
        reason: in words.
        device: that belongs to another edge; empty where that is not it.
    """

    path: str
    reason: str
    device: str = ""


class FilesTold(msgspec.Struct, frozen=True, kw_only=True):
    """Files with which something is.

    Attributes:
        sender: uuid of the edge.
        label: of the edge.
        receiver: its name in the sender's configuration; empty at a receiver.
        files: how many.
        named: the first 20; of deletions that are held, a line for each list.
        commit: that says so; 0 at a sender, and for what stands.
    """

    sender: str
    label: str
    receiver: str = ""
    files: int
    named: tuple[ToldFile, ...] = ()
    commit: CommitTs = 0


class LateEdge(msgspec.Struct, frozen=True, kw_only=True):
    """An edge is silent for longer than it may be.

    Attributes:
        sender: uuid of the edge.
        label: of the edge.
        heard_at: when it was heard last, seconds since the epoch; null where that is not known.
        late_after: seconds of silence after which it is late.
    """

    sender: str
    label: str
    heard_at: float | None
    late_after: float


class StandingTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """Something is wrong with the program or its disk.

    Attributes:
        problem: what, in words; empty when it is over.
        receiver: of which round it is; empty at a receiver.
    """

    problem: str
    receiver: str = ""


class DroppedEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Events that nobody is told any more.

    Attributes:
        events: how many; commits that are older than the history are counted among them.
        kinds: how many of each kind; `commits` for those.
        since: when the first was dropped, seconds since the epoch.
    """

    events: int
    kinds: dict[str, int]
    since: float


class TestEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event by which an operator sees that a hook works (`hooks test`).

    Attributes:
        text: for people.
    """

    __test__ = False
    text: str


def told_files(found: Iterable[ToldFile]) -> tuple[ToldFile, ...]:
    """Those that are named, with reasons of a length that can be shown."""
    named = [each for each, _ in zip(found, range(NAMED), strict=False)]
    return tuple(
        msgspec.structs.replace(each, reason=each.reason[:_LONGEST_REASON]) for each in named
    )
