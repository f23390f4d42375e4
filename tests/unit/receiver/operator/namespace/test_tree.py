"""`tree`: directories and files as they are or were."""

from __future__ import annotations

import pytest

from common.errors import NotFoundError, UsageError
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.namespace.tree import list_tree
from tests.support.node_world import A, B, Edge, path_of, tsfile


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def test_directories_stand_before_what_is_in_them_and_have_its_sums(edge: Edge) -> None:
    edge.round({path_of(n): tsfile(f"root.sg.d{n}") for n in range(3)})
    Edge(edge.node, B).round({path_of(9, sg="root.b"): tsfile("root.b.d")})
    there = edge.node.operator
    page = list_tree(there)
    assert [(each.kind, each.path, each.parent, each.files) for each in page.nodes] == [
        ("database", "root", "", 4),
        ("storage_group", "root.b", "root", 1),
        ("partition", "root.b/0/0", "root.b", 1),
        ("storage_group", "root.sg", "root", 3),
        ("partition", "root.sg/0/0", "root.sg", 3),
    ]
    files = list_tree(there, files=True).nodes
    assert sum(each.size for each in files) == page.nodes[0].size
    assert min(each.created for each in files) == page.nodes[0].created
    assert {each.parent for each in files} == {"root.b/0/0", "root.sg/0/0"}


def test_a_time_shows_what_was_there_and_when_it_ended(edge: Edge) -> None:
    edge.round({path_of(1): tsfile("root.sg.d1")})
    Edge(edge.node, B).round({path_of(9, sg="root.b"): tsfile("root.b.d")})
    there, engine = edge.node.operator, edge.node.engine
    at = engine.newest_commit
    (gone,) = [each.path for each in list_tree(there, path="root.b", files=True).nodes]
    ended = engine.commit([records.FileQuarantined(gone, "bad")])
    engine.commit([records.FileDeleted(gone, "operator")])
    then = {each.path: each.deleted for each in list_tree(there, at=str(at)).nodes}
    assert then == {
        "root": 0,
        "root.b": ended,
        "root.b/0/0": ended,
        "root.sg": 0,
        "root.sg/0/0": 0,
    }
    (file,) = list_tree(there, at=str(at), path="root.b/0/0", files=True).nodes
    assert (file.path, file.deleted) == (gone, ended)
    assert [each.path for each in list_tree(there).nodes] == ["root", "root.sg", "root.sg/0/0"]


def test_files_come_in_pages_and_a_path_that_is_nothing_is_said(edge: Edge) -> None:
    edge.round({path_of(n): tsfile(f"root.sg.d{n}") for n in range(5)})
    there = edge.node.operator
    every, after = [], None
    while True:
        page = list_tree(there, path="root.sg", files=True, after=after, limit=2)
        every += [each.path for each in page.nodes]
        if (after := page.next) is None:
            break
    assert every == sorted(every)
    assert len(every) == 5
    (one,) = list_tree(there, path=every[0], files=True).nodes
    assert (one.path, one.points) == (every[0], one.series and one.points)
    with pytest.raises(NotFoundError, match=r"root\.s:"):
        list_tree(there, path="root.s")
    with pytest.raises(UsageError):
        list_tree(there, at="soon")


def test_a_tree_without_files_is_empty(edge: Edge) -> None:
    assert list_tree(edge.node.operator).nodes == []
    assert edge.uuid == A
