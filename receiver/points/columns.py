"""Decoded values of one series in memory, and the same as Arrow arrays.

A ``Column`` has one row a time. Numbers stand in a numpy array, TEXT, STRING and BLOB in
``Binaries``; rows without a value (aligned devices only) are unset in ``valid`` and hold zeros.

    type        numpy     Arrow
    BOOLEAN     uint8     bool
    INT32       int32     int32
    DATE        int32     date32 (the file has yyyymmdd)
    INT64       int64     int64
    TIMESTAMP   int64     int64, in whatever unit the writer used
    FLOAT       float32   float
    DOUBLE      float64   double
    TEXT STRING Binaries  string, or binary where the caller asks for it
    BLOB OBJECT Binaries  binary
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from common.tsfile import DataType
from receiver.points.encodings import Binaries, Values
from receiver.points.jit import kernel

__all__ = [
    "BINARY",
    "Column",
    "InvalidValue",
    "TextForm",
    "arrow_type",
    "dtype_of",
    "expanded",
    "joined_values",
    "mask_array",
    "no_values",
    "times_array",
]

TextForm: TypeAlias = Literal["string", "binary"]

_DTYPES: Final[dict[int, type[np.generic]]] = {
    DataType.BOOLEAN: np.uint8,
    DataType.INT32: np.int32,
    DataType.DATE: np.int32,
    DataType.INT64: np.int64,
    DataType.TIMESTAMP: np.int64,
    DataType.FLOAT: np.float32,
    DataType.DOUBLE: np.float64,
}
BINARY: Final = frozenset({DataType.TEXT, DataType.STRING, DataType.BLOB, DataType.OBJECT})
_TEXT: Final = frozenset({DataType.TEXT, DataType.STRING})
_ARROW: Final[dict[int, pa.DataType]] = {
    DataType.BOOLEAN: pa.bool_(),
    DataType.INT32: pa.int32(),
    DataType.DATE: pa.date32(),
    DataType.INT64: pa.int64(),
    DataType.TIMESTAMP: pa.int64(),
    DataType.FLOAT: pa.float32(),
    DataType.DOUBLE: pa.float64(),
    DataType.BLOB: pa.binary(),
    DataType.OBJECT: pa.binary(),
}


class InvalidValue(ValueError):
    """A value that its Arrow type cannot hold.

    Attributes:
        row: which one.
    """

    def __init__(self, reason: str, row: int) -> None:
        super().__init__(reason)
        self.row = row


def times_array(times: npt.NDArray[np.int64]) -> pa.Array:
    """Times as an Arrow array of int64, not copied.

    Not by ``pa.array``: to look at a numpy array that imports pandas, which is half a second of
    each worker that Spark begins, as much as reading ten million values.
    """
    return pa.Array.from_buffers(pa.int64(), len(times), [None, pa.py_buffer(times)], 0)


def mask_array(flags: npt.NDArray[np.bool_]) -> pa.Array:
    """One bool a row as an Arrow array; as ``times_array``."""
    bits = pa.py_buffer(np.packbits(flags, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, bits], 0)


def dtype_of(code: int) -> type[np.generic] | None:
    """The numpy type of a column's numbers; None for binaries.

    Raises:
        KeyError: values of this type do not exist.
    """
    return None if code in BINARY else _DTYPES[code]


def arrow_type(code: int, text: TextForm = "string") -> pa.DataType:
    """The Arrow type of a data type (code, see ``common.tsfile.DataType``)."""
    if code in _TEXT:
        return pa.string() if text == "string" else pa.binary()
    return _ARROW[code]


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """Values of one series, one a row.

    Attributes:
        data_type: code, see ``common.tsfile.DataType``.
        values: see above.
        valid: one bool a row, None where every row has a value.
    """

    data_type: int
    values: Values
    valid: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def points(self) -> int:
        """Rows that have a value."""
        return len(self) if self.valid is None else int(np.count_nonzero(self.valid))

    def to_arrow(self, text: TextForm = "string") -> pa.Array:
        """The same as an Arrow array; numbers are not copied.

        Raises:
            InvalidValue: text that is not UTF-8, or a DATE that is none.
        """
        bitmap, nulls = None, 0
        if self.valid is not None:
            bitmap = pa.py_buffer(np.packbits(self.valid, bitorder="little"))
            nulls = len(self) - self.points
        kind = arrow_type(self.data_type, text)
        buffers = [bitmap, *self._buffers()]
        array = pa.Array.from_buffers(kind, len(self), buffers, nulls)
        if kind == pa.string():
            _check_utf8(array)
        return array

    def _buffers(self) -> list[pa.Buffer]:
        values = self.values
        if isinstance(values, Binaries):
            return [pa.py_buffer(values.offsets), pa.py_buffer(values.data)]
        if self.data_type == DataType.BOOLEAN:
            return [pa.py_buffer(np.packbits(values, bitorder="little"))]
        if self.data_type == DataType.DATE:
            return [pa.py_buffer(_days(values, self.valid))]
        return [pa.py_buffer(values)]


def joined_values(parts: Sequence[Values]) -> Values:
    """Values of one type, one behind the other; there is at least one part."""
    if len(parts) == 1:
        return parts[0]
    if not isinstance(parts[0], Binaries):
        return np.concatenate([part for part in parts if not isinstance(part, Binaries)])
    binaries = [part for part in parts if isinstance(part, Binaries)]
    offsets = np.zeros(1 + sum(map(len, binaries)), np.int32)
    at, base = 1, 0
    for part in binaries:
        first = int(part.offsets[0])
        offsets[at : at + len(part)] = part.offsets[1:] + (base - first)
        at += len(part)
        base += int(part.offsets[-1]) - first
    pieces = [part.data[part.offsets[0] : part.offsets[-1]] for part in binaries]
    return Binaries(offsets, np.concatenate(pieces))


def expanded(values: Values, valid: npt.NDArray[np.bool_]) -> Values:
    """Values without nulls, spread over the rows that have one.

    Args:
        values: as many as ``valid`` has true ones.
        valid: one bool a row.
    """
    if isinstance(values, Binaries):
        lengths = np.zeros(len(valid) + 1, np.int32)
        lengths[1:][valid] = np.diff(values.offsets)
        lengths[0] = values.offsets[0]
        return Binaries(np.cumsum(lengths, dtype=np.int32), values.data)
    rows = np.zeros(len(valid), values.dtype)
    _spread(values, valid, rows)
    return rows


@kernel
def _spread(values: Any, valid: Any, rows: Any) -> None:
    at = 0
    for row in range(len(rows)):
        if valid[row] and at < len(values):
            rows[row] = values[at]
            at += 1


def no_values(code: int, rows: int) -> Column:
    """A column of so many rows without a single value."""
    dtype = dtype_of(code)
    values: Values
    if dtype is None:
        values = Binaries(np.zeros(rows + 1, np.int32), np.zeros(0, np.uint8))
    else:
        values = np.zeros(rows, dtype)
    return Column(code, values, np.zeros(rows, np.bool_))


def _check_utf8(array: pa.Array) -> None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raw = array.view(pa.binary())
        for row, value in enumerate(raw):
            try:
                str(value.as_py() or b"", "utf-8")
            except UnicodeDecodeError:
                raise InvalidValue("a text that is not UTF-8 (read it as binary)", row) from None
        raise


@kernel
def _days_from_civil(dates: Any, valid: Any, days: Any) -> int:
    """Turn yyyymmdd into days since 1970; return the first row that is no date, -1 if none."""
    for at in range(len(dates)):
        if len(valid) and not valid[at]:
            days[at] = 0
            continue
        date = np.int64(dates[at])
        year, month, day = date // 10000, date // 100 % 100, date % 100
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        longest = 31 - (month == 4 or month == 6 or month == 9 or month == 11)
        if month == 2:
            longest = 28 + leap
        if date < 10101 or month < 1 or month > 12 or day < 1 or day > longest:
            return at
        shifted = year - (month <= 2)  # a year that ends with February
        era = shifted // 400
        of_era = shifted - era * 400
        of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
        days[at] = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    return -1


def _days(
    dates: npt.NDArray[np.int32], valid: npt.NDArray[np.bool_] | None
) -> npt.NDArray[np.int32]:
    days = np.empty(len(dates), np.int32)
    wrong = _days_from_civil(dates, np.zeros(0, np.bool_) if valid is None else valid, days)
    if wrong >= 0:
        raise InvalidValue(f"the DATE {dates[wrong]} is no date of the form yyyymmdd", wrong)
    return days
