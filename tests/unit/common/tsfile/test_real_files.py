"""Files of other writers: the exact values, as found by hand in their bytes."""

from __future__ import annotations

import pytest

from common.tsfile import (
    Compression,
    DataType,
    Encoding,
    Status,
    TailVerdict,
    read_status,
    read_tail,
)
from tests.support.real_tsfiles import real_file, real_names


def shape(tail):
    return [
        (device.name, series.measurement, series.data_type, series.count, series.start, series.end)
        for device, series in tail.series()
    ]


def test_a_java_v3_file_with_an_aligned_device_and_an_empty_column():
    tail = read_tail(real_file("java_v3_aligned_2devices.tsfile"), chunk_headers=True)
    assert (tail.status, tail.version, tail.size) == (Status.COMPLETE, 3, 378)
    assert (tail.device_count, tail.series_count, tail.point_count) == (2, 3, 2)
    assert (tail.first_time, tail.last_time) == (10_000, 10_000)
    assert (tail.tables, tail.properties, tail.encrypt_level) == ((), {}, "0")
    assert shape(tail) == [
        ("d1", "s1", DataType.FLOAT, 1, 10_000, 10_000),
        ("d1", "s2", DataType.INT32, 1, 10_000, 10_000),
        ("d2", "s1", DataType.TEXT, 0, None, None),
    ]
    d1, d2 = tail.devices
    assert (d1.aligned, d1.start, d1.end, d1.rows, d1.is_table) == (False, 10_000, 10_000, 1, False)
    assert (d2.aligned, d2.start, d2.end, d2.rows) == (True, None, None, 0)
    assert d2.time_column() is None
    s1, s2 = d1.series()
    assert (s1.statistics.first, s1.statistics.min, s1.statistics.sum) == (5.0, 5.0, 5.0)
    assert [chunk.offset for chunk in (*s1.chunks, *s2.chunks)] == [11, 51]
    assert s1.chunks[0].encoding == Encoding.RLE
    assert s1.chunks[0].compression == Compression.SNAPPY
    (empty,) = d2.series()
    assert (empty.statistics.start, empty.statistics.end) == (2**63 - 1, -(2**63))
    assert empty.chunks[0].compression == Compression.LZ4


def test_a_cpp_v3_file():
    tail = read_tail(real_file("cpp_v3_3series_16rows.tsfile"), chunk_headers=True)
    assert (tail.status, tail.version, tail.size, tail.meta_offset) == ("complete", 3, 1273, 0x3DC)
    assert shape(tail) == [
        ("root.db001.dev001", f"m00{n}", DataType.INT32, 16, 1, 16) for n in (1, 2, 3)
    ]
    values = [series.statistics for _, series in tail.series()]
    assert [(v.first, v.last, v.min, v.max, v.sum) for v in values] == [
        (101, 116, 101, 116, 1736), (201, 216, 201, 216, 3336), (301, 316, 301, 316, 4936),
    ]  # fmt: skip
    assert [series.chunks[0].offset for _, series in tail.series()] == [26, 0x155, 0x290]
    assert (tail.point_count, tail.devices[0].rows, tail.devices[0].aligned) == (48, 16, False)


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("unsealed_v3.tsfile", Status.UNSEALED, "no magic at the end"),
        ("legacy_v0.3.0.tsfile", Status.LEGACY, "v0.3.0"),
        ("legacy_v0.7.0.tsfile", Status.LEGACY, "v0.7.0"),
        ("corrupt_index_v3.tsfile", Status.CORRUPT, "meta offset of 72057594037927937"),
    ],
)
def test_what_is_no_complete_tsfile_is_named(name, status, reason):
    tail = read_tail(real_file(name))
    assert tail.status is status
    assert reason in tail.reason
    assert (tail.devices, tail.series_count, tail.first_time) == ((), 0, None)


@pytest.mark.parametrize("name", real_names())
def test_every_truncation_of_a_real_file_is_what_the_head_says(name):
    content = real_file(name)
    for length in range(len(content)):
        verdict = read_status(content[:length])
        assert isinstance(verdict, TailVerdict)
        if not length:
            expected = Status.EMPTY
        elif name.startswith("legacy") and length > 6:
            expected = Status.LEGACY
        else:
            expected = Status.UNSEALED
        assert verdict.status is expected, length
