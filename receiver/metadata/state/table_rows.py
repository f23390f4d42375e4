"""The rows of the engine's tables.

Rows never change: a commit puts another row in the place of one. So whoever took a row inside
`Engine.reading` may keep it. Each has `created` and `changed`, the timestamps of the commits that
made it and that it is from; `changed` is what a `Guard` compares.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from common.names import FilePath
from common.wire import Propagate
from receiver.metadata.model.ranks import NOW, NameRank, Rank, RankBelow, name_rank
from receiver.metadata.model.records import (
    DeletesVerdict,
    DeletionReason,
    FileOrigin,
    FileOutcome,
    ManifestMeta,
    ResourceMeta,
    TimePiece,
    TokenRole,
    WorkPlace,
)
from receiver.metadata.state.ranges import Devices

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "OPEN_WORK",
    "AdoptionRow",
    "ClockRow",
    "DeleteWindowRow",
    "DeletionsRow",
    "DeletionsSegment",
    "FileRow",
    "FileState",
    "HeldDeletesRow",
    "LostRow",
    "OwnerRow",
    "QuarantineRow",
    "SchemaPositionRow",
    "SenderRow",
    "TaskRow",
    "TokenRow",
    "TxnRow",
    "UploadTimeRow",
    "UploadedRow",
    "WorkRow",
    "WorkState",
    "WorkStood",
]


class FileState(StrEnum):
    """Where a file that was loaded once stands now."""

    LIVE = "live"
    RETIRED = "retired"
    """Visible; gone at the edge."""
    QUARANTINED = "quarantined"
    SUPERSEDED = "superseded"
    """Gone at the edge, and left out: files above it give every point of it."""
    DELETED = "deleted"


class _Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all rows. They hold no cycles, so the collector need not look at them."""

    created: int
    changed: int


class ClockRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of the clock; see `records.ClockCorrected`.

    Attributes:
        judged_since: timestamps from this one on were given by a clock that was judged.
        changed: the commit of the last correction, 0 for none.
    """

    judged_since: int
    pieces: tuple[TimePiece, ...] = ()
    why: str = ""
    boot: str = ""
    offset: float = 0.0
    changed: int = 0


class SenderRow(_Row, frozen=True, kw_only=True):
    """A sender that has been here.

    Attributes:
        first_seen: when, as a commit timestamp.
        last_task: the task of its that was committed last, in the commit `last_commit` (0: none).
        propagate: what its word may take away; None before it was told.
        mode_look: the look that told so first; 0 if it never told anything else.
        restored: the commit by which an operator said that it was restored from a copy; 0 for none,
            and once its list has begun anew.
        late_after: silence after which it is late, seconds, 0 for never; None: as configured.
    """

    uuid: str
    label: str
    directory: str
    first_seen: int
    epoch: str | None = None
    previous: str | None = None
    epoch_task: str | None = None
    confirmed: bool = False
    last_task: str | None = None
    last_commit: int = 0
    propagate: Propagate | None = None
    mode_look: int = 0
    restored: int = 0
    late_after: float | None = None


class AdoptionRow(_Row, frozen=True, kw_only=True):
    """A task whose files were taken from another receiver; see `records.FilesAdopted`."""

    sender: str
    task: str
    source: str


class TokenRow(_Row, frozen=True, kw_only=True):
    """A token; see `records.TokenPut`."""

    id: str
    role: TokenRole
    hash: str
    sender: str | None
    scope: tuple[str, ...]
    note: str
    expires: float | None
    allow_deletes: bool = True
    owners: tuple[str, ...] = ()
    certificate: str | None = None


class SchemaPositionRow(_Row, frozen=True, kw_only=True):
    """How far a sender's schema log is applied; see `records.SchemaSynced`.

    Attributes:
        applied: records of this log that took effect, over all steps.
        unapplied: how many did not.
        failed: (record, reason) of the last hundred of those.
    """

    sender: str
    identity: str
    offset: int
    mark: str
    applied: int
    unapplied: int
    failed: tuple[tuple[str, str], ...]


class OwnerRow(_Row, frozen=True, kw_only=True):
    """Who owns a device, since which commit. Devices claimed together share one row."""

    sender: str

    @property
    def since(self) -> int:
        """The commit in which this sender became the owner."""
        return self.changed


class FileRow(_Row, frozen=True, kw_only=True):
    """A file that is or was loaded.

    Attributes:
        path: as the sender names it.
        physical: as the receiver names it; unique for ever.
        devices: with their ranges, until the file is deleted.
        retired: gone at the edge; kept while the file is quarantined.
        reason: of a quarantine or deletion.
        deleted: the commit that deleted it, 0 while it is there.
        registered: whether its series are in the schema (`records.SeriesLoaded`); files that were
            loaded before there was a schema wait for it.
        verified: the commit of its last verification, 0 for never, and after a quarantine.
        names: further paths under which the sender has it.
        first_look: see `records.FileLoaded`.
        closed_look: the same.
        last_look: see `records.FileRetired`; 0 while the sender has it.
        rests: of a superseded file, the physical paths of those that give its points.
        superseded: the commit that took it out of sight by a proof, 0 for none; kept when its
            bytes go.
        origin: of a file that was forwarded.
    """

    sender: str
    path: str
    physical: str
    size: int
    md5: str
    tail: str
    version: int
    devices: Devices
    first: int | None
    last: int | None
    series: int
    points: int
    task: str
    resource: ResourceMeta | None
    manifest: ManifestMeta | None
    data_dir: str
    state: FileState
    retired: bool = False
    reason: DeletionReason | str | None = None
    deleted: int = 0
    registered: bool = False
    verified: int = 0
    names: tuple[str, ...] = ()
    first_look: int = 0
    closed_look: int = 0
    last_look: int = 0
    rests: tuple[str, ...] = ()
    superseded: int = 0
    origin: FileOrigin | None = None

    @property
    def visible(self) -> bool:
        """Whether readers see it."""
        return self.state in (FileState.LIVE, FileState.RETIRED)

    @property
    def held(self) -> bool:
        """Whether it takes its sender's path: live, or quarantined and not gone at the edge."""
        return self.state is not FileState.DELETED and not self.retired

    @property
    def parsed(self) -> FilePath:
        """The sender's path, cut."""
        return FilePath.parse(self.path)

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths under which the sender has it, or had it last."""
        return (self.path, *self.names)

    @property
    def rank(self) -> Rank:
        """Where it stands among files that overlap it.

        Of a file that was loaded before looks were told, the commits that loaded and retired it
        stand for them: nothing better is known.
        """
        name = name_rank(self.parsed)
        below: tuple[RankBelow, ...] = ()
        if self.origin is not None:
            name, below = rank_of_origin(self.origin)
        first = self.first_look or self.created
        closed = self.closed_look or first
        last = (self.last_look or self.changed - 1) if self.retired else NOW
        return Rank(name, first, closed, last, self.created, self.physical, below)

    @property
    def author(self) -> str:
        """Whose deletions reach it: those of the edge that it comes from."""
        return author_of(self.sender, "" if self.origin is None else self.origin.author)

    @property
    def closed(self) -> int:
        """The first look that had it closed, as the `floor` of its author's deletions counts."""
        return self.rank.closed if self.origin is None else self.origin.below[0].closed

    @property
    def compactions(self) -> tuple[int, int] | None:
        """(cross, inner) of its name; None for a name that no database gave."""
        stem = self.parsed.stem
        return None if stem is None else stem.compactions


class TaskRow(_Row, frozen=True, kw_only=True):
    """A task that is done, and the fate of its paths (encoded: thousands of them are kept).

    `untold`: see `records.TaskDone`.
    """

    sender: str
    task: str
    count: int
    encoded: bytes
    untold: tuple[str, ...] = ()

    @property
    def commit(self) -> int:
        """The commit that holds the task."""
        return self.created

    @property
    def outcomes(self) -> list[FileOutcome]:
        """The fate of each path."""
        return _outcomes().decode(self.encoded)


class QuarantineRow(_Row, frozen=True, kw_only=True):
    """A file that could not be loaded; see `records.QuarantinePut`."""

    sender: str
    path: str
    digest: str
    size: int
    hold: bool
    reason: str
    kept: str | None
    device: str | None


class DeletionsSegment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Records of a deletion file that were seen first by one look.

    Attributes:
        end: bytes of the deletion file up to their end.
        floor: see `records.DeletionsNoted`.
        commit: that noted them, or let them be applied.
        applied: see `records.DeletionsNoted`.
        held: the digest of the list of held deletes that they stand on, while they do.
        kept: see `records.DeletionsNoted`.
    """

    end: int
    floor: int
    commit: int
    applied: bool
    held: str = ""
    kept: bool | None = None

    @property
    def may_apply(self) -> bool:
        """Whether they are kept, as far as is known, and no operator decided about them."""
        return not self.applied and not self.held and self.kept is not False


class DeletionsRow(_Row, frozen=True, kw_only=True):
    """What is known of the deletion file of a TsFile; see `records.DeletionsNoted`.

    Attributes:
        path: of the TsFile at its sender.
        physical: the loaded file; None while there is none.
        content: the whole records, from the begin.
        segments: which look saw which of them, in order.
        past: the commit since which they are of no file any more, and hide points of what had ended
            (`records.ListBegun`); 0 for none.
        was: the loaded file that they were of until then, if they were of one.
        by: see `records.DeletionsNoted`, where it is the author.
        heir: see `records.DeletionsNoted`.
    """

    sender: str
    path: str
    physical: str | None
    form: str
    content: bytes
    segments: tuple[DeletionsSegment, ...]
    past: int = 0
    was: str | None = None
    by: str = ""
    heir: str = ""

    @property
    def author(self) -> str:
        """Whose files it reaches."""
        return author_of(self.sender, self.by)


class DeleteWindowRow(_Row, frozen=True, kw_only=True):
    """What a sender deleted in a storage group since the commit `begun`.

    Attributes:
        listed: files that were listed then.
        count: of these, deleted or hidden since, without a proof.
    """

    sender: str
    group: str
    begun: int
    listed: int
    count: int


class LostRow(_Row, frozen=True, kw_only=True):
    """A file that is lost; see `records.FileLost`.

    Attributes:
        physical: the file in quarantine that stands for it; empty where there is none.
        acknowledged: the commit by which an operator knows of it, 0 for none.
    """

    sender: str
    path: str
    md5: str
    size: int
    first: int | None
    last: int | None
    reason: str
    physical: str = ""
    acknowledged: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """(sender, path, MD5)."""
        return self.sender, self.path, self.md5


class TxnRow(_Row, frozen=True, kw_only=True):
    """A transaction that was committed; see `records.TxnCommitted`."""

    id: int


class WorkState(StrEnum):
    """Where a task of background work stands."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_WORK: Final = (WorkState.PENDING, WorkState.RUNNING)
"""As long as it is one of these, nothing else may have its scope."""


class WorkStood(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a task of background work stood from a commit on (`changed`), until its next change."""

    changed: int
    state: WorkState
    attempt: int
    executor: str
    reason: str


class WorkRow(_Row, frozen=True, kw_only=True):
    """A task of background work; see `records.WorkAdded`.

    Attributes:
        attempt: how often it was taken.
        executor: who took it last.
        reason: why it waits again, failed or was cancelled.
        stood: how it stood before, the oldest first; of very many changes the last ones.
    """

    id: int
    kind: str
    spec: bytes
    scope: tuple[WorkPlace, ...]
    priority: int
    state: WorkState = WorkState.PENDING
    attempt: int = 0
    executor: str = ""
    reason: str = ""
    stood: tuple[WorkStood, ...] = ()


class UploadTimeRow(_Row, frozen=True, kw_only=True):
    """When files of a storage group are uploaded; see `records.UploadSet`."""

    path: str
    after: int


class UploadedRow(_Row, frozen=True, kw_only=True):
    """A file in the object store; see `records.FileUploaded`.

    Attributes:
        resource: of the last time that it was said.
        ended: the commit that forgot the file; its object stays for a while. 0 before.
        former: incarnation, number and resource as they were said before; those objects stay as
            long.
    """

    physical: str
    incarnation: int
    size: int
    digests: str
    resource: str = ""
    ended: int = 0
    again: int = 0
    former: tuple[tuple[int, int, str], ...] = ()


class HeldDeletesRow(_Row, frozen=True, kw_only=True):
    """A list of held deletes; see `records.DeletesHeld`.

    Attributes:
        verdict: `allow` or `drop`, None while nobody has decided.
        used: the look that told files of it after the verdict; None before one did.
    """

    digest: str
    sender: str
    group: str
    files: tuple[str, ...]
    records: bool
    reason: str
    look: int
    verdict: DeletesVerdict | None = None
    used: int | None = None


def author_of(sender: str, author: str) -> str:
    """In whose files deletions of a sender count, be they forwarded: nobody else's word does."""
    return f"{sender}/{author}" if author else sender


def rank_of_origin(origin: FileOrigin) -> tuple[NameRank | None, tuple[RankBelow, ...]]:
    """What ranks a forwarded file: its name at the edge, and where it stands below."""
    below = tuple(
        RankBelow(
            each.engine, each.first, each.closed, each.last or NOW, each.loaded, each.physical
        )
        for each in origin.below
    )
    return name_rank(FilePath.parse(origin.path)), below


@cache
def _outcomes() -> msgspec.msgpack.Decoder[list[FileOutcome]]:
    return msgspec.msgpack.Decoder(list[FileOutcome])


def encode_outcomes(outcomes: Sequence[FileOutcome]) -> bytes:
    """Outcomes as a `TaskRow` keeps them."""
    return msgspec.msgpack.encode(outcomes)
