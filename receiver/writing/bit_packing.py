"""Bits, bytes and varints written within kernels.

What is being written is four numbers: where the next eight bytes go, the bits that wait for it (at
the top of a uint64), how many more it has room for. Eight bytes are stored at once, so a buffer
needs ``SLACK`` bytes behind what is said to be written to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from receiver.points.jit import Number, kernel

__all__ = [
    "SLACK",
    "flush_bits",
    "leading_zeros",
    "put_bits",
    "store_word",
    "trailing_zeros",
    "write_uvarint",
]

SLACK: Final = 16
_SWAPPED: Final = sys.byteorder == "little"
_64: Final = np.uint64(64)


def _intrinsic(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


@_intrinsic
def store_word(context: Any, out: Any, index: Any, word: Any) -> Any:
    """Eight bytes from one uint64, the highest first. The caller knows that there is room."""
    if not (isinstance(out, types.Array) and out.dtype == types.uint8 and out.layout == "C"):
        return None

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        at = builder.gep(array.data, [arguments[1]])
        value = builder.bswap(arguments[2]) if _SWAPPED else arguments[2]
        builder.store(value, builder.bitcast(at, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(out, types.intp, types.uint64), code


@_intrinsic
def leading_zeros(context: Any, word: Any) -> Any:
    """Of a uint64; 64 of 0."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), code


@_intrinsic
def trailing_zeros(context: Any, word: Any) -> Any:
    """Of a uint64; 64 of 0."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), code


@kernel
def put_bits(
    out: Any, pos: Number, waiting: Number, room: Number, value: Number, width: Number
) -> Number:
    """Write a number of 1 to 64 bits, the highest first: the (pos, waiting, room) behind it.

    Args:
        out: uint8.
        pos: int64, where the waiting bits go.
        waiting: uint64.
        room: uint64, 1 to 64.
        value: uint64, less than ``2 ** width``.
        width: uint64.
    """
    if width < room:
        return pos, waiting | (value << (room - width)), room - width
    over = width - room
    store_word(out, pos, waiting | (value >> over))
    if over == np.uint64(0):
        return pos + 8, np.uint64(0), _64
    return pos + 8, value << (_64 - over), _64 - over


@kernel
def flush_bits(out: Any, pos: Number, waiting: Number, room: Number) -> Number:
    """Write the waiting bits, zeros up to the next byte: the position behind."""
    store_word(out, pos, waiting)
    return pos + np.int64((_64 - room + np.uint64(7)) >> np.uint64(3))


@kernel
def write_uvarint(out: Any, pos: Number, number: Number) -> Number:
    """Write a uint64 in groups of seven bits, the lowest first: the position behind."""
    while number >= np.uint64(0x80):
        out[pos] = np.uint8((number & np.uint64(0x7F)) | np.uint64(0x80))
        number >>= np.uint64(7)
        pos += 1
    out[pos] = np.uint8(number)
    return pos + 1
