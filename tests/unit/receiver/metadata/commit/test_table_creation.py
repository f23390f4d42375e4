"""Tables made by hand: all of one or nothing, one of a name, and what may be said of them later."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from common import crash
from receiver.load.upkeep.table_upkeep import TableUpkeep
from receiver.metadata.commit import committer
from receiver.metadata.commit.table_creation import TableAlteration, alter_table, create_table
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import (
    RefusedCommitError,
    StorageGroupNestedError,
    TableExistsError,
    TableMissingError,
    TableRefusedError,
    TtlRefusedError,
)
from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow
from tests.support.spark_world import NORTH, World
from tests.support.tsfile_bytes import build


@pytest.fixture
def world(tmp_path: Path):
    world = World(tmp_path)
    yield world
    world.engine.close()


def row(engine: Engine, name: str = "root.wind") -> LoadedTableRow | None:
    with engine.reading() as state:
        return state.loaded_tables.named(name)


def runs(engine: Engine, name: str = "root.wind") -> list[tuple[int, int]]:
    found = row(engine, name)
    with engine.reading() as state:
        rows = [] if found is None else state.tablet_table.of_table(found.id)
    return [(each.begin, each.end) for each in rows]


def load(world: World, number: int, partition: int, group: str = "root.wind") -> None:
    path = f"sequence/{group}/0/{partition}/{number}-{number}-0-0.tsfile"
    world.load(NORTH, path, build({f"{group}.d1": {"s1": [(number, 1)]}}))


def test_a_table_is_made_with_its_tablets_and_files_come_to_these(world: World):
    ident, commit = create_table(world.engine, "root.wind", [10, 14, 15], replicas=2)
    made = row(world.engine)
    assert made is not None
    assert (made.id, made.created, made.replicas, made.version) == (ident, commit, 2, commit)
    with world.engine.reading() as state:
        assert state.schema.groups.of(("root", "wind", "d1")) == ("root", "wind")
    load(world, 1, 12)
    load(world, 2, 20)
    assert runs(world.engine) == [(10, 14), (14, 15), (20, 21)]
    assert len(world.engine.window.commits) >= 1
    world.engine.checkpoint()
    again = Engine.read_only(world.root / "schema")
    assert (row(again), runs(again)) == (row(world.engine), runs(world.engine))


def test_a_database_of_the_table_model_is_a_table_too(world: World):
    create_table(world.engine, "plant", [1, 2])
    with world.engine.reading() as state:
        assert state.schema.groups.of(("root", "/plant")) == ("root", "/plant")
    assert runs(world.engine, "plant") == [(1, 2)]


@pytest.mark.parametrize(
    ("name", "splits", "replicas", "said"),
    [
        ("root", (), None, "no name of a table"),
        ("", (), None, "no name of a table"),
        ("root..wind", (), None, "no name of a table"),
        ("root.a/b", (), None, "no name of a table"),
        ("..", (), None, "no name of a table"),
        ("root.wind", (5,), None, "bounds no tablet"),
        ("root.wind", (5, 5), None, "have to increase"),
        ("root.wind", (5, 9, 7), None, "have to increase"),
        ("root.wind", (5, 2000), None, "partitions at most"),
        ("root.wind", (1 << 60, (1 << 60) + 1), None, "no partitions of any time"),
        ("root.wind", range(10_002), None, "at most are made at once"),
        ("root.wind", (1, 2), 0, "expected 1 to 16"),
        ("root.wind", (1, 2), 17, "expected 1 to 16"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_there_of_it(
    world: World, name: str, splits: tuple[int, ...], replicas: int | None, said: str
):
    before = world.engine.newest_commit
    with pytest.raises(TableRefusedError, match=said):
        create_table(world.engine, name, splits, replicas=replicas)
    assert world.engine.newest_commit == before


def test_a_name_is_taken_once_and_free_again_when_its_storage_group_has_gone(world: World):
    engine = world.engine
    first, _ = create_table(engine, "root.wind", [1, 2])
    with pytest.raises(TableExistsError):
        create_table(engine, "root.wind", [5, 6])
    engine.delete_storage_group("root.wind")
    assert row(engine) is None
    second, _ = create_table(engine, "root.wind", [1, 2])
    assert second != first
    load(world, 1, 1, "root.sun")
    with pytest.raises(TableExistsError):  # one that a load has made
        create_table(engine, "root.sun", [])


def test_a_name_inside_of_a_storage_group_is_none(world: World):
    world.engine.set_storage_group("root.wind")
    for name in ("root.wind.north", "root"):
        with pytest.raises((StorageGroupNestedError, TableRefusedError)):
            create_table(world.engine, name, [1, 2])
    world.engine.set_storage_group("root.sea.north")
    with pytest.raises(StorageGroupNestedError):
        create_table(world.engine, "root.sea", [1, 2])


def test_of_two_that_make_one_name_at_once_one_is_told_that_it_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Both have seen that the name is free; they are committed in one order."""
    seen = threading.Barrier(2)
    commit = world.engine.commit

    def late(ops, guards=()):  # type: ignore[no-untyped-def]
        seen.wait(60)
        return commit(ops, guards)

    monkeypatch.setattr(world.engine, "commit", late)
    ends: list[object] = []

    def make(splits: list[int]) -> None:
        try:
            ends.append(create_table(world.engine, "root.wind", splits)[0])
        except TableExistsError as error:
            ends.append(error)

    threads = [threading.Thread(target=make, args=([n, n + 1],)) for n in (1, 7)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(isinstance(each, TableExistsError) for each in ends) == [False, True]
    assert len(runs(world.engine)) == 1


def test_a_table_that_is_made_while_its_storage_group_goes_has_one_or_is_gone_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    engine = world.engine
    engine.set_storage_group("root.wind")
    engine.set_ttl("root.wind", 5000)
    commit = engine.commit

    def late(ops, guards=()):  # type: ignore[no-untyped-def]
        monkeypatch.undo()
        engine.delete_storage_group("root.wind")
        return commit(ops, guards)

    monkeypatch.setattr(engine, "commit", late)
    create_table(engine, "root.wind", [1, 2])
    with engine.reading() as state:
        assert state.schema.groups.of(("root", "wind")) == ("root", "wind")
    made = row(engine)
    assert made is not None
    assert made.ttl is None  # that was of the group before
    engine.delete_storage_group("root.wind")
    assert row(engine) is None


@pytest.mark.parametrize(
    ("place", "is_there"),
    [("mlog.commit.before", False), ("mlog.commit.durable", True), ("mlog.commit.published", True)],
)
def test_a_death_at_any_step_of_the_making_leaves_all_of_a_table_or_nothing(
    world: World, place: str, is_there: bool
):
    def die(here: str) -> None:
        if here == place:
            raise crash.SimulatedCrash(here)

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        create_table(world.engine, "root.wind", [1, 2, 3], replicas=2)
    world.engine.close()
    again = World.reopened(world.root)
    world.engine = again.engine
    assert runs(again.engine) == ([(1, 2), (2, 3)] if is_there else [])
    if not is_there:
        create_table(again.engine, "root.wind", [1, 2, 3], replicas=2)
    made = row(again.engine)
    assert made is not None
    assert made.replicas == 2


def test_what_is_altered_raises_the_version_and_what_is_not_makes_no_commit(world: World):
    engine = world.engine
    ident, _ = create_table(engine, "root.wind", [1, 2])
    made = row(engine)
    assert made is not None
    assert made.version == 0
    commit = alter_table(engine, "root.wind", TableAlteration(replicas=3, splits=(2, 4)))
    altered = row(engine)
    assert altered is not None
    assert (altered.replicas, altered.version) == (3, commit)
    assert runs(engine) == [(1, 2), (2, 4)]
    assert alter_table(engine, ident, TableAlteration(replicas=3)) == commit
    alter_table(engine, ident, TableAlteration(is_as_configured=True))
    again = row(engine)
    assert again is not None
    assert again.replicas is None
    assert again.version > commit
    with pytest.raises(TableRefusedError, match="partitions 2 to 3 have a tablet, and one from 3"):
        alter_table(engine, "root.wind", TableAlteration(replicas=2, splits=(3, 9)))
    assert row(engine) == again
    with pytest.raises(TableMissingError):
        alter_table(engine, "root.sun", TableAlteration(replicas=2))
    with pytest.raises(TableRefusedError):
        alter_table(engine, "root.wind", TableAlteration(replicas=99))


def test_a_ttl_of_the_storage_group_is_one_of_its_table_from_the_same_commit_on(world: World):
    engine = world.engine
    create_table(engine, "root.wind", [1, 2], replicas=2)
    commit = engine.set_ttl("root.wind", 5000)
    known = row(engine)
    assert known is not None
    assert (known.ttl, known.replicas, known.version) == (5000, 2, commit)
    assert engine.set_ttl("root.wind", 5000) > commit
    assert row(engine) == known  # nothing that a node would have to hear
    engine.set_ttl("root.wind", None)
    after = row(engine)
    assert after is not None
    assert (after.ttl, after.version) == (None, engine.newest_commit)
    with pytest.raises(TtlRefusedError):
        engine.commit([records.TableTtlSet(known.id, 0)])
    # Twice in one commit: the last word counts.
    engine.commit([records.TtlSet("root.wind", 7), records.TtlSet("root.wind", None)])
    last = row(engine)
    assert last is not None
    assert last.ttl is None


def test_a_table_that_comes_into_a_group_with_a_ttl_has_it(world: World):
    engine = world.engine
    for name in ("root.wind", "root.sun"):
        engine.set_storage_group(name)
        engine.set_ttl(name, 9000)
    create_table(engine, "root.wind", [1, 2])
    load(world, 1, 1, "root.sun")
    for name in ("root.wind", "root.sun"):
        known = row(engine, name)
        assert known is not None
        assert (known.ttl, known.version) == (9000, known.created)
    engine.delete_storage_group("root.wind")
    create_table(engine, "root.wind", [1, 2])
    anew = row(engine)
    assert anew is not None
    assert anew.ttl is None


def test_a_ttl_of_before_is_taken_over_at_the_next_start(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    create_table(world.engine, "root.wind", [1, 2])
    with monkeypatch.context() as patch:  # as a version before had it
        patch.setattr(committer, "with_tablets", lambda _, ops: ops)
        world.engine.set_ttl("root.wind", 100)
    known = row(world.engine)
    assert known is not None
    assert known.ttl is None
    assert TableUpkeep(world.engine).take_over() == 1
    after = row(world.engine)
    assert after is not None
    assert after.ttl == 100
    assert TableUpkeep(world.engine).take_over() == 0


def test_what_is_said_of_no_table_is_refused(world: World):
    for op in (records.TableReplicasSet("a" * 32, 2), records.TableTtlSet("a" * 32, 5)):
        with pytest.raises(RefusedCommitError, match="there is no table"):
            world.engine.commit([op])
    ident, _ = create_table(world.engine, "root.wind", [1, 2])
    with pytest.raises(RefusedCommitError, match="expected 1 to 16"):
        world.engine.commit([records.TableReplicasSet(ident, 17)])
