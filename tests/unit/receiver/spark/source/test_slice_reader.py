"""A file that cannot be read fails, is left out, or becomes a row; what can be read is read."""

from __future__ import annotations

import datetime
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import GreaterThan

from common.errors import TsferryError, UsageError
from receiver.points import DamagedData
from receiver.spark.source.datasource import TsFileBatchReader
from receiver.spark.source.file_opening import ChangedFileError, MissingFileError
from receiver.spark.source.inferring import columns_of, list_sources, plan_of
from receiver.spark.source.read_plans.result_columns import ResultColumn
from receiver.spark.source.read_plans.selection import TimeRange
from receiver.spark.source.read_plans.slicing import Slice
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices
from tests.support.tsfile_bytes import build

D1, D2 = "root.a.d1", "root.a.d2"
ROWS = {D1: {"s1": [(1, 10), (2, 20)], "s2": [(2, "x" * 40)]}, D2: {"s1": [(3, 30)]}}


def read(path: Path, schema: str | None = None, **given: str) -> list[dict[str, Any]]:
    options = parse_options({"path": str(path), **given})
    columns = columns_of(options) if schema is None else _columns(schema)
    plan = plan_of(options, columns)
    slices = [Slice(each.for_worker(), plan.selection.span) for each in list_sources(options)]
    return [row for batch in read_slices(slices, plan) for row in batch.to_pylist()]


def _columns(schema: str) -> list[ResultColumn]:
    return [ResultColumn(*each.split(" ")) for each in schema.split(", ")]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    (tmp_path / "a.tsfile").write_bytes(build(ROWS))
    return tmp_path


@pytest.fixture
def hurt(good: Path) -> Path:
    """One page of one series is damaged, and one file is no TsFile."""
    content = bytearray(build(ROWS))
    content[content.index(b"x" * 40) - 2] ^= 0xFF
    (good / "a.tsfile").write_bytes(content)
    (good / "cut.tsfile").write_bytes(content[:-9])
    return good


def test_a_schema_chooses_columns_and_rows_of_the_tree_have_a_value(good: Path):
    assert read(good, "s2 string, time bigint") == [{"s2": "x" * 40, "time": 2}]
    times = read(good, "time bigint, device string")
    assert [(each["time"], each["device"]) for each in times] == [(1, D1), (2, D1), (3, D2)]
    assert read(good, "time bigint, nope double") == []


def test_a_schema_may_be_wider_and_must_not_be_another(tmp_path: Path):
    types = {"i": "INT32", "f": "FLOAT"}
    content = build({D1: {"i": [(1, 7)], "f": [(1, 0.5)]}}, types=types)
    (tmp_path / "a.tsfile").write_bytes(content)
    assert read(tmp_path, "i bigint, f double") == [{"i": 7, "f": 0.5}]
    assert read(tmp_path, "i double") == [{"i": 7.0}]
    for skip in ("fail", "skip"):
        with pytest.raises(UsageError, match="column i is INT32 here, which is no string"):
            read(tmp_path, "i string", onError=skip)
    with pytest.raises(UsageError, match="schema: column device = int: expected string"):
        read(tmp_path, "device int, i int")
    with pytest.raises(UsageError, match=r"schema: column i = decimal\(10,0\): expected one of"):
        read(tmp_path, "i decimal(10,0)")
    with pytest.raises(UsageError, match="schema: column i: expected some of device, measurement"):
        read(tmp_path, "i int", form="long")


def test_rows_of_a_table_stay_without_the_columns_that_are_asked_for(tmp_path: Path):
    content = build({("plant", "p1"): {"a": [(1, 1)], "b": [(2, 2)]}, ("plant", "p2"): {
        "b": [(3, 3)]}})  # fmt: skip
    (tmp_path / "a.tsfile").write_bytes(content)
    assert read(tmp_path, columns="a") == [
        {"time": 1, "tag1": "p1", "a": 1},
        {"time": 2, "tag1": "p1", "a": None},
        {"time": 3, "tag1": "p2", "a": None},
    ]
    assert read(tmp_path, "device string, TAG1 string, time bigint", startTime="3") == [
        {"device": "plant:p2", "TAG1": "p2", "time": 3}
    ]


def test_every_type_has_its_column_in_the_long_form(tmp_path: Path):
    values = {
        "BOOLEAN": True, "INT32": 1, "INT64": 2, "FLOAT": 0.25, "DOUBLE": 0.1, "TEXT": "t",
        "STRING": "s", "BLOB": b"\xff", "DATE": 20240229, "TIMESTAMP": 5,
    }  # fmt: skip
    content = build(
        {D1: {name: [(1, value)] for name, value in values.items()}},
        types={name: name for name in values},
    )
    (tmp_path / "a.tsfile").write_bytes(content)
    found = {}
    for row in read(tmp_path, form="long", fileColumn="file"):
        assert (row["device"], row["time"], row["file"]) == (D1, 1, str(tmp_path / "a.tsfile"))
        assert row["measurement"] == row["data_type"]
        ((column, value),) = [
            (key, each) for key, each in row.items() if key[:6] == "value_" and each is not None
        ]
        found[row["data_type"]] = (column, value)
    assert found == {
        "BOOLEAN": ("value_boolean", True), "INT32": ("value_long", 1), "INT64": ("value_long", 2),
        "TIMESTAMP": ("value_long", 5), "FLOAT": ("value_double", 0.25),
        "DOUBLE": ("value_double", 0.1), "TEXT": ("value_string", "t"),
        "STRING": ("value_string", "s"), "BLOB": ("value_binary", b"\xff"),
        "DATE": ("value_date", datetime.date(2024, 2, 29)),
    }  # fmt: skip
    binary = read(tmp_path, form="long", text="binary", columns="TEXT")
    assert [each["value_binary"] for each in binary] == [b"t"]


def test_damage_fails_with_its_place(hurt: Path):
    with pytest.raises(DamagedData, match=r"a\.tsfile, device root\.a\.d1, series s2, chunk at"):
        read(hurt / "a.tsfile", form="long")
    with pytest.raises(TsferryError, match=r"cut\.tsfile"):
        read(hurt / "cut.tsfile", form="long")


def test_damage_becomes_a_row_or_nothing_and_the_rest_is_read(hurt: Path):
    points = [(D1, "s1", 1), (D1, "s1", 2), (D2, "s1", 3)]

    def keys(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [(each["device"], each["measurement"], each["time"]) for each in rows]

    assert keys(read(hurt, form="long", onError="skip")) == points
    rows = read(hurt, form="long", onError="row", fileColumn="file")
    assert keys([each for each in rows if each["_error"] is None]) == points
    bad = [each for each in rows if each["_error"] is not None]
    bad.sort(key=lambda each: each["file"])
    assert [(each["device"], Path(each["file"]).name) for each in bad] == [
        (D1, "a.tsfile"), (None, "cut.tsfile"),
    ]  # fmt: skip
    assert "series s2, chunk at" in bad[0]["_error"]
    assert bad[0]["measurement"] is None
    wide = read(hurt / "a.tsfile", onError="row", errorColumn="why")
    assert [(each["device"], each["why"] is None) for each in wide] == [(D1, False), (D2, True)]


def test_a_file_that_went_or_changed_since_it_was_listed_is_named(good: Path):
    options = parse_options({"path": str(good), "form": "long"})
    plan = plan_of(options, columns_of(options))
    (file,) = list_sources(options)
    path = Path(file.locations[0])
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(ChangedFileError, match="when it was listed"):
        list(read_slices([Slice(file, TimeRange())], plan))
    path.unlink()
    with pytest.raises(MissingFileError, match="not there any more"):
        list(read_slices([Slice(file, TimeRange())], plan))


def test_what_was_deleted_is_left_out_unless_it_is_asked_for(good: Path):
    (good / "a.tsfile.mods").write_text(f"DELETION,{D1}.s1,9223372036854775807,0,1\n")
    assert [each["time"] for each in read(good, columns="s1")] == [2, 3]
    assert [each["time"] for each in read(good, columns="s1", deletions="false")] == [1, 2, 3]


@pytest.mark.parametrize("form", ["long", "wide"])
def test_a_name_of_great_length_makes_small_batches(tmp_path: Path, form: str):
    path, name = tmp_path / "a.tsfile", f"root.{'n' * 100_000}"
    path.write_bytes(build({name: {"s": [(t, t) for t in range(1000)]}}))
    options = parse_options({"path": str(path), "form": form})
    query = plan_of(options, columns_of(options))
    slices = [Slice(each.for_worker(), TimeRange()) for each in list_sources(options)]
    batches = list(read_slices(slices, query))
    assert sum(batch.num_rows for batch in batches) == 1000
    assert max(batch.nbytes for batch in batches) < 64 << 20


@pytest.mark.parametrize(("on_error", "left"), [("fail", 0), ("row", 1)])
def test_filters_stay_with_spark_where_a_row_may_stand_for_an_error(
    good: Path, on_error: str, left: int
):
    options = parse_options({"path": str(good), "onError": on_error, "pushFilters": "true"})
    reader = TsFileBatchReader(plan_of(options, columns_of(options)), frozenset())
    assert len(reader.push([GreaterThan(("time",), 1)])) == left
    assert reader._plan.selection.span == TimeRange(2)


def test_a_torn_deletion_is_said(good: Path, caplog: pytest.LogCaptureFixture):
    (good / "a.tsfile.mods").write_text("DELETION,root.a.d1.s1,9223372036854775807,1,1\nDELET")
    assert [row["time"] for row in read(good, columns="s1", devices=D1)] == [2]
    assert "ends within a deletion" in caplog.text


def test_a_plan_of_another_version_is_not_guessed_at(good: Path):
    options = parse_options({"path": str(good)})
    plan = replace(plan_of(options, columns_of(options)), version="0.0.1")
    with pytest.raises(UsageError, match=r" has tsferry .*, the driver 0\.0\.1: install the same"):
        read_slices([], plan)


@pytest.mark.parametrize("form", ["long", "wide"])
def test_a_broken_index_is_named_before_and_in_a_task(tmp_path: Path, form: str):
    content = bytearray(build({D1: {"s": [(t, f"v{t}") for t in range(4)]}}, chunks=2))
    at = content.rindex(b"\x02v2\x00\x00\x00\x02v3") - 3  # statistics of the second chunk
    content[at] = 0x70  # a length that leads out of the file
    (tmp_path / "a.tsfile").write_bytes(content)
    with pytest.raises(
        TsferryError, match=r"a\.tsfile.*corrupt|corrupt.*a\.tsfile|more than is left"
    ):
        read(tmp_path, form=form)


_WORKER = """
import sys
from receiver.spark.source.inferring import list_sources, plan_of
from receiver.spark.source.read_plans.result_columns import ResultColumn
from receiver.spark.source.slice_reader import read_slices
from receiver.spark.source.read_plans.slicing import Slice
from receiver.spark.source.read_plans.source_options import parse_options

options = parse_options({"path": sys.argv[1]})
columns = [("time", "bigint"), ("device", "string"), ("s1", "bigint")]
plan = plan_of(options, [ResultColumn(*each) for each in columns])
slices = [Slice(each.for_worker(), plan.selection.span) for each in list_sources(options)]
print(sum(each.num_rows for each in read_slices(slices, plan)), "pandas" in sys.modules)
"""


@pytest.mark.slow
def test_a_worker_that_reads_files_does_not_wait_for_pandas(good: Path):
    command = [sys.executable, "-c", _WORKER, str(good)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["3", "False"]
