"""Deletion files as a receiver takes them: durable with the call, committed with the task."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pytest

from common import wire
from common.errors import ProtocolError
from receiver.load.deciding.told_deletions.known_deletions import KnownDeletions
from receiver.metadata.model import records
from receiver.metadata.state.deletion_rows import DeletionsRow
from receiver.node import Node
from receiver.operator.edges.tokens import make_token, revoke_token
from receiver.principal import Principal
from tests.support.node_world import A, Edge, World, path_of, plan_entry, results, tsfile

ONE, TWO, OTHER = (f"DELETION,root.sg.d1.s1,99,{n},{n}\n".encode() for n in (1, 2, 3))
P = path_of(1)


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


@pytest.fixture
def still(world: World) -> Iterator[Node]:
    """Loads when it is told to."""
    node = world.still_node()
    yield node
    node.close()


def part(content: bytes, base: int = 0, floor: int = 7, path: str = P) -> wire.DeletionsPart:
    form = wire.DeletionsForm.MODS
    return wire.DeletionsPart(path=path, form=form, base=base, content=content, floor=floor)


def tell(edge: Edge, task: str, *parts: wire.DeletionsPart) -> list[str]:
    page = wire.DeletionsPage(parts=list(parts))
    return edge.node.tasks.deletions(edge.who, edge.uuid, task, edge.epoch, page).again


def round_with(edge: Edge, *parts: wire.DeletionsPart) -> list[str]:
    task = edge.start()
    again = tell(edge, task, *parts)
    edge.end(task, {})
    edge.outcome(task)
    return again


def untold(edge: Edge, task: str) -> list[str]:
    return edge.node.tasks.answer(edge.who, edge.uuid, task).untold


def known(node: Node, path: str = P) -> DeletionsRow | None:
    with node.engine.reading() as state:
        row = state.file_table.held(A, path)
        table = state.deletion_table
        rows = table.unloaded(A, path) if row is None else table.of_file(row.physical)
        return next(iter(rows), None)


def content_of(node: Node, path: str = P) -> tuple[bytes, list[tuple[int, int]]]:
    row = known(node, path)
    assert row is not None
    return row.content, [(each.end, each.floor) for each in row.segments]


def test_parts_are_committed_with_their_task_and_not_before(edge: Edge) -> None:
    edge.round({P: tsfile()})
    task = edge.start()
    assert tell(edge, task, part(ONE), part(TWO, len(ONE), floor=9)) == []
    assert known(edge.node) is None
    edge.end(task, {})
    edge.outcome(task)
    both = len(ONE) + len(TWO)
    assert content_of(edge.node) == (ONE + TWO, [(len(ONE), 7), (both, 9)])


def test_they_come_with_the_file_that_they_are_of(edge: Edge) -> None:
    content = tsfile()
    task = edge.start()
    edge.plan(task, [plan_entry(P, content)])
    tell(edge, task, part(ONE))
    edge.batch(task, {P: content})
    edge.end(task, {P: content})
    assert results(edge.outcome(task)) == {P: "loaded"}
    assert content_of(edge.node) == (ONE, [(len(ONE), 7)])


def test_those_of_an_open_file_become_its_own_when_it_is_loaded(edge: Edge) -> None:
    round_with(edge, part(ONE))
    row = known(edge.node)
    assert row is not None
    assert row.physical is None
    edge.round({P: tsfile()})
    assert content_of(edge.node) == (ONE, [(len(ONE), 7)])
    round_with(edge, part(TWO, len(ONE), floor=8))
    assert content_of(edge.node)[0] == ONE + TWO


def test_what_is_told_once_more_is_known_already(edge: Edge) -> None:
    edge.round({P: tsfile()})
    round_with(edge, part(ONE))
    round_with(edge, part(ONE, floor=9))
    assert content_of(edge.node) == (ONE, [(len(ONE), 7)])
    round_with(edge, part(ONE + TWO, floor=9))
    both = len(ONE) + len(TWO)
    assert content_of(edge.node) == (ONE + TWO, [(len(ONE), 7), (both, 9)])


def test_what_is_shorter_takes_nothing_back_and_what_is_other_comes_behind_it(edge: Edge) -> None:
    edge.round({P: tsfile()})
    round_with(edge, part(ONE + TWO))
    round_with(edge, part(ONE))
    assert content_of(edge.node)[0] == ONE + TWO
    for _ in range(2):  # told again it is known, and where it has grown, what is new
        round_with(edge, part(OTHER, floor=9))
        assert content_of(edge.node)[0] == ONE + TWO + OTHER
    more = part(ONE, len(OTHER), floor=9)
    round_with(edge, part(OTHER, floor=9), more)
    assert content_of(edge.node)[0] == ONE + TWO + OTHER + ONE


def test_beside_a_file_that_is_not_loaded_what_is_other_takes_its_place(edge: Edge) -> None:
    round_with(edge, part(ONE + TWO))
    round_with(edge, part(OTHER, floor=9))
    assert content_of(edge.node) == (OTHER, [(len(OTHER), 9)])


def test_two_names_of_a_content_tell_what_is_deleted_of_it(edge: Edge) -> None:
    other = path_of(2)
    edge.round({P: tsfile()})
    edge.round({other: tsfile()})
    round_with(edge, part(ONE), part(ONE, path=other))
    assert content_of(edge.node)[0] == ONE
    round_with(edge, part(TWO, len(ONE)), part(OTHER, len(ONE), path=other))
    assert content_of(edge.node)[0] == content_of(edge.node, other)[0] == ONE + TWO + OTHER


def test_a_part_whose_begin_is_not_here_is_asked_for_again(edge: Edge) -> None:
    edge.round({P: tsfile()})
    task = edge.start()
    assert tell(edge, task, part(TWO, len(ONE))) == [P]
    assert tell(edge, task, part(ONE + TWO)) == []
    edge.end(task, {})
    edge.outcome(task)
    assert content_of(edge.node)[0] == ONE + TWO


@pytest.mark.parametrize("content", [b"", b"DELETION,a,1,2,3", ONE + b"DELE"])
def test_what_is_no_whole_records_is_refused(edge: Edge, content: bytes) -> None:
    task = edge.start()
    with pytest.raises(ProtocolError):
        tell(edge, task, part(content))


def test_they_survive_a_restart_in_mid_task_and_a_checkpoint(tmp_path) -> None:
    world = World(tmp_path)
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.round({P: tsfile()})
        task = edge.start()
        tell(edge, task, part(ONE))
    with world.node() as node:
        edge.node = node
        edge.end(task, {})
        edge.outcome(task)
        assert content_of(node)[0] == ONE
        node.engine.checkpoint()
    with world.node() as node:
        assert content_of(node) == (ONE, [(len(ONE), 7)])


def test_a_file_that_comes_again_keeps_them(edge: Edge, world: World) -> None:
    content = tsfile()
    edge.round({P: content})
    round_with(edge, part(ONE), part(TWO, len(ONE), floor=9))
    row = known(edge.node)
    assert row is not None
    assert row.physical is not None
    (world.data / row.physical).unlink()
    assert results(edge.round({P: content})) == {P: "loaded"}
    assert content_of(edge.node)[0] == ONE + TWO
    again = known(edge.node)
    assert again is not None
    assert again.physical != row.physical
    assert [each.floor for each in again.segments] == [7, 9]


def test_of_a_task_that_was_withdrawn_all_is_to_be_told_again(world: World) -> None:
    with world.still_node() as still:
        made = make_token(still.engine, "sender", sender=A, scope=(), expires=None)
        edge = Edge(still, who=Principal("sender", A, (), made.id, "10.0.0.7"))
        edge.check()
        task = edge.start()
        tell(edge, task, part(ONE), part(TWO, path=path_of(2)), part(TWO, len(ONE)))
        edge.end(task, {})
        revoke_token(still.engine, made.id)
        edge.outcome(task)
        assert known(still) is None
        assert untold(edge, task) == [P, path_of(2)]
    with world.node() as node:  # and is known as that after a restart
        edge.node = node
        assert untold(edge, task) == [P, path_of(2)]
        node.engine.checkpoint()
    with world.node() as node:
        edge.node = node
        assert untold(edge, task) == [P, path_of(2)]


def test_what_its_file_has_lost_since_is_to_be_told_again(edge: Edge) -> None:
    edge.round({P: tsfile()})
    round_with(edge, part(ONE))
    task = edge.start()
    assert tell(edge, task, part(TWO, len(ONE))) == []
    with edge.node.engine.reading() as state:
        row = state.file_table.held(A, P)
    assert row is not None
    edge.node.engine.commit([records.FileRetired(row.physical)])
    edge.end(task, {})
    edge.outcome(task)
    assert untold(edge, task) == [P]
    assert known(edge.node) is None


def test_each_call_judges_the_task_by_its_own_token(still: Node) -> None:
    """A task that was begun with one token, and goes on with another after that was revoked."""
    tokens = [make_token(still.engine, "sender", sender=A, scope=(), expires=None) for _ in "ab"]
    first, second = (Principal("sender", A, (), each.id, "10.0.0.7") for each in tokens)
    edge = Edge(still, who=first)
    edge.check()
    task = edge.start()
    edge.who = second
    tell(edge, task, part(ONE))
    revoke_token(still.engine, tokens[0].id)
    folder = still.load.folders.find(A)
    assert folder is not None
    assert folder.task is not None
    assert folder.task.record.token == tokens[1].id


def test_many_deletion_files_cost_a_call_each_only_its_own(edge: Edge) -> None:
    task = edge.start()
    for page in range(40):
        paths = [path_of(page * 1000 + each) for each in range(1000)]
        assert tell(edge, task, *(part(ONE, path=path) for path in paths)) == []
    begun = time.process_time()
    tell(edge, task, part(ONE, path=path_of(99_999)))
    assert time.process_time() - begun < 0.1


def test_a_large_deletion_file_is_not_copied_for_each_of_its_parts(edge: Edge) -> None:
    with edge.node.engine.reading() as state:
        known = KnownDeletions(state, A)
        block = ONE * 1000
        begun = time.process_time()
        for number in range(4000):
            assert known.take(part(block, number * len(block)))
        assert time.process_time() - begun < 2
    assert sum(len(each.content) for each in known.ops) == 4000 * len(block)


@pytest.mark.parametrize("floor", [21, 1 << 60])
def test_a_floor_that_reaches_files_to_come_is_refused(edge: Edge, floor: int) -> None:
    edge.round({P: tsfile()})
    task = edge.start(look=20)
    with pytest.raises(ProtocolError, match=f"up to look {floor}, and the task's look is 20"):
        tell(edge, task, part(ONE, floor=floor))
    assert tell(edge, task, part(ONE, floor=20)) == []
    edge.end(task, {})
    edge.outcome(task)
    assert content_of(edge.node) == (ONE, [(len(ONE), 20)])


def test_a_task_without_a_look_tells_of_no_looks(edge: Edge) -> None:
    edge.round({P: tsfile()})
    request = wire.StartRequest(engine=edge.node.engine.uuid, epoch=edge.epoch)
    task = "5" * 32
    edge.epoch = edge.node.tasks.start(edge.who, edge.uuid, task, request).epoch or edge.epoch
    with pytest.raises(ProtocolError, match="the task's look is 0"):
        tell(edge, task, part(ONE, floor=1))
    assert tell(edge, task, part(ONE, floor=0)) == []
    edge.end(task, {})
    edge.outcome(task)
    assert content_of(edge.node) == (ONE, [(len(ONE), 0)])


def test_a_forwarded_floor_counts_in_another_engines_looks(edge: Edge) -> None:
    edge.round({P: tsfile()})
    task = edge.start(look=20)
    author = f"{A}@{'9' * 32}"
    told = msgspec.structs.replace(part(ONE, floor=1 << 40), author=author)
    assert tell(edge, task, told) == []
