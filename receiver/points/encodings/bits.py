"""Bits, bytes and varints within kernels.

All of them take ``end`` and read nothing at or behind it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic

from receiver.points.jit import Number, kernel

__all__ = ["load", "take", "unpack", "uvarint", "window"]

_SWAPPED: Final = sys.byteorder == "little"


def _intrinsic(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


@_intrinsic
def _load(context: Any, data: Any, index: Any) -> Any:
    """Eight bytes as one big-endian number: one instruction in place of sixteen."""
    if not (isinstance(data, types.Array) and data.dtype == types.uint8 and data.layout == "C"):
        return None

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        if config.BOUNDSCHECK:
            size = cgutils.unpack_tuple(builder, array.shape)[0]
            last = builder.add(arguments[1], ir.Constant(ir.IntType(64), 7))
            cgutils.do_boundscheck(context, builder, last, size)
        at = builder.gep(array.data, [arguments[1]])
        word = builder.load(builder.bitcast(at, ir.IntType(64).as_pointer()), align=1)
        return builder.bswap(word) if _SWAPPED else word

    return types.uint64(data, types.intp), code


@kernel
def load(data: Any, at: Number) -> Number:
    """Eight bytes from ``at`` on as uint64. The caller knows that they are there."""
    return _load(data, at)


@kernel
def window(data: Any, bit: Number, end: Number) -> Number:
    """The bits from ``bit`` on, at the top of a uint64: at least 57, zeros behind ``end``."""
    at = bit >> 3
    if at + 8 <= end:
        word = _load(data, at)
    else:
        word = np.uint64(0)
        for index in range(at, min(at + 8, end)):
            word |= np.uint64(data[index]) << np.uint64(56 - 8 * (index - at))
    return word << np.uint64(bit & 7)


@kernel
def take(data: Any, bit: Number, width: Number, end: Number) -> Number:
    """A number of 1 to 64 bits, the first bit the highest, as uint64."""
    word = window(data, bit, end)
    if width > 57:
        at = (bit >> 3) + 8
        if at < end:
            word |= np.uint64(data[at]) >> np.uint64(8 - (bit & 7))
    return word >> np.uint64(64 - width)


@kernel
def unpack(data: Any, at: Number, end: Number, width: Number, out: Any) -> None:
    """Fill ``out`` with numbers of ``width`` bits, packed from byte ``at`` on, highest bit first.

    Args:
        data: the bytes; the caller knows that all of them are there.
        at: byte.
        end: byte.
        width: 0 to 64.
        out: int32 or int64; of a wider number the low bits go in.
    """
    count = len(out)
    if width == 0:
        for index in range(count):  # not out[:] = 0, which takes longer to compile
            out[index] = 0
        return
    bit = at << 3
    down = np.uint64(64 - width)
    easy = min(count, max(0, ((end - 9 - at) * 8) // width))  # nine bytes stand at each of these
    if width <= 57:
        for index in range(easy):
            out[index] = np.int64((_load(data, bit >> 3) << np.uint64(bit & 7)) >> down)
            bit += width
    else:
        for index in range(easy):
            word = _load(data, bit >> 3) << np.uint64(bit & 7)
            word |= np.uint64(data[(bit >> 3) + 8]) >> np.uint64(8 - (bit & 7))
            out[index] = np.int64(word >> down)
            bit += width
    for index in range(easy, count):
        out[index] = np.int64(take(data, bit, width, end))
        bit += width


@kernel
def uvarint(data: Any, at: Number, end: Number, most: Number) -> Number:
    """An unsigned number in groups of seven bits, the lowest first.

    Args:
        data: the bytes.
        at: where it begins.
        end: where the bytes end.
        most: how many bytes it may have: 5 or 10.

    Returns:
        (uint64, position behind it). A position of -1: the bytes end within it; -2: it is too long.
    """
    number = np.uint64(0)
    for index in range(most):
        if at >= end:
            return number, np.int64(-1)
        byte = np.uint64(data[at])
        at += 1
        number |= (byte & np.uint64(0x7F)) << np.uint64(7 * index)
        if byte < np.uint64(0x80):
            return number, np.int64(at)
    return number, np.int64(-2)
