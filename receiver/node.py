"""The receiver as one object: it opens everything, recovers, owns the threads, and closes.

Nothing here knows of HTTP. The calls are those of its parts. Those of a round name who asks; they
raise errors of the common tree, and return wire types or views. What a call promises is on the
disk when it returns.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Self

from common.durable import Closing, Tree, failed_sync
from common.errors import NotTheWriterError
from common.network.bandwidth import local_now
from common.wire import IncarnationMark
from receiver.background.remote_work import RemoteKind, RemoteWork
from receiver.background.work_queue import WorkQueue
from receiver.compaction.compactor import Compactor
from receiver.compaction.final_merges import FinalMerges
from receiver.compaction.merge_comparer import MergeComparer
from receiver.compaction.merge_pace import MergePace
from receiver.compaction.merge_progress import MERGE
from receiver.compaction.merged_upkeep import MergedUpkeep
from receiver.compaction.remote_merges import RemoteMerges
from receiver.compaction.worth_merging.crowded import CrowdedPartitions
from receiver.heartbeats.node_manager import NodeManager
from receiver.hooks.receiver_hooks import open_receiver_hooks
from receiver.hooks.standing_looks import StandingLooks
from receiver.load.service import LoadService
from receiver.load.upkeep.table_upkeep import TableUpkeep
from receiver.load.upkeep.verdicts import Verdict
from receiver.metadata.clock.machine_clock import MachineClock
from receiver.metadata.model.errors import FencedError
from receiver.open_engine import open_engine
from receiver.operator.adopting.adoptions import Adoptions
from receiver.operator.asked_work.background_tasks import background_concerns, background_totals
from receiver.operator.centre.centre_loading import CentreLoads
from receiver.operator.centre.centre_writes import CentreWrites
from receiver.operator.centre.loaded_content import LoadedContent
from receiver.operator.damaged_files import DamagedFiles
from receiver.operator.directories import RunningReceiver
from receiver.operator.edges.untold_losses import UntoldLosses
from receiver.operator.places.copies import copy_concerns
from receiver.operator.places.remote_nodes import node_totals, remote_node_concerns
from receiver.operator.stored.log_files import log_files
from receiver.operator.stored.storage import files_out_of_reach
from receiver.placement.copy_service import CopyService
from receiver.superseding.proof_work import PROVE
from receiver.superseding.prover import Prover
from receiver.superseding.remote_proofs import RemoteProofs
from receiver.transfer.acknowledging import Acknowledging
from receiver.transfer.begun.checks import Checks
from receiver.transfer.begun.tasks import Tasks
from receiver.transfer.begun.under_way import is_under_way_since_before
from receiver.transfer.receiving.node_pulls import NodePulls
from receiver.transfer.receiving.uploads import Uploads
from receiver.transfer.said_lists.listed import ListComparison, is_awaited
from receiver.transfer.said_lists.listing import Listing
from receiver.transfer.said_lists.lost import Losses
from receiver.transfer.said_lists.settled import Settlements
from receiver.transfer.schemachanges import SchemaReader
from receiver.txn.txn_manager import TxnManager

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from contextlib import AbstractContextManager

    from common.errors import TsferryError
    from receiver.config import ReceiverConfig
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.retired import PartitionKey
    from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow
    from receiver.operator.views.log_file_views import LogFilesView
    from receiver.placement.node_room import NodeRoom
    from receiver.storage.copying import StorageService

__all__ = ["Node"]


class Node(Closing):
    """A running receiver; one a schema directory.

    Attributes:
        config: as it was opened with.
        engine: the metadata engine, held by this process alone.
        load: the loader, the reaper and the senders' folders.
        transactions: of sessions.
        work: background work, and who does it.
        prover: finds what is superseded.
        compactor: merges files for those who read them.
        crowded: hears from readers where there are many.
        merged: takes away what it made, when nobody reads that any more.
        tables: keeps tables and tablets in step with the files.
        merge_comparer: has merged files compared with what they were made of.
        final_merges: has merged files take the place of what they were made of for good.
        nodes: the storage nodes that it has heard from.
        copies: of tablets at them.
        damaged: takes verdicts, and mends what somebody else has whole.
        remote_work: what executors elsewhere do of the background work.
        storage: copies into the object store; None without one.
        node_room: makes room where storage nodes have what leaves the disks; None without them, or
            with a store.
        disk_room: the data directories as a cache, of one of these two; None without both.
        uploads: the tus calls.
        checks: `check`, the first call of a round, and `heartbeat`.
        tasks: the calls of a task, from its start to its outcome.
        listed: compares a sender's list with what is listed here.
        lost: takes what senders tell of files that neither side has.
        settled: which files senders need not remember any more.
        listing: pages of what is committed, for senders and readers.
        content: bytes of loaded files, for readers.
        schema_reader: what became of the schema, for readers.
        operator: what the calls of operators work on.
        hooks: who is told of what happens.
    """

    def __init__(self, config: ReceiverConfig, engine: Engine, load: LoadService) -> None:
        clock = engine.clock
        self.config = config
        self.engine = engine
        self.load = load
        self.transactions = TxnManager(
            engine, lease=config.metadata.txn_lease, most=config.metadata.txn_most
        )
        self.work = WorkQueue(engine)
        self.prover = Prover(
            engine,
            self.work,
            load.disks.standing,
            is_busy=lambda: load.loader.waiting > 0,
            is_pressed=load.space.is_pressed,
            memory=config.proofs.memory,
            every=config.proofs.every,
            here=config.proofs.here,
            in_turn=self._pinned_in_turn,
        )
        self.compactor = self._compactor()
        self.crowded = CrowdedPartitions(engine, self.compactor.met)
        self.merged = MergedUpkeep(
            engine,
            load.disks,
            keep_deleted=config.load.keep_deleted,
            is_pressed=load.space.is_pressed,
            is_full=lambda: load.space.cache is not None and load.space.cache.room() == 0,
            made_room=self.compactor.made_room,
        )
        self.tables = TableUpkeep(engine, keep_empty=config.limits.upload_expiry)
        load.reaper.chores += [self.merged.let_go, self.tables.drop_empty]
        load.reaper.chores += [self.tables.forget_tablets, self.tables.forget]
        self.merge_comparer = self._merge_comparer()
        self.final_merges = self._final_merges()
        self.compactor.chores.append(self.final_merges.run_once)
        merges = RemoteMerges(self.compactor, self.work, block=config.limits.max_chunk_bytes)
        self.remote_work = RemoteWork(
            engine,
            self.work,
            {
                PROVE: RemoteKind(partial(RemoteProofs, self.prover.work)),
                MERGE: RemoteKind(merges.begin, merges.is_open),
            },
        )
        load.reaper.chores.append(self.remote_work.sweep)
        self.nodes = NodeManager(
            engine, timeout=config.nodes.timeout, incarnation=self._incarnation
        )
        self.copies = CopyService(
            config.nodes,
            engine,
            self.nodes,
            load.disks,
            stirred=load.loader.stir,
        )
        self.tables.may_forget = self._may_forget
        self.tables.has_gone, self.tables.is_empty = self.copies.has_gone, self.copies.is_empty
        load.reaper.nodes_with = self.copies.condition.count
        load.reaper.nodes_perhaps = self.copies.condition.perhaps
        self.damaged = DamagedFiles(
            engine, load.disks.standing, self.copies.back, lambda rows: load.disks.pinned(rows)
        )
        self.storage = _storage(config, engine, load, self.damaged, self.copies)
        self.node_room = _node_room(config, engine, load, self.copies)
        acknowledging = self._acknowledging()
        if config.nodes.before_ack:
            untold = UntoldLosses(
                engine,
                load.disks,
                self.copies.back,
                self.copies.nodes,
                acknowledging.untold,
                lacks=self.copies.condition.lacks,
                has_told=self.copies.has_told,
            )
            load.reaper.looks.append(untold.run_once)
        self.uploads = Uploads(config, engine, load, acknowledging, clock=clock)
        self.checks = Checks(
            config, engine, load, acknowledging, clock=clock, incarnation=self._incarnation
        )
        pulls = self._node_pulls()
        self.tasks = Tasks(
            config,
            engine,
            load,
            self.uploads,
            acknowledging,
            clock=clock,
            nodes=self.copies.upload_nodes,
            pulls=pulls,
        )
        stored = None if self.storage is None else self.storage.stored
        is_safe = self.copies.condition.is_safe if config.nodes.replicas else None
        self.listing = Listing(
            config, engine, load.disks, stored, self._incarnation, is_copied=is_safe
        )
        bring = self.copies.back.bring if config.nodes.replicas else None
        self.content = LoadedContent(
            config, engine, load.disks, bring=bring, relay=self.copies.back.relay
        )
        kept = self.storage or self.node_room
        self.disk_room = None if kept is None else kept.disk_room
        if self.disk_room is not None:
            load.disks.pinned = self.disk_room.pinned
            load.space.cache = self.disk_room
            self.copies.back.came = self.disk_room.came
            load.mover.letting_go = self.disk_room.moving
        self.listed = ListComparison(config, engine)
        load.reaper.is_awaited = is_awaited
        self.lost = Losses(config, engine)
        self.settled = Settlements(config, engine)
        self.schema_reader = SchemaReader(engine)
        self.hooks = open_receiver_hooks(config, engine)
        centre = CentreLoads(config, engine, load, acknowledging, clock=clock)
        self.operator = RunningReceiver(
            config,
            engine,
            load.disks,
            load=load,
            uploads=self.uploads,
            checks=self.checks,
            centre=centre,
            writes=CentreWrites(config, engine, load, centre, clock=clock),
            adoptions=Adoptions(config, engine, load, acknowledging, clock=clock),
            work=self.work,
            prover=self.prover,
            compactor=self.compactor,
            nodes=self.nodes,
            copies=self.copies,
            damaged=self.damaged,
            final_merges=self.final_merges,
            storage=self.storage,
            disk_room=self.disk_room,
            out_of_reach=files_out_of_reach(engine, load.disks) if self.storage is None else 0,
            clock=clock,
            started=clock(),
            hooks=self.hooks,
        )
        self._looks = StandingLooks(self.hooks, self.operator)
        self._closing = threading.Lock()
        self._closed = False
        self._resources = ExitStack()
        self._resources.callback(engine.close)
        self._resources.callback(load.close)
        self._resources.callback(self.prover.close)
        self._resources.callback(self.compactor.close)
        self._resources.callback(self.transactions.close)
        self._resources.callback(self.operator.centre.close)
        self._resources.callback(self.operator.adoptions.close)
        self._resources.callback(self.content.close)
        self._resources.callback(self.checks.heard.close)
        self._resources.callback(self.copies.close)
        if pulls is not None:
            self._resources.callback(pulls.close)
        if kept is not None:
            self._resources.callback(kept.close)
        self._resources.callback(self._close_hooks)

    def _may_forget(self, table: LoadedTableRow) -> bool:
        """Whether nothing is left that would come to be in a dropped table, or was in it."""
        load = self.load
        if load.disks.away() or not self.copies.may_forget(table):
            return False
        return not is_under_way_since_before(table.dropped, load.folders, self.uploads)

    def _node_pulls(self) -> NodePulls | None:
        nodes = self.copies.upload_nodes
        if nodes is None:
            return None
        return NodePulls(self.uploads, nodes, block=self.config.limits.max_chunk_bytes)

    def _acknowledging(self) -> Acknowledging:
        config, condition = self.config, self.copies.condition
        storage = self.storage if config.storage.before_ack else None
        return Acknowledging(
            self.engine,
            shipped=None if storage is None else storage.shipped,
            hurry=(lambda _: None) if storage is None else storage.hurry,
            lacks_copies=condition.lacks if config.nodes.before_ack else None,
            busy=condition.busy,
        )

    def _compactor(self) -> Compactor:
        config, load = self.config, self.load
        return Compactor.configured(
            config,
            self.engine,
            load.disks,
            self.work,
            is_busy=lambda: load.loader.waiting > 0,
            room=lambda: load.space.room() - config.limits.min_free_bytes,
            awaits_proof=self._awaits_proof,
        )

    def _merge_comparer(self) -> MergeComparer:
        return MergeComparer(
            self.engine,
            self.load.disks,
            memory=self.config.merge.memory,
            here=self.config.merge.here,
            rate=self.config.merge.max_bytes_per_second or 0,
            stopped=lambda: self.compactor.is_stopped,
            paused=self.compactor.is_held,
        )

    def _final_merges(self) -> FinalMerges:
        verified = self.config.merge.final_verified
        return FinalMerges(
            self.engine,
            self.load.disks,
            after=self.config.merge.final_after,
            awaits_proof=self._awaits_proof,
            why_unverified=self.merge_comparer.why_unverified if verified else None,
            is_time=lambda: self.config.merge.hours.hold(local_now()),
            stopped=lambda: self.compactor.is_stopped,
            stand_back=self.compactor.stand_back,
            pace=MergePace(
                self.config.merge.max_bytes_per_second or 0, lambda: self.compactor.is_stopped
            ),
            is_awaited=self.compactor.is_awaited,
        )

    def _awaits_proof(self, key: PartitionKey, row: FileRow) -> bool:
        return self.config.proofs.enabled and self.prover.awaits(key, row)

    def _incarnation(self) -> IncarnationMark | None:
        """Which of the owners of its copies this is; what never had a store imports nothing."""
        if not (self.config.schema_dir / "storage").is_dir():
            return None
        from receiver.storage.stores.incarnation import known_owner

        with Tree(self.config.schema_dir) as home:
            owner = known_owner(home, self.engine.uuid)
        return None if owner is None else IncarnationMark(number=owner.number, ident=owner.ident)

    def _pinned_in_turn(
        self, batches: Iterable[Sequence[FileRow]]
    ) -> Generator[AbstractContextManager[None], None, None]:
        if self.disk_room is None:
            yield from map(self.load.disks.pinned, batches)
        else:
            yield from self.disk_room.pinned_in_turn(batches)

    @classmethod
    def open(
        cls,
        config: ReceiverConfig,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
    ) -> Self:
        """Open the directories, finish what a crash left undone, start the threads.

        Args:
            config: of the receiver.
            clock: seconds since the epoch, or a `MachineClock`.
            monotonic: seconds that nobody sets, what the clock is judged by; see `Engine.open`.

        Raises:
            LockedError: another process has the schema directory open.
            DamagedError: a log of the engine is damaged in the middle.
        """
        with ExitStack() as stack:
            engine = open_engine(config, MachineClock.of(clock, monotonic))
            stack.callback(engine.close)
            load = LoadService.open(config, engine)
            stack.callback(load.close)
            node = cls(config, engine, load)
            stack.callback(node._close_hooks)
            node.tables.take_over()
            node.uploads.recover()
            node.copies.doubts.take_over(config.schema_dir)
            load.start()
            node.merged.recover()
            if config.proofs.enabled:
                node.prover.start()
            node.compactor.start()
            node.checks.heard.start()
            stack.callback(node.copies.close)
            node.copies.start()
            kept = node.storage or node.node_room
            if kept is not None:
                stack.callback(kept.close)
                kept.start()
            if config.hooks.are_any:
                node.hooks.start()
                node._looks.start()
            stack.pop_all()  # from here on the node closes them
        return node

    def _close_hooks(self) -> None:
        self._looks.close()
        self.hooks.close()

    def close(self) -> None:
        """Stop the threads, let a running load come to a safe place, close the engine."""
        with self._closing:
            self._closed = True
            self._resources.close()

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds since the epoch, by what is believed of the machine's clock."""
        return self.engine.clock

    def not_the_writer(self) -> NotTheWriterError | None:
        """What whoever comes to write is told once another receiver has taken this one's place."""
        displaced = self.engine.displaced()
        if isinstance(displaced, FencedError):
            return NotTheWriterError(displaced.message)
        return None

    def displaced(self) -> TsferryError | None:
        """Why what it tells of its commits may not be so any more."""
        return self.not_the_writer() or self.engine.displaced()

    def follows(self) -> None:
        """Nobody."""

    def log_files(self, lsn: int, ts: int) -> LogFilesView:
        """The files of the engine, for nodes that follow; see `stored.log_files`."""
        return log_files(self.operator, lsn, ts)

    def reach(self, ts: int | None) -> None:
        """See that a time can be asked about: all of it can, for what is to come is no more."""

    def problem(self) -> str | None:
        """Why this receiver takes no files now (`/readyz`), or None: it is ready."""
        if self._closed:
            return "the receiver is stopped"
        return failed_sync() or self.engine.trouble or self.load.problem()

    def concerns(self) -> list[str]:
        """What does not come through although this receiver takes files, in numbers."""
        if self._closed:
            return []
        doubt = self.engine.clock.doubt()
        found = [] if doubt is None else [f"timestamps do not follow the clock: {doubt.text}"]
        found += self.load.concerns()
        found += remote_node_concerns(node_totals(self.operator))
        found += copy_concerns(self.copies)
        found += background_concerns(background_totals(self.operator), self.clock())
        trouble = None if self.storage is None else self.storage.trouble()
        if trouble is not None:
            text = f"Copies into the object store are held up: {trouble.kind}"
            waits = "; no task is acknowledged before them"
            found.append(f"{text}{waits if self.config.storage.before_ack else ''}.")
        found += self.hooks.concerns()
        if self.operator.out_of_reach:
            found.append("Files are in an object store only, and none is configured.")
        return found


def _node_room(
    config: ReceiverConfig, engine: Engine, load: LoadService, copies: CopyService
) -> NodeRoom | None:
    """The room of the disks, where nodes have what may be in none of them."""
    if config.storage.url is not None:
        return None
    if not config.nodes.replicas and not copies.has_released():
        return None
    from receiver.placement.node_place import NodeSource
    from receiver.placement.node_room import NodeRoom

    return NodeRoom(
        config.storage,
        engine,
        load.disks.standing,
        NodeSource(engine, copies.back),
        [copies.place()] if config.nodes.evict_copies else [],
        takes=lambda tree: not load.disks.is_draining(tree),
    )


def _storage(
    config: ReceiverConfig,
    engine: Engine,
    load: LoadService,
    damaged: DamagedFiles,
    copies: CopyService,
) -> StorageService | None:
    """The copies, where a store is configured: without one nothing of them is imported."""
    if config.storage.url is None:
        return None
    from receiver.placement.node_place import NodeSource
    from receiver.storage.copying import StorageService
    from receiver.storage.uploading.pulled_files import PulledFiles

    return StorageService(
        config.storage,
        engine,
        Tree(config.schema_dir),
        load.disks.standing,
        takes=lambda tree: not load.disks.is_draining(tree),
        shipped=load.loader.stir,
        found_bad=lambda physical, digest, why: damaged.judge(
            [Verdict(physical, digest, f"found while it was copied: {why}")]
        ),
        nodes=[NodeSource(engine, copies.back, every=False)],
        nodes_at_last=[NodeSource(engine, copies.back)],
        pulled=PulledFiles(
            load.disks.standing, copies.back.beside, keep_free=2 * config.limits.min_free_bytes
        ),
    )
