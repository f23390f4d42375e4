"""What operators' calls take and answer, beside the views of `receiver.operator.views`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from common.schemaitems import Item
from common.step_progress import StepProgress
from common.wire import SchemaFailure, Struct
from common.wire.base import CommitTs
from receiver.operator.retired_views import LostView
from receiver.operator.sender_views import SenderView, SharedLabel
from receiver.operator.views import HeldDeletesView, QuarantineView, TokenView

__all__ = [
    "AdoptionAnswer",
    "AdoptionFile",
    "AdoptionOddity",
    "AdoptionRequest",
    "BadCompaction",
    "CentreLoadAnswer",
    "CentreLoadFile",
    "CentreLoadRequest",
    "ClockAnswer",
    "DeletesDecided",
    "HeldDeletesAnswer",
    "ImportAnswer",
    "ImportRequest",
    "QuarantineAnswer",
    "QuarantineKey",
    "ReleaseRequest",
    "RetiredKey",
    "RetryAnswer",
    "SenderSettings",
    "SendersAnswer",
    "TokenRequest",
    "TokensAnswer",
    "TransferRequest",
    "TtlAnswer",
    "VerdictEntry",
    "VerdictsAnswer",
    "VerdictsRequest",
]


class StepNow(Struct, frozen=True, kw_only=True):
    """How far a work is that is not over.

    Attributes:
        step: what is being done, in words.
        done: things of that step that are done with.
        total: of them all; 0 where nobody knows how much it is.
        bytes: of those that are done with.
        total_bytes: of all.
    """

    step: str
    done: int = 0
    total: int = 0
    bytes: int = 0
    total_bytes: int = 0

    @classmethod
    def of(cls, now: StepProgress | None) -> StepNow | None:
        """What is told of a moment, if there is one."""
        return None if now is None else cls(**now._asdict())


class SendersAnswer(Struct, frozen=True, kw_only=True):
    """`GET /v1/senders`."""

    senders: list[SenderView]
    shared_labels: list[SharedLabel] = msgspec.field(default_factory=list)
    """Labels that several senders have which were neither removed nor replaced."""


class CentreLoadRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/loads`: load TsFiles of the receiver's machine, without an edge.

    Attributes:
        task: an id of 32 hex digits, made by who asks, under which the answer is asked for.
        paths: absolute, of directories or files.
        storage_group: of files that do not lie as a database lays them.
        owner: uuid or label of the sender whose devices they are, and whose new ones become; empty:
            the centre's own.
        others: of further senders whose devices may be among them; `*`: of all.
        dry_run: only say what would become of each file.
        on_duplicate: `error`: refuse the load where a point of it is here already;
            `keep`, `replace`: load above them; `skip`: below, so that what is missing counts.
    """

    task: str
    paths: list[str]
    storage_group: str | None = None
    owner: str = ""
    others: list[str] = msgspec.field(default_factory=list)
    dry_run: bool = False
    on_duplicate: str = "error"


class CentreLoadFile(Struct, frozen=True, kw_only=True):
    """What became, or would become, of a file.

    Attributes:
        source: where it lies.
        path: that it is loaded under.
        size: bytes; 0 of one that has the content of another one of the load.
        result: `loaded`, `already`, `expired`, `refused`, or `missing`: found bad while copies were
            awaited.
        device: that the reason names.
        reason: of a file that is not loaded.
    """

    source: str
    path: str
    size: int
    result: str
    device: str | None = None
    reason: str | None = None


class CentreLoadAnswer(Struct, frozen=True, kw_only=True):
    """`GET /v1/loads/<task>`. All files are loaded in one commit, or none is.

    Attributes:
        task: the id of the load.
        done: whether it is over.
        dry_run: whether nothing was to be changed.
        trouble: why one that is not over has to wait.
        progress: how far one is that is not over.
        files: what became of each, when it is.
    """

    task: str
    done: bool
    dry_run: bool = False
    trouble: str | None = None
    progress: StepNow | None = None
    files: list[CentreLoadFile] = msgspec.field(default_factory=list)


class AdoptionRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/adoptions`: take over what an old receiver, or a copied tree, has on this machine.

    Attributes:
        task: an id of 32 hex digits, made by who asks, under which the answer is asked for.
        paths: absolute, of its data and system directories.
        owner: uuid or label of the sender of whatever else says nothing; empty: nobody.
        groups: the same of storage groups.
        storage_group: of TsFiles that do not lie as a database lays them.
        with_deleted: take files that the old server has deleted points of, with all their points.
        move: take the files themselves, so that the old receiver has them no more.
        commit: do it; otherwise only say what would become of each file.
    """

    task: str
    paths: list[str]
    owner: str = ""
    groups: dict[str, str] = msgspec.field(default_factory=dict)
    storage_group: str | None = None
    with_deleted: bool = False
    move: bool = False
    commit: bool = False


class AdoptionFile(Struct, frozen=True, kw_only=True):
    """What became, or would become, of a file.

    Attributes:
        source: where it lies.
        path: at its sender.
        sender: uuid of it.
        size: bytes.
        result: `loaded`, `already`, `expired`, or why it is not taken: `conflict`, `refused`, ...
        device: that the reason names.
        reason: of a file that is not loaded.
        deletions: whether what the old server has deleted of it comes with it.
    """

    source: str
    path: str
    sender: str
    size: int
    result: str
    device: str | None = None
    reason: str | None = None
    deletions: bool = False


class AdoptionOddity(Struct, frozen=True, kw_only=True):
    """Something that is left out, or to be known: where it is, and why."""

    source: str
    """The file or directory, as it is called there."""
    reason: str


class AdoptionAnswer(Struct, frozen=True, kw_only=True):
    """`GET /v1/adoptions/<task>`. Where one file is refused, nothing is taken.

    Attributes:
        task: the id of the adoption.
        done: whether it is over.
        committed: whether it was carried out.
        progress: how far one is that is not over.
        files: what became of each.
        odd: what is left out, and what is to be known.
        devices: that belong to a sender by the old receiver's word, and are in no file.
    """

    task: str
    done: bool
    committed: bool = False
    progress: StepNow | None = None
    files: list[AdoptionFile] = msgspec.field(default_factory=list)
    odd: list[AdoptionOddity] = msgspec.field(default_factory=list)
    devices: dict[str, str] = msgspec.field(default_factory=dict)


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


class VerdictEntry(Struct, frozen=True, kw_only=True):
    """What a verification found of a loaded file.

    Attributes:
        physical: its name at the receiver.
        md5: of the content that was judged, 32 lower-case hex digits.
        bad: why it goes to quarantine; None if every point was proved.
        as_sent: of a bad file, whether its bytes are those that were loaded: then it is put on
            hold, else it is mended from who has it whole, or its sender is asked for it again.
    """

    physical: str
    md5: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    bad: str | None = None
    as_sent: bool = False


class BadCompaction(Struct, frozen=True, kw_only=True):
    """A compaction whose merged files are not what readers get of its inputs.

    Attributes:
        id: of it.
        reason: what was found.
    """

    id: int
    reason: str


class ComparedOutput(Struct, frozen=True, kw_only=True):
    """A merged file that was compared with what it stands for.

    Attributes:
        physical: its path beneath the data directory.
        size: bytes that were read.
        md5: of those, 32 hex digits.
    """

    physical: str
    size: int
    md5: str


class ProvedCompaction(Struct, frozen=True, kw_only=True):
    """A compaction whose merged files are what readers get of its inputs.

    Attributes:
        id: of it.
        outputs: all of its merged files; it counts for these bytes only.
    """

    id: int
    outputs: list[ComparedOutput]


class VerdictsRequest(Struct, frozen=True, kw_only=True):
    """`POST /v1/verdicts`: at most 10,000, recorded in one commit."""

    verdicts: list[VerdictEntry]
    """One for each file."""
    compactions: list[BadCompaction] = msgspec.field(default_factory=list)
    """That are dissolved: their inputs are read in their place."""
    proved_compactions: list[ProvedCompaction] = msgspec.field(default_factory=list)
    """That were compared with what they stand for, and are right."""


class VerdictsAnswer(Struct, frozen=True, kw_only=True):
    """What became of verdicts; asked again with the same ones, the answer is the same.

    Attributes:
        verified: files that are verified as of now.
        quarantined: files that are in quarantine, put there now or before.
        stale: verdicts about files that are gone, hidden or of other content by now.
        dissolved: compactions that are read no more, as of now or before.
        mended: bad files that are here as they were loaded, from a storage node or the object
            store. They are not verified by that.
        compactions_verified: of those that were proved, such as hold with these very files.
    """

    verified: int = 0
    quarantined: int = 0
    stale: int = 0
    dissolved: int = 0
    mended: int = 0
    compactions_verified: int = 0
