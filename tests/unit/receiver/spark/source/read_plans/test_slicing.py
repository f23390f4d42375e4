"""Small files share a task, large ones are cut; whatever the cut, each row is read exactly once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from common.tsfile import read_tail
from receiver.metadata.model.records import DeviceRange
from receiver.metadata.state.ranges import DeviceTable
from receiver.spark.finder import DataFile
from receiver.spark.source.forms_given.asked_form import form_of
from receiver.spark.source.inferring import (
    columns_of,
    list_sources,
    plan_of,
    read_tail_of,
    selection_of,
)
from receiver.spark.source.read_plans.picking import Picker
from receiver.spark.source.read_plans.selection import Condition, Selection, TimeRange
from receiver.spark.source.read_plans.slicing import plan
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices
from tests.support.tsfile_bytes import build

EMPTY = Picker(parse_options({"path": "/data"}), Selection())


def file(name: str, size: int, **more: Any) -> DataFile:
    return DataFile((f"/data/{name}",), name, size, **more)


def test_small_files_share_a_task_and_none_is_lost():
    files = [file(str(n), 1 << 20) for n in range(100)]
    parts = plan(files, TimeRange(), 16 << 20, EMPTY, lambda _: None)
    assert sorted(each.file.name for part in parts for each in part) == sorted(map(str, range(100)))
    assert 5 <= len(parts) <= 50


def test_a_large_file_without_a_readable_tail_is_one_slice_for_the_task_to_name():
    ((only,),) = plan([file("a", 1 << 30)], TimeRange(), 1 << 20, EMPTY, lambda _: None)
    assert only.devices is None


def test_a_catalogue_keeps_files_out_by_time_and_device_without_opening_them():
    def known(name: str, *ranges: DeviceRange) -> DataFile:
        first, last = min(each.first for each in ranges), max(each.last for each in ranges)
        devices = DeviceTable().pack(ranges, first, last)
        return file(name, 10, devices=devices, first=first, last=last, is_known=True)

    files = [
        known("early", DeviceRange("root.a.d1", 0, 9)),
        known("other", DeviceRange("root.a.d2", 10, 19)),
        known("half", DeviceRange("root.a.d1", 0, 5), DeviceRange("root.a.d2", 6, 30)),
        known("wanted", DeviceRange("root.a.d1", 10, 19)),
        file("empty", 10, is_known=True),
    ]
    selection = Selection(TimeRange(10, 12), (Condition("device", "EqualTo", "root.a.d1"),))
    picker = Picker(parse_options({"path": "/data"}), selection)
    parts = plan(files, selection.span, 1 << 20, picker, lambda _: pytest.fail("opened"))
    assert [each.file.name for part in parts for each in part] == ["wanted"]
    assert plan(files, TimeRange(5, 4), 1 << 20, Picker(parse_options({"path": "/d"}),
                Selection(TimeRange(5, 4))), lambda _: None) == []  # fmt: skip


@pytest.mark.parametrize("form", ["wide", "long"])
@pytest.mark.parametrize("aligned", [False, True])
def test_a_cut_file_gives_each_row_once(tmp_path, monkeypatch, form: str, aligned: bool):
    rows = 4000
    devices = {
        f"root.a.d{n}": {
            "s1": [(t, t * n) for t in range(1, rows + 1)],
            "s2": [(t, t / 2) for t in range(1, rows + 1, 3)],
        }
        for n in range(3)
    }
    content = build(devices, aligned=list(devices) if aligned else [], chunks=8, page_points=100)
    (tmp_path / "a.tsfile").write_bytes(content)
    monkeypatch.setattr("receiver.spark.source.read_plans.slicing._LEAST_BYTES", 1 << 12)
    monkeypatch.setattr("receiver.spark.source.read_plans.slicing._OPENING", 16)
    options = parse_options({"path": str(tmp_path), "form": form})
    query = plan_of(options, columns_of(options))
    picker = query.picker()
    files = list_sources(options)
    parts = plan(files, query.selection.span, 1 << 14, picker, read_tail_of)
    assert len(parts) > 3
    cut = [each for part in parts for each in part if not each.span.is_all]
    assert cut, "no device was cut by time"
    schema = form_of(query).schema
    whole = _table(plan(files, TimeRange(), 1 << 40, picker, read_tail_of), query, schema)
    found = _table(parts, query, schema)
    assert found.num_rows == (3 * rows if form == "wide" else 3 * (rows + (rows + 2) // 3))
    assert found == whole


def _table(parts: Any, query: Any, schema: pa.Schema) -> pa.Table:
    batches = [batch for part in parts for batch in read_slices(part, query)]
    order = [(name, "ascending") for name in ("device", "time", "measurement")
             if name in schema.names]  # fmt: skip
    return pa.Table.from_batches(batches, schema).sort_by(order).combine_chunks()


def test_devices_of_a_table_are_picked_by_their_tags():
    content = build(
        {("plant", "p1", "x"): {"t": [(1, 1)]}, ("plant", "p2"): {"t": [(1, 1)]},
         ("mill", "p1"): {"t": [(1, 1)]}}
    )  # fmt: skip
    tail = read_tail(content)

    def picked(*conditions: Condition, **given: str) -> list[str]:
        picker = Picker(parse_options({"path": "/d", **given}), Selection(TimeRange(), conditions))
        return [each.name for each in picker.devices(file("a", 1), tail)]

    assert picked(Condition("tag:tag1", "EqualTo", "p1")) == ["mill:p1", "plant:p1.x"]
    assert picked(Condition("tag:tag2", "IsNull"), table="plant") == ["plant:p2"]
    assert picked(devices="root.**") == []
    by_option = parse_options({"path": "/d", "tags": '{"tag1": ["p1", "p2"], "TAG2": null}'})
    picker = Picker(by_option, selection_of(by_option))
    assert [each.name for each in picker.devices(file("a", 1), tail)] == ["mill:p1", "plant:p2"]
    tree = read_tail(build({"root.a.d1": {"s1": [(1, 1)]}}))
    assert list(picker.devices(file("a", 1), tree)) == []
    with_database = Picker(parse_options({"path": "/d", "table": "/site/plant"}), Selection())
    assert [each.name for each in with_database.devices(file("a", 1, database="site"), tail)] == [
        "plant:p1.x", "plant:p2",
    ]  # fmt: skip
