"""The columns of the wide form come from all files; what contradicts is named with both places."""

from __future__ import annotations

from typing import Any

import pytest

from common.errors import UsageError
from common.tsfile import read_tail
from receiver.spark.source.read_plans.picking import Picker
from receiver.spark.source.read_plans.result_columns import WideSchema, long_columns
from receiver.spark.source.read_plans.selection import Selection
from receiver.spark.source.read_plans.source_options import SourceOptions, parse_options
from tests.support.tsfile_bytes import build

TREE = {"root.a.d1": {"s2": [(1, 1)], "s1": [(1, 0.5)]}, "root.a.d2": {"s3": [(1, "x")]}}
TABLE = {("plant", "p1", None, "x"): {"temp": [(1, 0.5)]}, ("plant", "p2"): {"hum": [(1, 1)]}}


def columns(*files: Any, database: str | None = None, **given: str) -> list[tuple[str, str]]:
    options: SourceOptions = parse_options({"path": "/data", **given})
    schema = WideSchema(options)
    for number, file in enumerate(files):
        content = file if isinstance(file, bytes) else build(file)
        tail = read_tail(content)
        schema.add(f"f{number}", database, tail, Picker(options, Selection()))
    return [(each.name, each.type) for each in schema.columns()]


def test_measurements_of_all_files_become_columns_in_the_order_of_their_names():
    more = {"root.a.d1": {"s0": [(1, True)], "s2": [(5, 2)]}}
    assert columns(TREE, more) == [
        ("time", "bigint"), ("device", "string"),
        ("s0", "boolean"), ("s1", "double"), ("s2", "bigint"), ("s3", "string"),
    ]  # fmt: skip


def test_devices_and_columns_choose():
    assert columns(TREE, devices="root.a.d2")[2:] == [("s3", "string")]
    assert columns(TREE, columns="s3,s1")[2:] == [("s3", "string"), ("s1", "double")]
    with pytest.raises(UsageError, match=r"option columns: there is no 'nope'.*s1, s2, s3"):
        columns(TREE, columns="s1,nope")
    with pytest.raises(UsageError, match="no device is left"):
        columns(TREE, devices="root.b.**")


def test_a_table_has_its_tags_in_front_and_no_device():
    found = columns(TABLE)
    assert found[:4] == [
        ("time", "bigint"), ("tag1", "string"), ("tag2", "string"), ("tag3", "string"),
    ]  # fmt: skip
    assert sorted(found[4:]) == [("hum", "bigint"), ("temp", "double")]


def test_two_types_of_one_name_are_an_error_that_names_both_places():
    other = {"root.a.d9": {"s1": [(1, "text")]}}
    with pytest.raises(
        UsageError, match=r"column s1: DOUBLE in f0 \(device root.a.d1\), TEXT in f1 \(device root"
    ):
        columns(TREE, other)
    assert ("s1", "double") in columns(TREE, other, devices="root.a.d1")


def test_two_tables_need_a_choice():
    other = {("mill", "p1"): {"temp": [(1, "text")]}}
    with pytest.raises(UsageError, match=r"the tables plant \(in f0\) and mill \(in f1\)"):
        columns(TABLE, other)
    assert ("temp", "string") in columns(TABLE, other, table="mill")
    with pytest.raises(UsageError, match="no device is left"):
        columns(TABLE, table="/elsewhere/plant", database="site")
    assert ("hum", "bigint") in columns(TABLE, table="/site/plant", database="site")


def test_a_tag_that_no_table_has_is_named():
    assert ("hum", "bigint") in columns(TABLE, tags='{"TAG1": "p2"}')
    with pytest.raises(UsageError, match=r"option tags: there is no 'site'.*tag1, tag2, tag3"):
        columns(TABLE, tags='{"site": null}')


def test_both_models_at_once_need_a_choice():
    with pytest.raises(UsageError, match="tree model, f1 of the table model"):
        columns(TREE, TABLE)


def test_names_that_are_the_same_to_spark_are_named():
    with pytest.raises(UsageError, match="'S1' and 's1' have the same name to Spark"):
        columns({"root.a.d1": {"s1": [(1, 1)], "S1": [(1, 1)]}})
    clash = {"root.a.d1": {"time": [(1, 1)], "s1": [(1, 1)]}}
    with pytest.raises(UsageError, match="another timeColumn"):
        columns(clash)
    assert ("time", "bigint") in columns(clash, timeColumn="at")[1:]


def test_text_can_be_binary():
    assert columns(TREE, text="binary")[-1] == ("s3", "binary")


def test_the_long_form_is_the_same_for_all_files():
    options = parse_options({"path": "/data", "form": "long", "fileColumn": "file"})
    assert [each.name for each in long_columns(options)] == [
        "device", "measurement", "time", "data_type", "value_boolean", "value_long",
        "value_double", "value_string", "value_binary", "value_date", "file",
    ]  # fmt: skip
