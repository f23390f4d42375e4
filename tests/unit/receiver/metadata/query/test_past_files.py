"""Which files were there at a commit: exactly those that readers saw then, whatever came later."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.model.ranks import NOW, Rank
from receiver.metadata.query.past_files import files_at
from tests.support.spark_world import NORTH, World
from tests.support.tsfile_bytes import build

PATH = "sequence/root.wind/0/0/{0}-{0}-0-0.tsfile"
CONTENT = build({"root.wind.d1": {"s1": [(1, 1)]}})


@pytest.fixture
def world(tmp_path: Path):
    world = World(tmp_path)
    yield world
    world.engine.close()


def load(world: World, number: int) -> tuple[str, int]:
    """(physical path, commit) of a new file."""
    place = world.load(NORTH, PATH.format(number), CONTENT)
    return str(place.relative_to(world.data)), world.engine.newest_commit


def seen(engine: Engine, at: int, since: int = 0) -> tuple[list[str], list[str]]:
    past = files_at(engine, at, since=since)
    return [each.physical for each in past.visible], [each.physical for each in past.quarantined]


def test_each_commit_shows_what_readers_saw_at_it(world: World):
    engine = world.engine
    a, _ = load(world, 1)
    b, _ = load(world, 2)
    c, loaded = load(world, 3)
    model = {loaded: (sorted([a, b, c]), [])}

    def then(op: records.Op, visible: list[str], held: list[str]) -> None:
        model[engine.commit([op])] = (sorted(visible), held)

    then(records.FileQuarantined(a, "bad"), [b, c], [a])
    then(records.FileQuarantined(b, "bad"), [c], sorted([a, b]))
    then(records.FileRetired(c), [c], sorted([a, b]))
    then(records.FileRestored(a), [a, c], [b])
    then(records.FileDeleted(a, "gone"), [c], [b])
    then(records.FileDeleted(b, "replaced"), [c], [])
    then(records.FileQuarantined(c, "bad"), [], [c])
    then(records.FileDeleted(c, "operator"), [], [])
    with Engine.read_only(world.root / "schema") as beside:
        for reader in (engine, beside):
            for at, expected in model.items():
                assert seen(reader, at) == expected
    assert seen(engine, loaded - 1)[0] == sorted([a, b])
    assert files_at(engine, loaded << 1).commit == engine.newest_commit


def test_only_what_was_loaded_after_a_commit_is_shown_if_so_wanted(world: World):
    _, first = load(world, 1)
    b, second = load(world, 2)
    load(world, 3)
    assert seen(world.engine, second, first)[0] == [b]
    assert seen(world.engine, first, first) == ([], [])


def test_a_time_before_the_history_is_an_error_of_its_own(world: World):
    engine = world.engine
    a, loaded = load(world, 1)
    b, _ = load(world, 2)
    engine.commit([records.FileDeleted(a, "gone")])
    engine.close()
    with Engine.open(
        world.root / "schema", options=EngineOptions(history=0), background=False
    ) as reopened:
        with pytest.raises(HistoryGoneError):
            files_at(reopened, loaded)
        assert seen(reopened, reopened.newest_commit)[0] == [b]


def test_a_file_whose_row_is_gone_is_not_left_out_in_silence(world: World):
    a, loaded = load(world, 1)
    load(world, 2)
    world.engine.commit([records.FileDeleted(a, "gone")])
    world.engine.commit([records.FileForgotten(a)])
    with pytest.raises(HistoryGoneError, match="have left the disk since"):
        files_at(world.engine, loaded)


def test_nor_is_one_that_was_in_quarantine_before_its_row_went(world: World):
    a, loaded = load(world, 1)
    load(world, 2)
    for op in (
        records.FileQuarantined(a, "rot"),
        records.FileDeleted(a, "operator"),
        records.FileForgotten(a),
    ):
        world.engine.commit([op])
    with pytest.raises(HistoryGoneError, match="have left the disk since"):
        files_at(world.engine, loaded)


def test_what_was_hidden_deleted_and_brought_back_was_visible_until_it_was_deleted_again(
    world: World,
):
    engine = world.engine
    a, _ = load(world, 1)
    engine.commit([records.FileQuarantined(a, "bad")])
    engine.commit([records.FileDeleted(a, "operator")])
    back = engine.commit([records.FileUndeleted(a, [records.DeviceRange("root.wind.d1", 1, 1)])])
    engine.commit([records.FileDeleted(a, "operator")])
    past = files_at(engine, back)
    assert [row.physical for row in past.visible] == [a]
    assert past.quarantined == []


# -- ranks -----------------------------------------------------------------------------------------


def ranks(engine: Engine, at: int) -> dict[str, Rank]:
    past = files_at(engine, at)
    return {row.physical: row.rank for row in (*past.visible, *past.quarantined)}


def test_each_commit_ranks_by_what_was_true_then(world: World):
    engine = world.engine
    load(world, 1)
    load(world, 2)
    a, loaded = load(world, 3)
    product = PATH.format(3).replace("-0-0", "-1-0")
    model = {loaded: ranks(engine, loaded)}

    def then(*ops: records.Op) -> None:
        now = engine.commit(list(ops))
        model[now] = ranks(engine, now)

    then(records.FileRetired(a, loaded - 1))
    then(records.FileReturned(a))
    then(records.FileNamed(a, product))
    then(records.FileQuarantined(a, "bad"))
    then(records.FileRestored(a))
    then(records.FileUnnamed(a, PATH.format(3), loaded + 5))
    then(records.FileNamed(a, PATH.format(7), loaded + 7))
    then(records.FileRetired(a))
    then(records.FileReturned(a, PATH.format(9), loaded + 9))
    then(records.FileDeleted(a, "gone"))
    then(records.FileUndeleted(a, [records.DeviceRange("root.wind.d1", 1, 1)]))
    assert {rank[a].last == NOW for rank in model.values() if a in rank} == {True, False}
    with Engine.read_only(world.root / "schema") as beside:
        for reader in (engine, beside):
            for at, expected in model.items():
                assert ranks(reader, at) == expected


def test_a_file_that_came_back_and_was_retired_before_the_history_was_retired_then(world: World):
    a, loaded = load(world, 1)
    world.engine.commit([records.FileRetired(a, loaded - 1)])
    b, _ = load(world, 2)
    world.engine.close()
    options = EngineOptions(history=0, history_commits=2)
    with Engine.open(world.root / "schema", options=options, background=False) as engine:
        at = engine.commit([records.FileQuarantined(b, "bad")])
        engine.commit([records.FileReturned(a)])
        engine.collect()
        assert loaded < engine.oldest_answerable <= at
        assert ranks(engine, engine.newest_commit)[a].last == NOW
        assert ranks(engine, at)[a].last < at
