"""What `status` shows: plain structs that become JSON as they are, like all views.

Times are seconds since the epoch, except those that are called commits, which are commit
timestamps (milliseconds << 18 | counter).
"""

from __future__ import annotations

import msgspec

from common.wire import Struct
from common.wire.base import CommitTs
from receiver.operator.views.background_views import BackgroundTotals
from receiver.operator.views.compact_views import MergeTotals
from receiver.operator.views.load_views import CentreLoadView
from receiver.operator.views.log_file_views import FollowView
from receiver.operator.views.node_views import DrainView
from receiver.operator.views.remote_node_views import NodeTotals
from receiver.operator.views.retired_views import KeptView, RetiredTotals
from receiver.operator.views.sender_views import LateView, SharedLabel
from receiver.operator.views.token_views import EdgeCertificateEnding, TokenEnding

__all__ = ["AwayView", "ClockView", "DirectoryView", "SchemaView", "StatusView", "StorageView"]


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
    newest: CommitTs = 0
    incarnation: int = 0
    uploaded_files: int = 0
    uploaded_bytes: int = 0
    waiting_files: int = 0
    waiting_bytes: int = 0
    kept_files: int = 0
    kept_bytes: int = 0
    unreadable_files: int = 0
    upload: dict[str, int] = msgspec.field(default_factory=dict)
    oldest_waiting: CommitTs = 0
    oldest_waiting_at: float | None = None
    shipped: CommitTs = 0
    shipped_at: float | None = None
    behind: CommitTs = 0
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
    tree: CommitTs = 0
    tree_at: float | None = None
    asked_files: int = 0
    fetched_files: int = 0


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
    oldest_answerable: CommitTs = 0
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
    corrected: CommitTs = 0
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
        senders: edges that were here, and were not removed.
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
        client_ca_until: when the first authority for client certificates ends; None without one.
        client_crl_until: when the list of what they revoked ends; from then on no client
            certificate is taken.
        tokens_ending: tokens that end within 30 days, the first 20, those that have ended last.
        edge_certificates_ending: client certificates of edges that end within 30 days or have
            ended, by what each edge said last; the first 20.
        centre_loads: loads at the centre that are not over, the oldest first.
        backup_at: when `backup` last copied everything, seconds since the epoch; None for never.
    """

    engine: str
    version: str
    newest_commit: CommitTs
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
    oldest_verification: CommitTs = 0
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
    client_ca_until: float | None = None
    client_crl_until: float | None = None
    tokens_ending: tuple[TokenEnding, ...] = ()
    edge_certificates_ending: tuple[EdgeCertificateEnding, ...] = ()
    centre_loads: tuple[CentreLoadView, ...] = ()
    backup_at: float | None = None
