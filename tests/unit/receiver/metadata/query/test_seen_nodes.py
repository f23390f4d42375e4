"""Storage nodes in the engine: who may be registered, what is said of them, and how they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.metadata.commit.guards import Guard
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, HistoryGoneError, RefusedCommitError
from receiver.metadata.query.row_source import Look
from receiver.metadata.query.seen_nodes import seen_nodes
from receiver.metadata.sql.executing import execute
from receiver.metadata.state.tables.place_tables.storage_nodes import (
    StorageNodeRow,
    StorageNodeTable,
)

ONE, OTHER = "a" * 32, "b" * 32


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine.open(tmp_path)
    yield engine
    engine.close()


def start(uuid: str = ONE, instance: int = 1, name: str = "/disk/1") -> records.NodeRegistered:
    return records.NodeRegistered(uuid, "directory", name, "disk-1", instance)


def rows(engine: Engine) -> dict[str, StorageNodeRow]:
    with engine.reading() as state:
        return dict(state.node_table.rows)


def test_a_later_start_takes_the_place_of_the_one_before_and_keeps_what_was_said(engine: Engine):
    made = engine.commit([start()])
    drained = engine.commit([records.NodeDraining(ONE, draining=True)])
    engine.commit([start(instance=7, name="/disk/elsewhere")])
    row = rows(engine)[ONE]
    assert (row.instance, row.name, row.created) == (7, "/disk/elsewhere", made)
    assert (row.draining, row.lost, row.said, row.takes_files) == (drained, 0, "draining", False)


def test_the_number_of_a_start_never_goes_down(engine: Engine):
    engine.commit([start(instance=5)])
    with pytest.raises(RefusedCommitError, match=r"start 4 of a+ is older than 5"):
        engine.commit([start(instance=4)])
    with pytest.raises(RefusedCommitError, match=r"start 6 of a+ is older than 7"):
        engine.commit([start(instance=7), start(instance=6)])
    engine.commit([start(instance=5, name="/disk/2")])
    assert rows(engine)[ONE].name == "/disk/2", "the same start may tell something else"


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (records.NodeRegistered("a", "directory", "/d", "h", 1), "is no node"),
        (records.NodeRegistered(ONE, "remote", "", "h", 1), "is no name"),
        (records.NodeRegistered(ONE, "remote", "/" * 5000, "h", 1), "is no name"),
        (records.NodeRegistered(ONE, "remote", "/d", "h", 1, ["x"] * 17), "is no name"),
        (records.NodeRegistered(ONE, "remote", "/d", "h", 0), "is no number of a start"),
        (records.NodeRegistered(ONE, "remote", "/d", "h", 1 << 63), "is no number of a start"),
        (records.NodeRegistered(OTHER, "remote", "/d", "h", 2), "a node of kind directory"),
        (records.NodeDraining(ONE, draining=True), "there is no node"),
        (records.NodeDraining(OTHER, draining=False), "not draining already"),
        (records.NodeLost(OTHER, lost=False), "not lost already"),
        (records.NodeForgotten(ONE), "there is no node"),
    ],
)
def test_what_no_node_is_and_what_was_said_already_is_refused(
    engine: Engine, op: records.Op, why: str
):
    engine.commit([start(OTHER)])
    with pytest.raises(RefusedCommitError, match=why):
        engine.commit([op])


def test_words_of_one_commit_count_for_those_behind_them(engine: Engine):
    drain = records.NodeDraining(ONE, draining=True)
    engine.commit([start(), drain, records.NodeLost(ONE)])
    with pytest.raises(RefusedCommitError, match="not lost already"):
        engine.commit([records.NodeLost(ONE, lost=False)] * 2)
    assert rows(engine)[ONE].said == "lost"
    with pytest.raises(RefusedCommitError, match="there is no node"):
        engine.commit([records.NodeForgotten(ONE), drain])


def test_a_guard_on_a_node_holds(engine: Engine):
    seen = engine.commit([start()])
    drained = engine.commit([records.NodeDraining(ONE, draining=True)])
    with pytest.raises(GuardFailed):
        engine.commit([records.NodeLost(ONE)], guards=[Guard("node", ONE, seen)])
    engine.commit([records.NodeLost(ONE)], guards=[Guard("node", ONE, drained)])


def test_they_are_told_of_as_they_were_after_a_restart_too(tmp_path: Path):
    with Engine.open(tmp_path) as engine:
        one = engine.commit([start()])
        two = engine.commit([records.NodeDraining(ONE, draining=True), start(OTHER, name="/0")])
        three = engine.commit([records.NodeForgotten(ONE)])
        engine.checkpoint()
        four = engine.commit([start(instance=9)])
    with Engine.open(tmp_path) as engine:

        def told(at: int) -> list[tuple[object, ...]]:
            found = execute(engine, f"show nodes at {at}")
            return [(row[2], row[4], row[5], row[7]) for row in found]

        assert told(one) == [("/disk/1", 1, None, one)]
        assert told(two) == [("/0", 1, None, two), ("/disk/1", 1, two, one)]
        assert told(three) == [("/0", 1, None, two)]
        assert told(four) == [("/0", 1, None, two), ("/disk/1", 9, None, four)]
        assert [row[2] for row in execute(engine, "show nodes limit 1")] == ["/0"]


def test_more_versions_than_are_kept_are_not_guessed_at(tmp_path: Path):
    with Engine.open(tmp_path) as engine:
        first = engine.commit([start()])
        for instance in range(2, 70):
            last = engine.commit([start(instance=instance)])
        engine.checkpoint()
    with Engine.open(tmp_path) as engine:
        with pytest.raises(HistoryGoneError, match="is not known any more"):
            seen_nodes(Look(engine, first))
        with engine.reading() as state:
            oldest = state.node_table.reach
        assert [row.instance for row in seen_nodes(Look(engine, oldest))] == [5]
        assert [row.instance for row in seen_nodes(Look(engine, last))] == [69]


def test_of_forgotten_nodes_the_last_are_kept():
    table = StorageNodeTable()
    for number in range(300):
        row = StorageNodeRow(
            uuid=f"{number:032x}",
            kind="remote",
            name="n",
            host="h",
            instance=1,
            created=2 * number + 1,
            changed=2 * number + 1,
        )
        table.restore(row)
        table.operations()[records.NodeForgotten](records.NodeForgotten(row.uuid), 2 * number + 2)
    assert table.reach == 2 * 44
    assert [row.uuid for row in table.at(2 * 100 + 1)] == [f"{100:032x}"]
    again = StorageNodeTable()
    for row in table.versions():
        again.restore(row)
    assert [again.at(ts) for ts in range(88, 602)] == [table.at(ts) for ts in range(88, 602)]
