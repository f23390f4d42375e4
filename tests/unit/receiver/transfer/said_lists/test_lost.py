"""What a sender tells of files that neither side has, and how an operator ends it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from common import wire
from common.errors import ForbiddenError, NotFoundError, TooLargeError, TsferryError
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.edges.lost import acknowledge_lost, list_lost
from receiver.operator.status import running_status
from tests.support.node_world import A, B, Edge, World, path_of, results, sender, tsfile

P, Q = path_of(1), path_of(2)


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    with world.node() as node:
        yield node


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def page(*paths: str, content: bytes = b"x") -> wire.LostPage:
    md5 = hashlib.md5(content).hexdigest()
    return wire.LostPage(
        files=[
            wire.LostFile(path=each, md5=md5, size=len(content), first_time=1, last_time=5)
            for each in paths
        ]
    )


def lost(node: Node) -> list[str]:
    return [each.path for each in list_lost(node.engine)]


def test_what_is_not_here_is_lost_and_told_again_it_is_told_nobody_twice(
    edge: Edge, node: Node
) -> None:
    content = tsfile()
    edge.round({P: content})
    assert node.lost.tell(edge.who, A, page(P, content=content)).lost == []
    assert node.lost.tell(edge.who, A, page(Q)).lost == [Q]
    assert node.lost.tell(edge.who, A, page(Q)).lost == []
    assert lost(node) == [Q]
    assert running_status(node.operator, None).lost == 1
    assert "1 file is lost" in node.concerns()[0]


def test_an_operator_acknowledges_by_name_or_all(edge: Edge, node: Node) -> None:
    node.lost.tell(edge.who, A, page(P, Q, path_of(3)))
    with pytest.raises(NotFoundError, match="is not lost"):
        acknowledge_lost(node.engine, A, [P, path_of(9)])
    assert [each.path for each in acknowledge_lost(node.engine, A, [P])] == [P]
    assert lost(node) == [Q, path_of(3)]
    assert len(acknowledge_lost(node.engine, A, [])) == 2
    assert lost(node) == []
    with pytest.raises(NotFoundError, match="nothing"):
        acknowledge_lost(node.engine, A, [])
    assert node.lost.tell(edge.who, A, page(P, Q)).lost == []


def test_the_end_of_a_bad_file_makes_it_lost_and_its_bytes_stay(
    edge: Edge, node: Node, world: World
) -> None:
    edge.round({P: tsfile()})
    (physical,) = [each for each in world.loaded() if "tsfile" in each]
    node.engine.commit([records.FileQuarantined(physical, "its bytes changed")])
    assert lost(node) == []
    edge.check()
    assert results(edge.round({}, [P])) == {P: "retired"}
    (view,) = list_lost(node.engine)
    assert (view.path, view.physical, view.reason) == (P, physical, "its bytes changed")
    acknowledge_lost(node.engine, A, [P])
    node.load.reaper.run_once()
    assert physical in world.loaded()


def test_a_mirror_that_deletes_a_bad_file_has_not_lost_it(edge: Edge, node: Node) -> None:
    edge.round({P: tsfile()}, propagate=wire.Propagate.ALL)
    with node.engine.reading() as state:
        (row,) = state.files.values()
    node.engine.commit([records.FileQuarantined(row.physical, "its bytes changed")])
    edge.check()
    assert results(edge.round({}, [P], propagate=wire.Propagate.ALL)) == {P: "deleted"}
    assert lost(node) == []


def test_a_page_speaks_for_its_sender_alone_and_is_bounded(edge: Edge, node: Node) -> None:
    with pytest.raises(ForbiddenError):
        node.lost.tell(sender(B), A, page(P))
    many = page(*(path_of(n) for n in range(node.config.limits.max_page_items + 1)))
    with pytest.raises(TooLargeError):
        node.lost.tell(edge.who, A, many)
    with pytest.raises(TsferryError):
        node.lost.tell(edge.who, A, page("../x"))
    assert lost(node) == []
