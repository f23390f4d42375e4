"""What commands of the sender write with --json, beside rounds; `docs/json.md` is made of it."""

from __future__ import annotations

from typing import TypedDict

from sender.round.look import ReceiverStanding
from sender.round.round_words.shown_rounds import ErrorShown, ReasonShown, RoundShown, TroubleShown

__all__ = [
    "CheckShown",
    "DaemonLane",
    "DaemonShown",
    "DaemonStarted",
    "DaemonStopped",
    "FreeShown",
    "FreedFileShown",
    "IdentityMade",
    "OldToolAdopted",
    "QuarantinedShown",
    "StatusShown",
    "UnsentShown",
]


class DaemonLane(TypedDict):
    """What the daemon does for a receiver.

    Attributes:
        receiver: its name.
        step: of the round: `check`, `scan`, `plan`, `send` or `load`; empty between rounds.
        files: of the round, planned.
        files_done: of these, done with.
        bytes: of the round, planned.
        bytes_done: of these, at the receiver.
        state: in words.
        last: the last round; null before the first.
    """

    receiver: str
    step: str
    files: int
    files_done: int
    bytes: int
    bytes_done: int
    state: str
    last: RoundShown | None


class DaemonShown(TypedDict):
    """The daemon of this schema directory.

    Attributes:
        pid: its process; null if that is not known.
        silent: why it does not answer; null if it does.
        lanes: what it does for each receiver, by name.
        polls_because: why it looks by the clock, and hears of no change; null if it hears.
    """

    pid: int | None
    silent: str | None
    lanes: dict[str, DaemonLane]
    polls_because: str | None


class StatusShown(TypedDict):
    """How things stand.

    Attributes:
        daemon: null if none runs.
        receivers: each of them, by name.
    """

    sender: str
    label: str
    daemon: DaemonShown | None
    receivers: dict[str, ReceiverStanding]


class CheckShown(TypedDict):
    """What a receiver says of itself.

    Attributes:
        receiver: its name.
        url: its address, the first of the configuration.
        address: that answered.
        ok: whether it did.
        error: why not.
        exit_code: of a `check` of this receiver alone.
        protocol: version of the protocol.
        engine: uuid of its metadata engine.
        history: what it knows of this sender: `new`, `continues`, `behind`, `ahead` or the like.
        scope: patterns of devices that the token may write; empty for all.
        wanted: how many files it wants again.
        loading: id of a task that it loads now.
        schema: whether it takes the schema.
    """

    receiver: str
    url: str
    address: str | None
    sender: str
    ok: bool
    error: ErrorShown | None
    exit_code: int
    version: str | None
    protocol: int | None
    engine: str | None
    history: str | None
    scope: list[str]
    wanted: int
    loading: str | None
    schema: bool


class QuarantinedShown(TroubleShown):
    """A file that a receiver did not take.

    Attributes:
        receiver: its name.
    """

    receiver: str


class FreedFileShown(TypedDict):
    """A file that was removed, or would be.

    Attributes:
        file: its path below its data directory.
        path: where it was.
    """

    file: str
    path: str
    size: int


class FreeShown(TypedDict):
    """What `free` came to.

    Attributes:
        freed: files that are gone, or would be.
        files: how many these are.
        bytes: of these.
        kept: files that were asked for and stay, and why.
        error: what ended it early.
    """

    freed: list[FreedFileShown]
    files: int
    bytes: int
    kept: list[ReasonShown]
    error: ErrorShown | None


class DaemonStarted(TypedDict):
    """The daemon that runs.

    Attributes:
        pid: its process; null if that is not known.
        started: whether this call started it.
    """

    pid: int | None
    started: bool


class DaemonStopped(TypedDict):
    """Whether one ran.

    Attributes:
        stopped: false if none ran.
    """

    stopped: bool


class IdentityMade(TypedDict):
    """What was written and made.

    Attributes:
        config: the configuration.
        written: whether it was written now.
        uuid: of this sender; null as long as the configuration has examples in it.
        marked: data directories that are this sender's now.
        unit: for systemd; null where none was asked for.
        unit_user: whom it runs as: who owns the first data directory; null likewise.
        old_tool: the identity of the old sync tool that was here; null where `adopt` is not asked
            for.
    """

    config: str
    written: bool
    uuid: str | None
    marked: list[str]
    unit: str | None
    unit_user: str | None
    old_tool: str | None


class UnsentShown(TypedDict):
    """A file that is not at the receiver, and why.

    Attributes:
        file: its path below its data directory.
    """

    file: str
    size: int
    reason: str


class OldToolAdopted(TypedDict):
    """What the old tool had sent, and what of it is there.

    Attributes:
        uuid: the old tool's, which this sender goes on under.
        replaces: the identity that gives way to it; null for none.
        old_receiver: where it had sent to.
        synced: files that its lists have.
        schema: how far it had shipped the schema, in words; empty where nothing says it.
        there: files that the receiver has.
        there_bytes: of these.
        to_send: what the next round sends.
        to_send_bytes: of these.
        gone: paths that are not here, and that the receiver has.
        away: paths that neither side has.
        only_there: paths that the receiver alone has.
        waiting: files here that are not sent as they are, and are not compared.
        odd: what is half there.
        committed: whether it was done.
        exit_code: of the command.
    """

    uuid: str
    replaces: str | None
    old_receiver: str
    synced: int
    schema: str
    there: int
    there_bytes: int
    to_send: list[UnsentShown]
    to_send_bytes: int
    gone: list[str]
    away: list[str]
    only_there: list[str]
    waiting: list[UnsentShown]
    odd: list[str]
    committed: bool
    exit_code: int
