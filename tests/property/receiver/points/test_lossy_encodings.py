"""Where a writer loses something, what comes back is what a database reads of its own bytes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.tsfile import DataType, Encoding
from receiver.points.encodings import (
    BadPage,
    Unsupported,
    decode_values,
    has_old_form,
    is_rounded,
)
from tests.support import tiers
from tests.support.encoders import camel, freq, rlbe, sprintz
from tests.support.encoders.bitstream import bits, float_bits, to_bytes
from tests.support.encoders.cases import decoded_list, floats, integers

QUICK = settings(max_examples=tiers.examples(40), database=None)
FLOATS = {32: DataType.FLOAT, 64: DataType.DOUBLE}
INTEGERS = {32: DataType.INT32, 64: DataType.INT64}
SIZES = pytest.mark.parametrize("size", [32, 64])


def decode(
    encoding: Encoding, data_type: DataType, page: bytes, n: int, *, old: bool = False
) -> Any:
    data = np.frombuffer(page, np.uint8)
    return decode_values(encoding, data_type, data, 0, len(data), n, old_form=old)


@SIZES
@QUICK
@given(data=st.data())
def test_jumps_too_large_for_sprintz_come_back_as_its_readers_have_them(
    size: int, data: st.DataObject
) -> None:
    values = data.draw(integers(size))
    page = sprintz.values(values, size, floating=False)
    got = decode(Encoding.SPRINTZ, INTEGERS[size], page, len(values))
    assert decoded_list(got) == sprintz.read_back(values, size, floating=False)


@SIZES
@QUICK
@given(data=st.data())
def test_changes_of_sign_come_back_from_sprintz_as_its_readers_have_them(
    size: int, data: st.DataObject
) -> None:
    values = [float_bits(each, size) for each in data.draw(floats(size))]
    page = sprintz.values(values, size, floating=True)
    got = decode(Encoding.SPRINTZ, FLOATS[size], page, len(values))
    assert decoded_list(got) == sprintz.read_back(values, size, floating=True)


def test_a_value_and_its_opposite_are_one_to_sprintz() -> None:
    values = [float_bits(each, 64) for each in [1.0, -1.0] + [1.0] * 7]
    page = sprintz.values(values, 64, floating=True)
    assert decode(Encoding.SPRINTZ, DataType.DOUBLE, page, 9).tolist()[:2] == [1.0, 1.0]
    assert is_rounded(Encoding.SPRINTZ, DataType.DOUBLE)


@SIZES
@QUICK
@given(data=st.data())
def test_the_old_form_of_rlbe_adds_up_its_rounded_differences(
    size: int, data: st.DataObject
) -> None:
    values = data.draw(floats(size))
    page = rlbe.old_floats(values, size)
    got = decode(Encoding.RLBE, FLOATS[size], page, len(values), old=True)
    np.testing.assert_array_equal(got, np.array(rlbe.read_back(values, size), got.dtype))


@SIZES
def test_blocks_of_rlbe_begin_anew(size: int) -> None:
    values = [index * 0.25 for index in range(rlbe.BLOCK + 7)]
    page = rlbe.old_floats(values, size)
    assert decode(Encoding.RLBE, FLOATS[size], page, len(values), old=True).tolist() == values
    whole = rlbe.integers(range(rlbe.BLOCK + 7), size)
    got = decode(Encoding.RLBE, INTEGERS[size], whole, rlbe.BLOCK + 7)
    assert got.tolist() == list(range(rlbe.BLOCK + 7))


@SIZES
def test_only_floats_of_rlbe_have_an_old_form(size: int) -> None:
    assert has_old_form(Encoding.RLBE, FLOATS[size])
    assert not has_old_form(Encoding.RLBE, INTEGERS[size])
    assert is_rounded(Encoding.RLBE, FLOATS[size], old_form=True)
    assert not is_rounded(Encoding.RLBE, FLOATS[size])


@QUICK
@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=40))
def test_camel_keeps_any_double_but_for_its_last_bits(values: list[float]) -> None:
    got = decode(Encoding.CAMEL, DataType.DOUBLE, camel.doubles(values), len(values))
    np.testing.assert_allclose(got, values, rtol=1e-15, atol=0)


def test_camel_makes_a_zero_of_nan() -> None:
    values = [float("nan"), 1.5, float("nan"), -2.25]
    got = decode(Encoding.CAMEL, DataType.DOUBLE, camel.doubles(values), len(values))
    np.testing.assert_array_equal(got, [float("nan"), 1.5, 0.0, -2.25])


FREQUENCIES = st.integers(1, 60).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.dictionaries(st.integers(0, count - 1), st.integers(-(10**6), 10**6)),
        st.integers(-12, 3),
    )
)


@QUICK
@given(st.lists(FREQUENCIES, min_size=1, max_size=3))
def test_freq_gives_the_waves_that_its_numbers_name(
    blocks: list[tuple[int, dict[int, int], int]],
) -> None:
    page = b"".join(freq.block(*block) for block in blocks)
    wanted = [value for block in blocks for value in freq.waves(*block)]
    near = 1e-12 * max(1.0, *map(abs, wanted))
    got = decode(Encoding.FREQ, DataType.DOUBLE, page, len(wanted))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=near)
    whole = decode(Encoding.FREQ, DataType.INT64, page, len(wanted))
    np.testing.assert_allclose(whole, wanted, rtol=0, atol=0.5 + near)


def test_freq_that_ends_early_or_lies_is_an_error() -> None:
    page = freq.block(40, {0: 800, 3: -77, 9: 5, 39: 1, 7: 2, 8: 2, 10: 3, 11: 3, 12: 9}, -3)
    assert len(decode(Encoding.FREQ, DataType.DOUBLE, page, 40)) == 40
    for length in range(len(page)):
        with pytest.raises(BadPage):
            decode(Encoding.FREQ, DataType.DOUBLE, page[:length], 40)
    for count in (0, 1, 39, 41, 400):
        with pytest.raises(BadPage):
            decode(Encoding.FREQ, DataType.DOUBLE, page, count)
    with pytest.raises(BadPage):
        decode(Encoding.FREQ, DataType.DOUBLE, bytes(12), 1)


def test_freq_garbage_ends_in_an_error_or_in_as_many_values_as_asked() -> None:
    chance = random.Random(9)
    page = freq.block(40, {0: 800, 3: -77, 9: 5, 39: 1}, -3) * 3
    for _ in range(500):
        broken = bytearray(page)
        for _ in range(3):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        for data_type in (DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE):
            try:
                got = decode(Encoding.FREQ, data_type, bytes(broken), 120)
            except BadPage:
                continue
            assert len(got) == 120


@pytest.mark.parametrize("encoding", [Encoding.DIFF, Encoding.BITMAP])
@pytest.mark.parametrize("data_type", [DataType.INT32, DataType.DOUBLE, DataType.TEXT])
def test_a_number_without_a_writer_is_not_read(encoding: Encoding, data_type: DataType) -> None:
    with pytest.raises(Unsupported, match=encoding.name):
        decode(encoding, data_type, b"\0\0", 1)


@pytest.mark.parametrize(
    ("count", "rest", "why"),
    [
        (0, "", "count"),
        (99999, "0" * 64, "more values"),
        (1, bits(0, 6) + "11" + "0" * 16, "bit width"),
        (1, bits(33, 6) + "11" + "0" * 40, "bit width"),
        (1, bits(3, 6) + "11" + "001", "mark"),  # a number of one bit
        (1, bits(32, 6) + "11" + "1" * 32, "mark"),  # the highest stands as 0
        (1, bits(1, 6) + "011" + "00", "contradicts"),  # two, where one is left
        (1, bits(1, 6) + "0" * 200, "count"),  # a code without an end
        (1, bits(1, 6) + "0" * 20, "end in the middle"),
        (2, bits(8, 6) + "11" + "1" * 8, "end in the middle"),  # the second group is not there
    ],
)
def test_rlbe_that_no_writer_writes_is_an_error(count: int, rest: str, why: str) -> None:
    page = to_bytes(bits(count, 32) + rest)
    with pytest.raises(BadPage, match=why):
        decode(Encoding.RLBE, DataType.INT32, page, max(1, count & 3))
