"""A box that was replaced: its successor goes on in its place, and nothing is there twice."""

from __future__ import annotations

import pytest

from common.errors import NotFoundError, UsageError
from receiver.metadata.state.table_rows import FileRow
from receiver.node import Node
from receiver.operator.owners import adopt_sender, set_owner
from tests.support.node_world import OPERATOR, A, B, Edge, path_of, plan_entry, results, tsfile
from tests.support.tsfile_bytes import build

FILES = {path_of(n): tsfile(f"root.sg.d{n}", first=n * 100) for n in (1, 2)}


@pytest.fixture
def old(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    edge.round(FILES)
    return edge


def rows_of(node: Node) -> list[FileRow]:
    with node.engine.reading() as state:
        return list(state.files.values())


def successor(old: Edge) -> Edge:
    edge = Edge(old.node, B)
    edge.check()
    return edge


def load(edge: Edge, files: dict[str, bytes], look: int) -> dict[str, str]:
    task = edge.start()
    edge.plan(task, [plan_entry(path, content) for path, content in files.items()])
    edge.batch(task, files)
    edge.end(task, files, looks=dict.fromkeys(files, (look, look)))
    return results(edge.outcome(task))


def test_a_successor_has_the_devices_and_all_that_the_old_one_listed_ends(old: Edge) -> None:
    new = successor(old)
    look = new.check().look
    moved = adopt_sender(old.node.engine, OPERATOR, A, B)
    assert (moved.devices, moved.retired) == (2, 2)
    assert {row.retired for row in rows_of(old.node)} == {True}
    assert set(load(new, FILES, look).values()) == {"loaded"}


def test_one_device_may_move_and_only_its_files_end(old: Edge) -> None:
    successor(old)
    moved = set_owner(old.node.engine, OPERATOR, "root.sg.d1", B)
    assert (moved.devices, moved.retired) == (1, 1)
    assert {row.path: row.retired for row in rows_of(old.node)} == {
        path_of(1): True,
        path_of(2): False,
    }


def test_a_file_with_a_device_that_stays_does_not_end(old: Edge) -> None:
    both = build({f"root.sg.d{n}": {"s1": [(5, 5)]} for n in (1, 2)})
    old.round({path_of(3): both})
    successor(old)
    set_owner(old.node.engine, OPERATOR, "root.sg.d1", B)
    assert [row.retired for row in rows_of(old.node) if row.path == path_of(3)] == [False]


def test_patterns_move_and_free_many(old: Edge) -> None:
    successor(old)
    assert set_owner(old.node.engine, OPERATOR, "root.sg.*", B).devices == 2
    freed = set_owner(old.node.engine, OPERATOR, "root.**", None)
    assert (freed.devices, freed.retired) == (2, 0)
    with pytest.raises(NotFoundError):
        set_owner(old.node.engine, OPERATOR, "root.sg.*", None)


def test_said_once_more_it_changes_nothing(old: Edge) -> None:
    successor(old)
    adopt_sender(old.node.engine, OPERATOR, A, B)
    again = adopt_sender(old.node.engine, OPERATOR, A, B)
    assert (again.devices, again.retired) == (0, 0)


def test_only_senders_that_are_known_and_differ(old: Edge) -> None:
    for one, two in ((A, B), (B, A)):
        with pytest.raises(NotFoundError):
            adopt_sender(old.node.engine, OPERATOR, one, two)
    with pytest.raises(UsageError):
        adopt_sender(old.node.engine, OPERATOR, A, A)
