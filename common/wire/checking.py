"""The check that begins a round: who asks, what the receiver wants, holds, allows and has lost."""

from __future__ import annotations

from enum import StrEnum

from common.wire.base import Count, Struct, Time, ToldCommit


class TaskMark(Struct, frozen=True, kw_only=True):
    """A task that the sender knows to be committed: its id and the commit that holds it."""

    task: str
    commit: Count


class CheckRequest(Struct, frozen=True, kw_only=True):
    """`POST /check`, the first call of a round."""

    protocol: int
    """Version of the protocol that the sender speaks."""
    version: str
    sender: str
    label: str = ""
    partition_interval_ms: Count
    """Width of a time partition at the sender, in milliseconds."""
    time_unit: str = "ms"
    """Precision of the timestamps in the sender's files: ms, us or ns."""
    engine: str | None = None
    """uuid of the engine that `epoch`, `last_task` and `newest_commit` belong to."""
    epoch: str | None = None
    last_task: TaskMark | None = None
    """The last task that the sender knows the outcome of; None for none."""
    newest_commit: Count = 0
    look: Count = 0
    """The number of the sender's last look, so that the next one has a greater one."""
    clock: float = 0.0
    """What the sender's clock shows, seconds since the epoch; 0 from one that does not tell."""
    machine: str = ""
    """Which boot of which machine that clock is of: several senders on one have one clock."""


class History(StrEnum):
    """How the receiver's past relates to what the sender remembers of it."""

    CONTINUES = "continues"
    NEW = "new"
    """Another engine, or the first contact."""
    REWOUND = "rewound"
    """The same engine, but it lacks a commit that it once reported: an old copy was restored."""


class Wanted(Struct, frozen=True, kw_only=True):
    """A file that was reported loaded, and found bad since."""

    path: str
    size: Count
    md5: str
    reason: str


class HeldRecords(Struct, frozen=True, kw_only=True):
    """Records of deletion files that hide nothing until an operator of the receiver decides."""

    group: str
    """The storage group."""
    files: Count
    """Of which they would hide too much."""
    reason: str
    """With the digest that lets them through."""


class Limits(Struct, frozen=True, kw_only=True):
    """What the receiver accepts in one go."""

    max_file_bytes: Count
    """Bytes of one file."""
    max_chunk_bytes: Count
    """Bytes of one block of a file."""
    max_batch_bytes: Count
    """Bytes of one batch of small files."""
    max_page_items: Count
    """Entries of one page of a plan, manifest or list."""
    max_page_bytes: Count
    """Bytes of one such page."""
    max_task_items: Count = 0
    """Files, and ends, of one task; 0 from an older receiver, which takes 200,000, and the end in
    one body."""
    blocks_ahead: Count = 1
    """Blocks of one upload that may be on their way at once, each behind the other."""
    encodings: list[str] = []
    """What a block or a batch may have as `Content-Encoding`."""


class SchemaFailure(Struct, frozen=True, kw_only=True):
    """A record of a schema log that was not applied, and why."""

    record: str
    """The record, as text of the log."""
    reason: str


class SchemaPosition(Struct, frozen=True, kw_only=True):
    """How far a sender's schema log is applied, and what came of it: the truth of both sides."""

    identity: str
    """Which log of the sender it is."""
    offset: Count
    """Bytes of a text log; the commit that was reached, of a receiver's changes."""
    mark: str = ""
    """What the sender gave with it, to know its log again."""
    applied: Count = 0
    """Records of the last step that took effect."""
    unapplied: Count = 0
    """Records of the last step that took none."""
    failed: list[SchemaFailure] = []
    """The first hundred of those that did not."""
    commit: ToldCommit = 0


class VerifiedFiles(Struct, frozen=True, kw_only=True):
    """How many of a sender's files a verification has proved, point by point."""

    files: Count = 0
    """Loaded and visible."""
    verified: Count = 0
    """Of these."""


class LostFile(Struct, frozen=True, kw_only=True):
    """A file that the sender had loaded here and has no more."""

    path: str
    md5: str
    size: Count
    first_time: Time | None = None
    """Of its data, as `last_time`; None where it is not known."""
    last_time: Time | None = None
    reason: str = ""
    """Why it is not at the sender any more, for people."""


class LostFiles(Struct, frozen=True, kw_only=True):
    """What of a sender is lost, at both ends, and not acknowledged by an operator of the receiver.

    `named` has the first 10,000 of `files`; `since` is the earliest time of data in any of them,
    None where that is not known of all.
    """

    files: Count
    since: Time | None = None
    """Earliest time of data in them, in its unit; None where that is not known of all."""
    named: list[LostFile] = []
    """The first 10,000 of them."""


class IncarnationMark(Struct, frozen=True, kw_only=True):
    """Which of the owners of an engine's copies in an object store a centre is."""

    number: Count
    """Counted from 1; a restored centre has the next one."""
    ident: str
    """Random; tells it from another centre that took the same number."""


class CheckAnswer(Struct, frozen=True, kw_only=True):
    """What the receiver is, and where it stands with this sender."""

    protocol: int
    """Version of the protocol; another one is refused."""
    version: str
    engine: str
    newest_commit: Count
    epoch: str | None
    history: History
    """Whether what the sender knows of this engine goes on, is of another one, or ahead of it."""
    limits: Limits
    """What it takes in one go."""
    scope: list[str] = []
    """Device patterns that the token may write; empty: all."""
    wanted: list[Wanted] = []
    held: list[Wanted] = []
    """Files of this sender that were loaded and are in quarantine on hold: their bytes are as they
    were sent, and bad. They are not to come again; the plan says so for this content."""
    busy: str | None = None
    """Id of a task of this sender that is being loaded now."""
    unfinished: str | None = None
    """Id of a task that was started and has no end."""
    schema: bool = False
    """Whether the receiver takes the step `schema`."""
    schema_position: SchemaPosition | None = None
    """What it has applied of this sender's schema log; None for nothing."""
    verified: VerifiedFiles | None = None
    """None from a receiver that does not tell."""
    look: Count = 0
    """The number of the look that this round takes: greater than that of every look before. 0 from
    a receiver that knows no looks."""
    compares: bool = False
    """Whether it takes `POST /listed` and `POST /lost`."""
    lost: LostFiles | None = None
    """None for nothing."""
    anew: bool = False
    """The receiver's operator says that this sender was restored from a copy: its list is to begin
    anew, in a task that says so and follows a whole look."""
    origins: bool = False
    """Whether it takes origins of forwarded files."""
    held_records: list[HeldRecords] = []
    """Lists of this sender that wait, as many as fit."""
    resources: bool = False
    """Whether the `.resource` of a loaded file that was written anew may come alone: the plan then
    says of a file that is loaded already that its `.resource` is wanted."""
    incarnation: IncarnationMark | None = None
    """None from a centre that never had an object store."""
    token_until: float | None = None
    """When the token ends that this came with, seconds since the epoch; None for never."""
    certificate_until: float | None = None
    """When the receiver's own certificate ends; None without one."""


class Heartbeat(Struct, frozen=True, kw_only=True):
    """`POST /heartbeat`: a sender says that it lives, what it has to do, and what is in the way.

    Numbers of files are those of the last round that looked.
    """

    version: str
    label: str = ""
    pending_files: Count = 0
    """Files that are closed and not loaded yet."""
    pending_bytes: Count = 0
    """Bytes of those."""
    complete_until: Time | None = None
    """Nothing before this time of the data waits at the edge, in its unit; None if not known."""
    state: str = ""
    """What the sender does, in words; `no daemon` of one that cron calls."""
    conflicts: Count = 0
    """Files with a device of another sender, or other content under their path."""
    quarantined: Count = 0
    """Files that the receiver has in quarantine."""
    failed: Count = 0
    """Files that were refused, or not loaded for another reason."""
    waiting: Count = 0
    """Files that are not closed, or not ready."""
    overdue: Count = 0
    """Of those, that have been so for longer than `wait_alarm`."""
    held: Count = 0
    """Deletions that wait for the receiver's operator."""
    lost: Count = 0
    """Files that neither side has any more."""
    round_at: float = 0.0
    """When the last round ended, by the sender's clock, seconds since the epoch; 0 for none."""
    problem: str = ""
    """What ended that round early."""
    free_bytes: Count | None = None
    """Of the data directory at the edge that has least."""
    client_certificate_until: float | None = None
    """When the client certificate ends that it shows, seconds since the epoch; None without one,
    and of a version that does not say."""


class HeartbeatAnswer(Struct, frozen=True, kw_only=True):
    """What may make the sender start a round early."""

    engine: str
    wanted: bool = False
