"""The wire types of protocol version 1: what sender and receiver say to each other.

Base path `/sync/v1`; JSON bodies are these structs; errors are problem+json (`Problem`). The page
docs/protocol.md tells the story of a round; the OpenAPI document that the receiver serves lists
the calls. Sizes are bytes, times inside files are raw integers of the file's own precision, times
of the system are seconds since the epoch unless a name says otherwise.

Unknown members are ignored on both sides, so a newer peer may say more.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from common.decoders import from_json
from common.digests import xxh3_64
from common.errors import DigestError, Permanent, ProtocolError, Transient, TsferryError, by_slug

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROTOCOL = 1
BASE = "/sync/v1"
TUS_VERSION = "1.0.0"
SENDER_HEADER = "Tsferry-Sender"
EPOCH_HEADER = "Tsferry-Epoch"
SIZE_HEADER = "Tsferry-Decompressed-Size"
"""Bytes of a body with a `Content-Encoding` once it is decompressed, so that they are judged, and
counted, before it is."""
PROBLEM_TYPE = "application/problem+json"
BATCH_TYPE = "application/vnd.tsferry.batch"
SCHEMA_TYPE = "application/vnd.tsferry.schema"
OFFSET_TYPE = "application/offset+octet-stream"
CHECKSUM_MISMATCH = 460
"""HTTP status of the tus checksum extension."""

"""The tail digest of a plan entry is xxh3-128 (hex) over the last min(size, 64 KiB) bytes."""


Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A size, offset, number or commit ts. JSON has numbers of any length; what is counted here has to
fit into a file system, a log record and a column of 64 bits, and is refused at the door if not."""
Time = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A raw time of a TsFile, in its own precision."""


class Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all wire types.

    A member that has its default is left out, so a default is part of the protocol: to change one
    would change what older peers mean by their silence.
    """


class Problem(Struct, frozen=True, kw_only=True):
    """An error as RFC 9457 has it; `type` is `urn:tsferry:<slug>` of the error tree."""

    type: str = "about:blank"
    title: str = ""
    status: int = 500
    detail: str = ""
    retry_after: float | None = None
    offset: Count | None = None
    device: str | None = None
    path: str | None = None
    line: Count | None = None
    """Of a statement, where it is wrong; from 1 up, as the column."""
    column: Count | None = None


# -- check -------------------------------------------------------------------------------------


class TaskMark(Struct, frozen=True, kw_only=True):
    """A task that the sender knows to be committed: its id and the commit that holds it."""

    task: str
    commit: Count


class CheckRequest(Struct, frozen=True, kw_only=True):
    """`POST /check`, the first call of a round."""

    protocol: int
    version: str
    sender: str
    label: str = ""
    partition_interval_ms: Count
    time_unit: str = "ms"
    """Precision of the timestamps in the sender's files: ms, us or ns."""
    engine: str | None = None
    """uuid of the engine that `epoch`, `last_task` and `newest_commit` belong to."""
    epoch: str | None = None
    last_task: TaskMark | None = None
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
    max_chunk_bytes: Count
    max_batch_bytes: Count
    max_page_items: Count
    max_page_bytes: Count
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
    reason: str


class SchemaPosition(Struct, frozen=True, kw_only=True):
    """How far a sender's schema log is applied, and what came of it: the truth of both sides."""

    identity: str
    offset: Count
    """Bytes of a text log; the commit that was reached, of a receiver's changes."""
    mark: str = ""
    """What the sender gave with it, to know its log again."""
    applied: Count = 0
    """Records of the last step that took effect."""
    unapplied: Count = 0
    failed: list[SchemaFailure] = []
    """The first hundred of those that did not."""
    commit: Count = 0


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
    named: list[LostFile] = []


class CheckAnswer(Struct, frozen=True, kw_only=True):
    """What the receiver is, and where it stands with this sender."""

    protocol: int
    version: str
    engine: str
    newest_commit: Count
    epoch: str | None
    history: History
    limits: Limits
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


# -- what a forwarding centre hands up -----------------------------------------------------------


class LooksBelow(Struct, frozen=True, kw_only=True):
    """Where a file stands at a centre below: what that one's readers rank it by."""

    engine: str
    """uuid of that centre's metadata engine, by whose commits looks are numbered there."""
    first: Count
    closed: Count
    last: Count = 0
    """The last look that had it; 0 while its sender has it."""
    loaded: Count
    """The commit that loaded it."""
    physical: str
    """Its name there."""


class OriginEntry(Struct, frozen=True, kw_only=True):
    """Where a file that a forwarding centre hands up comes from."""

    sender: str
    """uuid of the edge."""
    path: str
    """At the edge."""
    below: list[LooksBelow]
    """At each centre on the way, from the edge on."""


class EndMeaning(StrEnum):
    """What it means at the centre above that a forwarding centre has a file no more."""

    RETIRED = "retired"
    """Nobody deleted it: it stays there, whatever became of the copy."""
    DELETED = "deleted"
    """Its edge is a mirror, and has it no more; it is deleted if the forwarder is one too."""
    EVERYWHERE = "everywhere"
    """An operator below deleted it everywhere."""


class EndBelow(Struct, frozen=True, kw_only=True):
    """The end of a forwarded file, as it was told to the centre below."""

    path: str
    last: Count = 0
    """The last look that had it there, where `origin` is not known any more."""
    origin: OriginEntry | None = None
    """With the last looks that had it."""
    meaning: EndMeaning = EndMeaning.RETIRED


# -- tasks -------------------------------------------------------------------------------------


class Propagate(StrEnum):
    """What a file that is gone at the edge means at the centre."""

    REPLACED = "replaced"
    ALL = "all"
    NEVER = "never"


class StartRequest(Struct, frozen=True, kw_only=True):
    """`PUT /tasks/<id>`: start a task, or resume it."""

    engine: str
    epoch: str | None = None
    propagate: Propagate = Propagate.REPLACED
    look: Count = 0
    """The look that the task tells of; 0 from a sender that takes none."""
    anew: bool = False
    """All that the sender has is listed behind this task, and begins anew: what it tells as ended
    is only retired, and of deletion files it tells all."""


class TaskState(StrEnum):
    """The life of a task at the receiver."""

    OPEN = "open"
    LOADING = "loading"
    DONE = "done"


class Result(StrEnum):
    """What became of one path of a task."""

    LOADED = "loaded"
    ALREADY = "already"
    DELETED = "deleted"
    RETIRED = "retired"
    """Gone at the edge, kept at the centre, off the sender's list."""
    HELD = "held"
    """A deletion that waits for the additions of its partition."""
    CONFLICT = "conflict"
    REFUSED = "refused"
    QUARANTINED = "quarantined"
    EXPIRED = "expired"
    MISSING = "missing"
    """Named in the manifest, and not received whole or not to be put in its place now: the next
    round tries it again, without the bytes that are here."""


class Outcome(Struct, frozen=True, kw_only=True):
    """The committed fate of one path of a task."""

    path: str
    result: Result
    device: str | None = None
    reason: str | None = None
    owner: str | None = None
    """Only where the receiver reveals owners."""
    hold: bool = False
    """For a quarantine: do not try again by itself. For an end that is held: until an operator of
    the receiver lets it through."""


class SchemaKind(StrEnum):
    """What a sender's schema log is."""

    TEXT = "iotdb-text"
    """`mlog.txt`, with the slots of its `tlog.txt`."""
    CHANGES = "changes"
    """JSON lines of `common.schemaitems`: what changed in the sender's receiver, or database."""


class SchemaStaged(Struct, frozen=True, kw_only=True):
    """What the receiver has of a schema that no task has brought to its end yet."""

    kind: SchemaKind
    identity: str
    base: Count
    size: Count
    """Bytes of the log that are here for good: the next block begins there."""
    digest: str
    """xxh3-128 (hex) of these."""


class SchemaEnd(Struct, frozen=True, kw_only=True):
    """The schema that a task brings: blocks of one log, and where they end."""

    kind: SchemaKind
    identity: str
    base: Count
    """Where they begin: the offset that is applied, or 0 for the whole log."""
    size: Count
    """Bytes of the log in all blocks."""
    offset: Count
    """How far the log is applied, once they are."""
    news: Count = 0
    """Deletions that begin here or behind (offset in the log) have not been told before. Those
    before it are old: they take nothing that holds loaded data."""
    mark: str = ""
    """At most 1,024 characters, given back by `SchemaPosition`."""


class SchemaAnswer(Struct, frozen=True, kw_only=True):
    """`PATCH /tasks/<id>/schema`: bytes of the log that are here for good."""

    size: Count


class TaskAnswer(Struct, frozen=True, kw_only=True):
    """State of a task; `outcomes` and `commit` once it is done."""

    task: str
    state: TaskState
    epoch: str | None = None
    """The epoch of all further calls of this task, and of the next round's check."""
    commit: Count = 0
    outcomes: list[Outcome] = []
    schema_staged: SchemaStaged | None = None
    """In the answer to the start: a schema that was begun."""
    schema_position: SchemaPosition | None = None
    """Once it is done: what is applied of the sender's schema log by now."""
    untold: list[str] = []
    """Once it is done: TsFiles whose deletion files are to be told again; nothing of it was taken
    of what they told in this task."""
    held_records: list[HeldRecords] = []
    """Once it is done: as in the answer to the check, by now."""


class ResourceEntry(Struct, frozen=True, kw_only=True):
    """The `.resource` beside a TsFile; it is shipped, and never part of the file's identity."""

    size: Count
    md5: str


class PlanEntry(Struct, frozen=True, kw_only=True):
    """One file that the sender would send."""

    path: str
    size: Count
    tail: str
    md5: str | None = None
    replaces: bool = False
    """Other content under a path that was loaded before."""
    retry: bool = False
    """The operator asked for another try of a quarantined file."""
    first_time: Time | None = None
    last_time: Time | None = None
    devices: list[str] = []
    """As the sender reads them; a hint that saves bytes. The receiver judges by its own reading."""
    resource: ResourceEntry | None = None
    origin: str = ""
    """uuid of the edge that a forwarded file comes from: content of another one is not it."""
    deletes: bool = False
    """Its deletions are told with it: content that has another name besides is not it."""


class PlanPage(Struct, frozen=True, kw_only=True):
    """`POST /tasks/<id>/plan`."""

    entries: list[PlanEntry]


class Action(StrEnum):
    """What the sender is to do with a file."""

    SEND = "send"
    RESUME = "resume"
    HAVE = "have"
    """Received and verified, not loaded yet: nothing to send, name it in the manifest."""
    ALREADY = "already"
    """Loaded with the same content: nothing to send, goes to the list of loaded files."""
    EXPIRED = "expired"
    CONFLICT = "conflict"
    REFUSED = "refused"


class PlanDecision(Struct, frozen=True, kw_only=True):
    """The answer for one entry, in the order of the page."""

    path: str
    action: Action
    offset: Count = 0
    upload: str | None = None
    """Id of the partial upload to resume, for `/files/<id>`."""
    device: str | None = None
    reason: str | None = None
    hold: bool = False
    resource: bool = False
    """Whether the `.resource` is still wanted."""
    md5: str | None = None
    """For `already` and `have`: MD5 of what the receiver holds, to be compared by the sender."""


class PlanAnswer(Struct, frozen=True, kw_only=True):
    """Decisions, in the order of the page."""

    decisions: list[PlanDecision]


class DeletedPage(Struct, frozen=True, kw_only=True):
    """`POST /tasks/<id>/deleted`: loaded paths that are gone, or replaced, at the edge."""

    paths: list[str]


class DeletionsForm(StrEnum):
    """What a deletion file is."""

    MODS = "mods"
    MODS2 = "mods2"


class DeletionsPart(Struct, frozen=True, kw_only=True):
    """Whole records of the deletion file beside a TsFile, which need not be loaded, nor closed."""

    path: str
    form: DeletionsForm
    base: Count
    """Bytes of the deletion file before these; the receiver has them already, or 0."""
    content: bytes
    """Base64 in JSON."""
    floor: Count
    """The last look that could have seen these records and did not; 0 where none could have."""
    applied: bool = True
    """Whether readers are to leave out what is deleted."""
    author: str = ""
    """Of a forwarded one, in whose files, and by which engine's looks, `floor` counts:
    `<uuid of the edge>@<uuid of the engine>`."""


class DeletionsPage(Struct, frozen=True, kw_only=True):
    """`POST /tasks/<id>/deletions`: what is new in deletion files, committed with the task."""

    parts: list[DeletionsPart]


class DeletionsAnswer(Struct, frozen=True, kw_only=True):
    """What was taken is on the disk."""

    again: list[str] = []
    """Paths whose parts were not taken: what stands before them is not here. They begin with 0."""


class ProofEntry(Struct, frozen=True, kw_only=True):
    """What the sender read in each series of a file: see `common.tsfile.proof`."""

    root: str
    """xxh3-128 (hex) of the table of its series."""
    table: bytes | None = None
    """The table, packed; None where it is too long to travel. Base64 in JSON."""


class ManifestEntry(Struct, frozen=True, kw_only=True):
    """One file of the task as the sender knows it."""

    path: str
    size: Count
    md5: str
    series: Count
    points: Count
    proof: ProofEntry | None = None
    """None from a sender that makes none."""
    first_look: Count = 0
    """The first look that had the file, closed or not; 0 from a sender that takes none."""
    closed_look: Count = 0
    """The first look that had it closed."""
    last_look: Count = 0
    """The last look that had it, if it lives on at the sender only as a link; 0 while it has it."""
    origin: OriginEntry | None = None
    """Of a forwarded file. One that has ended below ends by the commit that it comes by."""


class ManifestPage(Struct, frozen=True, kw_only=True):
    """`POST /tasks/<id>/manifest`: a part of what the end of a task says, before it comes.

    Number 0 begins anew; another one follows what was taken, or takes the place of what was taken
    under its number and behind that.
    """

    number: Count
    manifest: list[ManifestEntry] = []
    deleted: list[str] = []
    last_looks: list[Count] = []
    below: list[EndBelow] = []
    """See `EndRequest`."""


class EndRequest(Struct, frozen=True, kw_only=True):
    """`POST /tasks/<id>/end`: everything is sent; load it."""

    manifest: list[ManifestEntry]
    deleted: list[str] = []
    last_looks: list[Count] = []
    """For each path of `deleted` the last look that had it; empty from a sender that takes none."""
    below: list[EndBelow] = []
    """Of forwarded files that are in `deleted`, or were before, what their ends mean."""
    schema: SchemaEnd | None = None
    pages: Count = 0
    """Of the manifest that came before: what stands here follows them."""


class BatchResult(Struct, frozen=True, kw_only=True):
    """What became of one file of a batch; `problem` is None if it is on disk and verified."""

    path: str
    problem: Problem | None = None
    quarantined: bool = False


class BatchAnswer(Struct, frozen=True, kw_only=True):
    """Results in the order of the batch."""

    results: list[BatchResult]


class BatchEntry(Struct, frozen=True, kw_only=True):
    """Header of one file inside a batch body."""

    path: str
    size: Count
    md5: str
    xxh3: str
    """xxh3-64 of the bytes that follow, 16 hex digits."""


# -- inventory, heartbeat ------------------------------------------------------------------------


LOADED, QUARANTINED = "loaded", "quarantined"
"""The states of a file that the receiver has: it is read, or was found bad since."""


class InventoryEntry(Struct, frozen=True, kw_only=True):
    """A file of this sender that the receiver has."""

    path: str
    size: Count
    md5: str
    state: str
    """`loaded`, or `quarantined` (loaded once, found bad since)."""
    commit: Count = 0
    first_time: Time | None = None
    """Of its data, as `last_time`: what tells a sender that lost its list what a compaction did."""
    last_time: Time | None = None
    verified: Count = 0
    """The commit of its last verification, in which every point was proved; 0 for never."""
    stands: bool = False
    """Whether its bytes, and those of its `.resource`, lay on the receiver's disk for this answer:
    regular files of their sizes, in a data directory that is not away; or an object store that has
    them said so for this answer. Only if it was asked."""
    resource: ResourceEntry | None = None
    """The `.resource` that came with it. Only if it was asked whether it stands."""
    deletions: str = ""
    """What is known of its deletion files, as `common.listed` has it."""


class InventoryAnswer(Struct, frozen=True, kw_only=True):
    """`GET /inventory?after=<cursor>&limit=<n>`: a page, in path order, as of `commit`.

    With `look=true` each file is looked at on the disk.
    """

    engine: str
    commit: Count
    entries: list[InventoryEntry]
    next: str | None = None
    looked: bool = False
    """Whether `stands` was asked and found out; a receiver that cannot does not say."""
    propagate: Propagate | None = None
    """What a file that is gone means, as this sender has it committed here; None for nothing."""


class ListedRequest(Struct, frozen=True, kw_only=True):
    """`POST /listed`: what outcomes called loaded and no end was told for, as `common.listed`."""

    files: Count
    digest: str
    since: Count = 0
    """The newest commit that the sender knew of before this round."""


class ListedFile(Struct, frozen=True, kw_only=True):
    """A file on the sender's list."""

    path: str
    md5: str


class ListedPage(Struct, frozen=True, kw_only=True):
    """`POST /listed/ended`: files on the sender's list that the inventory lacks."""

    files: list[ListedFile]


class EndedHere(Struct, frozen=True, kw_only=True):
    """A file on the sender's list that the receiver let go by itself: it is not to come again."""

    path: str
    md5: str
    reason: str


class ListedAnswer(Struct, frozen=True, kw_only=True):
    """Whether both sides list the same."""

    agrees: bool
    ended: list[EndedHere] = []
    """If not, what the receiver let go since the commit that was named, as far as it tells."""


class EndedAnswer(Struct, frozen=True, kw_only=True):
    """Those of a page that the receiver let go by itself."""

    ended: list[EndedHere] = []


class LostPage(Struct, frozen=True, kw_only=True):
    """`POST /lost`: files that the receiver may not know any more."""

    files: list[LostFile]


class LostAnswer(Struct, frozen=True, kw_only=True):
    """Of the page, the paths that the receiver has nothing of; they are lost from now on."""

    lost: list[str] = []
    all: LostFiles | None = None
    """With those that were lost before, as at the check."""


class SettledFile(Struct, frozen=True, kw_only=True):
    """A file of the sender that nobody needs to remember any more, by `commit`."""

    path: str
    md5: str
    commit: Count


class SettledAnswer(Struct, frozen=True, kw_only=True):
    """`GET /settled?after=<commit>&cursor=<cursor>&limit=<n>`: in the order of the commits.

    Superseded, deleted (by a mirror, by its TTL, by an operator), or lost and acknowledged.
    """

    engine: str
    commit: Count
    """The newest: there is nothing more up to here once the pages have ended."""
    files: list[SettledFile] = []
    next: str | None = None


class DeviceExtent(Struct, frozen=True, kw_only=True):
    """A device of a file, with its first and last time; of one deleted since, the file's."""

    name: str
    first: Time
    last: Time
    first_look: Count = 0
    """In place of the file's, where a transfer of this device parts it from others; else 0."""
    last_look: Count = 0
    """Beside `first_look`: in place of the file's; 0 while its sender has it."""


class CatalogueEntry(Struct, frozen=True, kw_only=True):
    """A committed file as `GET /catalogue` lists it, whoever sent it."""

    path: str
    """The physical path at the receiver, unique, beneath one of its data directories."""
    original: str
    sender: str
    size: Count
    md5: str
    data_dir: str
    commit: Count
    first_time: Time | None = None
    last_time: Time | None = None
    resource: bool = False
    state: str = LOADED
    """Or `quarantined`, for who asks for those too."""
    first_look: Count = 0
    """The first look that had it, closed or not; 0 from a receiver that knows no looks."""
    closed_look: Count = 0
    """The first look that had it closed."""
    last_look: Count = 0
    """The last look that had it, of a retired one; 0 while its sender has it."""
    devices: list[DeviceExtent] | None = None
    """Of each device with points, for who asks for them."""
    origin: OriginEntry | None = None
    """Of a file that was forwarded to this receiver."""
    changed: Count = 0
    """The commit since which it stands as it does; 0 from a receiver that does not tell."""
    stored: bool = False
    """The object store of the receiver has it: where it is in no data directory, it is there."""


class FatesRequest(Struct, frozen=True, kw_only=True):
    """`POST /catalogue/fates`: files, by their physical paths, that were in the catalogue."""

    paths: list[str]


class FetchRequest(Struct, frozen=True, kw_only=True):
    """`POST /catalogue/fetch`: files that are to be in a data directory, by their physical paths.

    Who asks opens them soon: they stay for as long as others are not needed more.
    """

    paths: list[str]


class FailedFetch(Struct, frozen=True, kw_only=True):
    """A file that did not come, and why."""

    path: str
    reason: str


class FetchAnswer(Struct, frozen=True, kw_only=True):
    """What of the files is here now. What is coming is asked for again."""

    here: list[str]
    coming: list[str] = []
    failed: list[FailedFetch] = []


class FileFate(Struct, frozen=True, kw_only=True):
    """What became of a file."""

    path: str
    here: bool = False
    """Its sender has it, and it is not at its end: it is visible, or bad and wanted again."""
    reason: str = ""
    """Why it cannot be read, in words."""
    end: EndBelow | None = None
    """Of one that has ended. Neither of them: nothing is known of it any more."""


class FatesAnswer(Struct, frozen=True, kw_only=True):
    """In the order of the request, and what an operator deleted everywhere."""

    engine: str
    commit: Count
    fates: list[FileFate]
    everywhere: list[EndBelow] = []


class NotedRecords(Struct, frozen=True, kw_only=True):
    """Records of a deletion file that one commit noted."""

    end: Count
    """Bytes of the deletion file up to their end."""
    floor: Count
    """They hide their times in every file of the sender that was closed up to this look."""
    commit: Count
    applied: bool = True
    held: bool = False
    """Whether an operator has yet to let them through."""


class NotedEntry(Struct, frozen=True, kw_only=True):
    """The deletion file of a TsFile as `GET /catalogue/deletions` gives it."""

    sender: str
    path: str
    """Of the TsFile at its sender."""
    physical: str | None
    """Of the TsFile at the receiver, where it is loaded."""
    form: str
    content: bytes
    segments: list[NotedRecords]
    older: list[str] = []
    """Patterns in it that name all that lies below as well, as those of 0.12 do: the devices of the
    TsFile tell, which a reader may not know any more."""
    author: str = ""
    """See `DeletionsPart.author`; empty where it is the sender."""


class NotedAnswer(Struct, frozen=True, kw_only=True):
    """`GET /catalogue/deletions?after=<cursor>&limit=<n>`: what readers leave out.

    A page ends early where its contents are large.
    """

    engine: str
    commit: Count
    entries: list[NotedEntry]
    next: str | None = None


class ClockPiece(Struct, frozen=True, kw_only=True):
    """From `commit` on, commits stand for `moment` and what follows it, `pace` times as fast.

    A moment is written as the commit that it would have.
    """

    commit: Count
    moment: Count
    pace: Count


class CatalogueAnswer(Struct, frozen=True, kw_only=True):
    """`GET /catalogue?after=<cursor>&limit=<n>`: committed files in path order, for readers.

    `commit` is what the answer is as of: the newest commit, or the one that was asked about.
    """

    engine: str
    commit: Count
    entries: list[CatalogueEntry]
    next: str | None = None
    times: list[ClockPiece] = []
    """What is known of the clock that gave the commits, in their order. Before the first of them a
    commit stands for itself, and for no later moment than the first piece."""


class Heartbeat(Struct, frozen=True, kw_only=True):
    """`POST /heartbeat`: a sender says that it lives and what it has left to do."""

    version: str
    label: str = ""
    pending_files: Count = 0
    pending_bytes: Count = 0
    complete_until: Time | None = None
    state: str = ""


class HeartbeatAnswer(Struct, frozen=True, kw_only=True):
    """What may make the sender start a round early."""

    engine: str
    wanted: bool = False


# -- encoding ----------------------------------------------------------------------------------

T = TypeVar("T")


def encode(value: Struct) -> bytes:
    """A struct as JSON."""
    return msgspec.json.encode(value)


def decode(data: bytes, kind: type[T], what: str) -> T:
    """A struct from JSON.

    Raises:
        ProtocolError: it is not one; `what` names it in the message.
    """
    try:
        return from_json(data, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"{what}: {error}") from error


_MAX_RETRY_AFTER = 86_400.0


def to_problem(error: TsferryError, *, path: str | None = None) -> Problem:
    """An error of ours as the other side will read it. Whatever is in the error, this works."""
    offset, device = error.extra.get("offset"), error.extra.get("device")
    line, column = error.extra.get("line"), error.extra.get("column")
    where = error.extra.get("path") if path is None else path
    return Problem(
        type=f"urn:tsferry:{error.slug}",
        title=error.slug.replace("-", " "),
        status=error.http_status,
        detail=_utf8(error.message),
        retry_after=error.retry_after,
        offset=offset if isinstance(offset, int) else None,
        device=None if device is None else _utf8(str(device)),
        path=None if where is None else _utf8(str(where)),
        line=line if isinstance(line, int) else None,
        column=column if isinstance(column, int) else None,
    )


def _utf8(text: str) -> str:
    """Text that JSON can carry: names from a disk may hold bytes that are no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def from_problem(problem: Problem) -> TsferryError:
    """The error that a problem document stands for.

    One of a kind that is not known here (a newer peer's, a proxy's) is judged by its status.
    """
    slug = problem.type.removeprefix("urn:tsferry:")
    kind = by_slug(slug)
    if kind is TsferryError and slug != TsferryError.slug:
        kind = Permanent if 400 <= problem.status < 500 else Transient
    extra: dict[str, object] = {
        key: value
        for key in ("offset", "device", "path", "line", "column")
        if (value := getattr(problem, key)) is not None
    }
    detail = problem.detail or problem.title or f"HTTP status {problem.status}"
    pause = problem.retry_after
    if pause is not None:
        pause = min(max(pause, 0.0), _MAX_RETRY_AFTER)  # the other side's word puts nobody to sleep
    return kind(detail, retry_after=pause, extra=extra)


# -- batches -----------------------------------------------------------------------------------

_BATCH_MAGIC = b"TSFB\x01"
_LENGTH = struct.Struct(">I")
MAX_BATCH_HEADER = 4096


def encode_batch(files: Iterable[tuple[BatchEntry, bytes]]) -> bytes:
    """The body of `POST /tasks/<id>/batch`.

    Layout: `TSFB`, version byte 1, then for each file uint32 big-endian header length, the header
    (`BatchEntry` as JSON), and `size` bytes.
    """
    out = [_BATCH_MAGIC]
    for entry, content in files:
        assert len(content) == entry.size
        header = encode(entry)
        out += (_LENGTH.pack(len(header)), header, content)
    return b"".join(out)


def decode_batch(body: bytes | memoryview) -> Iterator[tuple[BatchEntry, memoryview]]:
    """Cut a batch body into its files; each length is checked against what is left.

    Raises:
        ProtocolError: the body is not a batch.
        DigestError: the bytes of a file do not match their checksum (raised by the caller's use of
            the entry, not here: an entry with a bad checksum is still yielded).
    """
    view = memoryview(body)
    if bytes(view[:4]) != _BATCH_MAGIC[:4]:
        raise ProtocolError("batch: does not begin with TSFB")
    if bytes(view[4:5]) != _BATCH_MAGIC[4:]:
        raise ProtocolError(f"batch: version {bytes(view[4:5])!r} is not known here")
    at = len(_BATCH_MAGIC)
    while at < len(view):
        if len(view) - at < _LENGTH.size:
            raise ProtocolError(f"batch: {len(view) - at} stray bytes at offset {at}")
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if length > min(MAX_BATCH_HEADER, len(view) - at):
            raise ProtocolError(f"batch: header of {length} bytes at offset {at} is too long")
        entry = decode(bytes(view[at : at + length]), BatchEntry, "batch header")
        at += length
        if not 0 <= entry.size <= len(view) - at:
            raise ProtocolError(
                f"batch: {entry.path!a} claims {entry.size} bytes, {len(view) - at} left"
            )
        yield entry, view[at : at + entry.size]
        at += entry.size


def check_block(content: memoryview | bytes, expected: str, path: str) -> None:
    """Compare a block with its xxh3-64.

    Raises:
        DigestError: they differ.
    """
    found = xxh3_64(content)
    if found != expected:
        raise DigestError(f"{path}: block checksum is {found}, the sender said {expected}")
