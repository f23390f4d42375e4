"""PLAIN: values as they are.

    BOOLEAN              a byte, 0 is false
    INT32, DATE          a zigzag varint
    INT64, TIMESTAMP     8 bytes, the highest first; so are times
    FLOAT, DOUBLE        4 or 8 bytes, the highest first
    TEXT, STRING, BLOB   a zigzag varint with the length, the bytes

Source: apache/tsfile, ``PlainEncoder``, ``PlainDecoder``; the C++ writer has the same.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from common.tsfile import DataType, Encoding
from receiver.points.encodings.bits import uvarint
from receiver.points.encodings.codes import BAD_LENGTH, TRUNCATED
from receiver.points.encodings.decoder import (
    Array,
    Binaries,
    Bytes,
    Decoded,
    Decoder,
    Decoders,
    integers,
    numeric,
)
from receiver.points.encodings.zigzag import decode_varints
from receiver.points.jit import Number, kernel

__all__ = ["DECODERS", "decode_binaries"]


@kernel
def decode_binaries(data: Any, pos: Number, end: Number, offsets: Any, out: Any) -> Number:
    """Decode ``len(offsets) - 1`` binaries, or until the bytes end.

    Args:
        data: the bytes.
        pos: where they begin.
        end: where they end.
        offsets: int32, to be filled.
        out: uint8, to be filled, at least ``end - pos`` long.

    Returns:
        (how many, position behind, error).
    """
    filled: Number = 0
    offsets[0] = 0
    for index in range(len(offsets) - 1):
        if pos >= end:
            return index, pos, 0
        number, at = uvarint(data, pos, end, 5)
        if at < 0:
            return index, pos, TRUNCATED if at == -1 else BAD_LENGTH
        if number & np.uint64(1) or number >> np.uint64(32):
            return index, pos, BAD_LENGTH
        length = np.int64(number >> np.uint64(1))
        if length > end - at:
            return index, pos, TRUNCATED
        for each in range(length):
            out[filled + each] = data[at + each]
        filled += length
        pos = at + length
        offsets[index + 1] = filled
    return len(offsets) - 1, pos, 0


def _binaries(data: Bytes, pos: int, end: int, count: int) -> Decoded:
    offsets = np.empty(count + 1, np.int32)
    out = np.empty(end - pos, np.uint8)
    n, pos, error = decode_binaries(data, pos, end, offsets, out)
    offsets = offsets[: n + 1]
    return Decoded(Binaries(offsets, out[: offsets[-1]]), n, pos, error)


def _fixed(form: str, dtype: type[np.generic]) -> Decoder:
    """Values of so many bytes each, highest first."""
    size = np.dtype(form).itemsize

    def decoder(data: Bytes, pos: int, end: int, count: int) -> Decoded:
        n = min(count, (end - pos) // size)
        values: Array = data[pos : pos + n * size].view(form).astype(dtype)
        pos += n * size
        return Decoded(values, n, pos, TRUNCATED if n < count and pos < end else 0)

    return decoder


def _booleans(data: Bytes, pos: int, end: int, count: int) -> Decoded:
    values = (data[pos : min(end, pos + count)] != 0).view(np.uint8)
    return Decoded(values, len(values), pos + len(values), 0)


DECODERS: Final[Decoders] = {
    (Encoding.PLAIN, DataType.BOOLEAN): _booleans,
    **integers(Encoding.PLAIN, numeric(decode_varints, np.int32), _fixed(">i8", np.int64)),
    (Encoding.PLAIN, DataType.FLOAT): _fixed(">f4", np.float32),
    (Encoding.PLAIN, DataType.DOUBLE): _fixed(">f8", np.float64),
    (Encoding.PLAIN, DataType.TEXT): _binaries,
    (Encoding.PLAIN, DataType.STRING): _binaries,
    (Encoding.PLAIN, DataType.BLOB): _binaries,
    (Encoding.PLAIN, DataType.OBJECT): _binaries,
}
