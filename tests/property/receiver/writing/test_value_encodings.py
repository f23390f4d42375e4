"""Encoded values are the bytes of the slow encoders, and decode to the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.tsfile import DataType, Encoding
from receiver.points.columns import dtype_of
from receiver.points.encodings import Binaries, decode_values
from receiver.writing.value_encoding import SAFE, room_for, write_values, written_as
from tests.support import tiers
from tests.support.encoders.cases import CASES, Case, decoded_list, key

WRITTEN = [
    case
    for case in CASES
    if written_as(case.encoding, case.data_type) is case.encoding and not case.label
]
IN_FRONT = 3
GUARD = 40


def as_values(values: list[Any], data_type: DataType) -> Any:
    dtype = dtype_of(data_type)
    if dtype is None:
        offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
        return Binaries(offsets, np.frombuffer(b"".join(values), np.uint8))
    if dtype in (np.float32, np.float64):
        bits = np.int32 if dtype is np.float32 else np.int64
        return np.array([key(value, data_type) for value in values], bits).view(dtype)
    return np.array(values, dtype)


def encoded(encoding: Encoding, data_type: DataType, values: Any) -> bytes:
    """Within a buffer of just the room that is asked for; what is behind it stays."""
    room = room_for(encoding, data_type, values)
    out = np.full(IN_FRONT + room + GUARD, 0xA5, np.uint8)
    end = write_values(encoding, data_type, values, out, IN_FRONT)
    assert end <= IN_FRONT + room
    assert bytes(out[:IN_FRONT]) == b"\xa5" * IN_FRONT
    assert bytes(out[IN_FRONT + room :]) == b"\xa5" * GUARD
    return bytes(out[IN_FRONT:end])


def test_every_encoding_that_is_written_is_tried():
    tried = {(case.encoding, case.data_type) for case in WRITTEN}
    same = {DataType.DATE: DataType.INT32, DataType.TIMESTAMP: DataType.INT64}
    for encoding in Encoding:
        for data_type in SAFE:
            if data_type == DataType.VECTOR or written_as(encoding, data_type) != encoding:
                continue
            bare = same.get(data_type, data_type)
            if (encoding, bare) != (Encoding.PLAIN, DataType.STRING):
                assert (encoding, bare) in tried


@pytest.mark.parametrize("case", WRITTEN, ids=str)
@settings(max_examples=tiers.examples(40), database=None)
@given(data=st.data())
def test_the_bytes_are_those_of_the_java_writer(case: Case, data: st.DataObject):
    values = data.draw(case.values)
    given_values = as_values(values, case.data_type)
    page = encoded(case.encoding, case.data_type, given_values)
    assert page == case.encode(values)
    back = decode_values(
        case.encoding, case.data_type, np.frombuffer(page, np.uint8), 0, len(page), len(values)
    )
    assert decoded_list(back) == decoded_list(given_values)


@pytest.mark.parametrize("encoding", Encoding, ids=lambda each: each.name)
@pytest.mark.parametrize("data_type", SAFE, ids=lambda each: each.name)
def test_what_stands_for_an_encoding_loses_nothing(encoding: Encoding, data_type: DataType):
    instead = written_as(encoding, data_type)
    assert written_as(instead, data_type) is instead
    lossy = {Encoding.SPRINTZ, Encoding.CAMEL, Encoding.FREQ, Encoding.GORILLA_V1}
    assert instead not in lossy
    if data_type in (DataType.FLOAT, DataType.DOUBLE):
        assert instead not in {Encoding.RLE, Encoding.TS_2DIFF, Encoding.RLBE}
