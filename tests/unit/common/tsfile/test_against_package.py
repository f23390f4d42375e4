"""Files of the package ``tsfile`` (C++): we say of them what it says."""

from __future__ import annotations

from datetime import date

import pytest

from common.tsfile import Status, read_tail
from tests.support.tsfile_bytes import SAMPLE, build

tsfile = pytest.importorskip("tsfile")

T = tsfile.TSDataType
KINDS = {
    "b": (T.BOOLEAN, [True, False, True]),
    "i": (T.INT32, [-5, 7, 2**31 - 1]),
    "l": (T.INT64, [1 << 40, -3, 0]),
    "f": (T.FLOAT, [1.5, -2.5, 0.0]),
    "d": (T.DOUBLE, [1e300, -2.0, 0.5]),
    "t": (T.TEXT, ["alpha", "", "βeta"]),
    "ts": (T.TIMESTAMP, [10, 2**50, 0]),
    "dt": (T.DATE, [date(2024, 1, 5), date(1999, 12, 31), date(2000, 1, 1)]),
    "bl": (T.BLOB, [b"\x01", b"zz", b"y"]),
    "s": (T.STRING, ["m", "a", "z"]),
}  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "package.tsfile")


def write_tree(path, devices, flushes):
    writer = tsfile.TsFileWriter(path)
    for device in devices:
        for name, (kind, _) in KINDS.items():
            schema = tsfile.TimeseriesSchema(
                name, kind, tsfile.TSEncoding.PLAIN, tsfile.Compressor.LZ4
            )
            writer.register_timeseries(device, schema)
    for flush in range(flushes):
        for device in devices:
            for at in range(3):
                fields = [tsfile.Field(n, values[at], kind) for n, (kind, values) in KINDS.items()]
                writer.write_row_record(tsfile.RowRecord(device, flush * 3 + at, fields))
        writer.flush()
    writer.close()


def write_table(path, tags):
    category = tsfile.ColumnCategory
    columns = [tsfile.ColumnSchema(tag, T.STRING, category.TAG) for tag in ("region", "plant")]
    columns += [tsfile.ColumnSchema(n, kind, category.FIELD) for n, (kind, _) in KINDS.items()]
    writer = tsfile.TsFileTableWriter(path, tsfile.TableSchema("sensors", columns))
    names = ["region", "plant", *KINDS]
    kinds = [T.STRING, T.STRING, *(kind for kind, _ in KINDS.values())]
    for region, plant in tags:
        tablet = tsfile.Tablet(names, kinds, 3)
        for at in range(3):
            tablet.add_timestamp(at, 100 + at)
            values = {"region": region, "plant": plant}
            values |= {n: values[at] for n, (_, values) in KINDS.items() if at != 1 and n != "f"}
            for name, value in values.items():
                if value is not None:
                    tablet.add_value_by_name(name, at, value)
        writer.write_table(tablet)
    writer.close()


def assert_same(path):
    """Devices, series, types, counts, times and statistics are those the package reads."""
    tail = read_tail(path, chunk_headers=True)
    assert tail.status is Status.COMPLETE, tail.reason
    ours = {device.segments: device for device in tail.devices}
    reader = tsfile.TsFileReader(path)
    try:
        groups = list(reader.get_timeseries_metadata().values())
    finally:
        reader.close()
    theirs = {trimmed(group.segments): group for group in groups}
    assert set(ours) == set(theirs)
    for segments, group in theirs.items():
        series = {one.measurement: one for one in ours[segments].series()}
        assert set(series) == {one.measurement_name for one in group.timeseries}
        for one in group.timeseries:
            assert_same_series(series[one.measurement_name], one)
    return tail


def trimmed(segments):
    return trimmed(segments[:-1]) if segments[-1] is None else tuple(segments)


def assert_same_series(series, other):
    assert series.data_type == other.data_type
    assert len(series.chunks) == other.chunk_meta_count
    assert series.count == other.statistic.row_count
    if series.count:
        assert (series.start, series.end) == (other.statistic.start_time, other.statistic.end_time)
    for ending in ("bool", "int64", "float64"):
        for what in ("first", "last", "min", "max"):
            theirs = getattr(other.statistic, f"{what}_{ending}", None)
            if theirs is not None:
                assert getattr(series.statistics, what) == theirs
    for what in ("first", "last", "min", "max"):
        theirs = getattr(other.statistic, f"str_{what}", None)
        if theirs is not None:
            assert getattr(series.statistics, what) == theirs.encode()
    if hasattr(other.statistic, "sum"):
        assert series.statistics.sum == other.statistic.sum


@pytest.mark.parametrize("flushes", [1, 4])
def test_a_tree_file_of_the_package_is_read_as_the_package_reads_it(path, flushes):
    names = ["root.sg.d1", "root.a.b.c.d", "root.sg.`a.b`", "d1"]
    write_tree(path, names, flushes)
    tail = assert_same(path)
    assert sorted(device.name for device in tail.devices) == sorted(names)
    assert tail.point_count == len(names) * len(KINDS) * 3 * flushes


def test_a_tree_file_of_many_devices_has_them_all(path):
    writer = tsfile.TsFileWriter(path)
    schema = tsfile.TimeseriesSchema(
        "s", T.INT64, tsfile.TSEncoding.PLAIN, tsfile.Compressor.UNCOMPRESSED
    )
    names = [f"root.sg{n % 3}.d{n}" for n in range(600)]
    for name in names:
        writer.register_timeseries(name, schema)
        writer.write_row_record(tsfile.RowRecord(name, 1, [tsfile.Field("s", 5, T.INT64)]))
    writer.close()
    assert sorted(device.name for device in assert_same(path).devices) == sorted(names)


def test_a_table_file_of_the_package_is_read_as_the_package_reads_it(path):
    write_table(path, [("r1", "p1"), ("r1", None), (None, "p.2"), (None, None)])
    tail = assert_same(path)
    assert [device.name for device in tail.devices] == [
        "sensors:", "sensors:null.`p.2`", "sensors:r1", "sensors:r1.p1",
    ]  # fmt: skip
    assert {(device.rows, device.aligned, device.is_table) for device in tail.devices} == {
        (3, True, True)
    }
    assert {device.time_column().count for device in tail.devices} == {3}
    empty = [series for _, series in tail.series() if series.measurement == "f"]
    assert {(series.count, series.start) for series in empty} == {(0, None)}


def test_a_property_may_be_any_bytes(path):
    writer = tsfile.TsFileWriter(path)
    writer.add_tsfile_property("site", b"\xff\x00\xfe")
    writer.close()
    tail = read_tail(path)
    assert (tail.status, tail.properties["site"]) == (Status.COMPLETE, b"\xff\x00\xfe"), tail.reason


@pytest.mark.parametrize("chunks", [1, 3])
def test_our_own_test_files_are_files_to_the_package(path, chunks):
    with open(path, "wb") as file:
        file.write(build(SAMPLE, chunks=chunks, page_points=7, max_degree=2))
    assert_same(path)
    reader = tsfile.TsFileReader(path)
    with reader.query_timeseries("root.sg.d1", ["s1"], 0, 1000) as rows:
        found = []
        while rows.next():
            found.append((rows.get_value_by_index(1), rows.get_value_by_index(2)))
    reader.close()
    assert found == SAMPLE["root.sg.d1"]["s1"]
