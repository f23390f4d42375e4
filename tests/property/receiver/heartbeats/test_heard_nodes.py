"""A master and its storage nodes over a network that loses, repeats and reorders what is said.

The oracle knows what each node really has had at each of its changes, and which starts followed
which. What the master believes of a node is what that node had at the change that is acknowledged,
and no copy of a node is ever believed beside it.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.errors import CloneError
from receiver.heartbeats.node_manager import NodeManager
from receiver.heartbeats.node_wire import NodeHeartbeat, ReportedTablet
from receiver.metadata.engine import Engine
from tests.support.heard_nodes import HeldByTest, SpeakingNode, tablet, tablet_id
from tests.support.tiers import MEMORY, examples

NUMBERS = st.integers(0, 6)
PICK = st.integers(0, 1 << 16)


class Remembering(HeldByTest):
    """Knows how it stood at each change."""

    def __init__(self) -> None:
        super().__init__()
        self.stood: list[dict[str, ReportedTablet]] = [{}]

    def change(self, number: int, files: int) -> None:
        if files == 0 and tablet_id(number) in self.tablets:
            self.drop(number)
        else:
            self.put(tablet(number, files=files))
        self.stood.append(dict(self.tablets))


class Lived(SpeakingNode):
    """A node, or a copy of one; the test keeps its starts by itself.

    Attributes:
        boots: the ids of its starts, those before it was copied too.
        pending: what it has said and waits for an answer to.
        lacked: whether a master said once that it never had what was seen of it.
    """

    boots: list[str]
    pending: NodeHeartbeat | None = None
    lacked: bool = False

    def open(self) -> None:
        super().open()
        self.pending = None
        if not hasattr(self, "boots"):
            self.boots = []
        self.boots.append(self.home.start.boot)


class NodesAndMaster(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        place = MEMORY if MEMORY.is_dir() else None
        self.root = Path(tempfile.mkdtemp(prefix="heard", dir=place))
        self.engine = Engine.open(self.root / "master")
        self.manager = self._manager()
        self.copies = 0
        self.own: set[int] = set()
        """Commits that the master of now has made, or had when it was copied."""
        self.saved: list[tuple[Path, set[int]]] = []
        self.nodes: list[Lived] = []
        self.stores: dict[str, Remembering] = {}
        self.net: list[tuple[Lived, NodeHeartbeat]] = []
        self.instances: dict[str, int] = {}
        self._added("node0", Remembering())
        self._added("node1", Remembering())

    def _manager(self) -> NodeManager:
        return NodeManager(self.engine, timeout=30.0, monotonic=lambda: 0.0)

    def _added(self, name: str, store: Remembering, boots: list[str] | None = None) -> Lived:
        made = Lived.__new__(Lived)
        if boots is not None:
            made.boots = list(boots)
        made.__init__(self.root / name, store, url=f"http://{name}:1")
        self.nodes.append(made)
        self._stands(made)
        return made

    def _stands(self, node: Lived) -> None:
        self.stores[node.home.start.boot] = node.store

    def _row(self, uuid: str) -> Any:
        with self.engine.reading() as state:
            return state.node_table.rows.get(uuid)

    # -- nodes -------------------------------------------------------------------------------

    @rule(pick=PICK, number=NUMBERS, files=st.integers(0, 3))
    def something_changes(self, pick: int, number: int, files: int) -> None:
        self.nodes[pick % len(self.nodes)].store.change(number, files)

    @rule(pick=PICK, times=st.integers(1, 3))
    def a_node_starts_anew(self, pick: int, times: int) -> None:
        node = self.nodes[pick % len(self.nodes)]
        for _ in range(times):
            node.restart()
            self._stands(node)

    @precondition(lambda self: len(self.nodes) < 5)
    @rule(pick=PICK, settled=st.booleans(), starts=st.lists(st.booleans(), max_size=4))
    def a_directory_is_copied_and_the_copy_started(
        self, pick: int, settled: bool, starts: list[bool]
    ) -> None:
        """Both go their ways; now the one, now the other starts anew and speaks."""
        node = self.nodes[pick % len(self.nodes)]
        if settled:
            self._speaks(node)
        self.copies += 1
        name = f"copy{self.copies}"
        shutil.copytree(node.path, self.root / name)
        made = self._added(name, copy.deepcopy(node.store), node.boots)
        made.lacked = node.lacked
        self._speaks(made)
        for is_copy in starts:
            each = made if is_copy else node
            each.restart()
            self._stands(each)
        if starts:
            self._speaks(made if starts[-1] else node)

    # -- the network -------------------------------------------------------------------------

    @rule(pick=PICK)
    def a_node_speaks(self, pick: int) -> None:
        node = self.nodes[pick % len(self.nodes)]
        node.pending = node.talk.next()
        self.net.append((node, node.pending))

    @precondition(lambda self: self.net)
    @rule(pick=PICK, again=st.booleans(), lost=st.booleans())
    def something_arrives(self, pick: int, again: bool, lost: bool) -> None:
        at = pick % len(self.net)
        node, said = self.net[at]
        if not again:
            del self.net[at]
        self._hear(node, said, lost=lost)

    @rule(
        pick=PICK,
        changes=st.lists(st.tuples(NUMBERS, st.integers(0, 3)), max_size=4),
        data=st.data(),
    )
    def what_a_node_says_arrives_in_another_order(
        self, pick: int, changes: list[tuple[int, int]], data: st.DataObject
    ) -> None:
        node = self.nodes[pick % len(self.nodes)]
        self._speaks(node)
        said = []
        for number, files in changes:
            node.store.change(number, files)
            node.pending = node.talk.next()
            said.append(node.pending)
        for each in data.draw(st.permutations(said + said[:1])):
            self._hear(node, each)

    def _hear(self, node: Lived, said: NodeHeartbeat, *, lost: bool = False) -> float | None:
        before = self._believed(said.start.uuid)
        known = self._row(said.start.uuid)
        self.manager.mark()
        self.own.add(self.engine.newest_commit)
        try:
            answer = self.manager.heartbeat(said)
        except CloneError:
            assert self._believed(said.start.uuid) == before, "who is refused changes nothing"
            assert self._row(said.start.uuid) == known
            return None
        self.own.add(self.engine.newest_commit)
        self._went_on(known, said)
        if lost or node.pending is not said:
            return None
        node.pending = None
        seen = node.home.seen
        more = node.talk.answered(answer)
        commit = 0 if seen is None else seen.commit
        turned_back = answer.master.commit < commit
        node.lacked |= bool(commit) and not turned_back and commit not in self.own
        assert bool(node.home.doubt) == (turned_back or node.lacked)
        if said.start != node.home.start:
            self._stands(node)
        return more

    def _went_on(self, known: Any, said: NodeHeartbeat) -> None:
        """A start is taken in the place of another one only if it is of the same life."""
        row = self._row(said.start.uuid)
        if row is None or known is None or not known.boot or row.boot in ("", known.boot):
            return
        owner = next(each for each in self.nodes if row.boot in each.boots)
        boots = owner.boots[: owner.boots.index(row.boot)]
        assert known.boot in boots, "a copy took the place of the one that it was made of"
        assert row.instance > known.instance

    def _believed(self, uuid: str) -> object:
        heard = self.manager.heard(uuid)
        if heard is None:
            return None
        reports = heard.reports
        return heard.start, reports.acknowledged, reports.received, list(reports.held.tablets())

    # -- the master --------------------------------------------------------------------------

    @rule()
    def the_master_starts_anew(self) -> None:
        self.engine.close()
        self.engine = Engine.open(self.root / "master")
        self.manager = self._manager()

    @precondition(lambda self: len(self.saved) < 3)
    @rule()
    def the_master_is_copied(self) -> None:
        place = self.root / f"saved{len(self.saved)}"
        self.saved.append((place, set(self.own)))
        shutil.copytree(self.root / "master", place)

    @precondition(lambda self: self.saved)
    @rule(pick=PICK)
    def the_master_is_restored_from_a_copy(self, pick: int) -> None:
        self.engine.close()
        shutil.rmtree(self.root / "master")
        place, own = self.saved[pick % len(self.saved)]
        self.own = set(own)
        shutil.copytree(place, self.root / "master")
        self.engine = Engine.open(self.root / "master")
        self.manager = self._manager()
        self.instances = {}

    @rule()
    def the_history_ends(self) -> None:
        """What was committed before cannot be looked up any more."""
        with self.engine.reading():
            self.engine._window.move(self.engine.newest_commit)

    @rule(pick=PICK)
    def an_operator_accepts_a_node(self, pick: int) -> None:
        uuid = self.nodes[pick % len(self.nodes)].uuid
        if self._row(uuid) is not None:
            self.manager.accept(uuid)
            self.own.add(self.engine.newest_commit)

    # -- what always holds -------------------------------------------------------------------

    @rule(pick=PICK)
    def a_node_speaks_until_it_has_nothing_to_say(self, pick: int) -> None:
        self._speaks(self.nodes[pick % len(self.nodes)])

    def _speaks(self, node: Lived) -> None:
        self.net = [each for each in self.net if each[0] is not node]
        row, start = self._row(node.uuid), node.home.start
        is_next = row is not None and row.boot in node.boots[:-1] and row.instance < start.instance
        rightful = row is None or row.boot in ("", start.boot) or is_next
        more: float | None = 0.0
        for _ in range(20):
            node.pending = node.talk.next()
            more = self._hear(node, node.pending)
            if node.pending is not None or more is None:
                break
        refused = node.pending is not None
        assert refused == (not rightful)
        if rightful:
            assert more is None, "it comes to an end"
            self.instances[node.uuid] = node.home.start.instance
            heard = self.manager.heard(node.uuid)
            assert heard is not None
            assert heard.start == node.home.start
            assert list(heard.reports.held.tablets()) == list(node.store.held().tablets)

    @invariant()
    def what_is_believed_is_what_was(self) -> None:
        for uuid in {each.uuid for each in self.nodes}:
            heard = self.manager.heard(uuid)
            if heard is None or heard.reports.acknowledged is None:
                continue
            stood = self.stores[heard.start.boot].stood[heard.reports.acknowledged]
            assert {each.id: each for each in heard.reports.held.tablets()} == stood

    @invariant()
    def the_number_of_a_start_never_goes_down(self) -> None:
        for uuid in {each.uuid for each in self.nodes}:
            row = self._row(uuid)
            if row is not None:
                assert row.instance >= self.instances.get(uuid, 0)
                self.instances[uuid] = row.instance

    def teardown(self) -> None:
        self.engine.close()
        for each in self.nodes:
            each.close()
        shutil.rmtree(self.root)


TestNodesAndMaster = NodesAndMaster.TestCase
TestNodesAndMaster.settings = settings(
    max_examples=examples(20), stateful_step_count=20, deadline=None
)
