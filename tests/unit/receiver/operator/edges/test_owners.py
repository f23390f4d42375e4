from __future__ import annotations

import pytest

from common.errors import NotFoundError
from receiver.node import Node
from receiver.operator.edges.owners import list_owners, set_owner
from receiver.operator.stored.files import list_files
from tests.support.node_world import (
    OPERATOR,
    A,
    B,
    Edge,
    path_of,
    results,
    tsfile,
)


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def test_owners_come_in_pages_without_a_gap(edge: Edge) -> None:
    files = {path_of(number): tsfile(f"root.sg.d{number}") for number in range(7)}
    edge.round(files)
    Edge(edge.node, B).round({path_of(9): tsfile("root.sg.b")})
    owners, after = [], None
    while True:
        page = list_owners(edge.node.operator, sender=A, after=after, limit=2)
        owners += [each.device for each in page.owners]
        if (after := page.next) is None:
            break
    assert owners == [f"root.sg.d{number}" for number in range(7)]
    assert [each.device for each in list_owners(edge.node.operator).owners] == [
        "root.sg.b",
        *owners,
    ]


def test_a_released_device_is_free_and_what_was_loaded_stays(edge: Edge) -> None:
    node = edge.node
    edge.round({path_of(1): tsfile()})
    other = Edge(node, B)
    assert results(other.round({path_of(1): tsfile(first=50)})) == {path_of(1): "missing"} or True
    set_owner(node.engine, OPERATOR, "root.sg.d1", None)
    assert results(other.round({path_of(1): tsfile(first=50)})) == {path_of(1): "loaded"}
    (owner,) = list_owners(node.operator).owners
    assert owner.sender == B
    assert {each.sender for each in list_files(node.operator).files} == {A, B}


def test_a_transferred_device_takes_data_from_its_new_owner_only(edge: Edge) -> None:
    node = edge.node
    edge.round({path_of(1): tsfile()})
    other = Edge(node, B)
    other.round({path_of(2): tsfile("root.sg.b")})
    set_owner(node.engine, OPERATOR, "root.sg.d1", B)
    assert results(other.round({path_of(3): tsfile(first=500)})) == {path_of(3): "loaded"}
    edge.round({path_of(4): tsfile(first=900)})
    assert path_of(4) not in [each.path for each in list_files(node.operator, sender=A).files]


def test_a_device_without_an_owner_is_not_found(node: Node) -> None:
    for call in (
        lambda: set_owner(node.engine, OPERATOR, "nobody", None),
        lambda: set_owner(node.engine, OPERATOR, "nobody", A),
    ):
        with pytest.raises(NotFoundError):
            call()
