"""FLOAT and DOUBLE scaled to integers, with and without marks in front."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tests.support.encoders.bitstream import float_bits, uvarint

Integers = Callable[[Sequence[int], int], bytes]


def floats(values: Sequence[float], size: int, places: int, integers: Integers) -> bytes:
    """As the writers from 2.1 on: marks where a value does not fit, or is no number."""
    scaled, raw, whole = [], [], []
    for value in values:
        kind = _kind(value, size, places)
        scaled.append(kind == "scaled")
        raw.append(kind == "raw")
        if kind == "raw":
            whole.append(float_bits(value, size))
        else:
            whole.append(_java_round(value * 10.0**places if kind == "scaled" else value, size))
    body = uvarint(places) + integers(whole, size)
    if all(scaled):
        return body
    count = uvarint(len(values))
    if any(raw):
        return uvarint(2**31 - 2) + count + _bitmap(scaled) + _bitmap(raw) + body
    return uvarint(2**31 - 1) + count + _bitmap(scaled) + body


def expected(value: float, size: int, places: int) -> float:
    """What comes back."""
    kind = _kind(value, size, places)
    if kind == "raw":
        return value
    if kind == "rounded":
        return float(_java_round(value, size))
    return _java_round(value * 10.0**places, size) / 10.0**places


def _java_round(value: float, size: int) -> int:
    whole = math.floor(value) + (value - math.floor(value) >= 0.5)
    return min(whole, 2 ** (size - 1) - 1)


def _kind(value: float, size: int, places: int) -> str:
    limit = 2.0 ** (size - 1)  # the largest integer as a float of that size
    most = limit - 1 if size == 32 else limit  # and as a double
    if math.isnan(value):
        return "raw"
    if -limit <= value * 10.0**places <= most:
        return "scaled"
    return "rounded" if -limit <= value <= limit else "raw"


def _bitmap(flags: Sequence[bool]) -> bytes:
    out = bytearray(len(flags) // 8 + 1)
    for index, flag in enumerate(flags):
        out[index // 8] |= flag << index % 8
    return bytes(out)
