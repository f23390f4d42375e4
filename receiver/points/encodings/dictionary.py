"""DICTIONARY: each value once, then their numbers. TEXT, STRING.

    page = varint n, n binaries as in PLAIN, numbers from 0 on as RLE of INT32

Source: apache/tsfile, ``DictionaryEncoder``, ``DictionaryDecoder``; the C++ writer has the same.
A small page can stand for very much text, so what comes out of one is bounded.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from common.tsfile import DataType, Encoding
from receiver.points.encodings import rle
from receiver.points.encodings.bits import uvarint
from receiver.points.encodings.codes import (
    BAD_COUNT,
    BAD_INDEX,
    BAD_LENGTH,
    TOO_LARGE,
    TRUNCATED,
)
from receiver.points.encodings.decoder import Binaries, Bytes, Decoded, Decoders
from receiver.points.encodings.plain import decode_binaries
from receiver.points.jit import Number, kernel

__all__ = ["DECODERS", "MAX_BYTES"]

MAX_BYTES: Final = 1 << 28
"""The most that the values of one page may come to, written out."""


def _decode(data: Bytes, pos: int, end: int, count: int) -> Decoded:
    nothing = Binaries(np.zeros(1, np.int32), np.empty(0, np.uint8))
    if pos >= end:
        return Decoded(nothing, 0, pos, 0)
    size, pos, error = _size(data, pos, end)
    if error:
        return Decoded(nothing, 0, pos, error)
    entries = np.empty(size + 1, np.int32)
    texts = np.empty(end - pos, np.uint8)
    n, pos, error = decode_binaries(data, pos, end, entries, texts)
    if error or n < size:
        return Decoded(nothing, 0, pos, error or TRUNCATED)
    numbers = np.empty(count, np.int32)
    n, pos, error = rle.decode(data, pos, end, numbers)
    if error:
        return Decoded(nothing, n, pos, error)
    numbers = numbers[:n]
    if n and (numbers.min() < 0 or numbers.max() >= size):
        return Decoded(nothing, n, pos, BAD_INDEX)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(np.diff(entries)[numbers], dtype=np.int64, out=offsets[1:])
    if offsets[-1] > MAX_BYTES:
        return Decoded(nothing, n, pos, TOO_LARGE)
    out = np.empty(offsets[-1], np.uint8)
    _write_out(texts, entries, numbers, out)
    return Decoded(Binaries(offsets.astype(np.int32), out), n, pos, 0)


def _size(data: Bytes, pos: int, end: int) -> tuple[int, int, int]:
    """How many entries there are: (number, position behind, error). Each has a byte at least."""
    number, at = uvarint(data, pos, end, 5)
    if at < 0:
        return 0, pos, TRUNCATED if at == -1 else BAD_LENGTH
    if number & 1 or number >> 1 > end - at:
        return 0, pos, BAD_COUNT
    return int(number) >> 1, at, 0


@kernel
def _write_out(texts: Any, entries: Any, numbers: Any, out: Any) -> None:
    """Write the entry of each number behind the last; the caller has seen that all fits."""
    filled: Number = 0
    for index in range(len(numbers)):
        for at in range(entries[numbers[index]], entries[numbers[index] + 1]):
            out[filled] = texts[at]
            filled += 1


DECODERS: Final[Decoders] = {
    (Encoding.DICTIONARY, DataType.TEXT): _decode,
    (Encoding.DICTIONARY, DataType.STRING): _decode,
    (Encoding.DICTIONARY, DataType.BLOB): _decode,
}
