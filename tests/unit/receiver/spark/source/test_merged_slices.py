"""Files that overlap give each time once, in both forms; what cannot be read hides nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from receiver.points import DamagedData
from receiver.spark.source.inferring import columns_of, list_sources, plan_of, read_tail_of
from receiver.spark.source.read_plans.overlapping import MergeSlice
from receiver.spark.source.read_plans.result_columns import ResultColumn
from receiver.spark.source.read_plans.slicing import plan
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices
from tests.support.tsfile_bytes import build

D1 = "root.a.d1"


def read(path: Path, schema: str | None = None, **given: str) -> list[dict[str, Any]]:
    options = parse_options({"path": str(path), **given})
    if schema is None:
        columns = columns_of(options)
    else:
        columns = [ResultColumn(*each.split(" ")) for each in schema.split(", ")]
    query = plan_of(options, columns)
    parts = plan(
        list_sources(options), query.selection.span, 1 << 30, query.picker(), read_tail_of,
        merge=True,
    )  # fmt: skip
    slices = [each for part in parts for each in part]
    assert any(isinstance(each, MergeSlice) for each in slices)
    return [row for batch in read_slices(slices, query) for row in batch.to_pylist()]


def put(root: Path, number: int, content: bytes, kind: str = "sequence") -> Path:
    place = root / f"{kind}/root.a/0/0/{number}-{number}-0-0.tsfile"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return place


@pytest.fixture
def hurt(tmp_path: Path) -> Path:
    """The upper one has a damaged page of one of two series."""
    put(tmp_path, 1, build({D1: {"s1": [(1, 1), (2, 1)], "s2": [(1, "low"), (2, "low")]}}))
    content = bytearray(build({D1: {"s1": [(2, 2)], "s2": [(2, "x" * 40)]}}))
    content[content.index(b"x" * 40) - 2] ^= 0xFF
    put(tmp_path, 2, bytes(content), "unsequence")
    return tmp_path


def test_damage_names_its_file_and_spoils_no_other_series(hurt: Path):
    with pytest.raises(DamagedData, match=r"unsequence/root.a/0/0/2-2-0-0.tsfile"):
        read(hurt)
    rows = read(hurt, form="long", onError="row", fileColumn="file")
    told = [each["file"] for each in rows if each["_error"] is not None]
    assert told == [str(hurt / "unsequence/root.a/0/0/2-2-0-0.tsfile")]
    points = [(each["time"], each["value_long"]) for each in rows if each["measurement"] == "s1"]
    assert points == [(1, 1), (2, 2)]


def test_a_file_that_cannot_be_opened_hides_nothing(hurt: Path):
    upper = hurt / "unsequence/root.a/0/0/2-2-0-0.tsfile"
    upper.write_bytes(build({D1: {"s1": [(2, 2)]}}))
    options = parse_options({"path": str(hurt), "onError": "skip"})
    query = plan_of(options, columns_of(options))
    ((part,),) = plan(
        list_sources(options), query.selection.span, 1 << 30, query.picker(), read_tail_of,
        merge=True,
    )  # fmt: skip
    upper.unlink()
    rows = [row for batch in read_slices([part], query) for row in batch.to_pylist()]
    assert [(each["time"], each["s1"], each["s2"]) for each in rows] == [
        (1, 1, "low"),
        (2, 1, "low"),
    ]


def test_a_measurement_may_have_another_type_in_each_file(tmp_path: Path):
    put(tmp_path, 1, build({D1: {"s1": [(1, 1), (2, 1), (3, 1)]}}, types={"s1": "INT32"}))
    put(tmp_path, 2, build({D1: {"s1": [(2, 2)]}}, types={"s1": "INT64"}))
    rows = read(tmp_path, "time bigint, s1 bigint")
    assert [(each["time"], each["s1"]) for each in rows] == [(1, 1), (2, 2), (3, 1)]
    rows = read(tmp_path, form="long")
    found = sorted((each["time"], each["data_type"], each["value_long"]) for each in rows)
    assert found == [(1, "INT32", 1), (2, "INT64", 2), (3, "INT32", 1)]


def test_rows_of_a_table_have_its_tags_and_the_highest_file(tmp_path: Path):
    device = ("plant", "p1")
    low = put(tmp_path, 1, build({device: {"a": [(1, 1), (2, 1)], "b": [(2, 1)]}}))
    high = put(tmp_path, 2, build({device: {"a": [(2, 2), (3, 2)]}}))
    rows = read(tmp_path, table="plant", fileColumn="file")
    (tag,) = set(rows[0]) - {"time", "device", "a", "b", "file"}
    assert [(each["time"], each[tag], each["a"], each["b"], each["file"]) for each in rows] == [
        (1, "p1", 1, None, str(low)),
        (2, "p1", 2, 1, str(high)),
        (3, "p1", 2, None, str(high)),
    ]


def test_a_query_of_times_alone_counts_each_once(tmp_path: Path):
    put(tmp_path, 1, build({D1: {"s1": [(1, 1), (2, 1)]}}))
    put(tmp_path, 2, build({D1: {"s2": [(2, 2), (3, 2)]}}))
    assert [each["time"] for each in read(tmp_path, "time bigint, device string")] == [1, 2, 3]
