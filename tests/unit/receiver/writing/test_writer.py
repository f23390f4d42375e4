"""What a writer refuses, how it cuts, and how little of it waits in memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from common.tsfile import Compression, DataType, Encoding, Status, read_tail
from common.tsfile.device_names import device_name, device_segments
from receiver.points import Binaries, Column
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.page_cuts import Cuts, part_of
from receiver.writing.tsfile_writer import TsFileWriter
from tests.live.written_files import TABLE

FORM = SeriesForm("s", DataType.INT64, Encoding.TS_2DIFF, Compression.UNCOMPRESSED)
DEVICE = ("root.sg", "d")


def numbers(*given: int) -> tuple[np.ndarray, Column]:
    times = np.array(given, np.int64)
    return times, Column(DataType.INT64, times * 2)


def test_times_that_do_not_increase_are_refused_within_a_call_and_between_calls():
    for given in ((1, 2, 2), (3, 1)):
        with pytest.raises(ValueError, match="behind time"):
            TsFileWriter(len).plain_device(DEVICE).write(FORM, *numbers(*given))
    device = TsFileWriter(len).plain_device(DEVICE)
    device.write(FORM, *numbers(1, 2))
    with pytest.raises(ValueError, match="time 2 behind time 2"):
        device.write(FORM, *numbers(2, 3))
    rows = TsFileWriter(len).aligned_device(DEVICE, [FORM])
    rows.write(numbers(5)[0], [numbers(5)[1]])
    with pytest.raises(ValueError, match="behind time"):
        rows.write(numbers(4)[0], [numbers(4)[1]])


def test_values_that_are_not_what_the_series_is_are_refused():
    times, column = numbers(1, 2)
    cases = {
        "values of type": Column(DataType.DOUBLE, np.zeros(2)),
        "values of int32": Column(DataType.INT64, np.zeros(2, np.int32)),
        "1 values for 2": Column(DataType.INT64, np.zeros(1, np.int64)),
        "a null": Column(DataType.INT64, np.zeros(2, np.int64), np.array([True, False])),
    }
    for said, wrong in cases.items():
        with pytest.raises(ValueError, match=said):
            TsFileWriter(len).plain_device(DEVICE).write(FORM, times, wrong)
    with pytest.raises(ValueError, match="without a name"):
        TsFileWriter(len).plain_device(DEVICE).write(FORM._replace(measurement=""), times, column)
    with pytest.raises(ValueError, match="twice"):
        TsFileWriter(len).aligned_device(DEVICE, [FORM, FORM])


def test_a_series_and_a_device_are_written_once():
    writer = TsFileWriter(len)
    with writer.plain_device(DEVICE) as device:
        device.write(FORM, *numbers(1))
        device.write(FORM._replace(measurement="t"), *numbers(1))
        with pytest.raises(ValueError, match="second time"):
            device.write(FORM, *numbers(9))
        with pytest.raises(ValueError, match="has ended"):
            writer.plain_device(("root.sg", "e"))
        with pytest.raises(ValueError, match="not ended"):
            writer.finish()
    with pytest.raises(ValueError, match="again"):
        writer.aligned_device((*DEVICE, None), [])


def test_a_version_has_only_devices_that_it_can_name():
    with pytest.raises(ValueError, match="version"):
        TsFileWriter(len, version=5)
    with pytest.raises(ValueError, match="tables"):
        TsFileWriter(len, version=3, tables=[TABLE])
    for segments, version in ((DEVICE, 3), ((None, "t"), 4), ((), 4), ((None,), 4)):
        with pytest.raises(ValueError, match="no device"):
            TsFileWriter(len, version=version).plain_device(segments)
    with pytest.raises(ValueError, match="none"):
        device_segments("sensors:a", 3)


@pytest.mark.parametrize(
    ("name", "segments"),
    [
        ("root.sg.d", ("root.sg", "d")),
        ("root.a.b.c.d", ("root.a.b", "c", "d")),
        ("root.sg.`a.b`.`1`", ("root.sg.`a.b`", "`1`")),
        ("root", ("root",)),
        ("sensors:a.null.b", ("sensors", "a", None, "b")),
    ],
)
def test_a_name_gives_the_segments_that_servers_write(name, segments):
    assert device_segments(name, 4) == segments
    assert device_name(segments, table=":" in name) == name
    if ":" not in name:
        assert device_segments(name, 3) == (name,)


def test_a_device_without_points_is_not_there():
    out = bytearray()
    writer = TsFileWriter(out.extend)
    with writer.plain_device(DEVICE) as device:
        device.write(FORM, *numbers())
    with writer.aligned_device(("root.sg", "e"), [FORM]):
        pass
    writer.finish()
    tail = read_tail(bytes(out))
    assert (tail.status, tail.devices) == (Status.COMPLETE, ())


def test_pages_and_chunks_end_where_they_are_told_to():
    out = bytearray()
    cuts = Cuts(page_points=10, page_bytes=100, page_texts=1, chunk_points=40)
    writer = TsFileWriter(out.extend, cuts=cuts)
    times = np.arange(95, dtype=np.int64)
    texts = Binaries(np.arange(96, dtype=np.int32) * 30, np.zeros(96 * 30, np.uint8))
    with writer.plain_device(DEVICE) as device:
        for low in range(0, 95, 19):
            device.write(FORM, times[low : low + 19], Column(DataType.INT64, times[low : low + 19]))
        form = SeriesForm("t", DataType.BLOB, Encoding.PLAIN, Compression.UNCOMPRESSED)
        device.write(form, times, Column(DataType.BLOB, texts))
    writer.finish()
    found = {
        each.measurement: [chunk.statistics.count for chunk in each.chunks]
        for _, each in read_tail(bytes(out)).series()
    }
    assert found == {"s": [40, 40, 15], "t": [42, 42, 11]}  # three texts of 30 bytes a page


def test_large_texts_take_little_more_than_they_have():
    """What says of a page and of a chunk which its first and last values are has them whole."""
    size, count = 200_000, 40
    out = bytearray()
    writer = TsFileWriter(out.extend)
    data = np.full(size * count, ord("x"), np.uint8)
    texts = Binaries(np.arange(count + 1, dtype=np.int32) * size, data)
    with writer.plain_device(DEVICE) as device:
        form = SeriesForm("t", DataType.TEXT, Encoding.PLAIN, Compression.UNCOMPRESSED)
        times = np.arange(count, dtype=np.int64)
        for low in range(0, count, 5):
            column = part_of(Column(DataType.TEXT, texts), low, low + 5)
            device.write(form, times[low : low + 5], column)
    writer.finish()
    assert read_tail(bytes(out)).point_count == count
    assert len(out) < 1.6 * size * count


def test_pages_of_a_wide_device_have_fewer_rows():
    out = bytearray()
    writer = TsFileWriter(out.extend, cuts=Cuts(page_cells=300, chunk_points=7))
    forms = [FORM._replace(measurement=f"s{at:03}") for at in range(100)]
    times, column = numbers(*range(10))
    with writer.aligned_device(DEVICE, forms) as device:
        device.write(times, [column] * 100)
    writer.finish()
    (found,) = read_tail(bytes(out)).devices
    times_column = found.time_column()
    assert times_column is not None
    assert [chunk.statistics.count for chunk in times_column.chunks] == [9, 1]


def test_what_waits_does_not_grow_with_what_was_written():
    handed_on = [0]

    def take(content: bytes) -> None:
        handed_on[0] += len(content)

    chance = np.random.default_rng(1)
    values = chance.random(100_000)
    writer = TsFileWriter(take)
    form = SeriesForm("s", DataType.DOUBLE, Encoding.PLAIN, Compression.UNCOMPRESSED)
    peaks = []
    with writer.plain_device(DEVICE) as device:
        tracemalloc.start()
        for block in range(60):
            times = np.arange(block * 100_000, (block + 1) * 100_000, dtype=np.int64)
            device.write(form, times, Column(DataType.DOUBLE, values))
            if block in (20, 59):
                peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert writer.finish() == handed_on[0] > 48_000_000
    assert peaks[1] < 1.1 * peaks[0] < 20_000_000
