"""Deletion files as a receiver takes them: durable with the call, committed with the task."""

from __future__ import annotations

import pytest

from common import wire
from common.errors import ProtocolError
from receiver.metadata.state.table_rows import DeletionsRow
from receiver.node import Node
from tests.support.node_world import A, Edge, World, path_of, plan_entry, results, tsfile

ONE, TWO, OTHER = (f"DELETION,root.sg.d1.s1,99,{n},{n}\n".encode() for n in (1, 2, 3))
P = path_of(1)


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


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


def test_what_is_shorter_takes_nothing_back_and_what_is_other_takes_its_place(edge: Edge) -> None:
    edge.round({P: tsfile()})
    round_with(edge, part(ONE + TWO))
    round_with(edge, part(ONE))
    assert content_of(edge.node)[0] == ONE + TWO
    round_with(edge, part(OTHER, floor=9))
    assert content_of(edge.node) == (OTHER, [(len(OTHER), 9)])


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
