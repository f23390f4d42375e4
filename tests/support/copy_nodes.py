"""Storage nodes in one process with their master: stores and pullers, without a server or threads.

What travels over HTTP elsewhere is handed over here; the clock stands until it is moved.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.durable import Tree
from common.errors import NotFoundError, UnreachableError
from receiver.heartbeats.node_reports import ReportNews
from receiver.heartbeats.node_wire import MasterMark, NodeStart, ReportedTablet
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.placement.assigning.assignment import Assignment, PlacementRules
from receiver.placement.copies_there.copy_lists import CopyLists
from receiver.placement.copies_there.doubted_copies import DoubtedCopies
from receiver.placement.copies_there.doubted_reader import DoubtedReader
from receiver.placement.copies_there.held_copies import HeldCopiesBook
from receiver.placement.placeable_nodes import PlaceableNode
from receiver.tablet_copies.copies_wire import (
    CopyNews,
    CopyOrder,
    CopyOrders,
    CopyPage,
    CopySource,
    DropOrders,
    GoneAsked,
    GoneSaid,
    HeldCopies,
    HeldCopy,
)
from receiver.tablet_copies.copy_puller import CopyPuller
from receiver.tablet_copies.replica_store import ReplicaStore
from tests.support.spark_world import NORTH, World
from tests.support.tsfile_bytes import build


def ident(number: int) -> str:
    return f"{number:032x}"


@dataclass
class Home:
    """What a node has seen of its master."""

    doubt: str = ""
    seen: MasterMark | None = None


class Machine:
    """A node: its directories outlive its process."""

    def __init__(self, centre: CopyCentre, number: int, disks: int = 1) -> None:
        self.centre = centre
        self.uuid = ident(number)
        self.host = f"host{number}"
        self.paths = [centre.root / f"node{number}" / f"disk{each}" for each in range(disks)]
        self.instance = 0
        self.home = Home()
        self.free = dict.fromkeys(self.paths, 1 << 40)
        self.is_up = False
        self.is_silent = False
        self.is_hurt = False
        self.pulled: list[tuple[str, str]] = []
        self.doubted: list[tuple[str, str]] = []
        self.start()

    def start(self) -> None:
        self.instance += 1
        self.trees = [Tree(path, create=True) for path in self.paths]
        self.store = ReplicaStore(self.trees, self.home, free=lambda tree: self.free[tree.path])
        seen = 0 if self.home.seen is None else self.home.seen.commit
        self.puller = CopyPuller(self.store, self, seen=seen, parallel=1)
        self.centre.book.started(self.uuid, ident(self.instance))
        self.is_up = True

    def stop(self) -> None:
        if self.is_up:
            self.puller.close()
            for each in self.trees:
                each.close()
        self.is_up = False

    def restart(self) -> None:
        self.stop()
        self.start()

    def names(self) -> list[str]:
        """Physical names of all that it has."""
        found = [each for tablet in self.store.tablets() for each in self.files(tablet)]
        return sorted(found)

    def files(self, tablet: str) -> list[str]:
        return sorted(self.store.replica(tablet).files())

    def on_disk(self) -> list[str]:
        """All files beneath its directories."""
        return sorted(
            str(each.relative_to(path))
            for path in self.paths
            for each in path.rglob("*")
            if each.is_file()
        )

    def view(self) -> PlaceableNode:
        held = self.store.held().tablets if self.is_up else ()
        return PlaceableNode(
            self.uuid,
            self.host,
            url=f"http://{self.host}",
            call_key="k",
            age=self.centre.silence.get(self.uuid, 0.0),
            is_down=not self.is_up or self.is_silent,
            is_draining=self.uuid in self.centre.draining,
            is_lost=self.uuid in self.centre.lost,
            is_hurt=self.is_hurt,
            free=sum(self.free.values()),
            used=sum(each.size for each in held),
            tablets=len(held),
            boot=ident(self.instance),
        )

    # -- what it asks ------------------------------------------------------------------------

    def news(self, after: int) -> CopyNews:
        self.centre.must_answer()
        found = self.centre.lists.news(self.uuid, after)
        self.home.seen = found.master
        return found

    def page(self, tablet: str, after: str | None, digest: str, since: int) -> CopyPage:
        self.centre.must_answer()
        return self.centre.lists.page(self.uuid, tablet, after, digest, since)

    def gone(self, tablet: str, asked: GoneAsked) -> GoneSaid:
        self.centre.must_answer()
        return self.centre.lists.gone(self.uuid, tablet, asked)

    def held(self, copies: Sequence[HeldCopy]) -> None:
        self.centre.must_answer()
        start = NodeStart(uuid=self.uuid, instance=self.instance, boot=ident(self.instance))
        self.centre.lists.held(HeldCopies(start=start, copies=list(copies)))

    def content(self, physical: str, begin: int, length: int) -> bytes:
        self.pulled.append(("master", physical))
        return self.centre.content(physical)[begin : begin + length]

    def content_of(
        self, source: CopySource, tablet: str, physical: str, begin: int, length: int
    ) -> bytes:
        self.pulled.append((source.url, physical))
        other = next(each for each in self.centre.nodes if f"http://{each.host}" == source.url)
        if not other.is_up:
            raise UnreachableError("it is down")
        fd, _ = other.store.replica(tablet).open_file(physical)
        try:
            return os.pread(fd, length, begin)
        finally:
            os.close(fd)

    def doubt(self, source: CopySource, tablet: str, physical: str) -> None:
        other = next(each for each in self.centre.nodes if f"http://{each.host}" == source.url)
        other.doubted.append((tablet, physical))


class CopyCentre:
    """A master with its nodes."""

    def __init__(self, root: Path, copies: int = 2, **rules: float | bool) -> None:
        self.root = root
        self.world = World(root / "centre")
        self.now = 1000.0
        self.nodes: list[Machine] = []
        self.draining: set[str] = set()
        self.lost: set[str] = set()
        self.silence: dict[str, float] = {}
        self.is_away = False
        self.orders: list[tuple[str, str, str, int]] = []
        self.replaced: dict[str, bytes] = {}
        self.rules = PlacementRules(copies, **rules)  # type: ignore[arg-type]
        self._loaded = 0
        self.live()

    @property
    def engine(self) -> Engine:
        return self.world.engine

    def live(self) -> None:
        """A life of the master: what it knows of nodes is gone."""
        self.doubts = DoubtedCopies(self.engine)
        self.book = HeldCopiesBook(self.doubts)
        self.reader = DoubtedReader(
            self.engine,
            self.doubts,
            self.book,
            self.views,
            lambda _, __: "t",
            monotonic=lambda: self.now,
        )
        self.reports: dict[str, dict[str, ReportedTablet]] = {}
        self.lists = CopyLists(self.engine, self.book, mark=self.mark, page=3, sources=self.sources)
        self.assignment = Assignment(
            self.engine,
            self.rules,
            self.views,
            lambda node, tablet: self.reports.get(node, {}).get(tablet),
            self.every,
            self.lists,
            self.book,
            self,
            monotonic=lambda: self.now,
        )

    def views(self) -> dict[str, PlaceableNode]:
        """The nodes as they are."""
        return {each.uuid: each.view() for each in self.nodes}

    def mark(self) -> MasterMark:
        return MasterMark(engine=self.engine.uuid, commit=self.engine.newest_commit)

    def sources(self, row: object, node: str) -> Sequence[CopySource]:
        return ()

    def every(self, node: str) -> Iterable[ReportedTablet]:
        return list(self.reports.get(node, {}).values())

    def must_answer(self) -> None:
        if self.is_away:
            raise UnreachableError("the master is away")

    def add(self, disks: int = 1) -> Machine:
        """One more node."""
        node = Machine(self, len(self.nodes) + 1, disks)
        self.nodes.append(node)
        with self.engine.reading() as state:
            known = node.uuid in state.node_table.rows
        if not known:
            self.engine.commit(
                [
                    records.NodeRegistered(
                        uuid=node.uuid,
                        kind="remote",
                        name=node.host,
                        host=node.host,
                        instance=1,
                        addresses=(f"http://{node.host}",),
                        boot=ident(1),
                    )
                ]
            )
        return node

    def load(self, partition: int = 0, group: str = "root.wind", sender: str = NORTH) -> str:
        """One more file; its physical name."""
        self._loaded += 1
        number = self._loaded
        path = f"sequence/{group}/0/{partition}/{number}-{number}-0-0.tsfile"
        content = build({f"{group}.d1": {"s1": [(number, 1)]}})
        return str(self.world.load(sender, path, content).relative_to(self.world.data))

    def content(self, physical: str) -> bytes:
        self.must_answer()
        try:
            return self.replaced.get(physical) or (self.world.data / physical).read_bytes()
        except FileNotFoundError:
            raise NotFoundError(f"{physical} is not here") from None

    def end(self, physical: str, *, forget: bool = True) -> None:
        """A file is deleted, and its row forgotten."""
        self.engine.commit([records.FileDeleted(physical, "operator")])
        if forget:
            self.engine.commit([records.FileForgotten(physical)])

    # -- orders ------------------------------------------------------------------------------

    def make(self, node: PlaceableNode, orders: CopyOrders) -> None:
        there = self._node(node)
        for each in orders.tablets:
            self.orders.append(("make", node.uuid, each.tablet, each.generation))
        there.store.make(orders.tablets, orders.master)

    def drop(self, node: PlaceableNode, orders: DropOrders) -> None:
        there = self._node(node)
        for each in orders.tablets:
            self.orders.append(("drop", node.uuid, each.tablet, each.generation))
        there.store.drop(orders.tablets, orders.master)

    def _node(self, node: PlaceableNode) -> Machine:
        there = next(each for each in self.nodes if each.uuid == node.uuid)
        if not there.is_up or there.is_silent:
            raise UnreachableError(f"{node.host} is down")
        return there

    # -- what goes on ------------------------------------------------------------------------

    def report(self, *nodes: Machine) -> None:
        """Nodes report in full."""
        for node in nodes or self.nodes:
            if node.is_up and not node.is_silent:
                tablets = node.store.held().tablets
                self.reports[node.uuid] = {each.id: each for each in tablets}
                self.assignment.heard(ReportNews(node.uuid, True, tablets, ()))

    def pull(self, *nodes: Machine) -> None:
        for node in nodes or self.nodes:
            if node.is_up and not node.is_silent:
                node.puller.run_once()

    def settle(self, rounds: int = 4) -> None:
        """Passes, pulls and reports until nothing is left to do."""
        for _ in range(rounds):
            self.assignment.run_once()
            self.report()
            self.pull()
            self.report()
            self.reader.run_once()
            self.now += 6.0
        self.assignment.run_once()

    def order(self, tablet: str, generation: int = 1) -> CopyOrder:
        """An order for a tablet."""
        with self.engine.reading() as state:
            row = state.tablet_table.rows[tablet]
            table = state.loaded_tables.rows[row.table]
        return CopyOrder(
            tablet=tablet, generation=generation, table=table.name, begin=row.begin, end=row.end
        )

    def tablets(self) -> list[str]:
        with self.engine.reading() as state:
            return sorted(state.tablet_table.rows)

    def placed(self, tablet: str | None = None) -> tuple[str, ...]:
        with self.engine.reading() as state:
            rows = state.placement_table.rows
            row = rows.get(self.tablets()[0] if tablet is None else tablet)
        return () if row is None else tuple(sorted(row.nodes))

    def has(self, physical: str) -> list[str]:
        """Nodes that the master counts for a file."""
        with self.engine.reading() as state:
            row = state.files[physical]
            return sorted(self.book.nodes_with(state, row))

    def close(self) -> None:
        for each in self.nodes:
            each.stop()
        self.assignment.close()
        self.engine.close()


def place_tablets(engine: Engine, node: str = "5" * 32) -> None:
    """All tablets are placed at a storage node that does not exist."""
    with engine.reading() as state:
        tablets = list(state.tablet_table.rows)
    engine.commit(
        [
            records.NodeRegistered(
                uuid=node,
                kind="remote",
                name="n",
                host="n",
                instance=1,
                addresses=("http://n",),
                boot="6" * 32,
            )
        ]
    )
    engine.commit([records.TabletPlaced(each, 1, (node,), node) for each in tablets])
