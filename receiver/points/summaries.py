"""What decoded points come to, computed as the writers do it, so that it must match to the bit.

Java and C++ agree: minimum and maximum start with the first value and give way to a smaller or
larger one (so a NaN that comes first stays), sums are taken one by one in the order of time (an
integer for INT32 and DATE, a double for all others, the number of true ones for BOOLEAN). Those
of a chunk come from those of its pages, those of a series from those of its chunks. Source:
apache/tsfile, ``file.metadata.statistics``, ``cpp/src/common/statistic.h``.

A summary of a page is a row of int64, the columns of ``pages`` from its ``COUNT`` on: here they
are called ``ROW_COUNT`` to ``ROW_SUM``.
"""

from __future__ import annotations

import enum
import functools
import math
import operator
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from common.tsfile import DataType, Statistics, Value
from receiver.points.columns import BINARY
from receiver.points.encodings import FLOATS
from receiver.points.jit import kernel
from receiver.points.page_data import pages

__all__ = [
    "ROW_COUNT",
    "ROW_END",
    "ROW_START",
    "ROW_WIDTH",
    "Agreement",
    "SummaryRows",
    "as_row",
    "differing",
    "extremes",
    "first_out_of_order",
    "fold",
    "merge",
    "row_statistics",
    "settle",
    "summarise",
]

SummaryRows: TypeAlias = npt.NDArray[np.int64]

ROW_COUNT: Final = 0
ROW_START: Final = pages.START - pages.COUNT
ROW_END: Final = pages.END - pages.COUNT
ROW_FIRST: Final = pages.FIRST - pages.COUNT
ROW_LAST: Final = pages.LAST - pages.COUNT
ROW_MIN: Final = pages.MIN - pages.COUNT
ROW_MAX: Final = pages.MAX - pages.COUNT
ROW_SUM: Final = pages.SUM - pages.COUNT
ROW_WIDTH: Final = pages.WIDTH - pages.COUNT

_FLOAT_NAN: Final = 0x7FC00000
_DOUBLE_NAN: Final = 0x7FF8000000000000
_INT_SUMS: Final = frozenset({DataType.BOOLEAN, DataType.INT32, DataType.DATE})
_INTEGERS: Final = struct.Struct("=8q")
_INTEGERS_SUMMED_AS_DOUBLE: Final = struct.Struct("=7qd")
_ROWS: Final[dict[int, struct.Struct]] = {
    DataType.INT64: _INTEGERS_SUMMED_AS_DOUBLE,
    DataType.TIMESTAMP: _INTEGERS_SUMMED_AS_DOUBLE,
    DataType.FLOAT: _INTEGERS_SUMMED_AS_DOUBLE,
    DataType.DOUBLE: struct.Struct("=3q5d"),
}
_QUICK: Final = frozenset(
    {DataType.INT32, DataType.DATE, DataType.INT64, DataType.TIMESTAMP, DataType.DOUBLE}
)  # of these a row is the numbers one after the other
_FOUR_INTS: Final = struct.Struct("=4i")
_FOUR_FLOATS: Final = struct.Struct("=4f")
_NO_POINTS: Final = Statistics(0, 2**63 - 1, -(2**63))


def summarise(
    code: int, values: npt.NDArray[Any], bounds: npt.NDArray[np.int64], rows: SummaryRows
) -> None:
    """Write first, last, min, max and sum of several pages of numbers, one pass over them.

    Args:
        code: data type, one of numbers.
        values: of the pages, one behind the other, nulls left out.
        bounds: where in ``values`` each page begins, and the end; all lie within it.
        rows: zeros, one row a page more or less; the first ``len(bounds) - 1`` are written.
    """
    if code == DataType.BOOLEAN:
        _booleans(values, bounds, rows)
    elif code in _INT_SUMS:
        _integers(values, bounds, rows)
    elif code == DataType.FLOAT:
        _numbers(values, values.view(np.int32), bounds, rows, rows.view(np.float64), _FLOAT_NAN)
    elif code == DataType.DOUBLE:
        _numbers(values, values.view(np.int64), bounds, rows, rows.view(np.float64), _DOUBLE_NAN)
    else:
        _numbers(values, values, bounds, rows, rows.view(np.float64), 0)


@kernel
def _booleans(values: Any, bounds: Any, rows: Any) -> None:
    for page in range(len(bounds) - 1):
        low, high = bounds[page], bounds[page + 1]
        if low == high:
            continue
        total = np.int64(0)
        for at in range(low, high):
            total += np.int64(values[at])
        row = rows[page]
        row[ROW_FIRST] = values[low]
        row[ROW_LAST] = values[high - 1]
        row[ROW_SUM] = total


@kernel
def _integers(values: Any, bounds: Any, rows: Any) -> None:
    for page in range(len(bounds) - 1):
        low, high = bounds[page], bounds[page + 1]
        if low == high:
            continue
        least = most = values[low]
        total = np.int64(0)
        for at in range(low, high):
            value = values[at]
            least = min(least, value)
            most = max(most, value)
            total += np.int64(value)
        row = rows[page]
        row[ROW_FIRST] = values[low]
        row[ROW_LAST] = values[high - 1]
        row[ROW_MIN] = least
        row[ROW_MAX] = most
        row[ROW_SUM] = total


@kernel
def _numbers(values: Any, bits: Any, bounds: Any, rows: Any, doubles: Any, nan: int) -> None:
    """As ``_integers``, summed as doubles; a NaN becomes the bits ``nan``."""
    for page in range(len(bounds) - 1):
        low, high = bounds[page], bounds[page + 1]
        if low == high:
            continue
        least = most = low
        least_value = most_value = values[low]
        total = np.float64(values[low])
        for at in range(low + 1, high):
            value = values[at]
            if value < least_value:
                least, least_value = at, value
            if value > most_value:
                most, most_value = at, value
            total += np.float64(value)
        row = rows[page]
        for column, at in (
            (ROW_FIRST, low),
            (ROW_LAST, high - 1),
            (ROW_MIN, least),
            (ROW_MAX, most),
        ):
            row[column] = np.int64(bits[at]) if values[at] == values[at] else np.int64(nan)
        doubles[page, ROW_SUM] = total
        if total != total:
            row[ROW_SUM] = np.int64(_DOUBLE_NAN)


@kernel
def first_out_of_order(times: Any, previous: int) -> int:
    """The first row whose time is not later than the one before it, -1 if none.

    Args:
        times: int64.
        previous: time of the row before; the least int64 where there is none.
    """
    last = np.int64(previous)
    for at in range(len(times)):
        if times[at] <= last and (at > 0 or last != np.iinfo(np.int64).min):
            return at
        last = times[at]
    return -1


@kernel
def extremes(offsets: Any, data: Any) -> tuple[int, int]:
    """Which binaries are the least and the greatest, bytes unsigned; there is at least one.

    Args:
        offsets: where in ``data`` each begins, and the end.
        data: uint8.
    """
    least = most = 0
    for at in range(1, len(offsets) - 1):
        if _before(data, offsets[at], offsets[at + 1], offsets[least], offsets[least + 1]):
            least = at
        if _before(data, offsets[most], offsets[most + 1], offsets[at], offsets[at + 1]):
            most = at
    return least, most


@kernel
def _before(data: Any, low: int, high: int, other_low: int, other_high: int) -> bool:
    for index in range(min(high - low, other_high - other_low)):
        ours, others = data[low + index], data[other_low + index]
        if ours != others:
            return bool(ours < others)
    return high - low < other_high - other_low


def row_statistics(code: int, row: SummaryRows) -> Statistics:
    """A row of numbers as ``Statistics``; of other types its count and times."""
    numbers: Any = _ROWS.get(code, _INTEGERS).unpack(row.tobytes())
    count, start, end, first, last, least, most, total = numbers
    if not count or code == DataType.VECTOR or code in BINARY:
        return Statistics(count, start, end)
    if code == DataType.BOOLEAN:
        return Statistics(count, start, end, bool(first), bool(last), sum=total)
    if code == DataType.FLOAT:
        bits = _FOUR_INTS.pack(first, last, least, most)
        first, last, least, most = _FOUR_FLOATS.unpack(bits)
    return Statistics(count, start, end, first, last, least, most, total)


def fold(code: int, parts: Sequence[SummaryRows]) -> Statistics:
    """``merge`` of pages that are rows: the statistics of their chunk.

    Args:
        code: data type, not one of binaries (of those: count and times alone).
        parts: int64 ``(pages, ROW_WIDTH)`` each, in order.
    """
    if len(parts) == 1 and len(parts[0]) == 1 and parts[0][0, ROW_COUNT]:
        return row_statistics(code, parts[0][0])
    rows = np.concatenate(parts) if parts else np.zeros((0, ROW_WIDTH), np.int64)
    rows = rows[rows[:, ROW_COUNT] > 0]
    if not len(rows):
        return _NO_POINTS
    count = int(rows[:, ROW_COUNT].sum())
    starts, ends = rows[:, ROW_START], rows[:, ROW_END]
    start, end = int(starts.min()), int(ends.max())
    if code == DataType.VECTOR or code in BINARY:
        return Statistics(count, start, end)
    # of equal times the later page has the say
    first = _typed(code, rows[:, ROW_FIRST])[len(rows) - 1 - int(np.argmin(starts[::-1]))]
    last = _typed(code, rows[:, ROW_LAST])[len(rows) - 1 - int(np.argmax(ends[::-1]))]
    total: Any = functools.reduce(operator.add, _sums(code, rows[:, ROW_SUM]))
    if code == DataType.BOOLEAN:
        return Statistics(count, start, end, bool(first), bool(last), sum=total)
    least = functools.reduce(_lesser, _typed(code, rows[:, ROW_MIN]))
    most = functools.reduce(_greater, _typed(code, rows[:, ROW_MAX]))
    return Statistics(count, start, end, first, last, least, most, total)


def _typed(code: int, bits: SummaryRows) -> list[Any]:
    numbers: npt.NDArray[Any] = bits
    if code == DataType.FLOAT:
        numbers = bits.astype(np.int32).view(np.float32)
    elif code == DataType.DOUBLE:
        numbers = np.ascontiguousarray(bits).view(np.float64)
    return list(numbers.tolist())


def _sums(code: int, bits: SummaryRows) -> list[Any]:
    return _typed(DataType.INT64 if code in _INT_SUMS else DataType.DOUBLE, bits)


def as_row(code: int, known: Statistics) -> SummaryRows:
    """Statistics of numbers as a row; of other types count and times."""
    if known.max is not None and known.sum == known.sum and code in _QUICK:
        four = known.first, known.last, known.min, known.max
        if all(number == number for number in four):
            raw = _ROWS.get(code, _INTEGERS).pack(
                known.count, known.start, known.end, *four, known.sum
            )
            return np.frombuffer(raw, np.int64)
    row = np.zeros(ROW_WIDTH, np.int64)
    row[: ROW_END + 1] = known.count, known.start, known.end
    if known.first is None:
        return row
    numbers: list[Any] = [known.first, known.last, known.min, known.max]
    if known.min is None:  # of BOOLEAN; 0.0 and -0.0 are no other minimum
        numbers[2:] = 0, 0
    if code == DataType.FLOAT:
        row[ROW_FIRST:ROW_SUM] = np.array(numbers, np.float32).view(np.int32)
    elif code == DataType.DOUBLE:
        row[ROW_FIRST:ROW_SUM] = np.array(numbers, np.float64).view(np.int64)
    else:
        row[ROW_FIRST:ROW_SUM] = numbers
    if code in FLOATS:
        nan = _FLOAT_NAN if code == DataType.FLOAT else _DOUBLE_NAN
        row[ROW_FIRST:ROW_SUM][[number != number for number in numbers]] = nan
    total: Any = known.sum
    if code not in _INT_SUMS:
        total = _DOUBLE_NAN if total != total else np.float64(total).view(np.int64)
    row[ROW_SUM] = total
    return row


def merge(parts: Iterable[Statistics]) -> Statistics:
    """The statistics of a whole from those of its parts, in the file's order."""
    whole: Statistics | None = None
    for part in parts:
        if part.count:
            whole = part if whole is None else _join(whole, part)
    return whole or _NO_POINTS


def _join(one: Statistics, other: Statistics) -> Statistics:
    least = most = total = None
    if one.min is not None and other.min is not None:
        least, most = _lesser(one.min, other.min), _greater(one.max, other.max)
    if one.sum is not None and other.sum is not None:
        total = one.sum + other.sum
    return Statistics(
        one.count + other.count,
        min(one.start, other.start),
        max(one.end, other.end),
        other.first if other.start <= one.start else one.first,
        other.last if other.end >= one.end else one.last,
        least,
        most,
        total,
    )


def _lesser(one: Any, other: Any) -> Any:
    return other if other < one else one


def _greater(one: Any, other: Any) -> Any:
    return other if other > one else one


class Agreement(enum.Enum):
    """How numbers that were summed up in an unknown order compare."""

    EXACT = enum.auto()
    NEAR = enum.auto()
    NONE = enum.auto()


def settle(
    code: int, values: npt.NDArray[Any], ours: SummaryRows, theirs: SummaryRows
) -> Agreement:
    """Take over what is said of a page where its values may come to it in another order.

    The C++ writer (2.5) takes the first value of a page, then what it is given at once in two
    lanes: exact if it was given the page at once. Otherwise the order is not to be known, and two
    orders differ by what rounding can do at most. Where there is a NaN, its minimum and maximum
    depend on the order as well.

    Args:
        code: data type.
        values: numbers of one page.
        ours: its row, changed where that is so.
        theirs: what is said of it.
    """
    if code in _INT_SUMS or not len(values):
        return Agreement.NONE
    if theirs[ROW_SUM] == ours[ROW_SUM] == _DOUBLE_NAN and code in FLOATS:
        ours[ROW_MIN : ROW_MAX + 1] = theirs[ROW_MIN : ROW_MAX + 1]
        return Agreement.NEAR
    said = float(theirs[ROW_SUM : ROW_SUM + 1].view(np.float64)[0])
    if ours[ROW_SUM] == theirs[ROW_SUM] or not math.isfinite(said):
        return Agreement.NONE
    total, size = _sum_in_lanes(values)
    most = 2.0 * len(values) * 2.0**-53 * size
    if not abs(total - said) <= most:
        return Agreement.NONE
    ours[ROW_SUM] = theirs[ROW_SUM]
    return Agreement.EXACT if total == said else Agreement.NEAR


@kernel
def _sum_in_lanes(values: Any) -> tuple[float, float]:
    """The sum as the C++ writer takes it, and that of the magnitudes."""
    total = np.float64(values[0])
    size = abs(total)
    last = len(values) - (len(values) - 1) % 2
    if last > 1:
        even = odd = 0.0
        for at in range(1, last, 2):
            one, other = np.float64(values[at]), np.float64(values[at + 1])
            even += one
            odd += other
            size += abs(one) + abs(other)
        total += even + odd
    if last < len(values):
        one = np.float64(values[last])
        total += one
        size += abs(one)
    return total, size


def differing(ours: Statistics, theirs: Statistics, *, near_sum: bool = False) -> str | None:
    """What differs first, for a person: ``"sum is 3.0, not 4.0"``; None if nothing does.

    Args:
        ours: as decoded; what is None there is not compared.
        theirs: as the file says.
        near_sum: sums of doubles may differ by what another order of adding up makes of them.
    """
    if ours.count != theirs.count:
        return f"count is {ours.count}, not {theirs.count}"
    if not ours.count:
        return None
    for name in ("start", "end", "first", "last", "min", "max", "sum"):
        one, other = getattr(ours, name), getattr(theirs, name)
        if one is None or other is None or _same(one, other):
            continue
        if not (near_sum and name == "sum" and _near_sum(ours, theirs)):
            return f"{name} is {_shown(one)}, not {_shown(other)}"
    return None


def _near_sum(ours: Statistics, theirs: Statistics) -> bool:
    one, other, least, most = ours.sum, theirs.sum, ours.min, ours.max
    if not isinstance(one, float) or not isinstance(other, float) or isinstance(least, bytes):
        return False
    if least is None or most is None or isinstance(most, bytes):
        return False
    size = ours.count * max(abs(float(least)), abs(float(most)))
    return abs(one - other) <= 2.0 * ours.count * 2.0**-53 * size


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if one != one or other != other:
            return one != one and other != other
        return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)
    return one == other


def _shown(value: Value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
