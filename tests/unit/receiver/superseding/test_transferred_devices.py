"""Proofs across a transfer of some devices of a file: device by device, as it stands in each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.metadata.state.tables.file_tables.retired import partition_of
from receiver.node import Node
from receiver.operator.edges.owners import set_owner
from tests.support.node_world import OPERATOR, A, B, Edge, World, plan_entry
from tests.support.oracle import rows_read
from tests.support.proving import in_this_process
from tests.support.tsfile_bytes import build

D1, D2 = "root.sg.d1", "root.sg.d2"
LATE = "unsequence/root.sg/0/0/9-9-0-0.tsfile"
LATER = "unsequence/root.sg/0/0/10-10-0-0.tsfile"
EARLY = "sequence/root.sg/0/0/1-1-0-0.tsfile"
Values = dict[str, dict[int, int]]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with World(tmp_path).still_node() as node:
        in_this_process(node)
        yield node


@pytest.fixture
def edges(node: Node) -> dict[str, Edge]:
    found = {uuid: Edge(node, uuid) for uuid in (A, B)}
    for each in found.values():
        each.check()
        each.round({})
    return found


def send(edge: Edge, files: dict[str, Values], gone: dict[str, int] | None = None) -> int:
    """A round whose look is the newest there is; `gone` has last looks. Returns the look."""
    gone = gone or {}
    look = edge.check().look
    bytes_of = {
        path: build({each: {"s1": sorted(some.items())} for each, some in values.items()})
        for path, values in files.items()
    }
    task = edge.start(look=look)
    edge.plan(task, [plan_entry(path, content) for path, content in bytes_of.items()])
    if gone:
        edge.deleted(task, gone)
    edge.batch(task, bytes_of)
    edge.end(
        task, bytes_of, gone, looks=dict.fromkeys(files, (look, look)), last_looks=gone.values()
    )
    edge.outcome(task)
    return look


def give(node: Node, sender: str, device: str = D1) -> None:
    set_owner(node.engine, OPERATOR, device, sender)


def row(node: Node, path: str) -> FileRow:
    with node.engine.reading() as state:
        (found,) = (row for row in state.files.values() if path in row.paths)
    return found


def read(node: Node, **given: str) -> Values:
    found: Values = {}
    for each in rows_read(node.config.schema_dir, **given):
        found.setdefault(each["device"], {})[each["time"]] = each["value_long"]
    return found


def prove(node: Node) -> int:
    """Prove what can be proved, which changes no answer."""
    before = read(node)
    proved = node.prover.run_once()
    assert read(node) == before
    return proved


def test_what_a_new_owner_gives_again_supersedes_and_a_transfer_back_changes_nothing(
    node: Node, edges: dict[str, Edge]
) -> None:
    send(edges[A], {LATE: {D1: {1: 1}, D2: {1: 1}}})
    give(node, B)
    send(edges[B], {EARLY: {D1: {1: 10}}})
    look = send(edges[A], {})
    send(edges[A], {LATER: {D2: {1: 1}}}, {LATE: look})
    assert prove(node) == 1
    assert set(row(node, LATE).rests) == {row(node, each).physical for each in (EARLY, LATER)}
    give(node, A)
    assert prove(node) == 0
    assert row(node, LATE).state is FileState.SUPERSEDED
    assert read(node) == {D1: {1: 10}, D2: {1: 1}}


@pytest.mark.parametrize("alone", [D1, D2])
def test_a_file_leaves_only_when_it_is_given_above_in_each_device(
    node: Node, edges: dict[str, Edge], alone: str
) -> None:
    values = {D1: {1: 1}, D2: {1: 1}}
    values[alone][2] = 2
    send(edges[A], {LATE: values})
    give(node, B)
    send(edges[B], {EARLY: {D1: {1: 10}}})
    look = send(edges[A], {})
    send(edges[A], {LATER: {D2: {1: 1}}}, {LATE: look})
    assert prove(node) == 0
    values[D1][1] = 10
    assert read(node) == values
    kept = row(node, LATE)
    found = node.prover.found(partition_of(kept.physical), kept.physical)
    assert found is not None
    assert [(each.device, each.first, each.points) for each in found.exclusive] == [(alone, 2, 1)]


def test_a_device_that_comes_back_to_a_file_that_was_gone_by_then_brings_back_what_it_hid(
    node: Node, edges: dict[str, Edge]
) -> None:
    send(edges[A], {LATE: {D1: {1: 1}, D2: {1: 1}}})
    give(node, B)
    send(edges[B], {EARLY: {D1: {1: 10}}})
    look = send(edges[A], {})
    give(node, A)
    assert prove(node) == 1, "what came from the other one stands below"
    assert read(node)[D1] == {1: 1}
    send(edges[A], {}, {LATE: look})
    assert row(node, EARLY).state is FileState.RETIRED
    assert read(node)[D1] == {1: 10}
    assert prove(node) == 0


def test_without_what_is_retired_a_device_that_went_is_the_new_owners_alone(
    node: Node, edges: dict[str, Edge]
) -> None:
    send(edges[A], {LATE: {D1: {1: 1, 2: 2}, D2: {1: 1}}})
    give(node, B)
    assert read(node, retired="false") == {D2: {1: 1}}
    send(edges[B], {EARLY: {D1: {1: 10}}})
    assert read(node) == {D1: {1: 10, 2: 2}, D2: {1: 1}}
    assert read(node, retired="false") == {D1: {1: 10}, D2: {1: 1}}
    give(node, A)
    assert read(node, retired="false") == {D1: {1: 1, 2: 2}, D2: {1: 1}}


def test_an_end_that_moves_nothing_brings_nothing_back(node: Node, edges: dict[str, Edge]) -> None:
    send(edges[A], {LATE: {D1: {1: 1}, D2: {1: 1}}})
    give(node, B)
    send(edges[B], {EARLY: {D1: {1: 10}, "root.sg.d3": {5: 5}}})
    look = send(edges[A], {})
    send(edges[A], {LATER: {D2: {1: 1}}}, {LATE: look})
    assert prove(node) == 1
    send(edges[B], {}, {EARLY: send(edges[B], {})})
    send(edges[A], {}, {LATER: send(edges[A], {})})
    assert row(node, LATE).state is FileState.SUPERSEDED
    assert read(node) == {D1: {1: 10}, D2: {1: 1}, "root.sg.d3": {5: 5}}
