"""The values of a receiver's measures, read from what it knows: no file is looked at.

What depends on committed state alone is read again when there is a new commit; edges have measures
of their own up to a number that the configuration says, those that came first; so a scrape costs
the same with a thousand edges and with a hundred thousand, but for one pass over the senders.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from common.config.shared_rules import PER_MILLISECOND
from common.durable import failed_sync, free_bytes
from common.metering.measures import Readings
from common.network.certificates import CertificateFile, crl_end
from receiver.load.upkeep.verdicts import hold_of
from receiver.metadata.query.lost import lost_files
from receiver.metrics.files_nowhere import FilesNowhere
from receiver.metrics.oldest_proof import OldestProof
from receiver.metrics.receiver_measures import EDGE_TROUBLE, RECEIVER_MEASURES
from receiver.metrics.receiver_measures import ReceiverMeasures as of
from receiver.operator.asked_work.background_tasks import background_totals
from receiver.operator.asked_work.compact import merge_totals
from receiver.operator.directories import RunningReceiver, time_of
from receiver.operator.edges.ending import SOON, ended_tokens
from receiver.operator.edges.lateness import (
    Presence,
    is_edge,
    presences,
    several_labels,
    shared_labels,
)
from receiver.operator.places.remote_nodes import node_totals
from receiver.operator.stored.backup_note import read_backup_note
from receiver.operator.stored.retired import retired_totals
from receiver.transfer import epochs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from common.wire import Heartbeat
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import SenderRow, TokenRow
    from receiver.metrics.request_tallies import NodeStanding, RequestTallies
    from receiver.operator.directories import ReceiverDirectories
    from receiver.operator.views.remote_node_views import NodeTotals

__all__ = ["ReceiverReadings"]

_VERSIONS = 20
"""Versions that edges are counted by; what is rarer is `other`."""
_NO_LOADS = {("loaded",): 0.0, ("delayed",): 0.0}
"""A counter begins with 0: a rate over the first load is seen, and a new centre shows that."""


class _Edge(NamedTuple):
    """What is known of an edge that has measures of its own, as of a commit."""

    files: int
    size: int
    verified: int
    quarantined: int


class _Committed(NamedTuple):
    """What is read from committed state, once a commit."""

    newest: int
    files: int
    size: int
    verified: int
    deleted: int
    quarantined: dict[str, int]
    lost: int
    held: int
    series: int
    devices: int
    groups: int
    memory: int
    newest_at: float | None
    history: float | None
    tokens: tuple[TokenRow, ...]
    shared: int
    edges: dict[str, _Edge]


class ReceiverReadings:
    """Reads the measures of one receiver; any thread may ask, one at a time is answered.

    Args:
        there: the receiver, or a node that reads.
        requests: what is counted of requests.
        standing: asked for what the node as a whole says.
        most_edges: that have measures of their own.
    """

    def __init__(
        self,
        there: ReceiverDirectories,
        requests: RequestTallies,
        standing: Callable[[], NodeStanding],
        *,
        most_edges: int,
    ) -> None:
        self._there = there
        self._requests = requests
        self._standing = standing
        self._most_edges = most_edges
        self._certificate = CertificateFile(there.config.listen.tls_cert)
        self._client_ca = CertificateFile(there.config.listen.client_ca)
        self._client_crl = CertificateFile(there.config.listen.client_crl, crl_end)
        self._oldest_proof = OldestProof(there.engine)
        self._nowhere: FilesNowhere | None = None
        self._committed: _Committed | None = None
        self._reading = threading.Lock()

    def text(self) -> bytes:
        """All measures, as they are scraped."""
        with self._reading:
            begin = time.monotonic()
            into = Readings(RECEIVER_MEASURES)
            now = time_of(self._there)
            known = self._read_committed()
            self._put_process(into)
            self._put_committed(into, known, now)
            self._put_directories(into)
            if isinstance(self._there, RunningReceiver):
                self._put_running(into, self._there)
            self._put_edges(into, known)
            into.put(of.SCRAPE_SECONDS, time.monotonic() - begin)
            return into.text()

    # -- committed state ---------------------------------------------------------------------------

    def _read_committed(self) -> _Committed:
        known = self._committed
        if known is not None and known.newest == self._there.engine.newest_commit:
            return known
        with self._there.engine.reading() as state:
            rows, newest = list(state.senders.values()), self._there.engine.newest_commit
        own, several = _with_measures(rows, self._most_edges), several_labels(rows)
        with self._there.engine.reading() as state:
            # A sender that came in between is found by the next scrape: it is as of `newest`.
            self._committed = known = self._of_state(state, newest, own, several)
        return known

    def _of_state(
        self,
        state: State,
        newest: int,
        own: Iterable[SenderRow],
        several: Mapping[str, Sequence[str]],
    ) -> _Committed:
        table = state.file_table
        files, size = table.totals()
        bad = [row for row in table.every_wanted() if hold_of(state, row) is None]
        refused = list(state.quarantine.values())
        conflicts = sum(row.device is not None for row in refused)
        of_edges = Counter([row.sender for row in refused]) + Counter([row.sender for row in bad])
        times, schema = state.clock.times, state.schema
        history = times.seconds(self._there.engine.oldest_answerable)
        return _Committed(
            newest=newest,
            files=files,
            size=size,
            verified=table.verified(),
            deleted=table.count_deleted(),
            quarantined={
                "conflict": conflicts,
                "other": len(refused) - conflicts,
                "bad": len(bad),
            },
            lost=len(lost_files(state)),
            held=len(state.held_deletes.waiting()),
            series=schema.columns.series_count,
            devices=len(state.owners),
            groups=len(schema.groups.rows()),
            memory=schema.memory.used,
            newest_at=times.seconds(newest) if newest else None,
            history=history or None,
            tokens=tuple(state.tokens.values()),
            shared=len(shared_labels(state, several)),
            edges={
                row.uuid: _Edge(
                    *table.totals(row.uuid), table.verified(row.uuid), of_edges[row.uuid]
                )
                for row in own
            },
        )

    def _put_committed(self, into: Readings, known: _Committed, now: float) -> None:
        engine, limit = self._there.engine, self._there.config.metadata.max_memory
        into.put(of.FILES, known.files)
        into.put(of.FILES_BYTES, known.size)
        into.put(of.VERIFIED, known.verified)
        into.put(of.DELETED, known.deleted)
        for reason, count in known.quarantined.items():
            into.put(of.QUARANTINED, count, reason)
        into.put(of.LOST, known.lost)
        into.put(of.HELD_DELETES, known.held)
        into.put(of.SERIES, known.series)
        into.put(of.DEVICES, known.devices)
        into.put(of.STORAGE_GROUPS, known.groups)
        into.put(of.SCHEMA_MEMORY, known.memory)
        into.put(of.SCHEMA_MEMORY_LIMIT, limit)
        into.put(of.COMMITS, engine.published().lsn)
        into.put(of.NEWEST_COMMIT, known.newest_at)
        into.put(of.CHECKPOINT_ENTRIES, engine.entries_since_checkpoint)
        into.put(of.HISTORY, known.history)
        into.put(of.SHARED_LABELS, known.shared)
        oldest = self._oldest_proof.commit()
        into.put(of.OLDEST_PROOF, engine.times.seconds(oldest) if oldest else None)
        _put_tokens(into, known.tokens, now)

    # -- the process and its disks -----------------------------------------------------------------

    def _put_process(self, into: Readings) -> None:
        here, engine = self._standing(), self._there.engine
        into.put(of.INFO, 1, here.version, engine.uuid)
        into.put(of.READY, here.problem is None)
        into.put(of.READ_ONLY, (failed_sync() or engine.failed) is not None)
        into.put(of.CONCERNS, here.concerns)
        into.put(of.FOLLOW_BEHIND, here.behind)
        into.put_all(of.REQUESTS, self._requests.answered.sums())
        into.put_distribution(of.REQUEST_SECONDS, self._requests.seconds.distribution())
        into.put_all(of.BODY_BYTES, {(): 0.0} | self._requests.body_bytes.sums())
        into.put(of.CERTIFICATE, self._certificate.until())
        into.put(of.CLIENT_CA, self._client_ca.until())
        into.put(of.CLIENT_CRL, self._client_crl.until())

    def _put_directories(self, into: Readings) -> None:
        config, disks = self._there.config, self._there.disks
        into.put(of.DIRECTORY_LEAST, config.limits.min_free_bytes)
        for tree in disks.standing():
            into.put(of.DIRECTORY_UP, 1, str(tree.path))
            into.put(of.DIRECTORY_FREE, free_bytes(tree.path), str(tree.path))
        for away in disks.away():
            into.put(of.DIRECTORY_UP, 0, str(away.path))
        note = read_backup_note(config.schema_dir)
        into.put(of.BACKUP, None if note is None else note.at)

    def _put_running(self, into: Readings, there: RunningReceiver) -> None:
        doubt = there.engine.clock.doubt()
        into.put(of.STARTED, there.started)
        into.put(of.CLOCK_DOUBTED, doubt is not None)
        into.put(of.CLOCK_AHEAD, 0.0 if doubt is None else doubt.ahead)
        count, partial = there.uploads.numbers()
        into.put(of.UPLOADS, count)
        staged = sum(folder.staged.bytes for folder in there.load.folders.all())
        into.put(of.STAGED_BYTES, staged + partial)
        into.put(of.LOADING, there.load.loader.waiting)
        into.put_all(of.LOADS, _NO_LOADS | there.load.loader.attempts.sums())
        into.put_distribution(of.LOAD_SECONDS, there.load.loader.durations.distribution())
        self._put_background(into, there)
        self._put_tables(into)
        _put_nodes(into, node_totals(there))
        self._put_copies(into, there)
        for hook in () if there.hooks is None else there.hooks.standings():
            into.put(of.HOOKS_DELIVERED, hook.delivered, hook.way)
            into.put(of.HOOKS_FAILED, hook.failed, hook.way)
            into.put(of.HOOKS_DROPPED, hook.dropped, hook.way)
            into.put(of.HOOKS_WAITING, hook.waiting, hook.way)
            into.put(of.HOOKS_FAILING, hook.failing_since, hook.way)
        if there.storage is None:
            return
        found, times = there.storage.progress(), there.engine.times
        into.put(of.STORAGE_UP, found.trouble is None and not found.is_fenced)
        into.put(of.STORAGE_WAITING, found.files.waiting_files)
        into.put(of.STORAGE_WAITING_BYTES, found.files.waiting_bytes)
        oldest, behind = found.files.oldest, found.behind
        into.put(of.STORAGE_OLDEST, times.seconds(oldest) if oldest else None)
        into.put(of.STORAGE_BEHIND, times.seconds(behind) if behind else None)

    def _put_tables(self, into: Readings) -> None:
        with self._there.engine.reading() as state:
            tables, slots = state.loaded_tables, state.cache_slots.row
            there = sum(1 for _ in tables.there())
            stand = Counter((tables.standings or {}).values())
            deleting = len(tables.rows) - there
        for word in ("creating", "altering"):
            into.put(of.TABLES, stand[word], word)
        into.put(of.TABLES, there - stand["creating"] - stand["altering"], "running")
        into.put(of.TABLES, deleting, "deleting")
        if slots is not None:
            into.put(of.CACHE_SLOTS_VERSION, slots.version)
            for node, count in zip(slots.nodes, slots.shares(), strict=True):
                into.put(of.CACHE_SLOTS, count, node)

    def _put_copies(self, into: Readings, there: RunningReceiver) -> None:
        copies = there.copies
        if self._nowhere is None:
            self._nowhere = FilesNowhere(copies.released.looks_for_nowhere)
        into.put(of.TABLETS_SHORT, copies.assignment.last.short)
        into.put(of.COPIES_DOUBTED, copies.doubts.count())
        into.put(of.NOWHERE, self._nowhere.count())

    def _put_background(self, into: Readings, there: RunningReceiver) -> None:
        gone, merged, tasks = retired_totals(there), merge_totals(there), background_totals(there)
        for state, files, size in (
            ("waiting", gone.waiting_files, gone.waiting_bytes),
            ("unique", gone.unique_files, gone.unique_bytes),
            ("superseded", gone.superseded_files, gone.superseded_bytes),
        ):
            into.put(of.RETIRED, files, state)
            into.put(of.RETIRED_BYTES, size, state)
        into.put(of.MERGED, merged.outputs)
        into.put(of.MERGED_INPUTS, merged.inputs)
        into.put(of.MERGES_WAITING, merged.waiting)
        into.put(of.FINAL_MERGED, merged.final)
        into.put(of.MERGES_UNVERIFIED, merged.unverified)
        into.put(of.MERGES_KEPT_BACK, merged.kept_back_count)
        into.put(of.TASKS, tasks.waiting, "waiting")
        into.put(of.TASKS, tasks.running - tasks.overdue, "running")
        into.put(of.TASKS, tasks.overdue, "overdue")
        into.put(of.TASKS, tasks.failed, "failed")
        into.put(of.OLDEST_TASK, tasks.oldest_waiting_at)
        into.put(of.OLDEST_ATTEMPT, tasks.oldest_running_at)

    # -- edges -------------------------------------------------------------------------------------

    def _put_edges(self, into: Readings, known: _Committed) -> None:
        # Commits wait for the lock, so nothing is reckoned under it that does not have to be.
        with self._there.engine.reading() as state:
            rows = list(state.senders.values())
        found = [each for each in presences(self._there, rows) if not epochs.is_removed(each[0])]
        times = self._there.engine.times
        beats = [here.last.beat for _, here in found if here.last and here.last.beat]
        versions = Counter(here.last.version for _, here in found if here.last)
        common = dict(versions.most_common(_VERSIONS))
        rare = sum(versions.values()) - sum(common.values())
        into.put(of.EDGES, sum(is_edge(row) for row, _ in found))
        if all(here.is_late is not None for _, here in found):
            into.put(of.EDGES_LATE, sum(bool(here.is_late) for _, here in found))
        into.put(of.EDGES_LEFT_OUT, sum(row.uuid not in known.edges for row, _ in found))
        into.put(of.EDGES_PENDING, sum(beat.pending_files for beat in beats))
        into.put(of.EDGES_PENDING_BYTES, sum(beat.pending_bytes for beat in beats))
        for trouble in EDGE_TROUBLE:
            into.put(of.EDGES_TROUBLED, sum(getattr(beat, trouble) > 0 for beat in beats), trouble)
        for version, count in sorted(common.items()):
            into.put(of.EDGES_VERSION, count, version)
        if rare:
            into.put(of.EDGES_VERSION, rare, "other")
        for row, here in found:
            edge = known.edges.get(row.uuid)
            if edge is not None:
                commit = times.seconds(row.last_commit) if row.last_commit else None
                self._put_edge(into, row, here, edge, commit)

    def _put_edge(
        self, into: Readings, row: SenderRow, here: Presence, edge: _Edge, commit: float | None
    ) -> None:
        who = (row.label or row.uuid, row.uuid)
        into.put(of.EDGE_LATE, here.is_late, *who)
        if is_edge(row):  # nobody waits for a word of the centre, whose files count beside theirs
            into.put(of.EDGE_HEARD, here.heard_at, *who)
        into.put(of.EDGE_LATE_AFTER, here.late_after, *who)
        into.put(of.EDGE_COMMIT, commit, *who)
        into.put(of.EDGE_FILES, edge.files, *who)
        into.put(of.EDGE_FILES_BYTES, edge.size, *who)
        into.put(of.EDGE_VERIFIED, edge.verified, *who)
        into.put(of.EDGE_QUARANTINED, edge.quarantined, *who)
        if here.last is not None:
            into.put(of.EDGE_INFO, 1, *who, here.last.version)
            into.put(of.EDGE_CLONE, here.last.clone_refused_at, *who)
            if here.last.beat is not None:
                self._put_beat(into, who, here.last.beat)

    def _put_beat(self, into: Readings, who: tuple[str, str], beat: Heartbeat) -> None:
        into.put(of.EDGE_PENDING, beat.pending_files, *who)
        into.put(of.EDGE_PENDING_BYTES, beat.pending_bytes, *who)
        if beat.complete_until is not None:
            unit = 1000 * PER_MILLISECOND[self._there.config.time_unit]
            into.put(of.EDGE_COMPLETE, beat.complete_until / unit, *who)
        for trouble in EDGE_TROUBLE:
            into.put(of.EDGE_TROUBLE_FILES, getattr(beat, trouble), *who, trouble)
        if beat.round_at:
            into.put(of.EDGE_ROUND, beat.round_at, *who)
            into.put(of.EDGE_FAILED, bool(beat.problem), *who)
        into.put(of.EDGE_FREE, beat.free_bytes, *who)
        into.put(of.EDGE_CERTIFICATE, beat.client_certificate_until, *who)


def _put_tokens(into: Readings, tokens: Sequence[TokenRow], now: float) -> None:
    live = [row for row in tokens if row.expires is None or row.expires > now]
    for role, count in sorted(Counter(row.role for row in live).items()):
        into.put(of.TOKENS, count, role)
    ends = [row.expires for row in live if row.expires is not None]
    into.put(of.TOKENS_ENDING, sum(until - now < SOON for until in ends))
    # Apart: one that has ended, and is not seen to, would be all that is told of the next ones.
    into.put(of.TOKENS_ENDED, len(ended_tokens(tokens, now)))
    into.put(of.TOKEN_EXPIRY, min(ends, default=None))


def _put_nodes(into: Readings, found: NodeTotals) -> None:
    for state, count in (
        ("up", found.nodes - found.down - found.reporting),
        ("down", found.down),
        ("reporting", found.reporting),
        ("lost", found.lost),
    ):
        into.put(of.NODES, count, state)
    into.put(of.NODES_PARTIAL, found.partial)
    into.put(of.NODES_DOUBTING, found.doubting)
    into.put(of.NODES_SILENCE, found.oldest)
    into.put(of.NODES_TABLETS, found.tablets)
    into.put(of.NODES_UNKNOWN, found.unknown)


def _with_measures(rows: Iterable[SenderRow], most: int) -> list[SenderRow]:
    """Those that have measures of their own: the first that came, so that they stay the same."""
    there = [row for row in rows if not epochs.is_removed(row)]
    return sorted(there, key=lambda row: row.first_seen)[:most]
