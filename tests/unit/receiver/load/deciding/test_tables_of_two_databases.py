"""The same bytes in the directories of two databases are two files: no byte names the database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.node import Node
from receiver.operator.stored.files import delete_files, list_files
from tests.support.node_world import Clock, Edge, World, path_of, tsfile
from tests.support.tsfile_bytes import build
from tests.unit.receiver.operator.centre.test_centre_loading import lay, load, said

TABLE = build({("wind", "t1"): {"h": [(1, 1.5)]}})
ONE, OTHER = path_of(1, sg="plant"), path_of(2, sg="site")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def node(tmp_path: Path, clock: Clock) -> Iterator[Node]:
    world = World(tmp_path, clock=clock, keep_deleted=100.0, metadata={"history": 100.0})
    with world.still_node() as node:
        yield node


def here(node: Node) -> set[str]:
    return {each.path for each in list_files(node.operator).files if each.state == "live"}


def test_an_edge_has_both_in_one_round_and_in_two(node: Node) -> None:
    edge = Edge(node)
    edge.round({ONE: TABLE})
    edge.round({ONE: TABLE, OTHER: TABLE})
    assert here(node) == {ONE, OTHER}
    third, fourth = path_of(3, sg="a"), path_of(4, sg="b")
    edge.round({ONE: TABLE, OTHER: TABLE, third: TABLE, fourth: TABLE})
    assert here(node) == {ONE, OTHER, third, fourth}


def test_of_a_tree_the_same_bytes_are_one_file_in_whatever_directory(node: Node) -> None:
    edge = Edge(node)
    edge.round({path_of(1): tsfile()})
    edge.round({path_of(1, sg="root.other"): tsfile()})
    assert len(list_files(node.operator).files) == 1


def test_a_load_at_the_centre_has_both_in_one_load_and_in_two(node: Node, tmp_path: Path) -> None:
    one = lay(tmp_path / "one", {ONE: TABLE})
    assert said(load(node, one), one) == {ONE: "loaded"}
    assert said(load(node, one), one) == {ONE: "already"}
    more = {OTHER: TABLE, path_of(3, sg="third"): TABLE}
    other = lay(tmp_path / "other", more)
    assert set(said(load(node, other), other).values()) == {"loaded"}
    assert len(list_files(node.operator).files) == 3


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_what_an_operator_deleted_of_one_database_comes_to_another(
    node: Node, clock: Clock, tmp_path: Path, is_forgotten: bool
) -> None:
    load(node, lay(tmp_path / "one", {ONE: TABLE}))
    (file,) = list_files(node.operator).files
    assert delete_files(node.operator, [file.physical], everywhere=False).deleted
    if is_forgotten:
        clock.now += 300
        node.engine.collect()
        node.load.reaper.run_once()
        with node.engine.reading() as state:
            assert state.files.get(file.physical) is None
    edge = Edge(node)
    edge.round({ONE: TABLE, OTHER: TABLE})
    assert here(node) == {OTHER}
