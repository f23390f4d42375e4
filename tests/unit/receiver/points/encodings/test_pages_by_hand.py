"""Pages written out by hand after the format, not by an encoder."""

from __future__ import annotations

import numpy as np
import pytest

from common.tsfile import DataType, Encoding
from receiver.points.encodings import BadPage, decode_values
from tests.support.encoders.cases import decoded_list

NAN_32, NAN_64 = 0x7FC00000, 0x7FF8000000000000


def decode(encoding: Encoding, data_type: DataType, page: str, count: int) -> list[object]:
    """``page``: hex digits, or bits behind a ``b``; blanks do not count."""
    raw = b""
    for piece in page.split():
        digits = piece.removeprefix("b")
        length = len(digits) // 8 if piece.startswith("b") else len(digits) // 2
        raw += int(digits, 2 if piece.startswith("b") else 16).to_bytes(length, "big")
    data = np.frombuffer(raw, np.uint8)
    return decoded_list(decode_values(encoding, data_type, data, 0, len(data), count))


def bits_32(value: float) -> int:
    return int(np.float32(value).view(np.int32))


def bits_64(value: float) -> int:
    return int(np.float64(value).view(np.int64))


@pytest.mark.parametrize(
    ("data_type", "page", "values"),
    [
        (DataType.BOOLEAN, "00 01 ff", [0, 1, 1]),
        (DataType.INT32, "00 01 02 8001 ffffffff0f", [0, -1, 1, 64, -(2**31)]),
        (DataType.DATE, "80e5a613", [20240704]),
        (DataType.INT64, "ffffffffffffff38", [-200]),
        (DataType.FLOAT, "c1200000", [bits_32(-10)]),
        (DataType.DOUBLE, "3ff8000000000000", [bits_64(1.5)]),
        (DataType.STRING, "04 6869 00 02 21", [b"hi", b"", b"!"]),
    ],
)
def test_plain(data_type, page, values):
    assert decode(Encoding.PLAIN, data_type, page, len(values)) == values


@pytest.mark.parametrize(
    ("data_type", "page", "values"),
    [
        # 8 times 5, then a group of 8 of which 2 count
        (DataType.INT32, "08 03 10 05 03 02 b001110000000000000000000", [5] * 8 + [1, 6]),
        # a repeated value of two bytes: lowest first of INT32, highest first of INT64
        (DataType.INT32, "04 09 10 0201", [0x102] * 8),
        (DataType.INT64, "04 09 10 0102", [0x102] * 8),
        (DataType.BOOLEAN, "04 01 03 03 b01100000", [0, 1, 1]),
        # no bits at all, as the C++ writer has it; two blocks in one page; an empty one
        (DataType.INT32, "03 00 05 01", [0] * 9),
        (DataType.INT32, "03 01 10 01 00 03 01 10 00", [1] * 8 + [0] * 8),
        # one decimal place
        (DataType.DOUBLE, "01 03 04 10 0f", [bits_64(1.5)] * 8),
    ],
)
def test_rle(data_type, page, values):
    assert decode(Encoding.RLE, data_type, page, len(values)) == values


@pytest.mark.parametrize(
    ("data_type", "page", "values"),
    [
        (
            DataType.INT32,
            "00000002 00000003 fffffffd 0000000a b00010000",
            [10, 7, 8],
        ),
        (
            DataType.INT64,
            "00000002 00000003 0000000000000005 0000000000000064 b01011100",
            [100, 107, 119],
        ),
        # floats: places, then integers; of the C++ writer their bits
        (DataType.FLOAT, "02 00000000 00000000 7fffffff 00000096", [bits_32(1.5)]),
        (DataType.FLOAT, "00000000 00000000 7fffffff 3fc00000", [bits_32(1.5)]),
        # marks: the first is scaled, the second was rounded
        (
            DataType.FLOAT,
            "ffffffff07 02 01 01"
            " 00000000 00000000 7fffffff 0000000f 00000000 00000000 7fffffff 11e1a300",
            [bits_32(1.5), bits_32(3e8)],
        ),
        # marks: the first is scaled, the others stand in their bits
        (
            DataType.FLOAT,
            "feffffff07 03 01 06 01"
            " 00000000 00000000 7fffffff 0000000f 00000000 00000000 7fffffff 4f6e6b28"
            " 00000000 00000000 7fffffff 7fc00000",
            [bits_32(1.5), bits_32(4e9), NAN_32],
        ),
    ],
)
def test_ts_2diff(data_type, page, values):
    assert decode(Encoding.TS_2DIFF, data_type, page, len(values)) == values


@pytest.mark.parametrize(
    ("data_type", "page", "values"),
    [
        (
            DataType.DOUBLE,
            "3ff0000000000000 b01100000100101011111111111110000100010101111111111100000",
            [bits_64(1.0), bits_64(1.0), bits_64(2.0)],
        ),
        (
            DataType.INT32,
            "00000005 b11111110000011100000111011000000000000000000000000000010",
            [5, 4],
        ),
        # one bit more and the byte is full: a whole one follows
        (
            DataType.INT32,
            "00000005 b11111110000010110000011101100000000000000000000000000001 00",
            [5, 4, 4],
        ),
        # the end is a legal value, too
        (DataType.DOUBLE, "7ff8000000000000 b00000000", [NAN_64]),
    ],
)
def test_gorilla(data_type, page, values):
    assert decode(Encoding.GORILLA, data_type, page, len(values)) == values


@pytest.mark.parametrize(
    ("page", "values"),
    [
        (
            "0000803f b011000010010001111111111000100010001111111100000",
            [bits_32(1.0), bits_32(1.0), bits_32(2.0)],
        ),
        ("0000803f b10000000111000010010011000000110", [bits_32(1.0), bits_32(0.5)]),
    ],
)
def test_gorilla_v1(page, values):
    assert decode(Encoding.GORILLA_V1, DataType.FLOAT, page, len(values)) == values


def test_zigzag():
    assert decode(Encoding.ZIGZAG, DataType.INT64, "04 03 00 01 8001", 3) == [0, -1, 64]


@pytest.mark.parametrize(
    ("page", "values"),
    [
        ("00 00000003 00000005 00000064", [100, 105, 110]),
        ("01 00000001 b00001101 00000004 00000005 00000064", [100, 110, 115]),
        ("00 00000002 fffffffb 00000064", [100, 95]),
    ],
)
def test_regular(page, values):
    assert decode(Encoding.REGULAR, DataType.INT32, page, len(values)) == values


def test_dictionary():
    page = "04 04 6f6e 06 6f6666 04 01 03 03 b01100000"
    assert decode(Encoding.DICTIONARY, DataType.TEXT, page, 3) == [b"on", b"off", b"off"]


@pytest.mark.parametrize(
    ("encoding", "data_type", "page", "count", "reason"),
    [
        (Encoding.RLE, DataType.INT32, "03 21 10 05", 8, "bit width"),
        (Encoding.RLE, DataType.INT32, "07 03 feffffff0f 05", 5, "more values"),
        (Encoding.RLE, DataType.INT32, "05 03 01 02 00 00", 5, "count of values"),
        (Encoding.RLE, DataType.FLOAT, "ffffffff0f 03 03 10 05", 8, "decimal places"),
        (Encoding.TS_2DIFF, DataType.INT32, "00000001 00000021 00000000 00000000", 2, "bit width"),
        (Encoding.TS_2DIFF, DataType.INT32, "00000001 ffffffff 00000000 00000000", 2, "bit width"),
        (Encoding.TS_2DIFF, DataType.INT32, "ffffffff 00000001 00000000 00000000", 2, "count"),
        (Encoding.TS_2DIFF, DataType.INT32, "7fffffff 00000000 00000000 00000000", 9, "more"),
        (Encoding.GORILLA, DataType.INT32, "00000005 b1000000000000000", 2, "bit width"),
        (Encoding.GORILLA, DataType.INT32, "80000000", 0, "in the middle"),
        (Encoding.GORILLA, DataType.INT64, "8000000000000000", 0, "in the middle"),
        (Encoding.ZIGZAG, DataType.INT32, "05 01 ffffffff1f", 1, "larger than its type"),
        (Encoding.REGULAR, DataType.INT32, "02 00000003 00000005 00000064", 3, "mark"),
        (Encoding.REGULAR, DataType.INT32, "00 00000000 00000005 00000064", 1, "count"),
        (Encoding.DICTIONARY, DataType.TEXT, "02 02 61 04 01 03 01 b10000000", 1, "dictionary"),
        (Encoding.DICTIONARY, DataType.TEXT, "feffffff0f 02 61", 1, "count"),
        (Encoding.PLAIN, DataType.TEXT, "01", 1, "length"),
        (Encoding.PLAIN, DataType.TEXT, "feffffff0f 61", 1, "in the middle"),
    ],
)
def test_what_is_wrong_is_said(encoding, data_type, page, count, reason):
    with pytest.raises(BadPage, match=reason):
        decode(encoding, data_type, page, count)
