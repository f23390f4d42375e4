"""A device of a TsFile: its totals, and its series on demand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import msgspec

from common.tsfile.device_names import in_database
from common.tsfile.index import SeriesRun
from common.tsfile.layout import TIME_COLUMN_FLAG, VALUE_COLUMN_FLAG, DataType
from common.tsfile.primitives import Malformed
from common.tsfile.series import Series, check_chunks, decode, entries

__all__ = ["Device", "DeviceTotals", "add_up"]


class DeviceTotals(msgspec.Struct, frozen=True):
    """What the series of a device come to.

    Attributes:
        aligned: whether they share a time column.
        start: time of the first point, None without points.
        end: time of the last point, None without points.
        rows: of an aligned device its rows; otherwise the points of its longest series, which
            is the least number of rows it can have (the index does not know how times overlap).
        series_count: measurements, empty ones included, the time column not.
        point_count: over all measurements, nulls left out.
    """

    aligned: bool
    start: int | None
    end: int | None
    rows: int
    series_count: int
    point_count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A device as the index has it.

    Attributes:
        name: its one text form, see ``names``.
        segments: as v4 stores them, None for a null tag; of v3 a tuple of the one path.
        is_table: whether it is of the table model: (table, tag, ...).
        totals: what its series come to; the properties below are shorthands.
        index: of the whole file, raw.
        runs: where in it the device's series are.
    """

    name: str
    segments: tuple[str | None, ...]
    is_table: bool
    totals: DeviceTotals
    index: bytes = dataclasses.field(repr=False, compare=False)
    runs: tuple[SeriesRun, ...] = dataclasses.field(repr=False, compare=False)
    _codecs: bytes | None = dataclasses.field(default=None, repr=False, compare=False)

    def name_in(self, database: str) -> str:
        """Its name among the devices of many files: of a table, behind the database it lies in."""
        return in_database(self.name, database) if self.is_table else self.name

    @property
    def aligned(self) -> bool:
        """See ``DeviceTotals``."""
        return self.totals.aligned

    @property
    def start(self) -> int | None:
        """See ``DeviceTotals``."""
        return self.totals.start

    @property
    def end(self) -> int | None:
        """See ``DeviceTotals``."""
        return self.totals.end

    @property
    def rows(self) -> int:
        """See ``DeviceTotals``."""
        return self.totals.rows

    @property
    def series_count(self) -> int:
        """See ``DeviceTotals``."""
        return self.totals.series_count

    @property
    def point_count(self) -> int:
        """See ``DeviceTotals``."""
        return self.totals.point_count

    def series(self) -> Iterator[Series]:
        """Decode its measurements, in the file's order."""
        return (column for column in self.columns() if column.data_type != DataType.VECTOR)

    def time_column(self) -> Series | None:
        """Decode the time column; None where the file has none."""
        columns = (column for column in self.columns() if column.data_type == DataType.VECTOR)
        return next(columns, None)

    def columns(self) -> Iterator[Series]:
        """Decode all, in the file's order: the time column, whose name is empty, is the first."""
        codecs = None if self._codecs is None else iter(self._codecs)
        for begin, end in self.runs:
            for entry in entries(self.index, begin, end):
                yield decode(self.index, entry, codecs)


def add_up(buf: bytes, runs: Sequence[SeriesRun], limit: int, *, check: bool) -> DeviceTotals:
    """Read the series of one device.

    Args:
        buf: the index.
        runs: where in it they are.
        limit: where the data section ends.
        check: whether to compare each with its chunk list and ask for different names.

    Raises:
        Malformed, IndexError, struct.error: they are broken or contradict themselves.
    """
    number = points = rows = longest = flags = 0
    first: int | None = None
    last: int | None = None
    names: set[str] = set()
    for begin, end in runs:
        for entry in entries(buf, begin, end):
            kind, name, code, count, start, stop, *_ = entry
            if check:
                check_chunks(buf, entry, limit)
                if name in names:
                    raise Malformed(f"series {name!r} for the second time,", entry[6])
                names.add(name)
            flags |= kind
            if code == DataType.VECTOR:
                rows = count
                flags |= TIME_COLUMN_FLAG
            else:
                number += 1
                points += count
                longest = max(longest, count)
            if count:
                first = start if first is None or start < first else first
                last = stop if last is None or stop > last else last
    aligned = bool(flags & (TIME_COLUMN_FLAG | VALUE_COLUMN_FLAG))
    return DeviceTotals(aligned, first, last, rows or longest, number, points)
