"""LZ4 blocks as lz4-java and the C++ library write them: raw, without a frame.

A block is sequences: a token with two lengths of four bits, literals, then a distance of two bytes
(the lowest first) and a match of so many bytes and four, which are out already. A length of 15 goes
on with bytes up to the first that is not 255. The last sequence ends with its literals. Source of
the format: "LZ4 Block Format Description", lz4/doc.

pyarrow has a decoder, but it keeps to itself how much came out of a block that is too short, and
hands over memory that nothing was written to. To find the length first takes half as long again,
and then this is no slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic

from receiver.points.jit import Number, kernel

__all__ = ["BAD_DISTANCE", "OVERLONG", "TRUNCATED", "decompress_lz4"]

TRUNCATED: Final = 1  # the block ends within a sequence, or with a match
OVERLONG: Final = 2  # more comes out than there is room for
BAD_DISTANCE: Final = 3  # a match before the first byte, or at no distance

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_2: Final = np.uint64(2)
_4: Final = np.uint64(4)
_8: Final = np.uint64(8)
_15: Final = np.uint64(15)
_255: Final = np.uint64(255)
_WIDE: Final = np.uint64(16)


def _intrinsic(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


@_intrinsic
def _move(context: Any, out: Any, at: Any, data: Any, pos: Any) -> Any:
    """Copy 16 bytes from ``data[pos]`` to ``out[at]``. The caller knows that both are there."""
    for array in (out, data):
        if not (
            isinstance(array, types.Array) and array.dtype == types.uint8 and array.layout == "C"
        ):
            return None

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.VectorType(ir.IntType(8), 16).as_pointer()
        pointers = []
        for index in (0, 2):
            kind = signature.args[index]
            array = context.make_array(kind)(context, builder, arguments[index])
            if config.BOUNDSCHECK:
                size = cgutils.unpack_tuple(builder, array.shape)[0]
                last = builder.add(arguments[index + 1], ir.Constant(ir.IntType(64), 15))
                cgutils.do_boundscheck(context, builder, last, size)
            at = builder.gep(array.data, [arguments[index + 1]])
            pointers.append(builder.bitcast(at, wide))
        builder.store(builder.load(pointers[1], align=1), pointers[0], align=1)
        return context.get_dummy_value()

    return types.void(out, types.uint64, data, types.uint64), code


@kernel
def _literals(data: Any, pos: Number, end: Number, out: Any, n: Number, length: Number) -> None:
    """Copy bytes of ``data`` that are there to where there is room."""
    done = _0
    room = min(end - pos, np.uint64(len(out)) - n)
    while done + _WIDE <= room and done < length:
        _move(out, n + done, data, pos + done)
        done += _WIDE
    while done < length:
        out[n + done] = data[pos + done]
        done += _1


@kernel
def _match(out: Any, n: Number, distance: Number, length: Number) -> None:
    """Copy bytes that are out to where there is room; they may reach into those copied."""
    done = _0
    if distance < _WIDE:
        while done < length and done < _WIDE:
            out[n + done] = out[n + done - distance]
            done += _1
        distance *= (_15 // distance) + _1  # now the pattern stands there that often
    room = np.uint64(len(out)) - n
    while done + _WIDE <= room and done < length:
        _move(out, n + done, out, n + done - distance)
        done += _WIDE
    while done < length:
        out[n + done] = out[n + done - distance]
        done += _1


@kernel
def decompress_lz4(data: Any, out: Any) -> Number:
    """Decompress a block into ``out``.

    Each turn of the loop consumes at least one byte, and writes nothing outside ``out``.

    Args:
        data: uint8, all of the block.
        out: uint8.

    Returns:
        (bytes written, position reached, error or 0). Behind the bytes written, ``out`` may have
        changed as well.
    """
    end, size = np.uint64(len(data)), np.uint64(len(out))
    pos = n = _0  # unsigned: to numba a negative index would count from the end
    while pos < end:
        token = np.uint64(data[pos])
        pos += _1
        length = token >> _4
        if length == _15:
            while pos < end:
                more = np.uint64(data[pos])
                pos += _1
                length += more
                if more != _255:
                    break
        if length > end - pos:
            return n, pos, TRUNCATED
        if length > size - n:
            return n, pos, OVERLONG
        if length <= _WIDE and pos + _WIDE <= end and n + _WIDE <= size:
            _move(out, n, data, pos)
        else:
            _literals(data, pos, end, out, n, length)
        n += length
        pos += length
        if pos == end:
            return n, pos, 0
        if pos + _2 > end:
            return n, pos, TRUNCATED
        distance = np.uint64(data[pos]) | (np.uint64(data[pos + _1]) << _8)
        pos += _2
        length = token & _15
        if length == _15:
            while pos < end:
                more = np.uint64(data[pos])
                pos += _1
                length += more
                if more != _255:
                    break
        length += _4
        if distance == _0 or distance > n:
            return n, pos, BAD_DISTANCE
        if length > size - n:
            return n, pos, OVERLONG
        if distance >= _WIDE and length <= _WIDE + _WIDE and n + _WIDE + _WIDE <= size:
            _move(out, n, out, n - distance)
            _move(out, n + _WIDE, out, n + _WIDE - distance)
        else:
            _match(out, n, distance, length)
        n += length
    return n, pos, TRUNCATED
