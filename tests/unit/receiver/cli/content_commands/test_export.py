"""`export`: what is written, what is refused, and what is left of one that is cut off."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.console.cli import run
from common.console.json_form import json_form
from common.durable import Tree, WriteFile
from common.tsfile import DataType, read_tail
from receiver.cli.commands import cli
from receiver.exporting.export_run import ExportManifest
from receiver.metadata.model import records
from receiver.metadata.sql.executing import execute
from receiver.points import Column, TsFileReader
from receiver.storage.stores.object_keys import stored_key
from receiver.writing.device_writers import PlainDeviceWriter
from tests.support.compacting import compact
from tests.support.disk import CHANGING, NAMING, Faults, heal
from tests.support.machine import Machine
from tests.support.spark_world import NORTH, SOUTH, World
from tests.support.tsfile_bytes import build

FIRST, SECOND = "sequence/root.a/0/0/1-1-0-0.tsfile", "sequence/root.a/0/0/2-2-0-0.tsfile"
LATE = "unsequence/root.a/0/0/3-3-0-0.tsfile"
D1, D2 = "root.a.d1", "root.a.d2"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "centre")
    yield made
    made.engine.close()


class Caller:
    """Runs `export` on a world."""

    def __init__(self, world: World, capsys: pytest.CaptureFixture[str], into: Path) -> None:
        self._config, self._capsys, self.into = str(world.config), capsys, into

    def __call__(self, *arguments: str, code: int = 0) -> str:
        words = ["--config", self._config, "export", str(self.into), *arguments]
        got = run(cli, "tsferry-receiver", words)
        out = self._capsys.readouterr()
        assert got == code, (got, out)
        return out.out if code == 0 else out.err

    def asked(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def call(world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Caller:
    return Caller(world, capsys, tmp_path / "out")


def filled(world: World) -> World:
    """Two files that follow each other and a late one over both."""
    world.load(NORTH, FIRST, build({D1: {"s1": [(1, 1), (2, 1)]}}), registered=True)
    world.load(NORTH, SECOND, build({D1: {"s1": [(5, 2), (6, 2)]}, D2: {"x": [(5, 0.5)]}},
                                    aligned=[D2]), registered=True)  # fmt: skip
    world.load(NORTH, LATE, build({D1: {"s1": [(2, 3), (6, 3)]}}), registered=True)
    return world


def points(into: Path) -> dict[tuple[str, str, int], Any]:
    found: dict[tuple[str, str, int], Any] = {}
    for path in sorted(into.rglob("*.tsfile")):
        with TsFileReader(path) as reader:
            for device in reader.tail.devices:
                for series in device.series():
                    for batch in reader.read_series(device, series.measurement):
                        for time, value in zip(*batch.to_pydict().values(), strict=True):
                            found[device.name, series.measurement, time] = value
    return found


ALL = {
    (D1, "s1", 1): 1,
    (D1, "s1", 2): 3,
    (D1, "s1", 5): 2,
    (D1, "s1", 6): 3,
    (D2, "x", 5): 0.5,
}


def files(into: Path) -> list[str]:
    return sorted(str(each.relative_to(into)) for each in into.rglob("*") if each.is_file())


def test_a_directory_has_each_point_once_its_schema_and_what_it_holds(
    world: World, call: Caller
) -> None:
    filled(world)
    told = call.asked()
    assert points(call.into) == ALL
    (file,) = told["files"]
    assert (told["inputs"], told["points"], file["devices"], file["series"]) == (3, 5, 2, 2)
    content = (call.into / file["path"]).read_bytes()
    assert (file["size"], file["md5"]) == (len(content), hashlib.md5(content).hexdigest())
    tail = read_tail(content)
    assert {each.name: each.aligned for each in tail.devices} == {D1: False, D2: True}
    kept = msgspec.json.decode((call.into / "manifest.json").read_bytes(), type=ExportManifest)
    assert json_form(kept) == told
    names = ["manifest.json", "schema.sql", file["path"], f"{file['path']}.resource"]
    assert files(call.into) == sorted(names)
    assert file["path"].startswith("sequence/root.a/0/0/")
    assert (call.into / "schema.sql").read_text().splitlines() == [
        "CREATE DATABASE root.a;",
        "CREATE TIMESERIES root.a.d1.s1 WITH DATATYPE=INT64, ENCODING=PLAIN, "
        "COMPRESSOR=UNCOMPRESSED;",
        "CREATE ALIGNED TIMESERIES root.a.d2(x DOUBLE ENCODING=PLAIN COMPRESSOR=UNCOMPRESSED);",
    ]


def test_of_the_past_there_is_what_was_there_then(world: World, call: Caller) -> None:
    world.load(NORTH, FIRST, build({D1: {"s1": [(1, 1), (2, 1)]}}), registered=True)
    then = world.engine.newest_commit
    world.load(NORTH, LATE, build({D1: {"s1": [(2, 3)]}, D2: {"x": [(1, 1)]}}), registered=True)
    assert call.asked("--at", str(then))["request"]["commit"] == str(then)
    assert points(call.into) == {(D1, "s1", 1): 1, (D1, "s1", 2): 1}
    assert D2 not in (call.into / "schema.sql").read_text()


def test_times_and_paths_leave_out_what_is_not_meant(world: World, call: Caller) -> None:
    filled(world)
    call("--from", "2", "--to", "1970-01-01T00:00:00.005Z", "--path", "root.*.d1.**")
    assert points(call.into) == {k: v for k, v in ALL.items() if k[0] == D1 and 2 <= k[2] <= 5}


def test_a_dry_run_says_what_would_be_merged_and_makes_nothing(world: World, call: Caller) -> None:
    filled(world)
    assert call.asked("--dry-run")["inputs"] == 3
    assert "3 files" in call("--dry-run")
    assert not call.into.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--path", ""), "it is empty"),
        (("--path", "root.a.d1"), "no committed file has such a series"),
        (("--path", "root.nobody.**"), "root.nobody.**"),
        (("--at", "12"), "at these times, as of commit 12;"),
        (("--at", "then"), "error: --at 'then': expected an integer, or a time"),
        (("--from", "3", "--to", "2"), "no time lies between"),
        (("--from", "yesterday"), "error: --from 'yesterday': expected an integer, or a time"),
        (("--file-bytes", "much"), "expected a size"),
        (("--catalog", "/nowhere"), "there is nothing"),
    ],
)
def test_what_cannot_be_meant_is_named_and_makes_nothing(
    world: World, call: Caller, arguments: tuple[str, ...], said: str
) -> None:
    filled(world)
    assert said in call(*arguments, code=2)
    assert not call.into.exists()


def test_a_directory_with_something_in_it_is_left_alone(world: World, call: Caller) -> None:
    filled(world)
    call.into.mkdir()
    (call.into / "mine").write_text("x")
    assert "expected an empty or a new directory" in call(code=2)
    assert files(call.into) == ["mine"]
    (call.into / "mine").unlink()
    call()
    assert "expected an empty or a new directory" in call(code=2)


def test_an_input_that_cannot_be_read_is_named_and_no_output_gets_its_name(
    world: World, call: Caller
) -> None:
    filled(world)
    place = next((world.data / "unsequence").rglob("3-3*.tsfile"))
    content = place.read_bytes()
    place.write_bytes(content[:20] + b"\xff" * 20 + content[40:])
    assert "3-3-0-0" in call(code=3)
    assert not list(call.into.rglob("*.tsfile"))
    place.unlink()
    assert "3-3-0-0" in call(code=1)
    place.write_bytes(content)
    call()
    assert points(call.into) == ALL


@pytest.mark.parametrize("part", ["page", "index", "footer"])
@pytest.mark.parametrize("most", [1, 100])
def test_a_merged_file_that_is_bad_is_not_read_and_what_it_was_made_of_is(
    world: World, call: Caller, caplog: pytest.LogCaptureFixture, part: str, most: int
) -> None:
    """Its size is right; of outputs that had their names when it was met none stays."""
    filled(world)
    with world.engine.reading() as state:
        inputs = [each.physical for each in state.files.values()]
    (place,) = compact(world.engine, world.root / "schema", world.data, inputs, 7)
    content = bytearray(place.read_bytes())
    with TsFileReader(place) as reader:  # D2, which is written last, is the one that is met bad
        (device,) = [each for each in reader.tail.devices if each.name == D2]
        begin = min(chunk.offset for series in device.series() for chunk in series.chunks)
        at = {"page": begin + 20, "index": reader.tail.meta_offset, "footer": -8}[part]
        at %= len(content)
    content[at : at + 8] = bytes(each ^ 0x55 for each in content[at : at + 8])
    place.write_bytes(content)
    told = call.asked("--file-points", str(most))
    assert points(call.into) == ALL
    assert any(place.name in said and "what it was made of" in said for said in caplog.messages)
    named = {each["path"] for each in told["files"]}
    assert {each for each in files(call.into) if each.endswith(".tsfile")} == named
    next(world.data.rglob("3-3-0-0.*.tsfile")).unlink()
    shutil.rmtree(call.into)
    assert "3-3-0-0" in call(code=1), "of the files themselves none can be missed"


def test_outputs_of_a_try_that_made_more_of_them_do_not_stay_beside_others(
    world: World, call: Caller
) -> None:
    filled(world)
    place = next((world.data / "sequence").rglob("2-2*.tsfile"))
    content = place.read_bytes()
    place.write_bytes(content.replace(b"?\xe0", b"?\xe1", 1))
    call("--file-points", "1", code=3)
    (begun,) = call.into.rglob("*-1-0-0.tsfile")
    shutil.copy(begun, begun.with_name(begun.name.replace("-1-0-0", "-9-0-0")))
    place.write_bytes(content)
    told = call.asked("--file-points", "1")
    named = {each["path"] for each in told["files"]}
    assert {each for each in files(call.into) if each.endswith(".tsfile")} == named
    assert points(call.into) == ALL


def test_what_was_written_is_compared_with_what_was_merged(
    world: World, call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(world)
    real = PlainDeviceWriter.write

    def wrong(self: Any, form: Any, times: Any, column: Column) -> None:
        real(self, form, times, Column(column.data_type, column.values + 1))

    monkeypatch.setattr(PlainDeviceWriter, "write", wrong)
    assert "is not what was merged" in call(code=1)
    assert files(call.into) == ["export.journal", "export.json", "export.lock"]


def test_a_type_that_holds_the_other_is_written_and_two_that_do_not_are_named(
    world: World, call: Caller, tmp_path: Path
) -> None:
    narrow = build({D1: {"s1": [(1, 1), (2, 1)]}}, types={"s1": "INT32"})
    world.load(NORTH, FIRST, narrow)
    world.load(NORTH, LATE, build({D1: {"s1": [(2, 3)]}}))
    call()
    assert points(call.into) == {(D1, "s1", 1): 1, (D1, "s1", 2): 3}
    world.load(NORTH, SECOND, build({D1: {"s1": [(5, "x")]}}))
    call.into = tmp_path / "other"
    said = call("--file-bytes", "1GiB", code=1)
    assert "root.a.d1.s1: " in said
    assert "TEXT in sequence/root.a" in said
    assert files(call.into) == []
    call("--to", "4")


def test_a_call_that_never_can_be_carried_out_leaves_the_directory_to_another(
    world: World, call: Caller
) -> None:
    world.load(NORTH, FIRST, build({D1: {"s1": [(1, b"x")], "s2": [(1, 1)]}}, types={"s1": "BLOB"}))
    assert "version 3 has no BLOB" in call("--version", "3", code=2)
    assert not list(call.into.iterdir())
    call("--version", "3", "--path", f"{D1}.s2")


def test_tables_are_of_version_4_and_have_statements_of_their_own(
    world: World, call: Caller
) -> None:
    place = "sequence/plant/0/0/{0}-{0}-0-0.tsfile"
    world.load(NORTH, place.format(1), build({("t", "u1"): {"h": [(1, 1.5), (2, 2.5)]}}))
    world.load(NORTH, place.format(2), build({("t", "u1"): {"w": [(2, "x"), (3, "y")]}}))
    assert "version 3 has no tables" in call("--version", "3", code=2)
    told = call.asked()
    assert points(call.into) == {
        ("t:u1", "h", 1): 1.5, ("t:u1", "h", 2): 2.5, ("t:u1", "w", 2): "x", ("t:u1", "w", 3): "y",
    }  # fmt: skip
    assert told["files"][0]["path"].startswith("sequence/plant/0/0/")
    made, used, table = (call.into / "tables.sql").read_text().splitlines()
    assert (made, used) == ('CREATE DATABASE IF NOT EXISTS "plant";', 'USE "plant";')
    assert table.endswith('STRING TAG, "h" DOUBLE FIELD, "w" TEXT FIELD);')


def test_tables_whose_tags_have_two_orders_are_named(world: World, call: Caller) -> None:
    """Their devices have tags by place: in one file some would have those of others."""
    place, week = "sequence/plant/0/{1}/{0}-{0}-0-0.tsfile", 604_800_000
    world.load(NORTH, place.format(1, 0), build({("t", "a", "b"): {"h": [(1, 1.5)]}}))
    other = build({("t", "b", "a"): {"h": [(week, 1.5)]}})
    other = other.replace(b"tag1", b"tagX").replace(b"tag2", b"tag1").replace(b"tagX", b"tag2")
    world.load(NORTH, place.format(2, 1), other)
    said = call(code=1)
    assert "table t: it has the tags tag1, tag2, and in sequence/plant/0/1 tag2, tag1" in said
    assert not list(call.into.iterdir())
    call("--to", "1")


def test_a_column_has_one_type_in_every_file_and_statement(world: World, call: Caller) -> None:
    place, week = "sequence/plant/0/{1}/{0}-{0}-0-0.tsfile", 604_800_000
    narrow = build({("t", "u1"): {"h": [(1, 1)]}}, types={"h": "INT32"})
    world.load(NORTH, place.format(1, 0), narrow)
    world.load(NORTH, place.format(2, 1), build({("t", "u2"): {"h": [(week, 2**40)]}}))
    call()
    assert points(call.into) == {("t:u1", "h", 1): 1, ("t:u2", "h", week): 2**40}
    assert '"h" INT64 FIELD' in (call.into / "tables.sql").read_text()
    for each in call.into.rglob("*.tsfile"):
        with TsFileReader(each) as reader:
            (column,) = (one for one in reader.tail.tables[0].columns if one.name == "h")
            (series,) = (one for one in reader.tail.devices[0].series() if one.measurement)
            assert {int(column.data_type), int(series.data_type)} == {DataType.INT64}
    world.load(NORTH, place.format(3, 1), build({("t", "u3"): {"h": [(week, "x")]}}))
    call.into = call.into.with_name("other")
    assert "table t, column h: INT64 FIELD, and in" in call(code=1)


def test_statements_of_tables_have_each_column_of_any_partition_and_no_paths_of_them(
    world: World, call: Caller
) -> None:
    place = "sequence/plant/0/{1}/{0}-{0}-0-0.tsfile"
    day = 604_800_000
    world.load(NORTH, place.format(1, 0), build({("t", "u1"): {"h": [(1, 1.5)]}}))
    world.load(NORTH, place.format(2, 1), build({("t", "u1"): {"w": [(day, "x")]}}))
    world.load(NORTH, FIRST, build({D1: {"s1": [(1, 1)]}}), registered=True)
    execute(world.engine, "set storage group to root.`/plant`")
    execute(world.engine, "create timeseries root.`/plant`.t.`:u1`.h with datatype=DOUBLE")
    execute(world.engine, "set ttl to root.`/plant` 31536000000")
    call.asked()
    made, used, table = (call.into / "tables.sql").read_text().splitlines()
    assert made == 'CREATE DATABASE IF NOT EXISTS "plant" WITH (TTL=31536000000);'
    assert used == 'USE "plant";'
    assert table.endswith('STRING TAG, "h" DOUBLE FIELD, "w" TEXT FIELD);')
    assert "plant" not in (call.into / "schema.sql").read_text()
    assert "root.a.d1.s1" in (call.into / "schema.sql").read_text()


def test_every_step_may_fail_and_the_same_call_goes_on(
    world: World, call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(world)
    world.load(SOUTH, "sequence/root.b/0/0/1-1-0-0.tsfile", build({"root.b.d": {"z": [(1, 1)]}}))
    wanted = {**ALL, ("root.b.d", "z", 1): 1}
    for at in range(1, 200, 6):
        call.into = call.into.with_name(f"out{at}")
        with monkeypatch.context() as patch:
            faults = Faults(patch)
            faults.fail(errno.ENOSPC, at, *CHANGING, *NAMING, once=False)
            code = run(cli, "tsferry-receiver", call_words(world, call.into))
        heal(monkeypatch)
        for path in call.into.rglob("*.tsfile"):
            assert read_tail(path).complete, at
        if code == 0:
            break
        if files(call.into)[:1] != ["manifest.json"]:  # else only the last flush has failed
            call()
        assert points(call.into) == wanted, at
        assert not [each for each in files(call.into) if each.endswith((".tmp", ".journal"))]
    else:
        pytest.fail("it never came to its end")
    assert at > 30


def call_words(world: World, into: Path) -> list[str]:
    return ["--config", str(world.config), "export", str(into)]


def test_an_unfinished_one_goes_on_as_of_its_commit_and_is_nobody_elses(
    world: World, call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(world)
    then = world.engine.newest_commit
    with monkeypatch.context() as patch:

        def cut_off(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(Tree, "rename", cut_off)
        call(code=130)
    assert files(call.into)[:3] == ["export.journal", "export.json", "export.lock"]
    assert not list(call.into.rglob("*.tsfile"))
    world.load(NORTH, "sequence/root.a/0/0/9-9-0-0.tsfile", build({D1: {"s1": [(9, 9)]}}))
    assert "it is another one" in call("--path", "root.a.d1.*", code=2)
    assert call.asked()["request"]["commit"] == str(then)
    assert points(call.into) == ALL


def test_an_output_is_on_the_disk_before_it_has_its_name(
    world: World, call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(world)
    seen: list[str] = []
    sync, rename = WriteFile.sync, Tree.rename

    def synced(self: WriteFile) -> None:
        sync(self)
        seen.append(os.readlink(f"/proc/self/fd/{self.fileno()}"))

    def renamed(self: Tree, source: str, target: str, **more: Any) -> None:
        if target.endswith(".tsfile"):
            assert str(call.into / source) in seen
            seen.append(target)
        rename(self, source, target, **more)

    monkeypatch.setattr(WriteFile, "sync", synced)
    monkeypatch.setattr(Tree, "rename", renamed)
    call()
    assert [each for each in seen if each.endswith(".tsfile")]


def test_copies_in_a_store_are_exported_with_no_receiver_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    machine = Machine(tmp_path / "one", bucket, capsys)
    machine.fill()
    here = machine.asked("export", str(tmp_path / "here"))
    shutil.rmtree(machine.world.data)
    there = machine.asked("export", str(tmp_path / "there"), "--catalog", bucket.as_uri())
    assert [each["digest"] for each in there["files"]] == [each["digest"] for each in here["files"]]
    assert points(tmp_path / "there") == points(tmp_path / "here") != {}
    assert files(tmp_path / "there") == files(tmp_path / "here")


def test_what_is_in_the_object_store_only_is_read_from_there(
    world: World, call: Caller, tmp_path: Path
) -> None:
    filled(world)
    call()
    expected, bucket = points(call.into), tmp_path / "bucket"
    with world.engine.reading() as state:
        rows = list(state.files.values())
    world.engine.commit([
        records.FileUploaded(row.physical, 1, row.size, "", "") for row in rows
    ])  # fmt: skip
    with world.engine.reading() as state:
        keys = [stored_key(state.uuid, state.uploaded_table.rows[row.physical]) for row in rows]
    for row, key in zip(rows, keys, strict=True):
        (bucket / key).parent.mkdir(parents=True, exist_ok=True)
        (world.data / row.physical).rename(bucket / key)
    with world.config.open("a") as config:
        config.write(f'[storage]\nurl = "{bucket.as_uri()}"\n')
    call.into = tmp_path / "again"
    call()
    assert points(call.into) == expected


def test_a_series_that_its_file_has_in_back_ticks_is_made_by_the_name_that_it_is_loaded_under(
    world: World, call: Caller
) -> None:
    world.load(NORTH, FIRST, build({D1: {"`a b`": [(1, 1)]}}), registered=True)
    call("--path", f"{D1}.`a b`")
    assert points(call.into) == {(D1, "`a b`", 1): 1}
    assert f"CREATE TIMESERIES {D1}.`a b` WITH" in (call.into / "schema.sql").read_text()
