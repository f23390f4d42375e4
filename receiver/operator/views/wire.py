"""What operators' calls take and answer, beside the views.

Loads at the centre have theirs in `load_wire`, verifications in `verdict_wire`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from common.formats.schemaitems import Item
from common.wire import SchemaFailure, Struct
from common.wire.base import CommitTs
from receiver.operator.views.file_views import HeldDeletesView, QuarantineView
from receiver.operator.views.retired_views import LostView
from receiver.operator.views.sender_views import SenderView, SharedLabel
from receiver.operator.views.token_views import TokenView

__all__ = [
    "AcknowledgeRequest",
    "AdoptRequest",
    "ClockAnswer",
    "CompactRequest",
    "DeleteAnswer",
    "DeleteRequest",
    "DeletesDecided",
    "FailedDelete",
    "FailedUndelete",
    "HeldDeletesAnswer",
    "ImportAnswer",
    "ImportRequest",
    "LostFilesAnswer",
    "OwnersMoved",
    "QuarantineAnswer",
    "QuarantineKey",
    "ReleaseRequest",
    "RetiredKey",
    "RetryAnswer",
    "SenderRemoved",
    "SenderSettings",
    "SendersAccepted",
    "SendersAnswer",
    "TokenRequest",
    "TokensAnswer",
    "TransferRequest",
    "TtlAnswer",
    "UndeleteAnswer",
    "UndeleteRequest",
]


class SendersAnswer(Struct, frozen=True, kw_only=True):
    """`GET /v1/senders`."""

    senders: list[SenderView]
    shared_labels: list[SharedLabel] = msgspec.field(default_factory=list)
    """Labels that several senders have which were neither removed nor replaced."""


class ReleaseRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/owners/release`: devices are free for whoever comes first; a pattern, or one."""

    device: str


class TransferRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/owners/transfer`: devices belong to `sender` from now on; a pattern, or one."""

    device: str
    sender: str


class AdoptRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/senders/<sender>/adopt`: all that it owns belongs to `by` from now on."""

    by: str
    """uuid of the sender that takes its place."""


class OwnersMoved(Struct, frozen=True, kw_only=True):
    """The last commit of a change of owners, how many devices, and files that ended by it."""

    commit: CommitTs
    devices: int
    retired: int
    """Files that ended by it."""


class SenderSettings(Struct, frozen=True, kw_only=True):
    """`POST /v1/senders/<sender>/set`: what is expected of a sender."""

    late_after: Annotated[float, msgspec.Meta(ge=0, lt=1e10)] | None
    """Silence, in seconds, after which it is late; 0 for never; null as configured."""


class SendersAccepted(Struct, frozen=True, kw_only=True):
    """`POST /v1/senders/accept`: the senders that may go on."""

    senders: list[str]


class SenderRemoved(Struct, frozen=True, kw_only=True):
    """`POST /v1/senders/<sender>/remove`: what became of it, and what stays."""

    tokens: int
    """That were revoked."""
    devices: int
    """That belong to nobody now."""
    retired: int
    """Files that ended by it."""
    quarantined: int
    """Entries of the quarantine that were dropped."""
    files: int
    """Of it that stay visible, until they are proved to be elsewhere."""
    bytes: int
    """Of those files."""


class QuarantineAnswer(Struct, frozen=True, kw_only=True):
    """`GET /v1/quarantine`."""

    entries: list[QuarantineView]


class QuarantineKey(Struct, frozen=True, kw_only=True):
    """Names one entry of the quarantine."""

    sender: str
    path: str
    digest: str
    """As `quarantine list` has it: of the tail, or the name of the file at the centre."""


class UndeleteRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/files/undelete`: deleted files, by their physical paths."""

    physicals: list[str]


class FailedUndelete(Struct, frozen=True, kw_only=True):
    """A file that could not be brought back, and why."""

    physical: str
    reason: str


class UndeleteAnswer(Struct, frozen=True, kw_only=True):
    """What is visible again, and what is not."""

    back: list[str]
    """Names of files at the centre that readers get again."""
    failed: list[FailedUndelete]


class DeleteRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/files/delete`: files that have ended, by their physical paths."""

    physicals: list[str]
    everywhere: bool = False
    """At each centre above, too."""


class FailedDelete(Struct, frozen=True, kw_only=True):
    """A file that was not deleted, and why."""

    physical: str
    reason: str


class DeleteAnswer(Struct, frozen=True, kw_only=True):
    """What is deleted, and what is not."""

    deleted: list[str]
    """Names of files at the centre that readers do not get any more."""
    failed: list[FailedDelete]


class RetiredKey(Struct, frozen=True, kw_only=True):
    """Names a retired or superseded file by its physical path."""

    physical: str


class CompactRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/compact`: files that are to be merged.

    Attributes:
        path: of a storage group, or of what several lie below.
        partition: number of one partition; all if left out.
    """

    path: str
    partition: str | None = None


class RetryAnswer(Struct, frozen=True, kw_only=True):
    """What came of a retry, in words."""

    result: str
    """What came of it, in words."""


class ImportRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/schema/import`: storage groups and series that are to be there.

    Attributes:
        items: storage groups first; deletions among them are left out.
        dry_run: only say what would be done.
    """

    items: list[Item]
    dry_run: bool = False


class ImportAnswer(Struct, frozen=True, kw_only=True):
    """What came of an import.

    Attributes:
        applied: items that are as they should be, changed or not.
        changes: operations that it took.
        failed: the others, and why.
    """

    applied: int = 0
    changes: int = 0
    failed: list[SchemaFailure] = msgspec.field(default_factory=list)


class HeldDeletesAnswer(Struct, frozen=True, kw_only=True):
    """`GET /v1/deletes`: those that wait for an operator."""

    lists: list[HeldDeletesView]
    """A list for each sender and storage group."""


class DeletesDecided(Struct, frozen=True, kw_only=True):
    """`POST /v1/deletes/<digest>/allow`, or `/drop`: the commit that holds the verdict."""

    commit: CommitTs


class LostFilesAnswer(Struct, frozen=True, kw_only=True):
    """`GET /v1/lost`; `POST /v1/lost/acknowledge`: those that were acknowledged by it."""

    files: list[LostView]


class AcknowledgeRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/lost/acknowledge`: lost files of a sender by their paths; without paths all."""

    sender: str
    paths: list[str] = msgspec.field(default_factory=list)


class TokensAnswer(Struct, frozen=True, kw_only=True):
    """`GET /v1/tokens`: all that are not revoked."""

    tokens: list[TokenView]
    """The oldest first."""


class TokenRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/tokens`.

    Attributes:
        role: `sender`, `reader`, `operator`, `worker` or `writer`.
        sender: uuid that a sender's token is for.
        scope: patterns of devices that it may write, such as `root.siteA.**`; empty: all.
        owners: of a writer, whose devices it may load: uuids or labels, `centre`, or `*` for all;
            empty: those of the centre.
        note: for people.
        expires: seconds since the epoch.
        lasts: seconds from now, by the receiver's clock; goes before `expires`.
        allow_deletes: whether what its sender deletes may take anything out of sight; of a writer,
            whether what it loads may stand above points that are there.
        certificate: name of a client certificate (DNS or URI) that is bound to all this, in the
            place of a token.
    """

    role: str
    sender: str | None = None
    scope: list[str] = msgspec.field(default_factory=list)
    note: str = ""
    expires: float | None = None
    lasts: float | None = None
    allow_deletes: bool = True
    owners: list[str] = msgspec.field(default_factory=list)
    certificate: str | None = None


class ClockAnswer(Struct, frozen=True, kw_only=True):
    """`POST /v1/clock/confirm`: why the clock was not believed until now, None if it was."""

    was_doubted: str | None = None
    """Why the clock was not believed until now; None if it was."""


class TtlAnswer(Struct, frozen=True, kw_only=True):
    """`POST /v1/ttl/resume`, which confirms the clock too: why it was not believed until now."""

    was_suspended: str | None = None
    """Why nothing expired until now; None if it did."""
