"""What commands write of rounds and of files with --json; `docs/json.md` is made of these types."""

from __future__ import annotations

from typing import Literal, TypedDict

from common.wire import Time
from sender.schema.standing import SchemaAhead, SchemaShown

__all__ = [
    "DeviceShown",
    "ErrorShown",
    "LastRound",
    "LostShown",
    "OffsetShown",
    "PendingShown",
    "PlannedFile",
    "PlannedTask",
    "ReasonShown",
    "RoundAhead",
    "RoundShown",
    "TroubleShown",
    "VerifiedShown",
    "WaitingShown",
]


class ReasonShown(TypedDict):
    """A file, and what is with it.

    Attributes:
        file: its path below its data directory.
    """

    file: str
    reason: str


class DeviceShown(TypedDict):
    """A file that is in conflict.

    Attributes:
        file: its path below its data directory.
        device: that another sender owns; null for a clash of content.
    """

    file: str
    device: str | None
    reason: str


class OffsetShown(TypedDict):
    """A file whose transfer went on in the middle.

    Attributes:
        file: its path below its data directory.
        offset: bytes that were there already.
    """

    file: str
    offset: int


class VerifiedShown(TypedDict):
    """What the receiver had proved at the last check.

    Attributes:
        files: that it had loaded.
        verified: those of them that it had proved, point by point.
    """

    files: int
    verified: int


class PendingShown(TypedDict):
    """Closed files that are not loaded after a round.

    Attributes:
        bytes: of these.
    """

    files: int
    bytes: int


class ErrorShown(TypedDict):
    """What went wrong.

    Attributes:
        type: its name in docs/reference/errors.md.
        message: what was found, where, and what to do.
    """

    type: str
    message: str


class RoundShown(TypedDict):
    """A round with one receiver.

    Attributes:
        receiver: its name.
        address: that answered; null if none did.
        task: id of the last task that was committed.
        tasks: ids of all of them, in order.
        sent: files that travelled and are loaded.
        deleted: files deleted at the receiver; replaced ones are not counted.
        already: files that the receiver had loaded already.
        resources: loaded files of which only the `.resource` was another one.
        bytes: that travelled.
        resumed: files whose transfer went on in the middle.
        seconds: that the round took.
        retired: gone files that stay at the receiver, off this sender's list.
        held: deletions that wait, and why.
        kept_deletions: files whose deletion file shrank or vanished, which withdraws nothing.
        conflicts: files with a device of another owner, or other content under their path.
        refused: files whose name, size, or device the receiver does not allow.
        failed: files that were not loaded for another reason; the next round tries again.
        quarantined: files that the receiver put aside.
        expired: files that the receiver does not keep: past a TTL, or deleted by its operator.
        changed: files that changed or vanished under way; the next round looks at them again.
        wanted: files that the receiver had loaded, found bad, and asked for again in this round.
        lost: files that neither side has any more, until the receiver's operator acknowledges them.
        verified: of what is loaded there; null from a receiver that does not tell.
        waiting: files that are not closed, or not ready.
        overdue: those of them that have been so for longer than `wait_alarm`, and why.
        unmounted: data directories that do not count now, and why.
        pending: closed files that are not loaded after the round.
        complete_until: data time before which nothing of this node is unloaded; null if unknown.
        schema: what became of the schema log; null if there is none here.
        error: what ended the round early.
        exit_code: of a `sync` with this receiver alone.
    """

    receiver: str
    address: str | None
    task: str | None
    tasks: list[str]
    sent: int
    deleted: int
    already: int
    resources: int
    bytes: int
    resumed: list[OffsetShown]
    seconds: float
    retired: int
    held: list[ReasonShown]
    kept_deletions: list[ReasonShown]
    conflicts: list[DeviceShown]
    refused: list[ReasonShown]
    failed: list[ReasonShown]
    quarantined: list[ReasonShown]
    expired: list[ReasonShown]
    changed: list[ReasonShown]
    wanted: list[ReasonShown]
    lost: list[ReasonShown]
    verified: VerifiedShown | None
    waiting: int
    overdue: list[ReasonShown]
    unmounted: list[ReasonShown]
    pending: PendingShown
    complete_until: Time | None
    schema: SchemaShown | None
    error: ErrorShown | None
    exit_code: int


class LastRound(RoundShown):
    """The last round with a receiver, its lists cut to the first of them.

    Attributes:
        ended: when it did.
        held_ends: the first files that are gone here and whose ends wait.
        held_count: how many there are of these.
        guarded: whether the receiver holds ends until its operator lets them through.
    """

    ended: float
    held_ends: list[ReasonShown]
    held_count: int
    guarded: bool


class PlannedFile(TypedDict):
    """A file that a round would send.

    Attributes:
        file: its path below its data directory.
        replaces: the receiver has it with other content.
        resource_only: only its `.resource` would be told.
    """

    file: str
    size: int
    replaces: bool
    resource_only: bool


class PlannedTask(TypedDict):
    """A task of a round.

    Attributes:
        additions: files that it would send.
        deletions: paths that it would tell as gone.
    """

    additions: list[PlannedFile]
    deletions: list[str]


class WaitingShown(TypedDict):
    """A file that is not closed, or not ready.

    Attributes:
        file: its path below its data directory.
        why: a word for the reason.
    """

    file: str
    data_dir: str
    why: str
    reason: str
    size: int


class RoundAhead(TypedDict):
    """What a round with one receiver would do.

    Attributes:
        receiver: its name.
        dry_run: true.
        unfinished: ids of tasks that were cut off, with which it would begin.
        tasks: that it would send.
        files: that would travel.
        bytes: of these.
        held: deletions that would wait, and why.
        skipped: files that would not be sent, and why.
        waiting: files that are not closed or not ready, and why.
        up_to_date: listed files with nothing to do.
        schema: what would travel of the schema log; null for nothing.
    """

    receiver: str
    dry_run: Literal[True]
    unfinished: list[str]
    tasks: list[PlannedTask]
    files: int
    bytes: int
    held: list[ReasonShown]
    skipped: list[ReasonShown]
    waiting: list[WaitingShown]
    up_to_date: int
    schema: SchemaAhead | None


class LostShown(TypedDict):
    """Files that neither side has any more.

    Attributes:
        files: how many.
        since: earliest time of their data; null if it is not known.
        named: the first of them.
    """

    files: int
    since: Time | None
    named: list[ReasonShown]


class TroubleShown(TypedDict):
    """A file that the receiver did not take.

    Attributes:
        file: its path below its data directory.
        kind: `conflict`, `quarantined`, `refused`, `expired` or `failed`.
        device: that another sender owns; null where that is not it.
        hold: it is not offered again by itself.
        since: when that began.
        rounds: in how many it was so.
    """

    file: str
    kind: str
    reason: str
    device: str | None
    hold: bool
    since: float
    rounds: int
