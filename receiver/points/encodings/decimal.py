"""Floats as integers: rounded to some decimal places, then encoded as INT32 or INT64.

    page    = [marks] uvarint places, integers      value = integer / 10 ** places
    marks   = uvarint 2**31 - 1, uvarint n, bitmap scaled
            | uvarint 2**31 - 2, uvarint n, bitmap scaled, bitmap raw
    bitmap  = n // 8 + 1 bytes, the lowest bit first

Newer writers (2.1 on) put marks in front where a value times 10 ** places is too large for the
integer: a value that is not marked ``scaled`` was rounded to a whole number, one that is marked
``raw`` is too large for that as well, or NaN, and its own bits stand there. Older ones wrote the
largest integer, or what was left of it, and the value is lost.

Source: apache/tsfile, ``FloatEncoder`` and ``FloatDecoder`` (1.1.0 and 2.2.0), ``BitMap``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from receiver.points.encodings.codes import BAD_COUNT, BAD_LENGTH, BAD_PRECISION, TRUNCATED
from receiver.points.encodings.decoder import Array, Bytes, Decoded, Decoder

__all__ = ["decimal"]

_SCALED_ONLY: Final = 2**31 - 1
_SCALED_AND_RAW: Final = 2**31 - 2
_TOO_SMALL_TO_SEE: Final = 309  # 10 ** 309 is infinite as a double, as it is to the writers


def decimal(integers: Decoder, dtype: type[np.generic]) -> Decoder:
    """Make a decoder of floats from the one of the integers that they were scaled to.

    Args:
        integers: decodes int32 or int64.
        dtype: the float of the same size.
    """

    def decoder(data: Bytes, pos: int, end: int, count: int) -> Decoded:
        nothing: Array = np.empty(0, dtype)
        if pos >= end:
            return Decoded(nothing, 0, pos, 0)
        marks: list[Array] = []
        number, at, error = _uvarint(data, pos, end)
        if not error and number in (_SCALED_ONLY, _SCALED_AND_RAW):
            marks, at, error = _marks(data, at, end, count, 1 + (number == _SCALED_AND_RAW))
            if not error:
                number, at, error = _uvarint(data, at, end)
        if not error and number >= 2**31:
            error = BAD_PRECISION
        if error:
            return Decoded(nothing, 0, at, error)
        whole, n, pos, error = integers(data, at, end, count)
        assert isinstance(whole, np.ndarray)
        scale = 10.0**number if number < _TOO_SMALL_TO_SEE else np.inf
        values = (whole / scale).astype(dtype)
        if marks:
            rounded = ~marks[0][:n]
            values[rounded] = whole[rounded]
            if len(marks) > 1:
                raw = marks[1][:n]
                values[raw] = whole.view(dtype)[raw]
        return Decoded(values, n, pos, error)

    return decoder


def _marks(
    data: Bytes, pos: int, end: int, count: int, bitmaps: int
) -> tuple[list[Array], int, int]:
    """Read so many bitmaps of ``count`` bits: (they, position behind, error)."""
    size, at, error = _uvarint(data, pos, end)
    if error:
        return [], at, error
    if size != count:
        return [], pos, BAD_COUNT
    length = size // 8 + 1
    if at + bitmaps * length > end:
        return [], at, TRUNCATED
    found = [
        np.unpackbits(data[start : start + length], count=count, bitorder="little").view(np.bool_)
        for start in range(at, at + bitmaps * length, length)
    ]
    return found, at + bitmaps * length, 0


def _uvarint(data: Bytes, pos: int, end: int) -> tuple[int, int, int]:
    """(number, position behind, error)."""
    number = 0
    for index in range(5):
        if pos + index >= end:
            return 0, pos, TRUNCATED
        byte = int(data[pos + index])
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, pos + index + 1, 0
    return 0, pos, BAD_LENGTH
