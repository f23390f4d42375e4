from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from common.tsfile import DataType, Encoding
from receiver.points.encodings import (
    BadPage,
    Unsupported,
    decode_times,
    decode_values,
    is_rounded,
)
from tests.support.encoders import dictionary, gorilla, plain, regular, rle, ts2diff
from tests.support.encoders.bitstream import uvarint

INTEGERS = (DataType.INT32, DataType.DATE, DataType.INT64, DataType.TIMESTAMP)
FLOATS = (DataType.FLOAT, DataType.DOUBLE)
WRITTEN = {
    Encoding.RLE: (DataType.BOOLEAN, *INTEGERS, *FLOATS),
    Encoding.TS_2DIFF: INTEGERS + FLOATS,
    Encoding.GORILLA: INTEGERS + FLOATS,
    Encoding.GORILLA_V1: FLOATS,
    Encoding.REGULAR: INTEGERS,
    Encoding.ZIGZAG: INTEGERS,
    Encoding.DICTIONARY: (DataType.TEXT, DataType.STRING),
}


def as_array(page: bytes) -> np.ndarray:
    return np.frombuffer(page, np.uint8)


@pytest.mark.parametrize("encoding", [Encoding.DIFF, Encoding.BITMAP, 15, 255])
def test_an_encoding_without_a_writer_is_named(encoding):
    name = encoding.name if isinstance(encoding, Encoding) else f"encoding {encoding}"
    with pytest.raises(Unsupported, match=f"{name} of INT64"):
        decode_values(encoding, DataType.INT64, as_array(b"1"), 0, 1, 1)
    with pytest.raises(Unsupported, match="of VECTOR"):
        decode_times(encoding, as_array(b"1"), 0, 1, 1)


@pytest.mark.parametrize("data_type", [DataType.TEXT, DataType.BOOLEAN, DataType.UNKNOWN, 77])
def test_a_type_that_an_encoding_cannot_have_is_named(data_type):
    with pytest.raises(Unsupported, match="GORILLA of"):
        decode_values(Encoding.GORILLA, data_type, as_array(b"1"), 0, 1, 1)


def test_dates_and_timestamps_are_integers():
    page = as_array(ts2diff.integers([20240101, 20240102], 32))
    dates = decode_values(Encoding.TS_2DIFF, DataType.DATE, page, 0, len(page), 2)
    assert (dates.dtype, list(dates)) == (np.int32, [20240101, 20240102])
    page = as_array(ts2diff.integers([2**60, -5], 64))
    stamps = decode_values(Encoding.TS_2DIFF, DataType.TIMESTAMP, page, 0, len(page), 2)
    assert (stamps.dtype, list(stamps)) == (np.int64, [2**60, -5])


TIMES = [1700000000000 + 1000 * at for at in range(300)]


@pytest.mark.parametrize(
    ("encoding", "page"),
    [
        (Encoding.TS_2DIFF, ts2diff.integers(TIMES, 64)),
        (Encoding.PLAIN, plain.fixed(TIMES, "q")),
        (Encoding.RLE, rle.integers(TIMES, 64)),
        (Encoding.REGULAR, regular.integers(TIMES, 64)),
        (Encoding.GORILLA, gorilla.second(TIMES, 64, -(2**63))),
    ],
)
def test_times_in_whatever_a_database_was_configured_to(encoding, page):
    data = as_array(b"__" + page + b"__")
    assert list(decode_times(encoding, data, 2, len(data) - 2, len(TIMES))) == TIMES
    with pytest.raises(BadPage):
        decode_times(encoding, data, 2, len(data) - 2, len(TIMES) - 1)
    if encoding != Encoding.GORILLA:  # its end is a value
        assert list(decode_times(encoding, data, 2, len(data) - 2, 5000)) == TIMES


@pytest.mark.parametrize(("start", "end", "count"), [(-1, 2, 1), (2, 1, 1), (0, 9, 1), (0, 1, -1)])
def test_a_range_that_is_not_in_the_bytes_is_a_mistake_of_the_caller(start, end, count):
    with pytest.raises(ValueError, match="no bytes"):
        decode_values(Encoding.PLAIN, DataType.BOOLEAN, as_array(b"\1\1"), start, end, count)


def test_writable_bytes_are_decoded_as_well():
    page = np.array([1, 0, 1], np.uint8)
    assert list(decode_values(Encoding.PLAIN, DataType.BOOLEAN, page, 0, 3, 3)) == [1, 0, 1]
    assert page.flags.writeable


def test_a_small_page_of_much_text_takes_no_more_memory_than_a_page_may():
    page = as_array(
        dictionary.binaries([b"x" * 60_000])[:-5] + b"\5\1" + uvarint(30_000 << 1) + b"\0"
    )
    tracemalloc.start()
    with pytest.raises(Unsupported, match="DICTIONARY of TEXT: the values would take more memory"):
        decode_values(Encoding.DICTIONARY, DataType.TEXT, page, 0, len(page), 30_000)
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()


def test_only_floats_that_are_scaled_are_rounded():
    rounded = {(e, t) for e in (Encoding.RLE, Encoding.TS_2DIFF) for t in FLOATS}
    assert all(is_rounded(*pair) for pair in rounded)
    assert not is_rounded(Encoding.RLE, DataType.INT64)
    assert not is_rounded(Encoding.GORILLA, DataType.DOUBLE)
