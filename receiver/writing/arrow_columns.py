"""Arrow arrays as the columns that are written: what readers and merges give, the way back.

Numbers without nulls are not copied. The other way: ``Column.to_arrow``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from common.tsfile import DataType
from receiver.points.columns import BINARY, Column, dtype_of, expanded
from receiver.points.encodings import Binaries, Values

__all__ = ["column_of"]


def column_of(array: pa.Array, code: int) -> Column:
    """The column of an array.

    Args:
        array: of the type that ``arrow_type`` has for the data type; text may be binary.
        code: the data type.
    """
    if not array.null_count:
        return Column(code, _values(array, code))
    valid = np.asarray(array.is_valid())
    return Column(code, expanded(_values(array.drop_null(), code), valid), valid)


def _values(array: pa.Array, code: int) -> Values:
    """Of an array without nulls."""
    if code in BINARY:
        return _binaries(array)
    if code == DataType.BOOLEAN:
        array = pc.cast(array, pa.uint8())
    numbers: npt.NDArray[np.generic] = array.to_numpy(zero_copy_only=code != DataType.DATE)
    if code == DataType.DATE:
        return _yyyymmdd(numbers.astype("datetime64[D]"))
    return np.ascontiguousarray(numbers, dtype_of(code))


def _binaries(array: pa.Array) -> Binaries:
    if not len(array):
        return Binaries(np.zeros(1, np.int32), np.empty(0, np.uint8))
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return Binaries(bounds, content)


def _yyyymmdd(days: npt.NDArray[np.datetime64]) -> npt.NDArray[np.int32]:
    years = days.astype("datetime64[Y]")
    months = days.astype("datetime64[M]")
    year = years.astype(np.int64) + 1970
    month = (months - years.astype("datetime64[M]")).astype(np.int64) + 1
    day = (days - months.astype("datetime64[D]")).astype(np.int64) + 1
    dates: npt.NDArray[np.int32] = (year * 10_000 + month * 100 + day).astype(np.int32)
    return dates
