"""What a sound tail says: devices, series, statistics."""

from __future__ import annotations

import pickle

import pytest

from common.tsfile import ColumnCategory, DataType, Encoding, Statistics, Status, read_tail
from tests.support.tsfile_bytes import SAMPLE, build

EVERY_TYPE = {
    "b": ("BOOLEAN", [True, False, True], (True, True, None, None, 2)),
    "blob": ("BLOB", [b"\xff", b"", b"x"], (None, None, None, None, None)),
    "d": ("DOUBLE", [1.5, -2.5, 0.5], (1.5, 0.5, -2.5, 1.5, -0.5)),
    "date": ("DATE", [20240101, 20231231, 20240102],
             (20240101, 20240102, 20231231, 20240102, 60711434)),
    "f": ("FLOAT", [1.5, -2.5, 0.5], (1.5, 0.5, -2.5, 1.5, -0.5)),
    "i": ("INT32", [-3, 7, 5], (-3, 5, -3, 7, 9)),
    "l": ("INT64", [-3, 2**40, 5], (-3, 5, -3, 2**40, 2**40 + 2.0)),
    "s": ("STRING", ["m", "z", "a"], (b"m", b"a", b"a", b"z", None)),
    "t": ("TEXT", ["ü", "z", "a"], ("ü".encode(), b"a", None, None, None)),
    "ts": ("TIMESTAMP", [3, 1, 2], (3, 2, 1, 3, 6.0)),
}  # fmt: skip


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("chunks", [1, 3])
def test_the_statistics_of_every_type_are_read(version, aligned, chunks):
    points = {
        name: list(zip([10, 20, 30], values, strict=True))
        for name, (_, values, _) in EVERY_TYPE.items()
    }
    content = build(
        {"root.sg.d1": points}, version=version, chunks=chunks, page_points=1,
        types={name: kind for name, (kind, _, _) in EVERY_TYPE.items()},
        aligned=["root.sg.d1"] if aligned else (),
    )  # fmt: skip
    tail = read_tail(content, chunk_headers=True)
    assert tail.status is Status.COMPLETE, tail.reason
    (device,) = tail.devices
    assert (device.aligned, device.rows, device.series_count, device.point_count) == (
        aligned, 3, 10, 30,
    )  # fmt: skip
    for series in device.series():
        kind, values, expected = EVERY_TYPE[series.measurement]
        assert series.data_type is DataType[kind]
        assert series.statistics == Statistics(3, 10, 30, *expected)
        assert [chunk.statistics.count for chunk in series.chunks] == [3 // chunks] * chunks
        assert {chunk.encoding for chunk in series.chunks} == {Encoding.PLAIN}
        if chunks == 3 and kind != "BLOB":
            firsts = [chunk.statistics.first for chunk in series.chunks]
            assert firsts == [v.encode() if isinstance(v, str) else v for v in values]


@pytest.mark.parametrize("version", [3, 4])
def test_the_totals_of_a_file_are_those_of_its_devices(version):
    tail = read_tail(build(SAMPLE, version=version, chunks=4))
    assert (tail.device_count, tail.series_count, tail.point_count) == (2, 3, 112)
    assert (tail.first_time, tail.last_time) == (1, 100)
    d1, d2 = tail.devices
    assert (d1.name, d1.start, d1.end, d1.rows, d1.point_count) == ("root.sg.d1", 1, 100, 100, 100)
    assert (d2.name, d2.start, d2.end, d2.rows, d2.point_count) == ("root.sg.d2", 50, 59, 10, 12)
    assert [(d.name, s.measurement) for d, s in tail.series()] == [
        ("root.sg.d1", "s1"), ("root.sg.d2", "s1"), ("root.sg.d2", "s2"),
    ]  # fmt: skip


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("degree", [2, 3, 256])
def test_an_index_of_many_levels_is_walked_to_its_end(version, degree):
    devices = {
        f"root.g{d % 3}.d{d:03}": {f"s{s:02}": [(d, s)] for s in range(d % 20 + 1)}
        for d in range(70)
    }
    tail = read_tail(build(devices, version=version, max_degree=degree), chunk_headers=True)
    assert tail.status is Status.COMPLETE, tail.reason
    found = {}
    for device, series in tail.series():
        found.setdefault(device.name, {})[series.measurement] = [
            (series.start, series.statistics.first)
        ]
    assert found == devices


@pytest.mark.parametrize("version", [3, 4])
def test_an_aligned_device_has_rows_and_a_time_column_which_is_no_series(version):
    points = {"a": [(1, 1), (3, 3)], "b": [(2, True)]}
    content = build(
        {"root.sg.d1": {**points, "none": []}}, version=version, aligned=["root.sg.d1"],
        types={"none": "FLOAT"},
    )  # fmt: skip
    tail = read_tail(content, chunk_headers=True)
    (device,) = tail.devices
    assert (device.aligned, device.rows, device.series_count, device.point_count) == (True, 3, 3, 3)
    time = device.time_column()
    assert (time.measurement, time.data_type, time.count) == ("", DataType.VECTOR, 3)
    assert time.chunks[0].encoding == Encoding.TS_2DIFF
    assert [s.measurement for s in device.series()] == ["a", "b", "none"]


def test_series_without_points_have_no_times_and_do_not_widen_the_files():
    devices = {"root.sg.d1": {"none": []}, "root.sg.d2": {"none": [], "s": [(7, 1)]}}
    tail = read_tail(build(devices, types={"none": "INT32"}))
    empty, other = tail.devices
    assert (empty.start, empty.end, empty.rows, empty.series_count) == (None, None, 0, 1)
    assert (other.start, other.end) == (tail.first_time, tail.last_time) == (7, 7)
    assert (tail.series_count, tail.point_count) == (3, 1)
    (nothing,) = empty.series()
    assert (nothing.count, nothing.start, nothing.end) == (0, None, None)


@pytest.mark.parametrize("version", [3, 4])
def test_a_file_without_devices_is_complete_and_has_no_times(version):
    tail = read_tail(build({}, version=version))
    assert (tail.status, tail.device_count, tail.first_time) == (Status.COMPLETE, 0, None)


def test_a_table_file_has_its_schema_and_its_tags():
    content = build(
        {
            ("sensors", "plant 1", None, "x"): {"temp": [(1, 20.5)], "on": [(1, True)]},
            ("sensors", None): {"temp": [(2, 1.5), (3, 2.5)], "on": [(2, False)]},
            ("pumps", "null"): {"rpm": [(9, 900)]},
        }
    )
    tail = read_tail(content, chunk_headers=True)
    assert tail.status is Status.COMPLETE, tail.reason
    assert [(d.name, d.segments, d.is_table, d.aligned, d.rows) for d in tail.devices] == [
        ("pumps:`null`", ("pumps", "null"), True, True, 1),
        ("sensors:", ("sensors",), True, True, 2),
        ("sensors:`plant 1`.null.x", ("sensors", "plant 1", None, "x"), True, True, 1),
    ]
    pumps, sensors = tail.tables
    assert [(c.name, c.data_type, c.category) for c in sensors.columns] == [
        ("tag1", DataType.STRING, ColumnCategory.TAG),
        ("tag2", DataType.STRING, ColumnCategory.TAG),
        ("tag3", DataType.STRING, ColumnCategory.TAG),
        ("on", DataType.BOOLEAN, ColumnCategory.FIELD),
        ("temp", DataType.DOUBLE, ColumnCategory.FIELD),
    ]
    assert pumps.name == "pumps"


def test_one_device_has_one_name_in_both_versions():
    names = ["root.sg.d1", "root.sg.`a.b`", "root.a.b.c.d", "root.sg.`1`", "d1", "x.y.`z``z`"]
    devices = {name: {"s": [(1, 1)]} for name in names}
    for version in (3, 4):
        tail = read_tail(build(devices, version=version))
        assert sorted(device.name for device in tail.devices) == sorted(names)


def test_properties_and_the_encryption_level_are_given_raw():
    assert read_tail(build(SAMPLE)).encrypt_level == "0"
    tail = read_tail(build(SAMPLE, properties={"encryptLevel": "1", "site": "höhe", "none": None}))
    assert tail.encrypt_level == "1"
    assert tail.properties == {"encryptLevel": b"1", "site": "höhe".encode(), "none": None}
    assert read_tail(build(SAMPLE, properties={})).encrypt_level == "0"


def test_the_number_of_properties_may_be_zigzag_or_not_and_the_bloom_filter_null():
    content = build(SAMPLE, properties={"k": "v"})
    properties = b"\x00\x02\x02k\x02v"  # no Bloom filter, one entry as zig-zag
    assert content.count(properties) == 1
    for other in (b"\x00\x01\x02k\x02v", b"\x00\x00\x00\x00\x02\x02k\x02v"):
        changed = content.replace(properties, other)
        grown = len(other) - len(properties)
        size = int.from_bytes(content[-10:-6], "big") + grown
        changed = changed[:-10] + size.to_bytes(4, "big") + b"TsFile"
        tail = read_tail(changed)
        assert (tail.status, tail.properties) == (Status.COMPLETE, {"k": b"v"}), tail.reason


def test_a_tail_outlives_its_file_and_crosses_processes(tmp_path):
    path = tmp_path / "a.tsfile"
    path.write_bytes(build(SAMPLE, chunks=2))
    tail = read_tail(path, chunk_headers=True)
    path.unlink()
    again = pickle.loads(pickle.dumps(tail))
    assert again == tail
    assert list(again.series()) == list(tail.series())


def test_padding_reaches_the_exact_size_and_stays_a_sound_file():
    for size in (2000, 70_000, 300_000):
        content = build(SAMPLE, pad_to=size)
        assert len(content) == size
        assert content == build(SAMPLE, pad_to=size)
        tail = read_tail(content, chunk_headers=True)
        assert (tail.status, tail.series_count) == (Status.COMPLETE, 4)
