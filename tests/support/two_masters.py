"""Two masters over one log with a lease, and nodes that both may reach, in one process.

Who may speak to whom is a set of links that tests part and join: masters and the log, masters and
nodes, nodes and each other. The clock stands until it is moved. What a master answers passes the
gate that its server has: behind the answer it is asked whether another one may be at work by now.

Masters have the real parts of a server around their engines (who is heard, the copies, what leaves
the disks and comes back), nodes the real ones of a process (`homed_nodes`). What is not real is
HTTP, and threads.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from common.durable import Tree
from common.errors import (
    LockedError,
    NotTheWriterError,
    TsferryError,
    UnreachableError,
)
from receiver.config import NodesConfig
from receiver.heartbeats.node_manager import NodeManager
from receiver.heartbeats.node_wire import NodeHeartbeat, NodeHeartbeatAnswer
from receiver.metadata.commit import tablet_making
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import FencedError
from receiver.metadata.state.table_rows import FileRow
from receiver.operator.directories import RunningReceiver
from receiver.placement.copy_service import CopyService
from receiver.placement.node_place import NodeSource
from receiver.placement.placeable_nodes import PlaceableNode
from receiver.storage.cache.cache_books import CacheBooks
from receiver.storage.cache.disk_cache import DiskCache
from receiver.storage.cache.evicting import Evictor
from receiver.storage.cache.file_fetching import FileFetcher
from receiver.storage.reading.reader_calls import ReaderCalls
from receiver.tablet_copies.copies_wire import CopyOrders, DropOrders, KeptFiles, ProofAsked
from receiver.tablet_copies.read_tickets import READ_TICKET
from tests.support.homed_nodes import HomedNode, OneThread
from tests.support.remote_log import MemoryPlace, MemoryRemote
from tests.support.spark_world import NORTH, SOUTH, World

__all__ = ["LEASE", "OneOfTwo", "TwoMasters"]

LEASE = 15.0
HEARD = 10.0
"""Seconds of silence until a master calls a node down."""
_COPIES = NodesConfig(
    replicas=2,
    before_ack=1,
    evict_copies=2,
    timeout=HEARD,
    assignment_timeout=30.0,
    lost_after=60.0,
    uploads_from=1,
)
T = TypeVar("T")


class LeasedRemote(MemoryRemote):
    """See `RemoteLog`: it knows of another owner only by what it has asked."""

    def __init__(self, centre: TwoMasters, master: OneOfTwo) -> None:
        super().__init__(centre.place)
        self.centre, self.master = centre, master
        self.fenced = False
        self.sure = 0.0

    def acquire(self, *, wait: float | None = None) -> None:
        self._reach()
        if self.place.owner is not None and self.centre.until > self.centre.now:
            raise LockedError("another one holds it")
        self.place.owner = self
        self.look()

    def look(self) -> None:
        """A sign of life."""
        self._reach()
        if self.place.owner is not self:
            self.fenced = True
            raise FencedError("another receiver has taken over")
        self.sure = self.centre.now
        self.centre.until = self.centre.now + LEASE

    def displaced(self) -> FencedError | UnreachableError | None:  # type: ignore[override]
        if self.fenced:
            return FencedError("another receiver has taken over")
        if self.centre.now - self.sure >= LEASE:
            return UnreachableError("no sign of life was taken")
        return None

    def append(self, first_lsn: int, commits: int, payload: bytes) -> None:
        self.look()
        super().append(first_lsn, commits, payload)

    def settle(self) -> bool | None:
        self._reach()
        return super().settle()

    def close(self) -> None:
        """Nothing is given back: it dies."""

    def _reach(self) -> None:
        if not self.centre.may_speak(self.master.name, "log"):
            raise UnreachableError("the log does not answer")


class OneOfTwo:
    """A master, or the one that stands by; with directories of its own.

    Attributes:
        is_off_by: seconds that the clock of its machine is ahead.
    """

    def __init__(self, centre: TwoMasters, name: str) -> None:
        self.centre, self.name = centre, name
        self.root = centre.root / name
        self.is_alive = self.is_paused = False
        self.before_order: Callable[[], None] = lambda: None
        self.orders: list[tuple[str, str, str, int]] = []
        self.is_off_by = 0.0
        self._lives = 0
        self._home: Path | None = None

    @property
    def works(self) -> bool:
        """Whether it runs, and is not asleep."""
        return self.is_alive and not self.is_paused

    # -- lives -------------------------------------------------------------------------------

    def take_over(self, *, own: bool = False) -> bool:
        """Become master, if nobody is.

        Args:
            own: with the directories of its last life; else its machine was lost, and it has only
                the log.
        """
        self._lives += 1
        root = self._home if own and self._home is not None else self.root / str(self._lives)
        remote = LeasedRemote(self.centre, self)
        try:
            engine = Engine.open(
                root / "schema",
                background=False,
                clock=lambda: self.centre.wall() + self.is_off_by,
                remote=remote,
                monotonic=self.centre.monotonic,
            )
        except (LockedError, UnreachableError):
            return False
        self._home = root
        self.remote, world = remote, World.__new__(World)
        world.root, world.data, world.engine = root, root / "data", engine
        world._tree, world._tag = Tree(world.data, create=True), 0
        self.world = world
        self.is_alive, self.is_paused = True, False
        self._open()
        return True

    def _open(self) -> None:
        trees = [self.world._tree]
        disks = SimpleNamespace(standing=lambda: trees, trees=trees)
        self.manager = NodeManager(self.engine, timeout=HEARD, monotonic=self.centre.monotonic)
        self.copies = CopyService(
            _COPIES,
            self.engine,
            self.manager,
            disks,  # type: ignore[arg-type]
            monotonic=self.centre.monotonic,
        )
        self.copies._orders = self.copies.assignment._orders = self  # type: ignore[assignment]
        self.copies.assignment._calls = OneThread()  # type: ignore[assignment]
        self.copies.offers._calls = self  # type: ignore[assignment]
        assert self.copies.upload_nodes is not None
        self.upload_nodes = self.copies.upload_nodes
        self.upload_nodes._orders = self  # type: ignore[assignment]
        of_master = self.copies.tickets.ticket

        def ticket(node: str, tablet: str) -> str | None:
            found = of_master(node, tablet)
            return None if found is None else f"{self.name}:{found}"

        self.copies._places._ticket = self.copies.reader._ticket = ticket
        self.cache = DiskCache(1 << 40)
        self.evictor = Evictor(
            self.engine,
            [self.copies.place()],
            disks.standing,
            self.cache,
            CacheBooks(self.engine, disks.standing, self.cache),
            parallel=1,
            monotonic=self.centre.monotonic,
        )
        self.fetcher = FileFetcher(
            self.engine,
            [NodeSource(self.engine, self.copies.back)],
            disks.standing,
            self.cache,
            parallel=1,
        )

    def die(self) -> None:
        self.is_alive = False
        with ExitStack() as stack:
            for each in (self.world._tree, self.engine, self.copies, self.fetcher):
                stack.callback(each.close)

    def close(self) -> None:
        """Of its calls, for `CopyService`."""

    def saved(self, place: Path) -> None:
        """Have a copy of its directories, as of now."""
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.world.root, place)

    def restored(self, place: Path) -> None:
        """Its next life begins with such a copy."""
        self._lives += 1
        self._home = self.root / str(self._lives)
        shutil.copytree(place, self._home)

    @property
    def engine(self) -> Engine:
        return self.world.engine

    # -- what it is asked --------------------------------------------------------------------

    def answer(self, call: Callable[[], T]) -> T:
        """What its server answers; see `receiver.web.app`."""
        if not self.works:
            raise UnreachableError(f"{self.name} does not answer")
        try:
            found = call()
        except TsferryError:
            self._must_be_master()
            raise
        self._must_be_master()
        return found

    def _must_be_master(self) -> None:
        displaced = self.engine.displaced()
        if displaced is not None:
            raise NotTheWriterError(displaced.message)

    def hear(self, said: NodeHeartbeat) -> NodeHeartbeatAnswer:
        return self.manager.heartbeat(said)

    def content(self, physical: str, begin: int, length: int) -> bytes:
        """A file's bytes, of its disks or of a node."""
        place = self.world.data / physical
        try:
            return place.read_bytes()[begin : begin + length]
        except FileNotFoundError:
            return self.copies.back.relay(physical, begin, length)

    def fetched(self, row: FileRow) -> bytes:
        """A file's bytes, brought to its disks."""
        with self.fetcher.pinned([row]):
            return (self.world.data / row.physical).read_bytes()

    # -- what it does by itself --------------------------------------------------------------

    def one_pass(self) -> None:
        """A pass of its background task, which does not know whether it is master."""
        if self.works:
            try:
                self.copies.assignment.run_once()
                self.copies.reader.run_once()
            except TsferryError:
                return

    def evict(self) -> int:
        """Let everything go that may; how many files went."""
        if not self.works:
            return 0
        self.evictor._later.clear()
        self.cache.capacity = 1
        try:
            return self.evictor.run_once()
        except TsferryError:
            return 0
        finally:
            self.cache.capacity = 1 << 40

    def operator(self) -> RunningReceiver:
        """What an operator's functions are given, as far as those of nodes use it."""
        given: dict[str, Any] = {each.name: None for each in fields(RunningReceiver)}
        given |= {
            "engine": self.engine,
            "copies": self.copies,
            "nodes": self.manager,
            "disks": SimpleNamespace(every=list, hear=lambda _: None),
            "load": SimpleNamespace(mover=SimpleNamespace(wake=lambda: None)),
        }
        return RunningReceiver(**given)

    # -- calls to nodes ----------------------------------------------------------------------

    def make(self, node: PlaceableNode, orders: CopyOrders) -> None:
        there = self._node(node)
        for each in orders.tablets:
            self.orders.append(("make", there.host, each.tablet, each.generation))
        there.store.make(orders.tablets, orders.master)

    def drop(self, node: PlaceableNode, orders: DropOrders) -> None:
        there = self._node(node)
        for each in orders.tablets:
            self.orders.append(("drop", there.host, each.tablet, each.generation))
        there.store.drop(orders.tablets, orders.master)

    def proof(self, node: PlaceableNode, asked: ProofAsked) -> str:
        return self._node(node).proof(asked)

    def doubt(self, node: PlaceableNode, tablet: str, physical: str) -> None:
        self._node(node).read_again(tablet, physical)

    def staged(self, node: PlaceableNode, upload: str, begin: int, length: int) -> bytes:
        there = self._node(node)
        found = there.uploads.read(upload, begin, length).content
        return found[:-1] + bytes((found[-1] ^ 1,)) if there.lies and found else found

    def kept(self, node: PlaceableNode, tablet: str, after: str | None) -> KeptFiles:
        return self._node(node).kept(tablet, after)

    def _node(self, node: PlaceableNode) -> HomedNode:
        self.before_order()
        return self.node_at(node.url)

    def node_at(self, url: str) -> HomedNode:
        """Who is there.

        Raises:
            UnreachableError: nobody answers there.
        """
        for each in self.centre.nodes:
            if each.url == url and each.is_up and self.centre.may_speak(self.name, each.host):
                return each
        raise UnreachableError(f"{url} does not answer")


class TwoMasters:
    """All of it.

    Attributes:
        place: the log.
        until: when its owner's lease is over.
        nodes: all of them.
        parted: pairs of names that do not hear each other.
    """

    def __init__(self, root: Path, nodes: int, master: type[OneOfTwo] | None = None) -> None:
        self.root = root
        self.now = 1000.0
        self.place = MemoryPlace()
        self.until = 0.0
        self.parted: set[frozenset[str]] = set()
        self.nodes: list[HomedNode] = []
        self.tags = self._idents = 0
        self._patch = pytest.MonkeyPatch()
        self._over_no_network()
        made = OneOfTwo if master is None else master
        self.masters = [made(self, "first"), made(self, "second")]
        assert self.masters[0].take_over()
        self.masters[0].engine.commit(
            [
                records.SenderSeen(uuid=each, label="x", directory=f"x_{each}")
                for each in (NORTH, SOUTH)
            ]
        )
        for number in range(1, nodes + 1):
            self.add(f"host{number}")

    def add(self, host: str, of: HomedNode | None = None) -> HomedNode:
        """One more node, or a process on a copy of another one's directories."""
        made = HomedNode(self, host, of=of)
        self.nodes.append(made)
        return made

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        """Seconds since the epoch, as all clocks have them that are right."""
        return 1.8e9 + self.now

    def ident(self) -> str:
        """One that nobody has yet, the same in each life that is played alike."""
        self._idents += 1
        return hashlib.md5(f"{self._idents}".encode()).hexdigest()

    def may_speak(self, one: str, other: str) -> bool:
        return frozenset((one, other)) not in self.parted

    def pass_time(self, seconds: float) -> None:
        """Whoever works shows life."""
        self.now += seconds
        for each in self.masters:
            if each.works:
                try:
                    each.remote.look()
                except TsferryError:
                    continue

    def _over_no_network(self) -> None:
        """Masters read at nodes; a ticket says which one asks."""

        def node(calls: ReaderCalls, headers: Mapping[str, str]) -> HomedNode:
            name = headers[READ_TICKET].partition(":")[0]
            master = next(each for each in self.masters if each.name == name)
            return master.node_at(calls.url)

        def get(
            calls: ReaderCalls, _: str, query: Mapping[str, Any], headers: Mapping[str, str]
        ) -> bytes:
            there = node(calls, headers)
            there.keys.check(headers[READ_TICKET].partition(":")[2], query["tablet"])
            return there.read(query["tablet"], query["path"], query["begin"], query["length"])

        def ask(
            calls: ReaderCalls,
            _: str,
            __: str,
            query: Mapping[str, Any],
            headers: Mapping[str, str],
        ) -> None:
            node(calls, headers).read_again(query["tablet"], query["path"])

        self._patch.setattr(ReaderCalls, "get", get)
        self._patch.setattr(ReaderCalls, "ask", ask)
        # Which nodes a tablet draws goes by its id: a life that is played again is the same.
        self._patch.setattr(tablet_making, "uuid4", lambda: SimpleNamespace(hex=self.ident()))

    def close(self) -> None:
        self._patch.undo()
        for each in self.nodes:
            each.stop()
        for master in self.masters:
            if master.is_alive:
                master.die()
