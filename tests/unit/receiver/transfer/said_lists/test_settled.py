"""Which files of a sender nobody needs to remember any more."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from common import wire
from common.errors import ForbiddenError, UsageError
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState
from receiver.node import Node
from receiver.operator.edges.lost import acknowledge_lost
from tests.support.node_world import A, B, Edge, World, path_of, sender, tsfile

PATHS = [path_of(number) for number in range(1, 6)]


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    with world.node() as node:
        yield node


@pytest.fixture
def edge(node: Node) -> Edge:
    """Its files are gone at the edge, and retired."""
    edge = Edge(node)
    edge.check()
    edge.round({path: tsfile(first=number) for number, path in enumerate(PATHS)})
    edge.round({}, deleted=PATHS)
    return edge


def pages(
    node: Node, edge: Edge, after: int = 0, limit: int | None = None
) -> list[wire.SettledAnswer]:
    found = [node.settled.page(edge.who, A, after, None, limit)]
    while found[-1].next is not None:
        found.append(node.settled.page(edge.who, A, after, found[-1].next, limit))
    return found


def settled(node: Node, edge: Edge, after: int = 0, limit: int | None = None) -> list[str]:
    return [each.path for page in pages(node, edge, after, limit) for each in page.files]


def rows(node: Node) -> dict:
    with node.engine.reading() as state:
        return {row.path: row for row in state.files.values() if row.sender == A}


def drop(node: Node, *paths: str) -> int:
    physicals = [rows(node)[path].physical for path in paths]
    return node.engine.commit([records.FileDeleted(each, "operator") for each in physicals])


def test_a_retired_file_must_be_remembered(node: Node, edge: Edge) -> None:
    assert all(row.state is FileState.RETIRED for row in rows(node).values())
    (answer,) = pages(node, edge)
    assert (answer.files, answer.engine) == ([], node.engine.uuid)
    assert answer.commit == node.engine.newest_commit


def test_what_is_deleted_is_settled_from_its_commit_on(node: Node, edge: Edge) -> None:
    first = drop(node, PATHS[1])
    drop(node, PATHS[0], PATHS[2])
    assert settled(node, edge) == [PATHS[1], *sorted_by_md5(node, PATHS[0], PATHS[2])]
    assert settled(node, edge, first) == sorted_by_md5(node, PATHS[0], PATHS[2])
    assert settled(node, edge, node.engine.newest_commit) == []
    (answer,) = pages(node, edge)
    assert answer.files[0] == wire.SettledFile(
        path=PATHS[1], md5=rows(node)[PATHS[1]].md5, commit=first
    )


def sorted_by_md5(node: Node, *paths: str) -> list[str]:
    return sorted(paths, key=lambda path: rows(node)[path].md5)


def test_pages_have_each_file_once(node: Node, edge: Edge) -> None:
    drop(node, *PATHS[:3])
    drop(node, *PATHS[3:])
    whole = settled(node, edge)
    assert sorted(whole) == sorted(PATHS)
    for limit in (1, 2, 3, 4, 5):
        assert settled(node, edge, limit=limit) == whole
        assert all(len(page.files) <= limit for page in pages(node, edge, limit=limit))


def test_what_is_superseded_is_settled(node: Node, edge: Edge) -> None:
    low, above = (rows(node)[path] for path in PATHS[:2])
    node.engine.commit(
        [records.FileSuperseded(low.physical, (above.physical,))],
        [Guard("file", low.physical, low.changed)],
    )
    assert settled(node, edge) == [PATHS[0]]


def test_what_is_lost_is_settled_once_it_is_acknowledged(node: Node, edge: Edge) -> None:
    md5 = hashlib.md5(b"x").hexdigest()
    page = wire.LostPage(files=[wire.LostFile(path=path_of(9), md5=md5, size=1)])
    node.lost.tell(edge.who, A, page)
    assert settled(node, edge) == []
    acknowledge_lost(node.engine, A, [])
    assert settled(node, edge) == [path_of(9)]


def test_of_other_senders_nothing_is_said(node: Node, edge: Edge) -> None:
    drop(node, PATHS[0])
    assert node.settled.page(sender(B), B, 0, None, None).files == []
    with pytest.raises(ForbiddenError):
        node.settled.page(sender(B), A, 0, None, None)


@pytest.mark.parametrize("cursor", ["", "x", "1", "1/2", "-1/a/b", "١/a/b", f"{'9' * 30}/a/b"])
def test_a_cursor_of_nobody_is_refused(node: Node, edge: Edge, cursor: str) -> None:
    with pytest.raises(UsageError, match="cursor"):
        node.settled.page(edge.who, A, 0, cursor, None)
