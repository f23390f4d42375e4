"""What the catalogue learns of series without decoding them."""

from __future__ import annotations

import pytest

from common.tsfile import Compression, Corrupt, DataType, Encoding, read_outlines, read_tail
from tests.support.real_tsfiles import real_file
from tests.support.tsfile_bytes import build

PLAIN, UNCOMPRESSED = Encoding.PLAIN, Compression.UNCOMPRESSED


@pytest.mark.parametrize("version", [3, 4])
def test_each_series_comes_with_type_codecs_and_its_newest_time(version: int) -> None:
    content = build(
        {"root.sg.d1": {"b": [(1, 2), (9, 3)], "a": [(4, "x")]}, "root.sg.d2": {"c": []}},
        version=version,
        types={"c": "FLOAT"},
        chunks=2,
    )
    found = {
        device.name: list(outlines)
        for device, outlines in read_outlines(content, read_tail(content))
    }
    assert found == {
        "root.sg.d1": [
            ("a", DataType.TEXT, PLAIN, UNCOMPRESSED, 4),
            ("b", DataType.INT64, PLAIN, UNCOMPRESSED, 9),
        ],
        "root.sg.d2": [("c", DataType.FLOAT, PLAIN, UNCOMPRESSED, None)],
    }


def test_a_time_column_is_no_series() -> None:
    content = build(
        {("table", "tag"): {"a": [(1, 1.5)], "b": [(2, True)]}},
    )
    ((device, outlines),) = read_outlines(content, read_tail(content))
    assert device.is_table
    assert [(each.measurement, each.last) for each in outlines] == [("a", 1), ("b", 2)]


def test_it_says_the_same_as_the_whole_decoding_of_a_file_of_java() -> None:
    path = real_file("java_v3_aligned_2devices.tsfile")
    tail = read_tail(path, chunk_headers=True)
    outlined = [
        (device.name, tuple(each)) for device, found in read_outlines(path, tail) for each in found
    ]
    decoded = [
        (
            device.name,
            (
                series.measurement,
                series.data_type,
                series.chunks[0].encoding,
                series.chunks[0].compression,
                series.end,
            ),
        )
        for device, series in tail.series()
    ]
    assert outlined == decoded


def test_a_chunk_that_is_not_of_its_series_is_noticed() -> None:
    content = build({"root.sg.d1": {"s1": [(1, 2)]}})
    tail = read_tail(content)
    bad = bytearray(content)
    bad[bad.index(b"\x04s1") + 1] = ord("t")
    with pytest.raises(Corrupt, match="chunk"):
        list(read_outlines(bytes(bad), tail))
