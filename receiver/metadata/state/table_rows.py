"""The rows of the engine's tables: of senders, of their files and tasks, of owners.

Rows never change: a commit puts another row in the place of one. So whoever took a row inside
`Engine.reading` may keep it. Each has `created` and `changed`, the timestamps of the commits that
made it and that it is from; `changed` is what a `Guard` compares.

Those of deletions stand in `deletion_rows`, of the object store in `uploaded_rows`, of background
work in `work_rows`.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from common.names import FilePath
from common.wire import Propagate
from receiver.metadata.model.ranks import NOW, NameRank, Rank, RankBelow, name_rank
from receiver.metadata.model.records import (
    DeletionReason,
    FileOrigin,
    FileOutcome,
    ManifestMeta,
    ResourceMeta,
    TimePiece,
    TokenRole,
)
from receiver.metadata.state.ranges import Devices

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "AdoptionRow",
    "ClockRow",
    "CommittedRow",
    "FileRow",
    "FileState",
    "LetGoRow",
    "LostRow",
    "OwnerRow",
    "QuarantineRow",
    "SchemaPositionRow",
    "SenderRow",
    "TaskRow",
    "TokenRow",
    "TxnRow",
    "author_of",
    "encode_outcomes",
    "is_same_in",
    "rank_of_origin",
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


class CommittedRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all rows. They hold no cycles, so the collector need not look at them.

    Attributes:
        created: timestamp of the commit that made it.
        changed: of the commit that it is from.
    """

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


class SenderRow(CommittedRow, frozen=True, kw_only=True):
    """A sender that has been here.

    Attributes:
        first_seen: when, as a commit timestamp.
        last_task: the task of its that was committed last, in the commit `last_commit` (0: none).
        propagate: what its word may take away; None before it was told.
        mode_look: the look that told so first; 0 if it never told anything else.
        restored: the commit by which an operator said that it was restored from a copy; 0 for none,
            and once its list has begun anew.
        late_after: silence after which it is late, seconds, 0 for never; None: as configured.
        called_back: the commit by which a deleted file that it may have came to be visible
            again last; 0 for none.
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
    called_back: int = 0


class AdoptionRow(CommittedRow, frozen=True, kw_only=True):
    """A task whose files were taken from another receiver; see `records.FilesAdopted`."""

    sender: str
    task: str
    source: str


class TokenRow(CommittedRow, frozen=True, kw_only=True):
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


class SchemaPositionRow(CommittedRow, frozen=True, kw_only=True):
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


class OwnerRow(CommittedRow, frozen=True, kw_only=True):
    """Who owns a device, since which commit. Devices claimed together share one row."""

    sender: str

    @property
    def since(self) -> int:
        """The commit in which this sender became the owner."""
        return self.changed


class FileRow(CommittedRow, frozen=True, kw_only=True):
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


class TaskRow(CommittedRow, frozen=True, kw_only=True):
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


class QuarantineRow(CommittedRow, frozen=True, kw_only=True):
    """A file that could not be loaded; see `records.QuarantinePut`."""

    sender: str
    path: str
    digest: str
    size: int
    hold: bool
    reason: str
    kept: str | None
    device: str | None


class LostRow(CommittedRow, frozen=True, kw_only=True):
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


class LetGoRow(CommittedRow, frozen=True, kw_only=True):
    """A file that an operator deleted; see `records.LetGoNoted`.

    Attributes:
        deleted: the commit that deleted it; 0 in what an earlier release noted of a sender that
            had told the end before that was due.
    """

    sender: str
    path: str
    md5: str = ""
    deleted: int = 0
    tail: str = ""


class TxnRow(CommittedRow, frozen=True, kw_only=True):
    """A transaction that was committed; see `records.TxnCommitted`."""

    id: int


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


def is_same_in(row: FileRow, group: str) -> bool:
    """Whether the bytes of a file would be of the same devices in the directory of a group.

    Devices of tables are those of the database that a file lies in, which no byte of it names.
    """
    return row.parsed.sg == group or not any(each.startswith("/") for each in row.devices)


@cache
def _outcomes() -> msgspec.msgpack.Decoder[list[FileOutcome]]:
    return msgspec.msgpack.Decoder(list[FileOutcome])


def encode_outcomes(outcomes: Sequence[FileOutcome]) -> bytes:
    """Outcomes as a `TaskRow` keeps them."""
    return msgspec.msgpack.encode(outcomes)
