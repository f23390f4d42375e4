"""The receiver as one object: it opens everything, recovers, owns the threads, answers calls.

Nothing here knows of HTTP. Every call names who asks (`Principal`), raises errors of the common
tree, and returns wire types or views. What a call promises is on the disk when it returns.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from common.durable import failed_sync
from receiver.load.schema.task_schema import import_items
from receiver.load.service import LoadService
from receiver.load.upkeep.ttl import steady
from receiver.load.upkeep.verdicts import record_verdicts
from receiver.open_engine import open_engine
from receiver.operator.operating import Operating
from receiver.transfer.checks import Checks
from receiver.transfer.listing import Listing
from receiver.transfer.schemachanges import SchemaReader
from receiver.transfer.tasks import Tasks
from receiver.transfer.uploads import Uploads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from common import wire
    from common.schemaitems import Item, SchemaChanges
    from receiver.config import ReceiverConfig
    from receiver.load.schema.change import SchemaChange
    from receiver.load.upkeep.fsck import Report
    from receiver.load.upkeep.verdicts import Recorded, Verdict
    from receiver.metadata.engine import Engine
    from receiver.operator import views
    from receiver.principal import Principal

__all__ = ["Node"]


class Node:
    """A running receiver; one a schema directory.

    Attributes:
        config: as it was opened with.
        engine: the metadata engine, held by this process alone.
        uploads: the tus calls: `create`, `head`, `patch`, `terminate` (`transfer.uploads`).
        load: the loader, the reaper and the senders' folders (`load.service`).
    """

    def __init__(
        self, config: ReceiverConfig, engine: Engine, load: LoadService, clock: Callable[[], float]
    ) -> None:
        self.config = config
        self.engine = engine
        self.load = load
        self.started = clock()
        self.uploads = Uploads(config, engine, load, clock=clock)
        self._checks = Checks(config, engine, load, clock=clock)
        self._tasks = Tasks(config, engine, load, self.uploads, clock=clock)
        self._listing = Listing(config, engine, load)
        self._schema = SchemaReader(engine)
        self._operating = Operating(config, engine, load, self.uploads, self._checks, clock=clock)
        self._closing = threading.Lock()
        self._closed = False
        self._resources = ExitStack()
        self._resources.callback(engine.close)
        self._resources.callback(load.close)

    @classmethod
    def open(
        cls,
        config: ReceiverConfig,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = steady,
    ) -> Self:
        """Open the directories, finish what a crash left undone, start the threads.

        Args:
            config: of the receiver.
            clock: seconds since the epoch.
            monotonic: seconds that nobody sets; what the clock is compared with.

        Raises:
            LockedError: another process has the schema directory open.
            DamagedError: a log of the engine is damaged in the middle.
        """
        with ExitStack() as stack:
            engine = open_engine(config, clock)
            stack.callback(engine.close)
            load = LoadService.open(config, engine, clock=clock, monotonic=monotonic)
            stack.callback(load.close)
            node = cls(config, engine, load, clock)
            node.uploads.recover()
            load.start()
            stack.pop_all()  # from here on the node closes them
        return node

    def close(self) -> None:
        """Stop the threads, let a running load come to a safe place, close the engine."""
        with self._closing:
            self._closed = True
            self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def problem(self) -> str | None:
        """Why this receiver takes no files now (`/readyz`), or None: it is ready."""
        if self._closed:
            return "the receiver is stopped"
        return failed_sync() or self.engine.failed or self.load.problem()

    # -- a round ---------------------------------------------------------------------------

    def check(self, who: Principal, request: wire.CheckRequest) -> wire.CheckAnswer:
        """`POST /check`.

        Raises:
            ProtocolError: another protocol or partition interval.
            CloneError: two machines speak under this uuid.
        """
        return self._checks.check(who, request)

    def heartbeat(
        self, who: Principal, sender: str, heartbeat: wire.Heartbeat
    ) -> wire.HeartbeatAnswer:
        """`POST /heartbeat`; kept in memory for `senders` and `status`."""
        return self._checks.heartbeat(who, sender, heartbeat)

    def start_task(
        self, who: Principal, sender: str, task: str, request: wire.StartRequest
    ) -> wire.TaskAnswer:
        """`PUT /tasks/<id>`: start or resume; of a task that is done, its outcome.

        Raises:
            BusyError: an earlier task of this sender is being loaded.
            CloneError: two machines speak under this uuid.
            GoneError: the request is meant for another engine; check first.
        """
        return self._tasks.start(who, sender, task, request)

    def plan(
        self, who: Principal, sender: str, task: str, epoch: str | None, page: wire.PlanPage
    ) -> wire.PlanAnswer:
        """`POST /tasks/<id>/plan`: what to do with each file of the page, in its order."""
        return self._tasks.plan(who, sender, task, epoch, page)

    def deleted(
        self, who: Principal, sender: str, task: str, epoch: str | None, page: wire.DeletedPage
    ) -> None:
        """`POST /tasks/<id>/deleted`: recorded in sync.log when this returns."""
        self._tasks.deleted(who, sender, task, epoch, page)

    def batch(
        self, who: Principal, sender: str, task: str, epoch: str | None, body: bytes
    ) -> wire.BatchAnswer:
        """`POST /tasks/<id>/batch`: many small files; what has no problem is on disk, verified."""
        return self._tasks.batch(who, sender, task, epoch, body)

    def schema(
        self, who: Principal, sender: str, task: str, epoch: str | None, body: bytes
    ) -> wire.SchemaAnswer:
        """`PATCH /tasks/<id>/schema`: the block is on the disk when this returns."""
        return self._tasks.schema(who, sender, task, epoch, body)

    def end_task(
        self, who: Principal, sender: str, task: str, epoch: str | None, request: wire.EndRequest
    ) -> wire.TaskAnswer:
        """`POST /tasks/<id>/end`: the end is durable when this returns; loading begins."""
        return self._tasks.end(who, sender, task, epoch, request)

    def task(self, who: Principal, sender: str, task: str, wait: float = 0.0) -> wire.TaskAnswer:
        """`GET /tasks/<id>?wait=`: returns at once when done, else after `wait` seconds at most.

        Raises:
            NotFoundError: no such task is open, loading or committed here.
        """
        return self._tasks.answer(who, sender, task, wait)

    # -- lists -----------------------------------------------------------------------------

    def inventory(
        self, who: Principal, sender: str, after: str | None, limit: int
    ) -> wire.InventoryAnswer:
        """`GET /inventory`: what the receiver has of this sender, a page in path order."""
        return self._listing.inventory(who, sender, after, limit)

    def catalogue(
        self,
        who: Principal,
        after: str | None,
        limit: int,
        *,
        at: int | None = None,
        since: int = 0,
        quarantined: bool = False,
    ) -> wire.CatalogueAnswer:
        """`GET /catalogue`: committed files of everybody, a page in order of physical paths.

        Args:
            who: asks.
            after: the cursor of the page before.
            limit: entries of a page.
            at: the commit that is asked about; the newest, if left out.
            since: only files loaded after this commit.
            quarantined: those too that had been loaded and are in quarantine.
        """
        return self._listing.catalogue(
            who, after, limit, at=at, since=since, quarantined=quarantined
        )

    def schema_changes(
        self, who: Principal, after: int, cursor: str | None, limit: int
    ) -> SchemaChanges:
        """`GET /schema/changes`: what became of the schema since a commit, a page in path order."""
        who.must_read()
        return self._schema.page(after, cursor, limit)

    def pin(self, physicals: Iterable[str], seconds: float) -> None:
        """Keep the bytes of these files on the disk for a reader, even if they are deleted."""
        self.load.reaper.pin(physicals, seconds)

    # -- operators -------------------------------------------------------------------------

    def status(self, who: Principal) -> views.StatusView:
        """How the receiver is, in numbers."""
        return self._operating.status(who, started=self.started, problem=self.problem())

    def senders(self, who: Principal) -> list[views.SenderView]:
        """Every sender that was ever in contact."""
        return self._operating.senders(who)

    def accept_sender(self, who: Principal, sender: str) -> None:
        """Let the next machine that comes under this uuid continue, whatever epoch it has."""
        self._operating.accept_sender(who, sender)

    def files(
        self,
        who: Principal,
        *,
        sender: str | None = None,
        state: str | None = None,
        unverified: bool = False,
        after: str | None = None,
        limit: int = 1000,
    ) -> views.FilesPage:
        """Rows of the catalogue, of one sender, in one state or not verified if told so."""
        return self._operating.files(
            who, sender=sender, state=state, unverified=unverified, after=after, limit=limit
        )

    def owners(
        self,
        who: Principal,
        *,
        sender: str | None = None,
        after: str | None = None,
        limit: int = 1000,
    ) -> views.OwnersPage:
        """Devices and their owners."""
        return self._operating.owners(who, sender=sender, after=after, limit=limit)

    def release_owner(self, who: Principal, device: str) -> int:
        """The device is free for whoever comes first; returns the commit."""
        return self._operating.set_owner(who, device, None)

    def transfer_owner(self, who: Principal, device: str, sender: str) -> int:
        """The device belongs to `sender` from now on; returns the commit."""
        return self._operating.set_owner(who, device, sender)

    def quarantine_list(
        self, who: Principal, *, sender: str | None = None
    ) -> list[views.QuarantineView]:
        """Files that were refused or found bad."""
        return self._operating.quarantine_list(who, sender=sender)

    def quarantine_retry(self, who: Principal, sender: str, path: str, digest: str) -> str:
        """Look at the file again, or let the next round try; says in words what came of it."""
        return self._operating.quarantine_retry(who, sender, path, digest)

    def quarantine_drop(self, who: Principal, sender: str, path: str, digest: str) -> None:
        """Forget the entry and the bytes kept for it."""
        self._operating.quarantine_drop(who, sender, path, digest)

    def record_verdicts(self, who: Principal, verdicts: Sequence[Verdict]) -> Recorded:
        """Record what a verification found; a verdict that came too late changes nothing."""
        who.must_operate()
        return record_verdicts(self.engine, verdicts)

    def resume_ttl(self, who: Principal) -> str | None:
        """The clock is right, so files expire by it; why they did not, None if they did."""
        return self._operating.resume_ttl(who)

    def import_schema(
        self, who: Principal, items: Iterable[Item], *, dry_run: bool
    ) -> SchemaChange:
        """Make storage groups and series that are missing; nothing is deleted."""
        who.must_operate()
        return import_items(self.engine, items, dry_run=dry_run)

    def token_create(
        self,
        who: Principal,
        role: str,
        *,
        sender: str | None = None,
        scope: Iterable[str] = (),
        note: str = "",
        expires: float | None = None,
    ) -> views.TokenMade:
        """A new token; its text is in the answer and nowhere else."""
        return self._operating.token_create(
            who, role, sender=sender, scope=scope, note=note, expires=expires
        )

    def token_list(self, who: Principal) -> list[views.TokenView]:
        """All tokens that are not revoked."""
        return self._operating.token_list(who)

    def token_revoke(self, who: Principal, token_id: str) -> None:
        """The token is worth nothing from now on."""
        self._operating.token_revoke(who, token_id)

    def fsck(self, who: Principal) -> Report:
        """Check every loaded file, the logs and the directories; changes nothing."""
        return self._operating.fsck(who)
