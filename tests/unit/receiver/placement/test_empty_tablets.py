"""Tablets that no file is in any more, or came to: dropped here and at nodes, then forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import crash
from receiver.load.upkeep import table_upkeep
from receiver.load.upkeep.table_upkeep import TableUpkeep
from receiver.metadata.commit.draft import examine
from receiver.metadata.commit.table_creation import create_table
from receiver.metadata.commit.touched import Touched
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.query.row_source import Look
from receiver.metadata.query.seen_tables import seen_tables, seen_tablets
from tests.support.copy_nodes import CopyCentre, Machine
from tests.support.spark_world import World

PLANNED = "e" * 32


@pytest.fixture
def centre(tmp_path: Path):
    centre = CopyCentre(tmp_path, lost_after=60.0)
    yield centre
    centre.close()


def upkeep_of(centre: CopyCentre) -> TableUpkeep:
    def said(row: object, machine: Machine) -> bool:
        return getattr(row, "id", None) in centre.reports.get(machine.uuid, {})

    upkeep = TableUpkeep(centre.engine, keep_empty=100.0, every=0.0)
    upkeep.has_gone = lambda row: not any(said(row, each) for each in centre.nodes)
    return upkeep


def age(centre: CopyCentre, seconds: float) -> float:
    """The time so many seconds behind the newest commit."""
    with centre.engine.reading() as state:
        return state.clock.times.seconds(state.newest) + seconds


def planned(centre: CopyCentre, partition: int = 7) -> str:
    """A file in partition 0, and a tablet that a plan has made for another one."""
    physical = centre.load(0)
    with centre.engine.reading() as state:
        [table] = state.loaded_tables.there()
    centre.engine.commit([records.TabletMade(PLANNED, table.id, partition, partition + 1)])
    centre.settle()
    return physical


def many(centre: CopyCentre, count: int) -> TableUpkeep:
    """So many tablets without a file; two of them go at once."""
    planned(centre)
    with centre.engine.reading() as state:
        [table] = state.loaded_tables.there()
    ids = [f"{each:032x}" for each in range(1, count)]
    ops = [records.TabletMade(each, table.id, at, at + 1) for at, each in enumerate(ids, 20)]
    centre.engine.commit(ops)
    return TableUpkeep(centre.engine, keep_empty=100.0)


def test_many_empty_tablets_do_not_wait_an_hour_for_each_few(
    centre: CopyCentre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More may come in an hour than are looked for at once."""
    upkeep = many(centre, 5)
    monkeypatch.setattr(table_upkeep, "_AT_ONCE", 2)
    now = age(centre, 1000.0)
    assert [upkeep.drop_empty(now + each) for each in range(4)] == [2, 2, 1, 0]
    assert there(centre) == [(0, 1)]


def test_tablets_that_nodes_have_files_of_keep_no_others(
    centre: CopyCentre, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = many(centre, 5)
    monkeypatch.setattr(table_upkeep, "_AT_ONCE", 2)
    upkeep.is_empty = lambda row: row.begin not in (7, 20, 21)
    now = age(centre, 1000.0)
    assert sum(upkeep.drop_empty(now + each) for each in range(4)) == 2
    assert there(centre) == [(0, 1), (7, 0), (20, 0), (21, 0)]


def past(centre: CopyCentre) -> None:
    """The history ends here."""
    for _ in range(3):
        centre.engine.commit([records.KeysWritten((), {"k": "v"})])
    with centre.engine.reading():
        centre.engine.window.move(centre.engine.newest_commit)


def there(centre: CopyCentre, at: int | None = None) -> list[tuple[int, int]]:
    """First partition and files of each tablet that is told of."""
    rows = seen_tablets(Look(centre.engine, at or centre.engine.newest_commit))
    return [(each.row.begin, each.total.files) for each in rows]


def test_a_tablet_of_a_plan_that_no_file_came_to_goes_and_its_table_stays(centre: CopyCentre):
    centre.add(), centre.add()
    physical = planned(centre)
    upkeep = upkeep_of(centre)
    assert upkeep.drop_empty(age(centre, 99.0)) == 0  # its files may be on their way
    before = centre.engine.newest_commit
    assert all(PLANNED in each.store.tablets() for each in centre.nodes)
    assert upkeep.drop_empty(age(centre, 101.0)) == 1
    assert there(centre) == [(0, 1)]
    assert there(centre, before) == [(0, 1), (7, 0)]
    centre.settle()
    assert all(PLANNED not in each.store.tablets() for each in centre.nodes)
    assert len(centre.has(physical)) == 2
    assert centre.assignment.last.strange == frozenset()
    assert upkeep.forget_tablets() == 0  # the past is told of still
    past(centre)
    assert upkeep.forget_tablets() == 1
    with centre.engine.reading() as state:
        assert PLANNED not in state.tablet_table.rows
        assert PLANNED not in state.placement_table.rows


def test_a_tablet_whose_files_are_past_and_forgotten_goes_too(centre: CopyCentre):
    """Else each partition that has expired left one, at nodes as well, for good."""
    centre.add(), centre.add()
    old = centre.load(1)
    new = centre.load(2)
    centre.settle()
    upkeep = upkeep_of(centre)
    centre.end(old, forget=False)
    centre.settle()
    assert upkeep.drop_empty(age(centre, 1000.0)) == 0  # the file may be asked for, at its time
    centre.engine.commit([records.FileForgotten(old)])
    centre.settle()
    assert upkeep.drop_empty(age(centre, 1000.0)) == 1
    centre.settle()
    assert there(centre) == [(2, 1)]
    assert [each.names() for each in centre.nodes] == [[new], [new]]
    assert [len(each.store.tablets()) for each in centre.nodes] == [1, 1]


def test_what_was_made_by_hand_stays_without_files(centre: CopyCentre):
    centre.add(), centre.add()
    create_table(centre.engine, "root.wind", [0, 2])
    centre.settle()
    assert upkeep_of(centre).drop_empty(age(centre, 1000.0)) == 0
    [tablet] = centre.tablets()
    with pytest.raises(RefusedCommitError, match="made by hand"):
        centre.engine.commit([records.TabletDropped(tablet)])


def test_a_table_whose_last_tablet_went_is_there_and_takes_files(centre: CopyCentre):
    centre.add(), centre.add()
    centre.end(centre.load(1))
    centre.settle()
    assert upkeep_of(centre).drop_empty(age(centre, 1000.0)) == 1
    found = seen_tables(Look(centre.engine, centre.engine.newest_commit))
    assert [(each.row.name, each.tablets) for each in found] == [("root.wind", 0)]
    physical = centre.load(1)
    centre.settle()
    assert there(centre) == [(1, 1)]
    assert len(centre.has(physical)) == 2


def test_there_is_a_look_for_empty_ones_every_hour(centre: CopyCentre):
    """It goes over all of them, and there may be millions; a clock that was set back stops none."""
    upkeep = TableUpkeep(centre.engine, keep_empty=100.0)
    now = age(centre, 1000.0)
    assert upkeep.drop_empty(now) == 0
    planned(centre)
    assert upkeep.drop_empty(now + 3599.0) == 0
    assert upkeep.drop_empty(now + 3600.0) == 1
    centre.end(centre.load(9))
    assert upkeep.drop_empty(now + 10.0) == 1


def test_those_that_nodes_have_files_of_keep_no_others_from_going(
    centre: CopyCentre, monkeypatch: pytest.MonkeyPatch
):
    """So it is where a master was restored from an older copy: nodes have what it never knew."""
    monkeypatch.setattr(table_upkeep, "_AT_ONCE", 3)
    centre.load(0)
    with centre.engine.reading() as state:
        [table] = state.loaded_tables.there()
    made = [records.TabletMade(f"{n:032x}", table.id, n, n + 1) for n in range(10, 20)]
    centre.engine.commit(made)
    upkeep = upkeep_of(centre)
    held = {each.id for each in made[:5]}
    upkeep.is_empty = lambda row: row.id not in held
    later = age(centre, 1000.0)
    assert [upkeep.drop_empty(later + each) for each in range(3)] == [3, 2, 0]
    assert [begin for begin, _ in there(centre)] == [0, 10, 11, 12, 13, 14]


def test_a_file_that_comes_while_its_tablet_goes_has_one(centre: CopyCentre):
    planned(centre)
    upkeep = upkeep_of(centre)
    came: list[str] = []
    upkeep.is_empty = lambda _: bool(came.append(centre.load(7)) or True)
    assert upkeep.drop_empty(age(centre, 1000.0)) == 0
    assert there(centre) == [(0, 1), (7, 1)]
    assert came


def test_no_file_is_loaded_in_one_batch_with_the_end_of_its_tablet(centre: CopyCentre):
    """Each commit of a batch is judged by what stood before it: the file would be in none."""
    planned(centre)
    with centre.engine.reading() as state:
        dropped = examine(state, [records.TabletDropped(PLANNED)])
        other = examine(state, [records.KeysWritten((), {"k": "v"})])
    together = Touched()
    together.add(dropped)
    assert not together.allows(other)
    assert not dropped.leaves_alone(other)
    assert not other.leaves_alone(dropped)


@pytest.mark.parametrize("state", ["deleted", "in quarantine", "superseded"])
def test_a_tablet_with_a_file_that_readers_do_not_see_stays(centre: CopyCentre, state: str):
    physical = centre.load(3)
    if state == "deleted":
        centre.end(physical, forget=False)
    elif state == "in quarantine":
        centre.engine.commit([records.FileQuarantined(physical, "damaged")])
    else:
        centre.engine.commit([records.FileRetired(physical, 1)])
        centre.engine.commit([records.FileSuperseded(physical, ())])
    assert there(centre) == [(3, 0)]
    assert upkeep_of(centre).drop_empty(age(centre, 1000.0)) == 0
    with pytest.raises(RefusedCommitError, match="has files"):
        centre.engine.commit([records.TabletDropped(centre.tablets()[0])])


def test_a_node_that_was_offline_drops_it_when_it_comes(centre: CopyCentre):
    centre.add(), centre.add()
    planned(centre)
    away = centre.nodes[0]
    away.is_silent = True
    upkeep = upkeep_of(centre)
    assert upkeep.drop_empty(age(centre, 1000.0)) == 1
    centre.settle()
    past(centre)
    assert upkeep.forget_tablets() == 0  # else it would be unknown when the node comes
    away.is_silent = False
    centre.settle()
    assert PLANNED not in away.store.tablets()
    assert upkeep.forget_tablets() == 1


def test_what_a_node_has_in_a_tablet_that_was_empty_here_stays_and_is_shown(centre: CopyCentre):
    """It is of a master that knew more, or the node was restored: nobody has looked at it."""
    centre.add(), centre.add()
    old = centre.load(1)
    centre.settle()
    node, [tablet] = centre.nodes[0], centre.tablets()
    node.is_silent = True
    centre.end(old)
    centre.settle()  # the other one lets go of it
    assert upkeep_of(centre).drop_empty(age(centre, 1000.0)) == 1
    node.is_silent = False
    centre.settle()
    assert centre.assignment.last.strange == {(node.uuid, tablet)}
    assert node.files(tablet) == [old]
    assert tablet not in centre.nodes[1].store.tablets()


def test_a_master_that_dies_behind_the_flag_goes_on_in_its_next_life(centre: CopyCentre):
    centre.add(), centre.add()
    planned(centre)

    def die(place: str) -> None:
        if place == "reaper.tablet_dropped":
            raise crash.SimulatedCrash(place)

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        upkeep_of(centre).drop_empty(age(centre, 1000.0))
    centre.engine.checkpoint()
    centre.assignment.close()
    centre.engine.close()
    centre.world = World.reopened(centre.world.root)
    centre.live()
    assert there(centre) == [(0, 1)]
    centre.settle()
    assert all(PLANNED not in each.store.tablets() for each in centre.nodes)
    past(centre)
    assert upkeep_of(centre).forget_tablets() == 1
    centre.engine.close()
    centre.world = World.reopened(centre.world.root)
    centre.live()
    assert len(centre.tablets()) == 1


@pytest.mark.parametrize(
    ("ops", "said"),
    [
        ([records.TabletDropped("a" * 32)], "there is no tablet"),
        ([records.TabletDropped(PLANNED), records.TabletDropped(PLANNED)], "goes twice"),
        ([records.TabletForgotten(PLANNED)], "there is no dropped tablet"),
        (
            [
                records.TabletDropped(PLANNED),
                records.TabletPlaced(PLANNED, 3, ("1" * 32,), "1" * 32),
            ],
            "is placed by|there is no",
        ),
    ],
)
def test_what_contradicts_them_is_refused(
    centre: CopyCentre, ops: list[records.Op], said: str
) -> None:
    centre.add(), centre.add()
    planned(centre)
    with pytest.raises(RefusedCommitError, match=said):
        centre.engine.commit(ops)


def test_what_was_dropped_is_placed_and_dropped_no_more(centre: CopyCentre):
    node = centre.add()
    planned(centre)
    centre.engine.commit([records.TabletDropped(PLANNED)])
    for op in (
        records.TabletDropped(PLANNED),
        records.TabletPlaced(PLANNED, 2, (node.uuid,), node.uuid),
    ):
        with pytest.raises(RefusedCommitError, match="there is no tablet"):
            centre.engine.commit([op])
    centre.engine.commit([records.TabletForgotten(PLANNED)])
    with pytest.raises(RefusedCommitError, match="there is no dropped tablet"):
        centre.engine.commit([records.TabletForgotten(PLANNED)])


def test_a_table_that_goes_behind_its_tablet_takes_both_along(centre: CopyCentre):
    centre.add(), centre.add()
    physical = planned(centre)
    centre.engine.commit([records.TabletDropped(PLANNED)])
    with centre.engine.reading() as state:
        [table] = state.loaded_tables.there()
    centre.end(physical)
    centre.engine.commit([records.TableDropped(table.id)])
    centre.settle()
    past(centre)
    upkeep = upkeep_of(centre)
    assert upkeep.forget_tablets() == 0
    assert upkeep.forget() == 1
    with centre.engine.reading() as state:
        assert state.tablet_table.rows == state.placement_table.rows == {}
        assert state.tablet_table.dropped() == []
    assert [each.on_disk() for each in centre.nodes] == [[], []]
