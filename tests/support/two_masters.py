"""Two masters over one log with a lease, and nodes that both may reach, in one process.

Who may speak to whom is a set of links that tests part and join: masters and the log, masters and
nodes, nodes and each other. The clock stands until it is moved. What a master answers passes the
gate that its server has: behind the answer it is asked whether another one may be at work by now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from common.durable import Tree
from common.errors import LockedError, TsferryError, UnreachableError
from receiver.heartbeats.node_reports import ReportNews
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import FencedError
from receiver.placement.assignment import PlacementRules
from receiver.placement.copy_places import CopyPlaces
from receiver.placement.placeable_nodes import PlaceableNode
from receiver.placement.replica_condition import ReplicaCondition
from receiver.storage.reading.several_addresses import Failover
from receiver.tablet_copies.copies_wire import (
    CopyNews,
    CopyPage,
    CopySource,
    GoneAsked,
    GoneSaid,
    HeldCopy,
)
from tests.support.copy_nodes import CopyCentre, Machine, ident
from tests.support.remote_log import MemoryPlace, MemoryRemote
from tests.support.spark_world import NORTH, SOUTH, World

__all__ = ["LEASE", "NodeOfTwo", "OneOfTwo", "TwoMasters"]

LEASE = 15.0
_HEARD = 10.0
"""Seconds of silence until a master calls a node down."""
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


class OneOfTwo(CopyCentre):
    """A master, or the one that stands by; with directories of its own."""

    def __init__(self, centre: TwoMasters, name: str) -> None:
        self.centre, self.name = centre, name
        self.root = centre.root / name
        self.nodes = centre.nodes  # type: ignore[assignment]
        self.draining, self.lost = centre.draining, centre.lost
        self.orders = []
        self.replaced = {}
        self.is_away = False
        self.rules = PlacementRules(2, timeout=30.0, lost_after=60.0)
        self.is_alive = self.is_paused = False
        self.before_order: Callable[[], None] = lambda: None
        self.heard: dict[str, float] = {}
        self._life = 0

    @property
    def now(self) -> float:  # type: ignore[override]
        return self.centre.now

    @property
    def works(self) -> bool:
        """Whether it runs, and is not asleep."""
        return self.is_alive and not self.is_paused

    def take_over(self) -> bool:
        """Become master, if nobody is."""
        self._life += 1
        root = self.root / str(self._life)  # as of a machine that is lost: it has only the log
        remote = LeasedRemote(self.centre, self)
        try:
            engine = Engine.open(
                root / "schema", background=False, remote=remote, monotonic=lambda: self.now
            )
        except (LockedError, UnreachableError):
            return False
        self.remote, world = remote, World.__new__(World)
        world.root, world.data, world.engine = root, root / "data", engine
        world._tree, world._tag = Tree(world.data, create=True), 0
        self.world = world
        self.heard = {}
        self.is_alive, self.is_paused = True, False
        self.live()
        self.places = CopyPlaces(
            self.engine,
            self.book,
            self.views,
            lambda node, tablet: self.reports.get(node, {}).get(tablet),
            lambda _, __: "t",
        )
        self.condition = ReplicaCondition(self.book, self.views, copies=1, safe=2)
        return True

    def die(self) -> None:
        self.is_alive = False
        self.assignment.close()
        self.engine.close()
        self.world._tree.close()

    def views(self) -> dict[str, PlaceableNode]:
        return {each.uuid: each.seen_by(self) for each in self.centre.nodes}

    def sources(self, row: object, node: str) -> Sequence[CopySource]:
        return self.places.sources_for(row, node)  # type: ignore[arg-type]

    def content(self, physical: str) -> bytes:
        """A file's bytes; what is not on its disks is brought from a node."""
        place = self.world.data / physical
        if not place.exists():
            self._bring(physical, place)
        return super().content(physical)

    def _bring(self, physical: str, place: Path) -> None:
        with self.engine.reading() as state:
            md5 = state.files[physical].md5
        for each in self.places.of_file(physical, perhaps=True):
            node = next(it for it in self.centre.nodes if each.url.endswith(f"//{it.host}"))
            if not node.is_up or not self.centre.may_speak(self.name, node.host):
                continue
            try:
                fd, _ = node.store.replica(each.tablet).open_file(physical)
            except TsferryError:
                continue
            with open(fd, "rb") as file:
                content = file.read()
            if hashlib.md5(content).hexdigest() == md5:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
                return

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
            raise UnreachableError(displaced.message)

    def _node(self, node: PlaceableNode) -> Machine:
        self.before_order()
        there = next(each for each in self.centre.nodes if each.uuid == node.uuid)
        if not there.is_up or not self.centre.may_speak(self.name, there.host):
            raise UnreachableError(f"{node.host} is down")
        return there

    def one_pass(self) -> None:
        """A pass of its background task, which does not know whether it is master."""
        if self.works:
            try:
                self.assignment.run_once()
            except TsferryError:
                return


class NodeOfTwo(Machine):
    """A node that goes to whichever leads."""

    def __init__(self, centre: TwoMasters, number: int) -> None:
        self.all = centre
        self.leads = Failover(centre.masters)
        super().__init__(centre, number)  # type: ignore[arg-type]

    def seen_by(self, master: OneOfTwo) -> PlaceableNode:
        """As that master believes it to be."""
        heard = master.heard.get(self.uuid)
        age = master.now - (heard if heard is not None else 0.0)
        held = list(master.every(self.uuid))
        return PlaceableNode(
            self.uuid,
            self.host,
            url=f"http://{self.host}",
            call_key="k",
            age=age,
            is_down=heard is None or age > _HEARD,
            is_draining=self.uuid in self.all.draining,
            is_lost=self.uuid in self.all.lost,
            is_hurt=False,
            free=1 << 40,
            used=sum(each.size for each in held),
            tablets=len(held),
            boot=ident(self.instance),
        )

    def _ask(self, call: Callable[[OneOfTwo], T]) -> T:
        def of(master: OneOfTwo) -> T:
            if not self.all.may_speak(master.name, self.host):
                raise UnreachableError(f"{master.name} does not answer")
            return master.answer(lambda: call(master))

        return self.leads.ask(of)

    def report(self) -> None:
        """A heartbeat with a full report."""
        tablets = self.store.held().tablets

        def hear(master: OneOfTwo) -> object:
            master.heard[self.uuid] = master.now
            master.reports[self.uuid] = {each.id: each for each in tablets}
            master.assignment.heard(ReportNews(self.uuid, True, tablets, ()))
            return master.mark()

        mark, seen = self._ask(hear), self.home.seen
        is_old = seen is not None and mark.commit < seen.commit  # type: ignore[attr-defined]
        self.home.doubt = "an older commit is its newest" if is_old else ""
        if not is_old:
            self.home.seen = mark  # type: ignore[assignment]

    def news(self, after: int) -> CopyNews:
        return self._ask(lambda master: master.lists.news(self.uuid, after))

    def page(self, tablet: str, after: str | None, digest: str, since: int) -> CopyPage:
        return self._ask(lambda it: it.lists.page(self.uuid, tablet, after, digest, since))

    def gone(self, tablet: str, asked: GoneAsked) -> GoneSaid:
        return self._ask(lambda master: master.lists.gone(self.uuid, tablet, asked))

    def held(self, copies: Sequence[HeldCopy]) -> None:
        from receiver.heartbeats.node_wire import NodeStart
        from receiver.tablet_copies.copies_wire import HeldCopies

        start = NodeStart(uuid=self.uuid, instance=self.instance, boot=ident(self.instance))
        said = HeldCopies(start=start, copies=list(copies))
        self._ask(lambda master: master.lists.held(said))

    def content(self, physical: str, begin: int, length: int) -> bytes:
        return self._ask(lambda master: master.content(physical))[begin : begin + length]

    def content_of(
        self, source: CopySource, tablet: str, physical: str, begin: int, length: int
    ) -> bytes:
        other = next(each for each in self.all.nodes if f"http://{each.host}" == source.url)
        if not self.all.may_speak(self.host, other.host):
            raise UnreachableError(f"{other.host} does not answer")
        return super().content_of(source, tablet, physical, begin, length)


class TwoMasters:
    """All of it.

    Attributes:
        place: the log.
        until: when its owner's lease is over.
        nodes: all of them.
        parted: pairs of names that do not hear each other.
    """

    def __init__(self, root: Path, nodes: int) -> None:
        self.root = root
        self.now = 1000.0
        self.place = MemoryPlace()
        self.until = 0.0
        self.parted: set[frozenset[str]] = set()
        self.nodes: list[NodeOfTwo] = []
        self.draining: set[str] = set()
        self.lost: set[str] = set()
        self.tags = 0
        self.masters = [OneOfTwo(self, "first"), OneOfTwo(self, "second")]
        assert self.masters[0].take_over()
        ops: list[records.Op] = [
            records.SenderSeen(uuid=each, label="x", directory=f"x_{each}")
            for each in (NORTH, SOUTH)
        ]
        for number in range(1, nodes + 1):
            ops.append(
                records.NodeRegistered(
                    uuid=ident(number),
                    kind="remote",
                    name=f"host{number}",
                    host=f"host{number}",
                    instance=1,
                    addresses=(f"http://host{number}",),
                    boot=ident(1),
                )
            )
        self.masters[0].engine.commit(ops)
        self.nodes += [NodeOfTwo(self, number) for number in range(1, nodes + 1)]

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

    def close(self) -> None:
        for each in self.nodes:
            each.stop()
        for master in self.masters:
            if master.is_alive:
                master.die()
