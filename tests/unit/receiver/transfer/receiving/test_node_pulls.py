"""Files that lie at storage nodes: read, verified here, and never taken at a node's word."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterator

import msgspec
import pytest

from common import wire
from common.digests import md5
from common.errors import ConflictError, GoneError, ProtocolError, UnreachableError
from common.wire import Action, PullState
from receiver.node import Node
from receiver.transfer.receiving.node_pulls import NodePulls
from tests.support.node_world import Edge, World, path_of, plan_entry
from tests.support.procs import wait_until
from tests.support.tsfile_bytes import build

NODE = "7" * 32
CONTENT = build({"root.sg.d1": {"s1": [(1, 1)]}}, pad_to=100_000)
MD5 = md5(CONTENT).hexdigest()
BLOCK = 1 << 14


class FakeNodes:
    """What lies at nodes, by upload, and how they answer."""

    def __init__(self) -> None:
        self.there: dict[str, bytes] = {}
        self.reads: list[tuple[int, int]] = []
        self.before: Callable[[int], None] = lambda begin: None
        self.offered: list[tuple[str, list[str]]] = []
        self.too_much = 0
        self.most = 1 << 20

    def read(self, node: str, sender: str, entry: wire.PlanEntry, begin: int, length: int) -> bytes:
        assert node == NODE
        upload = f"{sender} {entry.path} {entry.size} {entry.tail}"
        self.reads.append((begin, length))
        self.before(begin)
        length = min(length + self.too_much, self.most)
        return self.there.get(upload, b"")[begin : begin + length]

    def prepare(self, sender: str, entries: object) -> None:
        self.prepared = True

    def offer(
        self, sender: str, task: str, entry: wire.PlanEntry, avoid: Collection[str]
    ) -> wire.UploadNode | None:
        self.offered.append((entry.path, list(avoid)))
        return wire.UploadNode(uuid=NODE, url="http://n", ticket="t", lasts=9.0)


class Pulling:
    """An edge in a task with one planned file, and a node that may have it."""

    def __init__(self, node: Node, nodes: FakeNodes) -> None:
        self.node = node
        self.nodes = nodes
        self.edge = Edge(node)
        self.edge.check()
        self.path = path_of()
        self.task = self.edge.start()
        self.entry = plan_entry(self.path, CONTENT, md5=None)
        self.edge.plan(self.task, [self.entry])
        self.id = f"{self.edge.uuid} {self.path} {len(CONTENT)} {self.entry.tail}"

    def pull(self, digest: str | None = MD5, **more: str) -> wire.PullAnswer:
        request = wire.PullRequest(**{"path": self.path, "node": NODE, "md5": digest, **more})
        edge = self.edge
        return self.node.tasks.pull(edge.who, edge.uuid, self.task, edge.epoch, request, 60.0)

    def plan(self, **more: object) -> wire.PlanDecision:
        page = wire.PlanPage(entries=[self.entry], **more)  # type: ignore[arg-type]
        edge = self.edge
        (found,) = self.node.tasks.plan(edge.who, edge.uuid, self.task, edge.epoch, page).decisions
        return found


@pytest.fixture
def nodes() -> FakeNodes:
    return FakeNodes()


@pytest.fixture
def pulling(node: Node, nodes: FakeNodes) -> Iterator[Pulling]:
    pulls = NodePulls(node.uploads, nodes, block=BLOCK)
    node.tasks._nodes, node.tasks._pulls = nodes, pulls
    yield Pulling(node, nodes)
    pulls.close()


def test_a_file_at_a_node_is_read_verified_and_loaded_as_any_other(pulling: Pulling):
    pulling.nodes.there[pulling.id] = CONTENT
    answer = pulling.pull()
    assert (answer.state, answer.md5, answer.offset) == (PullState.HERE, MD5, len(CONTENT))
    assert pulling.pull() == answer  # an answer was lost
    assert pulling.plan(nodes=True).action is Action.HAVE
    pulling.edge.end(pulling.task, {pulling.path: CONTENT})
    outcome = pulling.edge.outcome(pulling.task)
    assert outcome[pulling.path].result is wire.Result.LOADED


def test_what_is_read_ahead_is_never_the_end_of_a_file(pulling: Pulling):
    pulling.nodes.there[pulling.id] = CONTENT[:30_000]
    assert pulling.pull(None).state is PullState.COMING
    settle(pulling)
    assert pulling.plan().action is Action.RESUME
    assert pulling.plan().offset == 30_000
    pulling.nodes.there[pulling.id] = CONTENT
    pulling.pull(None)
    settle(pulling)
    assert pulling.plan().offset == len(CONTENT) - (1 << 16)
    pulling.nodes.reads.clear()
    assert pulling.pull().state is PullState.HERE
    assert min(begin for begin, _ in pulling.nodes.reads) == len(CONTENT) - (1 << 16)


def test_what_comes_to_a_node_meanwhile_is_read_without_another_word(pulling: Pulling):
    """Else the disk here waits for the next block that a busy disk of the node has flushed."""
    clock = itertools.count(step=10)  # so whatever is to come later is due
    node, nodes = pulling.node, pulling.nodes
    pulls = NodePulls(node.uploads, nodes, block=BLOCK, monotonic=lambda: next(clock))
    node.tasks._pulls = pulls
    nodes.there[pulling.id] = b""

    def comes(begin: int) -> None:
        if len(nodes.reads) == 3:
            nodes.there[pulling.id] = CONTENT[:20_000]
        if len(nodes.reads) > 4 and begin == BLOCK:
            nodes.there[pulling.id] = CONTENT

    nodes.before = comes
    assert pulling.pull(None).state is PullState.COMING
    (pull,) = pulls._pulls.values()
    wait_until(lambda: pull.offset == len(CONTENT) - (1 << 16), "all but the end")
    assert pulling.pull().state is PullState.HERE
    pulls.close()


def test_a_file_that_does_not_come_is_not_looked_for_again_and_again(pulling: Pulling):
    clock = itertools.count(step=10)
    pulls = NodePulls(
        pulling.node.uploads, pulling.nodes, block=BLOCK, monotonic=lambda: next(clock)
    )
    pulling.node.tasks._pulls = pulls
    for looks in (7, 10):  # fewer where nothing has come for long
        pulling.pull(None)
        wait_until(lambda looks=looks: len(pulling.nodes.reads) >= looks, "all looks")
        settle(pulling)
        assert pulls._later.waiting == 0
        assert len(pulling.nodes.reads) == looks
    pulls.close()


@pytest.mark.parametrize("lie", ["bytes", "short", "long", "other", "nothing"])
def test_a_node_that_lies_costs_its_file_another_way_and_nothing_else(pulling: Pulling, lie: str):
    other = build({"root.sg.d1": {"s1": [(1, 2)]}}, pad_to=100_000)
    pulling.nodes.there[pulling.id] = {
        "bytes": CONTENT[:60_000] + b"?" + CONTENT[60_001:],
        "short": CONTENT[:-1],
        "long": CONTENT,
        "other": other,
        "nothing": b"",
    }[lie]
    pulling.nodes.too_much = 1 if lie == "long" else 0
    answer = pulling.pull()
    assert answer.state is PullState.FAILED
    assert NODE in (answer.reason or "")
    assert pulling.plan().action is not Action.HAVE

    pulling.edge.plan(pulling.task, [pulling.entry])
    pulling.edge.upload(pulling.task, pulling.path, CONTENT)
    pulling.edge.end(pulling.task, {pulling.path: CONTENT})
    outcome = pulling.edge.outcome(pulling.task)
    assert outcome[pulling.path].result is wire.Result.LOADED


def test_a_node_that_gives_crumbs_is_not_read_on_and_on(pulling: Pulling):
    pulling.nodes.there[pulling.id], pulling.nodes.most = CONTENT, 10
    assert pulling.pull(None).state is PullState.COMING
    settle(pulling)
    assert pulling.plan().offset == 0
    assert pulling.pull().state is PullState.FAILED
    assert len(pulling.nodes.reads) == 2


def test_a_file_that_the_sender_says_is_another_one_does_not_count(pulling: Pulling):
    pulling.nodes.there[pulling.id] = CONTENT
    assert pulling.pull("f" * 32).state is PullState.FAILED
    assert pulling.pull().state is PullState.HERE


def test_a_node_that_dies_in_the_middle_costs_what_was_not_read(pulling: Pulling):
    def die(begin: int) -> None:
        if begin >= 3 * BLOCK:
            raise UnreachableError("it is gone")

    pulling.nodes.there[pulling.id] = CONTENT
    pulling.nodes.before = die
    assert pulling.pull().state is PullState.FAILED
    decision = pulling.plan(nodes=True, avoid=[NODE])
    assert (decision.action, decision.offset) == (Action.RESUME, 3 * BLOCK)
    pulling.edge.send(str(decision.upload), CONTENT, offset=decision.offset)
    assert pulling.plan().action is Action.HAVE


def test_what_waits_for_others_does_not_wait_for_a_silent_node_again_and_again(pulling: Pulling):
    now = 5.0
    node, nodes = pulling.node, pulling.nodes
    pulls = NodePulls(node.uploads, nodes, block=BLOCK, monotonic=lambda: now)
    node.tasks._pulls = pulls

    def be_silent(begin: int) -> None:
        raise UnreachableError("it does not answer")

    nodes.there[pulling.id], nodes.before = CONTENT, be_silent
    other = plan_entry(path_of(2), CONTENT, md5=None)
    pulling.edge.plan(pulling.task, [other])
    assert pulling.pull(path=other.path).state is PullState.FAILED
    assert pulling.pull().state is PullState.FAILED
    assert len(nodes.reads) == 1
    now, nodes.before = 36.0, lambda begin: None
    assert pulling.pull().state is PullState.HERE
    pulls.close()


def test_a_receiver_that_was_restarted_reads_on_where_it_was(world: World, nodes: FakeNodes):
    def die(begin: int) -> None:
        if begin >= 3 * BLOCK:
            raise UnreachableError("it is gone")

    with world.node() as node:
        node.tasks._nodes, node.tasks._pulls = nodes, NodePulls(node.uploads, nodes, block=BLOCK)
        first = Pulling(node, nodes)
        nodes.there[first.id], nodes.before = CONTENT, die
        assert first.pull().state is PullState.FAILED
        node.tasks._pulls.close()
    nodes.before = lambda begin: None
    nodes.reads.clear()
    with world.node() as node:
        node.tasks._nodes, node.tasks._pulls = nodes, NodePulls(node.uploads, nodes, block=BLOCK)
        first.node = first.edge.node = node
        first.edge.start(first.task)
        assert first.pull().state is PullState.HERE
        assert nodes.reads[0][0] == 3 * BLOCK
        node.tasks._pulls.close()


def test_only_what_was_planned_in_the_open_task_is_read(pulling: Pulling):
    with pytest.raises(ProtocolError, match="not planned"):
        pulling.pull(path=path_of(2))
    bad = msgspec.structs.replace(pulling.entry, path=path_of(3), md5="no MD5")
    pulling.edge.plan(pulling.task, [bad])
    with pytest.raises(ConflictError):
        pulling.pull(path=path_of(3))
    pulling.task = "9" * 32
    with pytest.raises(GoneError):
        pulling.pull()


def test_a_plan_made_anew_ends_what_was_being_read(pulling: Pulling):
    pulling.nodes.there[pulling.id] = CONTENT
    reading, go_on = threading.Event(), threading.Event()

    def hold(begin: int) -> None:
        reading.set()
        go_on.wait(60)

    pulling.nodes.before = hold
    pulling.pull(None)
    assert reading.wait(60)
    assert pulling.plan(nodes=True, avoid=["x"]).node is not None
    assert pulling.nodes.offered[-1] == (pulling.path, ["x"])
    go_on.set()
    pulls = pulling.node.tasks._pulls
    assert pulls is not None
    pulls.close()
    assert len(pulling.nodes.reads) == 1


def test_what_was_given_up_while_it_waited_takes_nothing_from_what_is_sent_since(pulling: Pulling):
    pulls = NodePulls(pulling.node.uploads, pulling.nodes, block=BLOCK, parallel=1)
    pulling.node.tasks._pulls = pulls
    reading, go_on = threading.Event(), threading.Event()

    def hold(begin: int) -> None:
        reading.set()
        go_on.wait(60)

    pulling.nodes.before = hold
    other = plan_entry(path_of(2), CONTENT, md5=None)
    pulling.edge.plan(pulling.task, [other])
    pulling.pull(None, path=other.path)
    assert reading.wait(60)  # the one thread that there is
    pulling.pull(None)
    pulling.plan(nodes=True)
    edge, metadata = pulling.edge, {"path": pulling.path, "task": pulling.task}
    upload = pulling.node.uploads.create(edge.who, edge.uuid, len(CONTENT), metadata)
    go_on.set()
    pulls._pool.shutdown(wait=True)
    edge.send(upload.id, CONTENT)
    assert pulling.plan().action is Action.HAVE
    pulls.close()


def test_a_sender_that_does_not_say_so_hears_of_no_node(pulling: Pulling):
    assert pulling.plan().node is None
    assert pulling.nodes.offered == []
    assert pulling.plan(nodes=True).node is not None


def test_a_receiver_without_nodes_reads_nothing(node: Node):
    edge = Edge(node)
    edge.check()
    task = edge.start()
    request = wire.PullRequest(path=path_of(), node=NODE, md5=MD5)
    with pytest.raises(ProtocolError, match="uploads_from"):
        node.tasks.pull(edge.who, edge.uuid, task, edge.epoch, request, 0.0)


def settle(pulling: Pulling) -> None:
    """Wait for what is being read ahead."""
    pulls = pulling.node.tasks._pulls
    assert pulls is not None
    run = pulls._pulls[pulling.edge.uuid, pulling.path].run
    assert run is not None
    run.result(60)
