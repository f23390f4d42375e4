"""What an operator, a page or a command is shown: plain structs that become JSON as they are.

Times are seconds since the epoch, except those that are called commits, which are commit
timestamps (milliseconds << 18 | counter).
"""

from __future__ import annotations

import msgspec

from common.wire import Heartbeat, SchemaPosition, Struct
from receiver.operator.background_views import BackgroundTotals
from receiver.operator.node_views import DrainView
from receiver.operator.remote_node_views import NodeTotals

__all__ = [
    "AwayView",
    "CheckpointFile",
    "ClockView",
    "DirectoryView",
    "FileView",
    "FilesPage",
    "FollowView",
    "HeldDeletesView",
    "LateView",
    "LogFilesView",
    "LostView",
    "OwnerView",
    "OwnersPage",
    "QuarantineView",
    "RemainderView",
    "RetiredPage",
    "RetiredTotals",
    "RetiredView",
    "SchemaView",
    "SegmentFile",
    "SenderView",
    "SharedLabel",
    "StatusView",
    "StorageView",
    "TokenEnding",
    "TokenMade",
    "TokenView",
    "TreeNodeView",
    "TreePage",
]


class SenderView(Struct, frozen=True, kw_only=True):
    """A sender as the receiver knows it.

    Attributes:
        uuid: of the sender.
        label: what it calls itself.
        directory: its folder beneath `sync-receiver`.
        epoch: number of its epoch, without the secret part; 0 before the first task.
        first_seen: commit of the first contact.
        last_task: id of its last committed task.
        last_commit: commit of that task.
        last_commit_at: when that was.
        open_task: id of a task that was started and has no end.
        loading: id of a task that is being loaded.
        trouble: why a load has to wait, if it has.
        files: of it in the catalogue, and visible.
        bytes: of those.
        quarantined: files that were refused or found bad.
        removed: whether an operator removed it.
        verified: of `files`, how many a verification has proved.
        staged_bytes: received and not loaded.
        uploads: begun and not finished.
        heartbeat: its last one.
        heartbeat_at: when that came.
        version: of the program there, as it said last.
        heard_at: when it was heard last, by a heartbeat or the begin of a round; None where that is
            not known (a node that only reads).
        late_after: silence, in seconds, after which it is late; 0 for never.
        late_after_own: whether that was set for it (`senders set`); else it is as configured.
        late: whether it is; None where it is not known when it was heard.
        schema: how far its schema log is applied, and what of it is not; None for nothing.
        listed: files that it has listed here; of a box that was replaced none, whatever is kept.
    """

    uuid: str
    label: str = ""
    directory: str = ""
    epoch: int = 0
    first_seen: int = 0
    last_task: str | None = None
    last_commit: int = 0
    last_commit_at: float | None = None
    open_task: str | None = None
    loading: str | None = None
    trouble: str | None = None
    files: int = 0
    bytes: int = 0
    quarantined: int = 0
    removed: bool = False
    verified: int = 0
    staged_bytes: int = 0
    uploads: int = 0
    heartbeat: Heartbeat | None = None
    heartbeat_at: float | None = None
    schema: SchemaPosition | None = None
    listed: int | None = None
    version: str = ""
    heard_at: float | None = None
    late_after: float = 0.0
    late_after_own: bool = False
    late: bool | None = None


class LateView(Struct, frozen=True, kw_only=True):
    """A sender that is late: its label, and when it was heard last."""

    sender: str
    label: str = ""
    heard_at: float | None = None


class SharedLabel(Struct, frozen=True, kw_only=True):
    """A label that several senders have, and their uuids."""

    label: str
    senders: tuple[str, ...]


class FileView(Struct, frozen=True, kw_only=True):
    """A row of the catalogue.

    Attributes:
        sender: uuid of the sender.
        path: at the sender.
        physical: beneath the data directory, unique.
        data_dir: where the bytes are; None if nowhere.
        size: bytes.
        md5: 32 hex digits.
        state: `live`, `retired`, `quarantined`, `superseded` or `deleted`.
        reason: of the quarantine or deletion; `expired` for what the TTL has deleted.
        task: that loaded it.
        created: commit that loaded it.
        created_at: when that was.
        deleted: commit that deleted it, 0 if none.
        first_time: of its points, in the file's unit.
        last_time: the same.
        devices: how many.
        series: how many.
        points: how many.
        resource: whether its `.resource` is here too.
        verified: commit of its last verification, 0 for never.
        verified_at: when that was.
        stored: whether the object store has it; with no `data_dir`, only that.
    """

    sender: str
    path: str
    physical: str
    data_dir: str | None
    size: int
    md5: str
    state: str
    reason: str | None = None
    task: str | None = None
    created: int = 0
    deleted: int = 0
    first_time: int | None = None
    last_time: int | None = None
    devices: int = 0
    series: int = 0
    points: int = 0
    resource: bool = False
    verified: int = 0
    created_at: float | None = None
    verified_at: float | None = None
    stored: bool = False


class FilesPage(Struct, frozen=True, kw_only=True):
    """Rows in order of their physical path; `next` is the cursor of the page after."""

    files: list[FileView]
    next: str | None = None


class TreeNodeView(Struct, frozen=True, kw_only=True):
    """A node of the tree of files.

    Attributes:
        kind: `database`, `storage_group`, `partition` or `file`.
        path: of a file the physical one.
        parent: path of the directory that it is in; empty for a database.
        created: commit since which it is there; of a directory, that loaded its oldest file.
        created_at: when that was.
        deleted: commit since which it is not there any more, 0 if it is.
        deleted_at: when that was.
        files: below it, itself too.
        size: bytes of those.
        first_time: of a file's points, in its unit; None for a directory.
        last_time: the same.
        series: how many a file has.
        points: how many a file has.
    """

    kind: str
    path: str
    parent: str = ""
    created: int = 0
    created_at: float | None = None
    deleted: int = 0
    deleted_at: float | None = None
    files: int = 0
    size: int = 0
    first_time: int | None = None
    last_time: int | None = None
    series: int | None = None
    points: int | None = None


class ChunkView(Struct, frozen=True, kw_only=True):
    """A chunk of a series in a file, as the index at the file's end has it.

    Attributes:
        device: as in the catalogue.
        measurement: empty for the time column of an aligned device.
        data_type: as in the file.
        chunk: number among the chunks of this series in this file.
        offset: of its first byte.
        length: it ends within so many bytes.
        count: points.
        start_time: of the first point, in the file's unit; None without points.
        end_time: of the last.
        minimum: None where the file says none, or no number.
        maximum: the same.
        sum: the same.
    """

    device: str
    measurement: str
    data_type: str
    chunk: int
    offset: int
    length: int
    count: int
    start_time: int | None = None
    end_time: int | None = None
    minimum: int | float | str | None = None
    maximum: int | float | str | None = None
    sum: float | None = None


class TreePage(Struct, frozen=True, kw_only=True):
    """The tree as of a commit: its directories, or files in order of their physical paths.

    Attributes:
        commit: that it is as of.
        commit_at: when that was.
        nodes: each behind the directory that it is in.
        next: the cursor of the page after.
        chunks: of a file that was asked for by `tsferry-receiver tree`; `GET /v1/tree/chunks` has
            them in pages.
        no_chunks: why there are none of this file.
    """

    commit: int
    commit_at: float | None = None
    nodes: list[TreeNodeView]
    next: str | None = None
    chunks: tuple[ChunkView, ...] = ()
    no_chunks: str | None = None


class ChunksPage(Struct, frozen=True, kw_only=True):
    """Chunks of a file, in the order of its index.

    Attributes:
        commit: as of which readers see the file.
        path: its physical one.
        chunks: of this page.
        next: the cursor of the page after.
    """

    commit: int
    path: str
    chunks: list[ChunkView]
    next: str | None = None


class OwnerView(Struct, frozen=True, kw_only=True):
    """A device, who owns it, and since which commit, and when that was."""

    device: str
    sender: str
    label: str = ""
    since: int = 0
    since_at: float | None = None


class OwnersPage(Struct, frozen=True, kw_only=True):
    """Owners in order of the devices' names; `next` is the cursor of the page after."""

    owners: list[OwnerView]
    next: str | None = None


class QuarantineView(Struct, frozen=True, kw_only=True):
    """A file that was refused, or found bad after it was loaded.

    Attributes:
        sender: uuid of the sender.
        path: at the sender.
        digest: of its tail (32 hex digits), part of the key; of a loaded file its physical path.
        size: bytes.
        hold: whether it waits for an operator (otherwise the next round tries again).
        reason: in words.
        device: that it is about, if it is a conflict.
        kept: whether the bytes are still here.
        loaded: whether it had been loaded before it was found bad.
        since: commit.
        since_at: when that was.
    """

    sender: str
    path: str
    digest: str
    size: int
    hold: bool
    reason: str
    device: str | None = None
    kept: bool
    loaded: bool = False
    since: int = 0
    since_at: float | None = None


class RemainderView(Struct, frozen=True):
    """Times of a series that a retired file alone gives.

    Attributes:
        device: of the file.
        measurement: of the device; empty for the rows of a table, and where a file has so many
            series that their devices are told in their place.
        first: the earliest time, in the file's unit.
        last: the latest.
        points: how many times there are.
    """

    device: str
    measurement: str
    first: int
    last: int
    points: int


class RetiredView(Struct, frozen=True, kw_only=True):
    """A file that its sender has no more.

    Attributes:
        sender: uuid of the sender.
        path: at the sender, last.
        physical: beneath the data directory, unique.
        size: bytes.
        points: how many.
        state: `retired`, and visible; or `superseded`: others give all of it.
        since: commit that made it so.
        since_at: when that was.
        judged: whether it was looked at since the server was started.
        unreadable: why nothing can be said of it; None if it was read.
        unique_points: points that no other file gives.
        unique_series: series that have such points.
        remainder: where those are; empty in lists.
        rests: physical paths of the files that give what a superseded one has.
        merged: files of the sender that a merged one is made of for good; 0 for others. `made_of`
            has their paths; it is empty in lists.
    """

    sender: str
    path: str
    physical: str
    size: int
    points: int
    state: str
    since: int = 0
    since_at: float | None = None
    judged: bool = False
    unreadable: str | None = None
    unique_points: int = 0
    unique_series: int = 0
    remainder: list[RemainderView] = msgspec.field(default_factory=list)
    rests: list[str] = msgspec.field(default_factory=list)
    merged: int = 0
    made_of: list[str] = msgspec.field(default_factory=list)


class RetiredPage(Struct, frozen=True, kw_only=True):
    """Files in order of their physical path; `next` is the cursor of the page after."""

    files: list[RetiredView]
    next: str | None = None


class RetiredTotals(Struct, frozen=True, kw_only=True):
    """Files that their senders have no more.

    Attributes:
        waiting_files: retired, and not judged since the server was started.
        waiting_bytes: of those.
        unique_files: retired, and found to have points that exist nowhere else, or not to be read.
        unique_bytes: of those.
        superseded_files: proved to be given by others; their bytes go with the kept history.
        superseded_bytes: of those.
        files_per_second: judged, while it is at work.
        problem: why nothing is proved, None if nothing is in the way.
    """

    waiting_files: int = 0
    waiting_bytes: int = 0
    unique_files: int = 0
    unique_bytes: int = 0
    superseded_files: int = 0
    superseded_bytes: int = 0
    files_per_second: float = 0.0
    problem: str | None = None


class MergeTotals(Struct, frozen=True, kw_only=True):
    """Files that are merged for those who read them.

    Attributes:
        enabled: whether the server merges by itself.
        compactions: that readers read.
        inputs: files that these stand for.
        outputs: files that are read in their place.
        output_bytes: of those.
        last: the commit of the newest, 0 for none.
        last_at: when that was, by what is known of the clock.
        did: what that one did: files, bytes and points before and after, and how long it took.
        waiting: merges that wait or run.
        problem: why something is not merged, None if nothing is in the way.
        final: merged files that took the place of what they were made of for good.
        final_bytes: of those.
        final_inputs: files that were merged into these.
        kept_back: why another merge is not final that is old enough to be; None if none is.
    """

    enabled: bool = False
    compactions: int = 0
    inputs: int = 0
    outputs: int = 0
    output_bytes: int = 0
    last: int = 0
    last_at: float | None = None
    did: str = ""
    waiting: int = 0
    problem: str | None = None
    final: int = 0
    final_bytes: int = 0
    final_inputs: int = 0
    kept_back: str | None = None


class CompactedPartition(Struct, frozen=True, kw_only=True):
    """What became of the wish to have a partition merged.

    Attributes:
        storage_group: of the partition.
        virtual_group: of it.
        partition: its number.
        files: that are to be merged.
        work: id of the task; 0 if there is none.
        reason: why not.
    """

    storage_group: str
    virtual_group: str
    partition: str
    files: int = 0
    work: int = 0
    reason: str = ""


class CompactView(Struct, frozen=True, kw_only=True):
    """What became of the wish to have files merged.

    Attributes:
        partitions: in their order.
        done: whether it is done; a server does it behind the scenes.
        problem: why something was not merged, as far as it is done.
    """

    partitions: list[CompactedPartition]
    done: bool = False
    problem: str | None = None


class HeldDeletesView(Struct, frozen=True, kw_only=True):
    """Deletes of a sender in a storage group that wait for an operator.

    Attributes:
        digest: of the list.
        sender: uuid.
        group: the storage group.
        records: whether records of deletion files would hide the points of the files; else the
            files are gone at their sender, which mirrors that.
        reason: why they wait.
        files: their paths at the sender.
        bytes: of those.
        points: of those.
        since: commit.
        since_at: when that was.
    """

    digest: str
    sender: str
    group: str
    records: bool
    reason: str
    files: list[str]
    bytes: int
    points: int
    since: int
    since_at: float | None = None


class StorageView(Struct, frozen=True, kw_only=True):
    """The copies in the object store.

    Attributes:
        url: of the store, None where none is configured.
        encryption: that it is asked for, None for what the bucket says.
        running: whether a server makes copies now; without one, what the catalogue knows is told.
        newest: commit of the catalogue.
        incarnation: as whom they are put; 0 while the store was not reached.
        uploaded_files: in the store.
        uploaded_bytes: of those.
        waiting_files: loaded, and not in the store yet as they are.
        waiting_bytes: of those.
        kept_files: loaded, and not to go there yet, or never.
        kept_bytes: of those.
        unreadable_files: those that wait and are not where they should be, or not what was loaded,
            or that the store refused.
        upload: what operators said of storage groups: milliseconds behind the load, -1 for never.
        oldest_waiting: commit that loaded the oldest of them, 0 for none.
        oldest_waiting_at: when that was.
        shipped: the newest commit whose log is in the store, 0 for none.
        shipped_at: when that was.
        behind: the oldest commit whose log is not there, 0 for none.
        behind_at: when that was.
        requests: sent to the store since the server's start, by kind.
        costs: of those, by kind, where ``[storage.prices]`` has prices; in `currency`.
        currency: see there.
        ended_files: forgotten, and with objects there until history and grace are over.
        staying: why objects stay that should have gone, None if none does.
        problem: what is in the way, None if nothing is.
        trouble: the same in one word, such as ``store-full`` or ``store-missing``.
        fenced: another receiver has taken over, for good.
        cached_files: that lie in the data directories, where `capacity` limits them.
        cached_bytes: allocated for them.
        capacity: of the data directories, None where all files stay.
        tree: the newest commit that the tree of files there has, 0 for none.
        tree_at: when that was.
        asked_files: that were needed in the data directories since the server's start, each time.
        fetched_files: of those, that were not here and came from the store.
    """

    url: str | None
    encryption: str | None = None
    running: bool = False
    newest: int = 0
    incarnation: int = 0
    uploaded_files: int = 0
    uploaded_bytes: int = 0
    waiting_files: int = 0
    waiting_bytes: int = 0
    kept_files: int = 0
    kept_bytes: int = 0
    unreadable_files: int = 0
    upload: dict[str, int] = msgspec.field(default_factory=dict)
    oldest_waiting: int = 0
    oldest_waiting_at: float | None = None
    shipped: int = 0
    shipped_at: float | None = None
    behind: int = 0
    behind_at: float | None = None
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    costs: dict[str, float] = msgspec.field(default_factory=dict)
    currency: str = ""
    ended_files: int = 0
    staying: str | None = None
    problem: str | None = None
    trouble: str | None = None
    fenced: bool = False
    cached_files: int = 0
    cached_bytes: int = 0
    capacity: int | None = None
    tree: int = 0
    tree_at: float | None = None
    asked_files: int = 0
    fetched_files: int = 0


class LostView(Struct, frozen=True, kw_only=True):
    """A file that neither side has any more.

    Attributes:
        sender: uuid.
        path: of it at the sender.
        md5: of its content.
        size: of it.
        first: earliest time of its data, None where it is not known.
        last: latest.
        reason: why.
        physical: of the file in quarantine that stands for it, None where there is none.
        since: commit.
        since_at: when that was.
    """

    sender: str
    path: str
    md5: str
    size: int
    first: int | None = None
    last: int | None = None
    reason: str = ""
    physical: str | None = None
    since: int = 0
    since_at: float | None = None


class TokenView(Struct, frozen=True, kw_only=True):
    """A token without its secret."""

    id: str
    role: str
    sender: str | None = None
    scope: list[str] = msgspec.field(default_factory=list)
    note: str = ""
    expires: float | None = None
    allow_deletes: bool = True
    owners: list[str] = msgspec.field(default_factory=list)
    created: int = 0
    created_at: float | None = None


class TokenEnding(Struct, frozen=True, kw_only=True):
    """A token that ends soon, or has ended: its id, role and note, of which sender, and when."""

    id: str
    role: str
    note: str = ""
    sender: str | None = None
    expires: float


class TokenMade(Struct, frozen=True, kw_only=True):
    """A new token; the only time that its text is shown."""

    id: str
    token: str
    role: str
    sender: str | None = None
    scope: list[str] = msgspec.field(default_factory=list)
    note: str = ""
    expires: float | None = None
    allow_deletes: bool = True
    owners: list[str] = msgspec.field(default_factory=list)


class SchemaView(Struct, frozen=True, kw_only=True):
    """How the schema is.

    Attributes:
        series: that live now.
        devices: that have series now.
        storage_groups: that live now.
        tag_entries: tags of series, each series and key counted once.
        memory: bytes that all of it is estimated to take.
        max_memory: that it may take, None for no limit.
        oldest_answerable: the oldest commit that a question can be about.
        checkpoint_at: when the newest checkpoint was written, seconds since the epoch; None
            before the first.
        checkpoint_bytes: its size.
        log_entries: commits in the log since that checkpoint.
        unregistered: files of an earlier version that are not in the schema yet.
        ttl_groups: storage groups with a TTL.
        expired_files: files that expired and whose bytes are still on the disk.
    """

    series: int = 0
    devices: int = 0
    storage_groups: int = 0
    tag_entries: int = 0
    memory: int = 0
    max_memory: int | None = None
    oldest_answerable: int = 0
    checkpoint_at: float | None = None
    checkpoint_bytes: int = 0
    log_entries: int = 0
    unregistered: int = 0
    ttl_groups: int = 0
    expired_files: int = 0


class ClockView(Struct, frozen=True, kw_only=True):
    """The time that timestamps go by.

    Attributes:
        doubt: why it does not follow the clock of the machine, and what ends that; None while it
            does.
        since: what the time was when that began.
        ahead: seconds by which the clock of the machine is ahead of the time; less than 0: behind.
        time: what the time is, seconds since the epoch; None without a running server.
        corrected: the commit of the last correction, 0 without one.
        why: the clock was believed then.
    """

    doubt: str | None = None
    since: float | None = None
    ahead: float = 0.0
    time: float | None = None
    corrected: int = 0
    why: str = ""


class DirectoryView(Struct, frozen=True, kw_only=True):
    """A data directory that counts now.

    Attributes:
        path: of the configuration.
        free_bytes: that may be written there.
        senders: how many have their folders there: what they send goes there.
        state: `standing` or `draining`.
        drain: how far its draining is; `GET /v1/nodes` has more.
    """

    path: str
    free_bytes: int
    senders: int = 0
    state: str = "standing"
    drain: DrainView | None = None


class AwayView(Struct, frozen=True, kw_only=True):
    """A data directory that does not count now.

    Attributes:
        path: of the configuration.
        reason: why.
    """

    path: str
    reason: str


class KeptView(Struct, frozen=True, kw_only=True):
    """Retired files of a box that a mirror took over from, and that it is not known to have had.

    Attributes:
        sender: uuid of the old box.
        by: of the mirror, which all their devices belong to.
        files: how many.
        bytes: of those.
    """

    sender: str
    by: str
    files: int
    bytes: int


class CheckpointFile(Struct, frozen=True):
    """A checkpoint: the LSN of the last commit in it, and its bytes."""

    lsn: int
    size: int


class SegmentFile(Struct, frozen=True):
    """A segment of the log.

    Attributes:
        first_lsn: of its first commit.
        next_lsn: of the commit behind it.
        size: bytes of it that are committed.
    """

    first_lsn: int
    next_lsn: int
    size: int


class LogOrigin(Struct, frozen=True, kw_only=True):
    """Where a node that serves its copy of a log has that from.

    Attributes:
        through: the node and those that it follows, the nearest first: a random name of each.
        behind: seconds since it had all that the last of them is behind; None if never since its
            start.
        is_live: whether `behind` is of commits; of an object store it is of the copies there.
        writer: where files and changes go, None if that is not known.
    """

    through: list[str]
    behind: float | None
    is_live: bool
    writer: str | None


class LogFilesView(Struct, frozen=True, kw_only=True):
    """The files of the engine, for a node that follows it.

    Attributes:
        engine: its uuid.
        incarnation: of this receiver as the owner of an object store; 0 where it never had one.
        lsn: of the newest commit.
        ts: its timestamp.
        checkpoints: the newest last.
        segments: in order, without a gap.
        tags_end: bytes of the tlog that are committed.
        goes_on: whether the commit that was asked about is in this log; None: too old to tell.
        origin: of a node's copy; None of the receiver that commits.
    """

    engine: str
    incarnation: int
    lsn: int
    ts: int
    checkpoints: list[CheckpointFile]
    segments: list[SegmentFile]
    tags_end: int
    goes_on: bool | None = None
    origin: LogOrigin | None = None


class FollowView(Struct, frozen=True, kw_only=True):
    """Where a node that follows stands.

    Attributes:
        url: of the store or the receiver that it follows.
        incarnation: of the owner whose log it has, 0 for none.
        commit: that it stands at.
        commit_at: when that was.
        source_commit: the newest commit that was seen there.
        level_at: when it last had all that was there, None if never since its start.
        behind: seconds since then, None if never since its start.
        problem: why it does not go on, None if it does.
        writer: where files and changes go, None if that is not known.
    """

    url: str
    incarnation: int
    commit: int
    commit_at: float | None = None
    source_commit: int = 0
    level_at: float | None = None
    behind: float | None = None
    problem: str | None = None
    writer: str | None = None


class StatusView(Struct, frozen=True, kw_only=True):
    """How the receiver is.

    Attributes:
        engine: uuid of the metadata engine.
        version: of the program.
        newest_commit: of the engine.
        newest_commit_at: when that was.
        ready: whether it takes files.
        problem: why not.
        concerns: what does not come through although it takes files.
        started: when this process opened the directories.
        senders: known.
        devices: that have an owner.
        files: visible.
        bytes: of those.
        deleted_files: rows whose bytes are still on the disk.
        quarantined: files refused or found bad.
        held_deletes: lists of deletes that wait for an operator.
        lost: files that neither side has any more, and that no operator has acknowledged.
        verified: of `files`, how many a verification has proved.
        unverified: of `files`, how many it has not.
        oldest_verification: commit of the oldest verification of the first, 0 for none.
        oldest_verification_at: when that was.
        uploads: begun and not finished.
        staged_bytes: received and not loaded.
        loading: tasks that wait to be loaded, or are being loaded.
        free_bytes: of the data directory that has most.
        directories: the data directories that count.
        away: data directories that do not count: their files cannot be read, and are not safe.
        retired: files that their senders have no more, and how far their proofs are.
        merged: files that are merged for those who read them.
        background: what it does behind the scenes, and others do for it.
        nodes: storage nodes in numbers.
        kept: what no mirror's word reaches: only the box had it that the mirror took over from.
        schema: series and what belongs to them.
        clock: the time that timestamps go by.
        history_since: the moment of the oldest answerable commit, seconds since the epoch.
        follows: of a node that only reads, where it stands; None of a receiver.
        late: senders that are silent for longer than they may be; None where it is not known when
            they were heard.
        late_senders: the first 20 of them.
        shared_labels: labels that several senders have, the first 20.
        certificate_until: when the certificate of `listen` ends; None without one.
        tokens_ending: tokens that end within 30 days, the first 20, those that have ended last.
        backup_at: when `backup` last copied everything, seconds since the epoch; None for never.
    """

    engine: str
    version: str
    newest_commit: int
    ready: bool
    problem: str | None = None
    concerns: tuple[str, ...] = ()
    started: float = 0.0
    senders: int = 0
    devices: int = 0
    files: int = 0
    bytes: int = 0
    deleted_files: int = 0
    quarantined: int = 0
    held_deletes: int = 0
    lost: int = 0
    verified: int = 0
    unverified: int = 0
    oldest_verification: int = 0
    oldest_verification_at: float | None = None
    newest_commit_at: float | None = None
    uploads: int = 0
    staged_bytes: int = 0
    loading: int = 0
    free_bytes: int = 0
    directories: tuple[DirectoryView, ...] = ()
    away: tuple[AwayView, ...] = ()
    retired: RetiredTotals = RetiredTotals()
    merged: MergeTotals = MergeTotals()
    background: BackgroundTotals = BackgroundTotals()
    nodes: NodeTotals = NodeTotals()
    kept: tuple[KeptView, ...] = ()
    schema: SchemaView = SchemaView()
    clock: ClockView = ClockView()
    history_since: float | None = None
    follows: FollowView | None = None
    late: int | None = None
    late_senders: tuple[LateView, ...] = ()
    shared_labels: tuple[SharedLabel, ...] = ()
    certificate_until: float | None = None
    tokens_ending: tuple[TokenEnding, ...] = ()
    backup_at: float | None = None
