"""Rows of files are the same when merged files are read in their place, at every commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.config import load as load_config
from common.errors import Permanent, UsageError
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.metadata.model import records
from receiver.spark.source.inferring import (
    catalogue_of,
    columns_of,
    list_sources,
    plan_of,
    read_tail_of,
)
from receiver.spark.source.read_plans.slicing import plan
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices
from receiver.spark.source.streaming import Offset, batch_files, batch_neighbours
from receiver.spark.verify.committed import CommittedFiles
from receiver.spark.verify.file_scope import FileScope
from tests.support.compacting import compact
from tests.support.spark_world import NORTH, SOUTH, World
from tests.support.tsfile_bytes import Devices, build

D1, D2 = "root.wind.d1", "root.wind.d2"
AUTO = {"compacted": "auto"}
INPUTS = {"compacted": "false"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.engine.close()


def load(
    world: World, number: int, devices: Devices, *, kind: str = "sequence",
    group: str = "root.wind", sender: str = NORTH, **more: Any,
) -> str:  # fmt: skip
    path = f"{kind}/{group}/0/0/{number}-{number}-0-0.tsfile"
    place = world.load(sender, path, build(devices, **more))
    return str(place.relative_to(world.data))


def compacted(world: World, *inputs: str, ident: int = 7, cuts: tuple[int, ...] = ()) -> list[Path]:
    return compact(world.engine, world.root / "schema", world.data, inputs, ident, cuts)


def asked(world: World, given: dict[str, str]) -> dict[str, str]:
    return {"catalog": str(world.config), **given}


def names(world: World, **given: str) -> list[str]:
    options = parse_options(asked(world, given))
    return sorted(each.name.rpartition("/")[2] for each in list_sources(options))


def rows(world: World, size: int = 1 << 30, **given: str) -> list[dict[str, Any]]:
    options = parse_options(asked(world, given))
    query = plan_of(options, columns_of(options))
    parts = plan(
        list_sources(options), query.selection.span, size, query.picker(), read_tail_of,
        merge=options.merge,
    )  # fmt: skip
    found = [
        row for part in parts for batch in read_slices(part, query) for row in batch.to_pylist()
    ]
    return sorted(found, key=repr)


def both(world: World, **given: str) -> list[dict[str, Any]]:
    """Rows, with merged files and without, in both forms."""
    for form in ("wide", "long"):
        answers = [rows(world, form=form, **given, **how) for how in (AUTO, INPUTS)]
        assert answers[0] == answers[1]
        assert len({repr(each) for each in answers[0]}) == len(answers[0])
    return rows(world, **given)


def overlapping(world: World) -> list[str]:
    """Three files of two devices, one of them aligned: late data, updates, nulls."""
    first = {
        D1: {"s1": [(1, 1), (2, 1), (3, 1)], "s2": [(2, "low")]},
        D2: {"a": [(1, 1.0), (5, 1.0)], "b": [(1, True)]},
    }
    late = {D1: {"s1": [(2, 2)], "s2": [(4, "late")]}, D2: {"a": [(5, 2.0)], "b": [(5, False)]}}
    more = {D1: {"s1": [(10, 1), (20, 1)]}}
    return [
        load(world, 1, first, aligned=[D2]),
        load(world, 2, late, kind="unsequence", aligned=[D2]),
        load(world, 3, more),
    ]


def test_a_merged_file_is_read_in_place_of_its_inputs_and_gives_their_rows(world: World) -> None:
    inputs = overlapping(world)
    before = rows(world)
    compacted(world, *inputs)
    assert names(world) == ["merged-7-0.tsfile"]
    assert len(names(world, **INPUTS)) == 3
    assert both(world) == before
    points = {each["time"]: each["s1"] for each in before if each["device"] == D1}
    assert points == {1: 1, 2: 2, 3: 1, 4: None, 10: 1, 20: 1}


def test_rows_of_tables_are_those_of_the_inputs(world: World) -> None:
    one = {("plant", "p1", None): {"a": [(1, 1), (2, 1)], "b": [(2, 1.5)]}}
    two = {("plant", "p1", None): {"a": [(2, 2)]}, ("plant", "p2", "x"): {"b": [(1, 0.5)]}}
    inputs = [load(world, n, each, group="site") for n, each in ((1, one), (2, two))]
    before = rows(world, table="/site/plant")
    assert len(before) == 3
    compacted(world, *inputs)
    assert names(world) == ["merged-7-0.tsfile"]
    assert both(world, table="/site/plant") == before
    tag = min(set(before[0]) - {"time", "device", "a", "b"})
    (found,) = both(world, table="plant", tags=f'{{"{tag}": "p2"}}')
    assert (found[tag], found["time"], found["b"]) == ("p2", 1, 0.5)


def test_as_of_an_earlier_commit_the_inputs_are_read(world: World) -> None:
    inputs = overlapping(world)
    earlier = world.engine.newest_commit
    compacted(world, *inputs)
    made = world.engine.newest_commit
    world.engine.commit([records.FileDeleted(inputs[0], "gone")])
    assert len(names(world, asOf=str(earlier))) == 3
    assert names(world, asOf=str(made)) == ["merged-7-0.tsfile"]
    assert len(names(world)) == 2
    then = [rows(world, asOf=str(each)) for each in (earlier, made)]
    assert then[0] == then[1]
    assert rows(world) != then[1]


def test_what_comes_later_stands_above_a_merged_file(world: World) -> None:
    inputs = overlapping(world)
    compacted(world, *inputs)
    load(world, 4, {D1: {"s1": [(2, 4), (3, 4)]}}, kind="unsequence")
    load(world, 5, {"root.wind.d9": {"s1": [(2, 5)]}}, sender=SOUTH)
    assert names(world)[-1] == "merged-7-0.tsfile"
    assert len(names(world)) == 3
    found = both(world)
    assert [(e["time"], e["s1"]) for e in found if e["device"] == D1 and e["time"] < 4] == [
        (1, 1), (2, 4), (3, 4),
    ]  # fmt: skip
    assert len(rows(world, size=1 << 16)) == len(found)


def test_deletions_before_are_in_a_merged_file_and_later_ones_end_it(world: World) -> None:
    inputs = overlapping(world)
    deleted(world, inputs[0], f"{D1}.s1", 3)
    before = rows(world)
    compacted(world, *inputs)
    assert names(world) == ["merged-7-0.tsfile"]
    assert both(world) == before
    deleted(world, inputs[0], f"{D1}.s2", 2)
    assert len(names(world)) == 3
    assert both(world) != before
    assert rows(world, asOf=str(world.engine.newest_commit - 1)) == before


def deleted(world: World, physical: str, series: str, time: int) -> None:
    with world.engine.reading() as state:
        row = state.files[physical]
        known = sum(len(each.content) for each in state.deletion_table.of_file(physical))
    content = f"DELETION,{series},{2**63 - 1},{time},{time}\n".encode()
    world.engine.commit(
        [records.DeletionsNoted(row.sender, row.path, physical, "mods", known, content, 0, True)]
    )


def test_retired_inputs_are_read_merged_unless_they_are_left_out(world: World) -> None:
    inputs = overlapping(world)
    world.engine.commit([records.FileRetired(inputs[2])])
    compacted(world, *inputs)
    assert names(world) == ["merged-7-0.tsfile"]
    assert len(names(world, retired="false")) == 2
    assert both(world) != both(world, retired="false")


@pytest.mark.parametrize(
    "given",
    [
        {"merge": "false"},
        {"deletions": "false"},
        {"fileColumn": "file"},
        {"kind": "sequence"},
        {"compacted": "false"},
    ],
)
def test_whoever_asks_for_what_is_stored_reads_the_inputs(
    world: World, given: dict[str, str]
) -> None:
    compacted(world, *overlapping(world))
    assert not any(each.startswith("merged") for each in names(world, **given))


def test_asked_for_the_merged_file_is_in_the_file_column(world: World) -> None:
    (output,) = compacted(world, *overlapping(world))
    found = rows(world, compacted="true", fileColumn="file")
    assert {each["file"] for each in found} == {str(output.relative_to(world.data))}
    with pytest.raises(UsageError, match="compacted = 'true'"):
        rows(world, compacted="true", merge="false")
    with pytest.raises(UsageError, match="together with catalog only"):
        parse_options({"path": "/data", "compacted": "false"})


def test_what_is_asked_for_is_read_of_the_outputs_that_have_it(world: World) -> None:
    compacted(world, *overlapping(world), cuts=(3, 6))
    assert len(names(world)) == 3
    options = parse_options(asked(world, {"startTime": "7", "devices": D1}))
    picker = plan_of(options, columns_of(options)).picker()
    taken = [each.name for each in list_sources(options) if picker.takes_file(each)]
    assert [each.rpartition("-")[2] for each in taken] == ["2.tsfile"]
    assert [each["time"] for each in both(world, startTime="7", devices=D1)] == [10, 20]


@pytest.mark.parametrize("hurt", [Path.unlink, lambda path: path.write_bytes(b"TsFile")])
def test_a_merged_file_that_is_not_whole_here_is_not_read(world: World, hurt: Any) -> None:
    before = overlapping(world), rows(world)
    outputs = compacted(world, *before[0], cuts=(6,))
    assert len(names(world)) == 2
    hurt(outputs[1])
    assert len(names(world)) == 3
    assert rows(world) == before[1]


def test_of_files_with_nothing_left_nothing_is_read(world: World) -> None:
    name = load(world, 1, {D1: {"s1": [(1, 1)]}})
    deleted(world, name, f"{D1}.s1", 1)
    assert compacted(world, name) == []
    assert names(world) == []
    assert rows(world, form="long") == []


def test_a_merged_file_that_goes_behind_the_plan_is_missed(world: World) -> None:
    (output,) = compacted(world, *overlapping(world))
    options = parse_options(asked(world, {}))
    query = plan_of(options, columns_of(options))
    (part,) = plan(
        list_sources(options), query.selection.span, 1 << 30, query.picker(), read_tail_of,
        merge=True,
    )  # fmt: skip
    output.unlink()
    with pytest.raises(Permanent, match=r"merged-7-0.tsfile: not there any more"):
        list(read_slices(part, query))


def test_deletion_files_beside_a_merged_file_are_not_of_it(world: World) -> None:
    inputs = overlapping(world)
    (output,) = compacted(world, *inputs)
    Path(f"{output}.mods").write_text(f"DELETION,{D1}.**,{2**63 - 1},0,99\n")
    assert both(world)


def test_streams_verification_and_the_inventory_have_the_files_that_were_loaded(
    world: World,
) -> None:
    inputs = overlapping(world)
    compacted(world, *inputs)
    with catalogue_of(parse_options(asked(world, {}))) as catalogue:
        begin = Offset(catalogue.uuid, 0, 0)
        end = Offset(catalogue.uuid, catalogue.newest, catalogue.newest)
        assert sorted(each.name for each in batch_files(catalogue, begin, end)) == sorted(inputs)
        assert not batch_neighbours(catalogue, begin, end, batch_files(catalogue, begin, end))
    config = load_config(
        ReceiverConfig, file=world.config, env_prefix=ENV_PREFIX, environ={}, flags={}
    ).value
    with CommittedFiles(config, FileScope()) as committed:
        assert sorted(each.expected.physical for each in committed.files) == sorted(inputs)
