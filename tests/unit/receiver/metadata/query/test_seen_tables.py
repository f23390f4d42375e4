"""Tables and tablets: made by loads, dropped with their groups, and told of as they were."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from common.errors import NoSpaceError, NotFoundError
from receiver.load.upkeep.table_upkeep import TableUpkeep
from receiver.metadata.commit import committer
from receiver.metadata.commit.table_creation import create_table
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.sql.executing import execute
from receiver.metadata.state.tables.file_tables.partition_totals import (
    PartitionTotal,
    PartitionTotals,
)
from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow
from receiver.operator.namespace.table_lists import list_tables, list_tablets
from tests.support.spark_world import NORTH, SOUTH, World
from tests.support.tsfile_bytes import build


@pytest.fixture
def world(tmp_path: Path):
    world = World(tmp_path)
    yield world
    world.engine.close()


def load(
    world: World, number: int, partition: int = 0, group: str = "root.wind", at: int | None = None
) -> str:
    """A file of one point; returns its physical path."""
    path = f"sequence/{group}/0/{partition}/{number}-{number}-0-0.tsfile"
    content = build({f"{group}.d1": {"s1": [(number if at is None else at, 1)]}})
    place = world.load(NORTH, path, content)
    return str(place.relative_to(world.data))


def tables(engine: Engine, when: str = "") -> list[tuple[object, ...]]:
    """(name, tablets, files, first time, last time) of each."""
    rows = execute(engine, f"show tables{when}")
    return [(row[0], *row[2:4], *row[5:7]) for row in rows]


def tablets(engine: Engine, when: str = "") -> list[tuple[object, ...]]:
    """(table, begin, end, files) of each."""
    return [(row[0], *row[2:5]) for row in execute(engine, f"show tablets{when}")]


def named(engine: Engine, name: str) -> LoadedTableRow:
    with engine.reading() as state:
        row = state.loaded_tables.named(name)
    assert row is not None
    return row


class Looked:
    """What the lists of operators need of a receiver."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.config = self
        self.limits = self
        self.max_page_items = 100
        self.partition_interval_ms, self.time_unit = 1000, "ms"


def test_the_first_file_of_a_group_makes_a_table_and_the_first_of_a_partition_a_tablet(
    world: World,
):
    engine = world.engine
    load(world, 1)
    first = named(engine, "root.wind")
    load(world, 2)
    load(world, 3, partition=7)
    load(world, 4, group="root.sun")
    assert named(engine, "root.wind") == first
    assert tables(engine) == [("root.sun", 1, 1, 4, 4), ("root.wind", 2, 3, 1, 3)]
    assert tablets(engine) == [
        ("root.sun", 0, 1, 1),
        ("root.wind", 0, 1, 2),
        ("root.wind", 7, 8, 1),
    ]
    assert tablets(engine, " root.wind") == tablets(engine)[1:]
    with engine.reading() as state:
        holding = state.tablet_table.holding
        assert holding(first.id, 7) is not None
        assert [holding(first.id, each) for each in (-1, 1, 6, 8)] == [None] * 4


def test_they_are_told_of_as_they_were(world: World):
    engine = world.engine
    gone = load(world, 1)
    load(world, 2)
    before = engine.newest_commit
    engine.commit([records.FileDeleted(gone, "gone")])
    load(world, 3, partition=7)
    load(world, 4, group="root.sun")
    assert tables(engine, f" at {before}") == [("root.wind", 1, 2, 1, 2)]
    assert tablets(engine, f" at {before}") == [("root.wind", 0, 1, 2)]
    assert tables(engine)[1] == ("root.wind", 2, 2, 1, 3), "what has gone may have had these times"


def test_what_comes_while_tablets_are_summed_up_does_not_count(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    engine = world.engine
    load(world, 1)
    load(world, 2, partition=7)
    before, sum_up = tablets(engine), PartitionTotals.of

    def overtaken(totals: PartitionTotals, *place: object) -> PartitionTotal:
        monkeypatch.setattr(PartitionTotals, "of", sum_up)
        load(world, 3, partition=7)
        load(world, 4, partition=8)
        return sum_up(totals, *place)

    monkeypatch.setattr(PartitionTotals, "of", overtaken)
    assert tablets(engine) == before
    assert len(tablets(engine)) == 3


def standing(engine: Engine, when: str = "") -> list[tuple[object, ...]]:
    """(table, replicas, ttl, state) of each."""
    return [(row[0], *row[9:]) for row in execute(engine, f"show tables{when}")]


def test_what_was_asked_of_a_table_and_how_it_stands_are_told(world: World):
    engine = world.engine
    engine.commit([records.StorageGroupSet("root.wind")])
    load(world, 1)
    table, before = named(engine, "root.wind"), engine.newest_commit
    assert standing(engine) == [("root.wind", None, None, None)], "nobody sees to it here"
    engine.commit([records.TableReplicasSet(table.id, 3), records.TableTtlSet(table.id, 5000)])
    with engine.reading() as state:
        state.loaded_tables.standings = {}
    assert standing(engine) == [("root.wind", 3, 5000, "running")]
    assert standing(engine, f" at {before}") == [("root.wind", None, None, None)]
    with engine.reading() as state:
        state.loaded_tables.standings = {table.id: "altering"}
    assert standing(engine) == [("root.wind", 3, 5000, "altering")]
    there = engine.newest_commit
    list(execute(engine, "delete storage group root.wind with data"))
    assert standing(engine) == []
    assert standing(engine, f" at {there}") == [("root.wind", 3, 5000, "deleting")]


def test_a_name_that_is_used_again_is_another_table(world: World):
    engine = world.engine
    engine.commit([records.StorageGroupSet("root.wind")])
    load(world, 1)
    old, before = named(engine, "root.wind"), engine.newest_commit
    list(execute(engine, "delete storage group root.wind with data"))
    assert tables(engine) == []
    assert tables(engine, f" at {before}") == [("root.wind", 1, 1, 1, 1)]
    load(world, 2)
    new = named(engine, "root.wind")
    assert new.id != old.id
    assert [row[1] for row in execute(engine, f"show tables at {before}")] == [old.id]
    with engine.reading() as state:
        assert {row.table for row in state.tablet_table.rows.values()} == {old.id, new.id}


def test_a_group_that_goes_leaves_the_table_of_files_that_stay(world: World):
    """A file's devices decide what goes with a group, not its directory."""
    engine = world.engine
    engine.commit([records.StorageGroupSet("root.wind")])
    path = "sequence/root.wind/0/0/1-1-0-0.tsfile"
    world.load(NORTH, path, build({"root.sun.d1": {"s1": [(1, 1)]}}))
    list(execute(engine, "delete storage group root.wind"))
    assert tables(engine) == [("root.wind", 1, 1, 1, 1)]


def test_a_file_that_comes_back_into_a_dropped_table_has_one_again(world: World):
    engine = world.engine
    engine.commit([records.StorageGroupSet("root.wind")])
    gone = load(world, 1)
    devices = [records.DeviceRange("root.wind.d1", 1, 1)]
    list(execute(engine, "delete storage group root.wind with data"))
    engine.commit([records.FileUndeleted(gone, devices)])
    assert tables(engine) == [("root.wind", 1, 1, 1, 1)]


def test_first_files_that_come_at_once_make_one_table(world: World):
    engine = world.engine
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        load(world, number, partition=number % 3)

    threads = [threading.Thread(target=work, args=(each,)) for each in range(1, 9)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert tables(engine) == [("root.wind", 3, 8, 1, 8)]
    with engine.reading() as state:
        assert len(state.loaded_tables.rows) == 1
        assert len(state.tablet_table.rows) == 3


def test_files_of_before_there_were_tables_are_taken_over(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    engine = world.engine
    with monkeypatch.context() as patched:
        patched.setattr(committer, "with_tablets", lambda _, ops: ops)
        load(world, 1)
        load(world, 2, partition=-3)
        load(world, 3, group="root.sun")
    assert tables(engine) == []
    upkeep = TableUpkeep(engine)
    with monkeypatch.context() as patched:

        def full(*_: object) -> int:
            raise NoSpaceError("no space left")

        patched.setattr(Engine, "commit", full)
        assert upkeep.take_over() == 0, "and the start goes on"
    assert upkeep.take_over() == 5
    assert tables(engine) == [("root.sun", 1, 1, 3, 3), ("root.wind", 2, 2, 1, 2)]
    assert tablets(engine)[1] == ("root.wind", -3, -2, 1)
    assert upkeep.take_over() == 0


def test_a_dropped_table_is_forgotten_behind_the_history(tmp_path: Path):
    world = World(tmp_path)
    world.engine.close()
    engine = world.engine = Engine.open(
        tmp_path / "schema", options=EngineOptions(history=0.0, history_commits=1)
    )
    engine.commit([records.StorageGroupSet("root.wind")])
    load(world, 1)
    list(execute(engine, "delete storage group root.wind with data"))
    load(world, 2, group="root.sun")
    engine.collect()
    assert TableUpkeep(engine).forget() == 1
    with engine.reading() as state:
        assert [row.name for row in state.loaded_tables.rows.values()] == ["root.sun"]
        assert len(state.tablet_table.rows) == 1
    engine.close()


def test_a_checkpoint_and_the_log_give_them_as_they_were(world: World):
    engine = world.engine
    engine.commit([records.StorageGroupSet("root.gone")])
    load(world, 9, group="root.gone")
    before = engine.newest_commit
    list(execute(engine, "delete storage group root.gone with data"))
    for number in range(1, 6):
        load(world, number, partition=number * number % 5 - 2)
    expected = tables(engine), tablets(engine), tables(engine, f" at {before}")
    logged = Engine.read_only(world.root / "schema")
    engine.checkpoint()
    frozen = Engine.read_only(world.root / "schema")
    for each in (logged, frozen):
        assert (tables(each), tablets(each), tables(each, f" at {before}")) == expected
        with each.reading() as there, engine.reading() as state:
            assert there.loaded_tables.rows == state.loaded_tables.rows
            assert there.tablet_table.rows == state.tablet_table.rows
    world.engine.close()
    again = World.reopened(world.root)
    load(again, 20, partition=2)
    assert tablets(again.engine)[-1] == ("root.wind", 2, 3, 3)
    again.engine.close()
    world.engine = again.engine


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (records.TableMade("a" * 32, "root.wind"), "there is a table root.wind"),
        (records.TableMade("A" * 32, "root.sun"), "is no new id"),
        (records.TableMade("a" * 32, "root/sun"), "root/sun"),
        (records.TableDropped("a" * 32), "there is no table"),
        (records.TableForgotten("a" * 32), "there is no dropped table"),
        (records.TabletMade("a" * 32, "b" * 32, 5, 6), "there is no table"),
        (records.TabletMade("a" * 32, "wind", 6, 6), "are no partitions"),
        (records.TabletMade("a" * 32, "wind", -5, 6), "has partitions of it"),
        (records.TabletMade("a" * 32, "wind", 1 << 63, (1 << 63) + 1), "are no partitions"),
        (records.TabletMade("known", "wind", 5, 6), "is no new id"),
    ],
)
def test_what_contradicts_them_is_refused(world: World, op: records.Op, said: str):
    load(world, 1)
    engine = world.engine
    table = named(engine, "root.wind")
    with engine.reading() as state:
        (tablet,) = state.tablet_table.rows
    if isinstance(op, records.TabletMade):
        ident = tablet if op.id == "known" else op.id
        of = table.id if op.table == "wind" else op.table
        op = records.TabletMade(ident, of, op.begin, op.end)
    with pytest.raises(RefusedCommitError, match=said):
        engine.commit([op])


def test_two_tables_of_one_commit_have_not_one_name(world: World):
    ops = [records.TableMade("a" * 32, "root.sun"), records.TableMade("b" * 32, "root.sun")]
    with pytest.raises(RefusedCommitError, match="there is a table"):
        world.engine.commit(ops)


def test_two_tablets_of_one_commit_do_not_overlap(world: World):
    load(world, 1)
    table = named(world.engine, "root.wind").id
    ops = [
        records.TabletMade("a" * 32, table, 5, 9),
        records.TabletMade("b" * 32, table, 8, 10),
    ]
    with pytest.raises(RefusedCommitError, match="has partitions of it"):
        world.engine.commit(ops)


def test_what_has_times_of_a_range_is_found_by_the_times_of_its_files(world: World):
    """A flat layout, or another interval: partition 0 has a file of the times of partition 9."""
    engine, looked = world.engine, Looked(world.engine)
    load(world, 1, partition=0, at=10)
    load(world, 2, partition=0, at=95)
    load(world, 3, partition=5, at=50)
    load(world, 4, partition=9, at=90)
    load(world, 5, partition=30, at=-4)

    def found(begin: int | None, end: int | None, at: str | None = None) -> list[int]:
        page = list_tablets(looked, "root.wind", begin=begin, end=end, at=at)  # type: ignore[arg-type]
        return [each.begin for each in page.tablets]

    past = str(engine.newest_commit)
    load(world, 6, partition=40, at=400)
    for at in (None, past):
        assert found(95, 96, at) == [0]
        assert found(60, 91, at) == [0, 9]
        assert found(50, 51, at) == [0, 5]
        assert found(None, 0, at) == [30]
        assert found(9000, 9001, at) == [9], "which has no file with that time"
        assert found(96, 400, at) == [0], "that of their partition"
        assert found(1000, 2000, at) == []
    assert found(None, None) == [0, 5, 9, 30, 40]
    assert found(None, None, past) == [0, 5, 9, 30]


def test_lists_have_pages_and_name_the_gaps(world: World):
    looked = Looked(world.engine)
    for number in range(1, 6):
        load(world, number, partition=number * number, group=f"root.g{number % 2}")
    page = list_tables(looked, limit=1)  # type: ignore[arg-type]
    assert [each.name for each in page.tables] == ["root.g0"]
    rest = list_tables(looked, after=page.next)  # type: ignore[arg-type]
    assert [each.name for each in rest.tables] == ["root.g1"]
    assert rest.next is None
    by_id = list_tablets(looked, rest.tables[0].id, limit=2)  # type: ignore[arg-type]
    assert [(each.begin, each.end) for each in by_id.tablets] == [(1, 2), (9, 10)]
    assert [(each.begin, each.end) for each in by_id.gaps] == [(2, 9)]
    last = list_tablets(looked, "root.g1", after=by_id.next)  # type: ignore[arg-type]
    assert [each.begin for each in last.tablets] == [25]
    assert [(each.begin, each.end) for each in last.gaps] == [(10, 25)], "behind the page before"
    assert last.next is None
    with pytest.raises(NotFoundError, match="there is no table nowhere"):
        list_tablets(looked, "nowhere")  # type: ignore[arg-type]


def test_a_time_is_answered_by_the_tablet_that_is_to_have_it_or_as_a_gap(world: World):
    """A tablet that was made ahead has no file, and is told to who asks where a time goes."""
    engine, looked = world.engine, Looked(world.engine)
    create_table(engine, "root.ahead", (-3, -1, 7))
    past = str(engine.newest_commit)
    engine.commit([records.StorageGroupSet("root.other")])

    def found(begin: int | None, end: int | None, at: str | None) -> tuple[list[int], list[object]]:
        page = list_tablets(looked, "root.ahead", begin=begin, end=end, at=at)  # type: ignore[arg-type]
        return [each.begin for each in page.tablets], [(each.begin, each.end) for each in page.gaps]

    for at in (None, past):
        assert found(-3000, -2999, at) == ([-3], [])
        assert found(-1001, -999, at) == ([-3, -1], [])
        assert found(-3001, 0, at) == ([-3, -1], [(-4, -3)])
        assert found(6999, 9001, at) == ([-1], [(7, 10)])
        assert found(7000, 7001, at) == ([], [(7, 8)])
        assert found(7000, None, at) == ([], []), "there is no end to that one"
        assert found(7000, 7000, at) == ([], []), "no time is asked for"
        assert found(None, None, at) == ([-3, -1], [])


def test_pages_as_of_one_commit_tell_where_tablets_are_placed(world: World):
    """A page behind the first is of the past as soon as something was committed meanwhile."""
    engine, looked = world.engine, Looked(world.engine)
    create_table(engine, "root.ahead", (0, 1, 2, 3))
    node = records.NodeRegistered("a" * 32, "remote", "node", "host", 1, ("http://node",))
    engine.commit([node])
    with engine.reading() as state:
        ids = [each.id for each in state.tablet_table.of_table(named(engine, "root.ahead").id)]
    engine.commit([records.TabletPlaced(each, 1, (node.uuid,), node.uuid) for each in ids])
    first = list_tablets(looked, "root.ahead", limit=1)  # type: ignore[arg-type]
    engine.commit([records.TabletPlaced(ids[2], 2, (node.uuid,), node.uuid)])
    rest = list_tablets(  # type: ignore[call-overload]
        looked,  # type: ignore[arg-type]
        "root.ahead",
        at=str(first.commit),
        after=first.next,
    )
    assert [each.nodes for each in (*first.tablets, *rest.tablets)] == [
        (node.uuid,),
        (node.uuid,),
        (),
    ], "of the last it is not known any more"


def test_rows_of_two_senders_in_one_group_are_of_one_table(world: World):
    load(world, 1)
    path = "unsequence/root.wind/3/0/1-1-0-0.tsfile"
    world.load(SOUTH, path, build({"root.wind.d2": {"s1": [(7, 1)]}}))
    assert tables(world.engine) == [("root.wind", 1, 2, 1, 7)]


def test_look_ups_go_on_while_a_commit_waits_for_the_disk(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    load(world, 1)
    engine = world.engine
    table = named(engine, "root.wind").id
    reached, go_on = threading.Event(), threading.Event()
    flush = os.fdatasync

    def hanging(fd: int) -> None:
        reached.set()
        go_on.wait(60)
        flush(fd)

    monkeypatch.setattr(os, "fdatasync", hanging)
    writer = threading.Thread(target=load, args=(world, 2, 5))
    writer.start()
    try:
        assert reached.wait(60)
        for _ in range(1000):
            with engine.reading() as state:
                assert state.tablet_table.holding(table, 0) is not None
                assert state.tablet_table.holding(table, 5) is None, "before it is on the disk"
        assert tablets(engine) == [("root.wind", 0, 1, 1)]
    finally:
        go_on.set()
        writer.join()
    assert tablets(engine) == [("root.wind", 0, 1, 1), ("root.wind", 5, 6, 1)]
