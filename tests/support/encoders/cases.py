"""Every (encoding, type) with its slow encoder and values worth trying, for tests and fuzzing."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from common.tsfile import DataType, Encoding
from receiver.points.encodings import Binaries, Values
from tests.support.encoders import (
    camel,
    chimp,
    decimal,
    dictionary,
    gorilla,
    plain,
    regular,
    rlbe,
    rle,
    sprintz,
    ts2diff,
    zigzag,
)
from tests.support.encoders.bitstream import float_bits, wrap

# Values are Python numbers or bytes; floats are compared by their bits (``key``).


@dataclass(frozen=True)
class Case:
    """How one encoding of one type is tried.

    Attributes:
        encode: values to the bytes of a page.
        values: a strategy for lists of values.
        expect: what comes back of a value that the encoding rounds.
        label: to tell apart what has one encoding and type.
    """

    encoding: Encoding
    data_type: DataType
    encode: Callable[[Sequence[Any]], bytes]
    values: st.SearchStrategy[list[Any]]
    expect: Callable[[Any], Any] | None = None
    label: str = ""

    def __str__(self) -> str:
        return "-".join(filter(None, (self.encoding.name, self.data_type.name, self.label)))


def decoded_list(values: Values) -> list[Any]:
    """Decoded values as Python has them, floats as their bits."""
    if isinstance(values, Binaries):
        return [values[index] for index in range(len(values))]
    if values.dtype.kind == "f":
        return [int(each) for each in values.view(f"i{values.itemsize}")]
    return [int(each) for each in values]


def key(value: Any, data_type: DataType) -> Any:
    """A value given to an encoder, as ``decoded_list`` would have it."""
    if data_type == DataType.FLOAT:
        return float_bits(float(np.float32(value)), 32)
    return float_bits(value, 64) if data_type == DataType.DOUBLE else value


# -- values ----------------------------------------------------------------------------------------


def integers(size: int) -> st.SearchStrategy[list[int]]:
    """Lists of numbers: extremes, small ones, runs, and slowly changing ones."""
    most = 2 ** (size - 1)
    number = st.one_of(
        st.sampled_from([0, 1, -1, most - 1, -most, -most + 1, most // 2]),
        st.integers(-40, 40),
        st.integers(-most, most - 1),
    )
    return st.one_of(
        st.lists(number, min_size=1, max_size=40),
        runs(number),
        st.tuples(number, st.lists(st.integers(-9, 9), min_size=1, max_size=300)).map(
            lambda drawn: _walk(*drawn, size)
        ),
    )


def runs(one: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Lists in which values repeat, up to a thousand times."""
    length = st.one_of(st.integers(1, 20), st.sampled_from([503, 504, 505, 1000]))
    return st.lists(st.tuples(one, length), min_size=1, max_size=5).map(
        lambda drawn: [value for value, times in drawn for _ in range(times)]
    )


def _walk(start: int, steps: Sequence[int], size: int) -> list[int]:
    walked = [start]
    for step in steps:
        walked.append(wrap(walked[-1] + step, size))
    return walked


def floats(size: int) -> st.SearchStrategy[list[float]]:
    """Lists of floats: NaNs of any bits, infinities, zeros of both signs, readings of a sensor."""
    anything = st.integers(0, 2**size - 1).map(lambda bits: _float(bits, size))
    one = st.one_of(
        anything,
        st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf"), 20.5]),
        st.integers(-1000, 1000).map(lambda number: number / 8),
    )
    return st.one_of(st.lists(one, min_size=1, max_size=60), runs(one))


def _float(bits: int, size: int) -> float:
    form = (">I", ">f") if size == 32 else (">Q", ">d")
    value: float = struct.unpack(form[1], struct.pack(form[0], bits))[0]
    return value


def _decimals(size: int) -> st.SearchStrategy[list[float]]:
    """Floats that survive Python's own float without a change of their bits."""
    one = st.one_of(
        st.floats(-1e6, 1e6, width=32),
        st.floats(width=size, allow_nan=False),
        st.sampled_from([0.0, float("nan"), float("inf"), 2.0**31, -(2.0**31), 2.0**40, 1e300])
        if size == 64
        else st.sampled_from([0.0, float("nan"), float("-inf"), 2.0**31, 2.0**30, 1e30]),
    )
    if size == 32:
        one = one.map(lambda value: float(np.float32(value)))
    return st.lists(one, min_size=1, max_size=40)


def regular_steps(size: int) -> st.SearchStrategy[list[int]]:
    """Lists with one step between values, some of them missing."""
    largest = 2 ** (size - 1) // 4000
    return st.builds(
        _regular,
        st.integers(-largest, largest),
        st.integers(1, 1000),
        st.lists(st.sampled_from([1, 1, 1, 2, 5]), max_size=300),
        st.booleans(),
    )


def _regular(first: int, step: int, gaps: Sequence[int], whole: bool) -> list[int]:
    values = [first]
    for index, gap in enumerate(gaps):  # the writer needs the step itself in each of its blocks
        values.append(values[-1] + step * (1 if whole or index % 2 else gap))
    return values


def _near_integers(size: int) -> st.SearchStrategy[list[int]]:
    """Lists of which neighbours differ by less than SPRINTZ can tell apart."""
    most = 2 ** (size - 4)
    number = st.one_of(st.integers(-most, most), st.integers(-9, 9))
    return st.one_of(
        st.lists(number, min_size=1, max_size=60),
        runs(number),
        st.tuples(number, st.lists(st.integers(-9, 9), min_size=1, max_size=300)).map(
            lambda drawn: _walk(*drawn, size)
        ),
    )


NEAR_FLOATS = st.lists(
    st.one_of(st.floats(1, 1000, width=32), st.sampled_from([0.5, 1.25])),
    min_size=1,
    max_size=80,
)
CAMEL_DOUBLES = st.lists(
    st.one_of(
        st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 9)).map(
            lambda drawn: drawn[0] / 10 ** drawn[1]
        ),
        st.integers(-(2**62), 2**62).map(float),
        st.sampled_from([0.0, -0.0, float("inf"), float("-inf"), 5e-324, 1.7e308, 2.0**63, 0.1]),
    ),
    min_size=1,
    max_size=60,
)

BINARY = st.one_of(st.binary(max_size=12), st.sampled_from([b"", b"on", b"off", b"\xff" * 130]))
BINARIES = st.one_of(st.lists(BINARY, min_size=1, max_size=40), runs(BINARY))

# -- cases -----------------------------------------------------------------------------------------


def _sized(
    encoding: Encoding,
    encode: Callable[[Sequence[int], int], bytes],
    values: Callable[[int], st.SearchStrategy[list[Any]]] = integers,
) -> list[Case]:
    """Of both sizes of integers; DATE and TIMESTAMP are stored as they are."""
    return [
        Case(encoding, data_type, lambda given, size=size: encode(given, size), values(size))
        for data_type, size in (
            (DataType.INT32, 32),
            (DataType.INT64, 64),
        )
    ]


def _as_bits(
    encoding: Encoding, encode: Callable[[Sequence[int], int], bytes], label: str = ""
) -> list[Case]:
    """Floats by their bits. (Python keeps the bits of a NaN of 64, not always of one of 32.)"""
    return [
        Case(
            encoding,
            data_type,
            lambda given, size=size: encode([float_bits(each, size) for each in given], size),
            floats(size),
            label=label,
        )
        for data_type, size in ((DataType.FLOAT, 32), (DataType.DOUBLE, 64))
    ]


def _scaled(encoding: Encoding, encode: decimal.Integers) -> list[Case]:
    """Floats that are scaled to integers."""
    return [
        Case(
            encoding,
            data_type,
            lambda given, size=size, places=places: decimal.floats(given, size, places, encode),
            _decimals(size),
            lambda value, size=size, places=places: decimal.expected(value, size, places),
            f"places{places}",
        )
        for data_type, size in ((DataType.FLOAT, 32), (DataType.DOUBLE, 64))
        for places in (0, 2, 6)
    ]


def _gorilla_ends(size: int, floating: bool) -> int:
    return gorilla.NAN[size] if floating else -(2 ** (size - 1))


CASES: list[Case] = [
    Case(Encoding.PLAIN, DataType.BOOLEAN, plain.booleans, st.lists(st.integers(0, 1), min_size=1)),
    *_sized(
        Encoding.PLAIN,
        lambda given, size: plain.int32s(given) if size == 32 else plain.fixed(given, "q"),
    ),
    Case(Encoding.PLAIN, DataType.FLOAT, lambda given: plain.fixed(given, "f"), floats(32)),
    Case(Encoding.PLAIN, DataType.DOUBLE, lambda given: plain.fixed(given, "d"), floats(64)),
    Case(Encoding.PLAIN, DataType.TEXT, plain.binaries, BINARIES),
    Case(Encoding.PLAIN, DataType.BLOB, plain.binaries, BINARIES),
    Case(
        Encoding.RLE,
        DataType.BOOLEAN,
        lambda given: rle.integers(given, 32),
        runs(st.integers(0, 1)),
    ),
    *_sized(Encoding.RLE, rle.integers),
    *_scaled(Encoding.RLE, rle.integers),
    *_sized(Encoding.TS_2DIFF, ts2diff.integers),
    *_scaled(Encoding.TS_2DIFF, ts2diff.integers),
    *_as_bits(Encoding.TS_2DIFF, ts2diff.integers, "bits"),
    *_sized(
        Encoding.GORILLA,
        lambda given, size: gorilla.second(given, size, _gorilla_ends(size, False)),
    ),
    *_as_bits(
        Encoding.GORILLA,
        lambda given, size: gorilla.second(given, size, _gorilla_ends(size, True)),
    ),
    *_as_bits(Encoding.GORILLA_V1, gorilla.first),
    *_sized(Encoding.ZIGZAG, zigzag.integers),
    *_sized(Encoding.REGULAR, regular.integers, regular_steps),
    Case(Encoding.DICTIONARY, DataType.TEXT, dictionary.binaries, BINARIES),
    Case(Encoding.DICTIONARY, DataType.STRING, dictionary.binaries, BINARIES),
    *_sized(
        Encoding.CHIMP,
        lambda given, size: chimp.values(given, size, _gorilla_ends(size, False)),
    ),
    *_as_bits(
        Encoding.CHIMP,
        lambda given, size: chimp.values(given, size, _gorilla_ends(size, True)),
    ),
    *_sized(
        Encoding.SPRINTZ,
        lambda given, size: sprintz.values(given, size, floating=False),
        _near_integers,
    ),
    Case(
        Encoding.SPRINTZ,
        DataType.FLOAT,
        lambda given: sprintz.values([float_bits(v, 32) for v in given], 32, floating=True),
        NEAR_FLOATS,
    ),
    Case(
        Encoding.SPRINTZ,
        DataType.DOUBLE,
        lambda given: sprintz.values([float_bits(v, 64) for v in given], 64, floating=True),
        NEAR_FLOATS,
    ),
    *_sized(Encoding.RLBE, rlbe.integers),
    *_as_bits(Encoding.RLBE, rlbe.integers),
    Case(Encoding.CAMEL, DataType.DOUBLE, camel.doubles, CAMEL_DOUBLES),
]
