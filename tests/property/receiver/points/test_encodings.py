from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.tsfile import Encoding
from receiver.points.encodings import BadPage, Unsupported, decode_values
from tests.support import tiers
from tests.support.encoders.cases import CASES, Case, decoded_list, key

QUICK = settings(
    max_examples=tiers.examples(25),
    database=None,
)
EVERY = pytest.mark.parametrize("case", CASES, ids=str)
# (Of a page with a single value, TS_2DIFF cut by one byte may be what the C++ writer writes.)
# The zeros that fill up the last byte can be read as the value that ends the page, over and over.
ENDED_BY_A_VALUE = {Encoding.GORILLA, Encoding.GORILLA_V1, Encoding.CHIMP}
ROOM = 5  # bytes in front and behind that are none of the decoder's business


def decode(case: Case, page: bytes, count: int) -> list[object]:
    """Decode a page that stands amid other bytes."""
    data = np.frombuffer(b"\xa5" * ROOM + page + b"\x5a" * ROOM, np.uint8)
    end = len(data) - ROOM
    return decoded_list(decode_values(case.encoding, case.data_type, data, ROOM, end, count))


def wanted(case: Case, values: list[object]) -> list[object]:
    expect = case.expect or (lambda value: value)
    return [key(expect(value), case.data_type) for value in values]


@EVERY
@QUICK
@given(data=st.data())
def test_what_was_encoded_comes_back_bit_for_bit(case: Case, data: st.DataObject) -> None:
    values = data.draw(case.values)
    assert decode(case, case.encode(values), len(values)) == wanted(case, values)


@EVERY
@settings(QUICK, max_examples=tiers.examples(4))
@given(data=st.data())
def test_a_page_that_ends_early_is_an_error_at_every_byte(case: Case, data: st.DataObject) -> None:
    values = data.draw(case.values.filter(lambda drawn: 1 < len(drawn) < 70))
    page = case.encode(values)
    for length in range(len(page)):
        with pytest.raises(BadPage):
            decode(case, page[:length], len(values))


@EVERY
@settings(QUICK, max_examples=tiers.examples(6))
@given(data=st.data())
def test_a_page_of_another_count_is_an_error(case: Case, data: st.DataObject) -> None:
    values = data.draw(case.values)
    if case.encoding in ENDED_BY_A_VALUE:
        values = [*values, 1]  # none that could be the end
    page = case.encode(values)
    counts = {0, len(values) - 1, len(values) + 20, 3 * len(values) + 20}
    if case.encoding not in ENDED_BY_A_VALUE:
        counts |= {len(values) + 1, len(values) + 8}
    for count in counts:
        with pytest.raises(BadPage):
            decode(case, page, count)


@EVERY
@settings(QUICK, max_examples=tiers.examples(6))
@given(data=st.data())
def test_bytes_left_over_are_an_error(case: Case, data: st.DataObject) -> None:
    values = data.draw(case.values)
    page = case.encode(values)
    for tail in (b"\0", b"\xff", b"\0" * 9, b"\x01\x01\x01\x01"):
        with pytest.raises(BadPage):
            decode(case, page + tail, len(values))


@EVERY
def test_garbage_ends_in_an_error_or_in_as_many_values_as_asked(case: Case) -> None:
    chance = random.Random(str(case))
    for _ in range(150):
        page = chance.randbytes(chance.choice((0, 1, 5, 24, 90)))
        if chance.random() < 0.5:
            page = bytes(byte & chance.choice((1, 3, 255)) for byte in page)
        count = chance.choice((0, 1, 7, 130, 4000))
        try:
            values = decode(case, page, count)
        except (BadPage, Unsupported):
            continue
        assert len(values) == count
