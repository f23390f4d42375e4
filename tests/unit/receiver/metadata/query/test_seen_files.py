"""`show files` and `show partitions`: what readers see at a commit, with its begin and its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.query import seen_files as module
from receiver.metadata.query.answers import Answer
from receiver.metadata.query.file_tree import directories_of, ends_of
from receiver.metadata.query.past_files import files_at
from receiver.metadata.query.questions import ShowFiles
from receiver.metadata.sql.executing import execute
from tests.support.spark_world import NORTH, World
from tests.support.tsfile_bytes import build


@pytest.fixture
def world(tmp_path: Path):
    world = World(tmp_path)
    yield world
    world.engine.close()


def load(world: World, number: int, device: str = "root.wind.d1", partition: int = 0) -> str:
    group = device.rpartition(".")[0]
    path = f"sequence/{group}/0/{partition}/{number}-{number}-0-0.tsfile"
    place = world.load(NORTH, path, build({device: {"s1": [(number, 1)]}}))
    return str(place.relative_to(world.data))


def shown(engine: Engine, text: str) -> list[str]:
    return [row[0] for row in execute(engine, text)]


def test_a_file_and_the_one_in_its_place_meet_at_one_timestamp(world: World):
    """The block 22 of the seed: `deleteAt` of the old one is `createAt` of the new one."""
    engine = world.engine
    old = load(world, 1)
    begun = engine.newest_commit
    new = old.replace("/1-1-", "/2-2-")
    with engine.reading() as state:
        row = state.files[old]
    loaded = records.FileLoaded(
        **{
            each: getattr(row, each)
            for each in records.FileLoaded.__struct_fields__
            if each not in ("physical", "path", "devices", "owner", "others")
        },
        physical=new,
        path="sequence/root.wind/0/0/2-2-0-0.tsfile",
        devices=[records.DeviceRange("root.wind.d1", 1, 1)],
    )
    replaced = engine.commit([records.FileDeleted(old, "replaced"), loaded])
    with Engine.read_only(world.root / "schema") as beside:
        for reader in (engine, beside):
            then = list(execute(reader, f"show files at {replaced - 1}"))
            assert [(row[0], row[8], row[9]) for row in then] == [(old, begun, replaced)]
            now = list(execute(reader, f"show files at {replaced}"))
            assert [(row[0], row[8], row[9]) for row in now] == [(new, replaced, None)]
            assert list(execute(reader, "show files")) == now


def test_each_answer_is_as_of_its_commit_whatever_is_committed_between_its_pages(world: World):
    engine = world.engine
    names = [load(world, number) for number in range(1, 8)]
    answer = Answer(engine, ShowFiles())
    got = [row[0] for row in answer.fetch(2)]
    load(world, 9)
    engine.commit([records.FileDeleted(names[3], "gone"), records.FileQuarantined(names[0], "bad")])
    got += [row[0] for row in answer.fetch(3)]
    engine.commit([records.FileDeleted(names[6], "gone")])
    got += [row[0] for row in answer.fetch(100)]
    assert got == names
    assert len(shown(engine, "show files")) == 5


def test_what_is_kept_of_the_past_for_the_next_pages_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "_AHEAD", 2)
    names = [load(world, number) for number in range(1, 8)]
    at = world.engine.newest_commit
    world.engine.commit([records.FileDeleted(names[0], "gone")])
    answer = Answer(world.engine, ShowFiles(at=at, limit=6, offset=1))
    got = []
    while rows := answer.fetch(1):
        got += [row[0] for row in rows]
        assert len(answer.place.position.ahead) <= 2
    assert got == names[1:]


def test_a_path_means_files_of_a_storage_group_or_with_a_device(world: World):
    engine = world.engine
    a, b = load(world, 1, "root.wind.d1"), load(world, 2, "root.wind.d2")
    c = load(world, 3, "root.sun.d1")
    assert shown(engine, "show files") == sorted([a, b, c])
    assert shown(engine, "show files root.**") == sorted([a, b, c])
    assert shown(engine, "show files root.wind") == [a, b]
    assert shown(engine, "show files root.wind.d2") == [b]
    assert shown(engine, "show files root.*.d1") == sorted([a, c])
    assert shown(engine, "show files root.s*") == [c]
    assert shown(engine, "show files root.win") == []


def test_partitions_are_those_with_files_and_have_their_sums(world: World):
    engine = world.engine
    a = load(world, 1, partition=7)
    begun = engine.newest_commit
    b = load(world, 2, partition=7)
    before = engine.newest_commit
    load(world, 3, partition=-1)
    engine.commit([records.FileDeleted(a, "gone")])
    with engine.reading() as state:
        sizes = {each: state.files[each].size for each in (a, b)}
        rows = state.files.values()
        made = {row.physical: row.created for row in rows}
    now = list(execute(engine, "show partitions root.wind limit 5"))
    assert [row[:4] for row in now] == [("root.wind", "0", -1, 1), ("root.wind", "0", 7, 1)]
    assert now[1] == ("root.wind", "0", 7, 1, sizes[b], made[b])
    then = list(execute(engine, f"show partitions at {before}"))
    assert then == [("root.wind", "0", 7, 2, sizes[a] + sizes[b], begun)]


def test_a_directory_ends_with_the_last_file_in_it_and_not_with_one_that_is_replaced(world: World):
    engine = world.engine
    a = load(world, 1)
    at = engine.newest_commit
    b = load(world, 2)
    engine.commit([records.FileDeleted(a, "gone")])
    empty = engine.commit([records.FileQuarantined(b, "bad")])
    engine.commit([records.FileRestored(b)])
    last = engine.commit([records.FileQuarantined(b, "bad")])
    engine.commit([records.FileDeleted(b, "gone")])
    partition = directories_of(a)[-1]
    assert partition == ("partition", "root.wind/0/0", "root.wind")
    seen = {partition: [row.physical for row in files_at(engine, at).visible]}
    assert ends_of(seen, engine.log_since(at)) == {partition: empty}
    assert ends_of({partition: [b]}, engine.log_since(empty)) == {partition: last}
    assert ends_of({partition: [b, "another"]}, engine.log_since(at)) == {}
