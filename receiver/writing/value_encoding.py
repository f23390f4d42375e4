"""Values and times in, the bytes of a page out: which encodings are written, which exchanged.

    encoding    BOOLEAN  INT32 DATE  INT64 TIMESTAMP  FLOAT DOUBLE  TEXT STRING BLOB
    PLAIN       x        x           x                x             x
    RLE         x        x           x
    TS_2DIFF             x           x
    GORILLA              x           x                x
    ZIGZAG               x           x
    CHIMP                x           x                x
    DICTIONARY                                                      TEXT STRING

All of them lose nothing and give back every bit (PLAIN too, of a NaN, where Java writes another).
The bytes are those of the Java writer. What else a file may have is exchanged (``written_as``):

    what                                  becomes     why
    RLE, TS_2DIFF of FLOAT, DOUBLE        GORILLA     they round to some decimal places
    SPRINTZ, CAMEL, FREQ                  TS_2DIFF    they lose what differs too much, NaN, or more
                                          or GORILLA  (the second of FLOAT and DOUBLE)
    GORILLA_V1                            GORILLA     Java reads nothing behind a NaN
    REGULAR                               TS_2DIFF    newer readers refuse it, and it fails off step
    RLBE                                  TS_2DIFF    of floats it has two forms, told apart by
                                          or GORILLA  nothing in the file
    DICTIONARY of BLOB                    PLAIN       no Java reader takes it

Which reader knows what: 0.12 has no ZIGZAG, CHIMP and DICTIONARY; ``SAFE`` is what all know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from common.tsfile import DataType, Encoding
from receiver.points.columns import BINARY
from receiver.points.encodings import Binaries, Bytes, Values
from receiver.points.encodings.gorilla import END_DOUBLE, END_FLOAT, END_INT32, END_INT64
from receiver.points.jit import readonly
from receiver.writing.bit_packing import SLACK
from receiver.writing.chimp_codes import room_for_chimp, write_chimp
from receiver.writing.deltas import room_for_deltas, write_deltas
from receiver.writing.runs import room_for_runs, write_runs
from receiver.writing.varints import (
    room_for_varints,
    write_binaries,
    write_varints,
    write_zigzag,
)
from receiver.writing.xors import room_for_xors, write_xors

__all__ = ["SAFE", "room_for", "write_values", "written_as"]

_Room: TypeAlias = Callable[[Any], int]
_Write: TypeAlias = Callable[[Any, Bytes, int], int]


class _Writer(NamedTuple):
    room: _Room
    write: _Write


SAFE: Final[dict[int, Encoding]] = {
    DataType.BOOLEAN: Encoding.RLE,
    DataType.FLOAT: Encoding.GORILLA,
    DataType.DOUBLE: Encoding.GORILLA,
    **dict.fromkeys((DataType.INT32, DataType.DATE), Encoding.TS_2DIFF),
    **dict.fromkeys((DataType.INT64, DataType.TIMESTAMP, DataType.VECTOR), Encoding.TS_2DIFF),
    **dict.fromkeys((DataType.TEXT, DataType.STRING, DataType.BLOB), Encoding.PLAIN),
}
"""Data type -> the encoding that every reader knows and that suits it."""


def written_as(encoding: int, data_type: int) -> Encoding:
    """The encoding that is written where a file had ``encoding``: itself, or see above."""
    if (encoding, data_type) in _WRITERS:
        return Encoding(encoding)
    return SAFE[data_type]


def room_for(encoding: int, data_type: int, values: Values) -> int:
    """Bytes that ``write_values`` may touch of its buffer, from its position on."""
    return _WRITERS[encoding, data_type].room(values)


def write_values(encoding: int, data_type: int, values: Values, out: Bytes, pos: int) -> int:
    """Write the values of one page, or the times (as VECTOR).

    Args:
        encoding: code, one of ``written_as``.
        data_type: code.
        values: as ``receiver.points.Column`` has them, nulls left out.
        out: uint8, with ``room_for`` bytes from ``pos`` on.
        pos: where to.

    Returns:
        The position behind.
    """
    return int(_WRITERS[encoding, data_type].write(values, out, pos))


def _of(kernel: Any, view: type[np.generic] | None, *more: Any) -> _Write:
    """A writer of numbers of a kernel; ``view``: as what their bits are taken."""

    def write(values: Any, out: Bytes, pos: int) -> int:
        bits = values if view is None else values.view(view)
        return int(kernel(readonly(bits), out, pos, *more))

    return write


def _big_endian(form: str) -> _Writer:
    size = np.dtype(form).itemsize

    def write(values: Any, out: Bytes, pos: int) -> int:
        end = pos + size * len(values)
        out[pos:end].view(form)[:] = values
        return end

    return _Writer(lambda values: size * len(values), write)


def _booleans(values: Any, out: Bytes, pos: int) -> int:
    out[pos : pos + len(values)] = values
    return pos + len(values)


def _runs_of_booleans(values: Any, out: Bytes, pos: int) -> int:
    return int(write_runs(readonly(values.astype(np.int32)), out, pos))


def _plain_binaries(values: Binaries, out: Bytes, pos: int) -> int:
    return int(write_binaries(readonly(values.offsets), readonly(values.data), out, pos))


def _room_for_binaries(values: Binaries) -> int:
    return int(values.offsets[-1] - values.offsets[0]) + 5 * len(values) + SLACK


def _dictionary(values: Binaries, out: Bytes, pos: int) -> int:
    """Each value once, in the order of their first; then their numbers."""
    buffers = [None, pa.py_buffer(values.offsets), pa.py_buffer(values.data)]
    array = pa.Array.from_buffers(pa.binary(), len(values), buffers).dictionary_encode()
    entries = array.dictionary.buffers()
    count = len(array.dictionary)
    offsets = np.frombuffer(entries[1], np.int32)[: count + 1]
    data = np.frombuffer(entries[2], np.uint8) if entries[2] else np.empty(0, np.uint8)
    head = np.array([count], np.int32)
    pos = int(write_varints(readonly(head), out, pos))
    pos = int(write_binaries(readonly(offsets), readonly(data), out, pos))
    numbers = array.indices.to_numpy()
    return int(write_runs(readonly(numbers.astype(np.int32)), out, pos))


def _room_for_dictionary(values: Binaries) -> int:
    return _room_for_binaries(values) + 5 * (len(values) + 8) + 10 + SLACK


def _integers(encoding: Encoding, narrow: _Writer, wide: _Writer) -> dict[tuple[int, int], _Writer]:
    types = dict.fromkeys((DataType.INT32, DataType.DATE), narrow)
    types |= dict.fromkeys((DataType.INT64, DataType.TIMESTAMP, DataType.VECTOR), wide)
    return {(encoding, each): writer for each, writer in types.items()}


def _by_bits(encoding: Encoding, room: _Room, kernel: Any) -> dict[tuple[int, int], _Writer]:
    """Of all numbers whose bits are written and followed by an end."""
    return {
        **_integers(
            encoding,
            _Writer(room, _of(kernel, None, END_INT32)),
            _Writer(room, _of(kernel, None, END_INT64)),
        ),
        (encoding, DataType.FLOAT): _Writer(room, _of(kernel, np.int32, END_FLOAT)),
        (encoding, DataType.DOUBLE): _Writer(room, _of(kernel, np.int64, END_DOUBLE)),
    }


_DELTAS: Final = _Writer(room_for_deltas, _of(write_deltas, None))
_RUNS: Final = _Writer(room_for_runs, _of(write_runs, None))
_ZIGZAG: Final = _Writer(room_for_varints, _of(write_zigzag, None))
_TEXTS: Final = _Writer(_room_for_binaries, _plain_binaries)

_WRITERS: Final[dict[tuple[int, int], _Writer]] = {
    (Encoding.PLAIN, DataType.BOOLEAN): _Writer(len, _booleans),
    **_integers(
        Encoding.PLAIN,
        _Writer(room_for_varints, _of(write_varints, None)),
        _big_endian(">i8"),
    ),
    (Encoding.PLAIN, DataType.FLOAT): _big_endian(">f4"),
    (Encoding.PLAIN, DataType.DOUBLE): _big_endian(">f8"),
    **{(Encoding.PLAIN, each): _TEXTS for each in BINARY},
    (Encoding.RLE, DataType.BOOLEAN): _Writer(
        lambda values: 5 * (len(values) + 8) + SLACK, _runs_of_booleans
    ),
    **_integers(Encoding.RLE, _RUNS, _RUNS),
    **_integers(Encoding.TS_2DIFF, _DELTAS, _DELTAS),
    **_integers(Encoding.ZIGZAG, _ZIGZAG, _ZIGZAG),
    **_by_bits(Encoding.GORILLA, room_for_xors, write_xors),
    **_by_bits(Encoding.CHIMP, room_for_chimp, write_chimp),
    **{
        (Encoding.DICTIONARY, each): _Writer(_room_for_dictionary, _dictionary)
        for each in (DataType.TEXT, DataType.STRING)
    },
}
