"""Rows of a file are put to constraints, device by device; the first that is broken is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from common.errors import UsageError
from common.tsfile import ColumnCategory, Corrupt
from receiver.points.errors import DamagedData, UnsupportedData
from receiver.points.reader import TsFileReader
from receiver.row_checks.constraints import must_pass, named
from receiver.row_checks.rows_asked import BrokenRow, RowsAnswer

if TYPE_CHECKING:
    from common.tsfile import Device
    from receiver.row_checks.constraints import Constraint
    from receiver.row_checks.rows_asked import RowsAsked

__all__ = ["check_rows"]

_ROWS: Final = 8192
"""Rows that a constraint is given at once, at most."""
_LONGEST: Final = 1000
"""Characters of what a constraint says."""


def check_rows(asked: RowsAsked) -> RowsAnswer:
    """Put all rows of a file to constraints; deletions beside it count for nothing."""
    try:
        with TsFileReader(asked.path, name=asked.name) as file:
            return RowsAnswer(_first_broken(file, asked))
    except (DamagedData, UnsupportedData, Corrupt, OSError, UsageError) as error:
        return RowsAnswer(None, str(error))


def _first_broken(file: TsFileReader, asked: RowsAsked) -> BrokenRow | None:
    tags = {
        table.name: [each.name for each in table.columns if each.category == ColumnCategory.TAG]
        for table in file.tail.tables
    }
    found: dict[str | None, Mapping[str, Constraint]] = {}
    for device in file.tail.devices:
        table = device.segments[0] if device.is_table else None
        names = tags.get(table or "", [])
        if table not in found:
            found[table] = named(asked.constraints, names)
        for batch in _rows_of(file, device, names):
            for name, constraint in found[table].items():
                broken = _broken(constraint, batch)
                if broken is not None:
                    begin, end, reason = broken
                    times = batch.column("time")
                    first, last = times[begin].as_py(), times[end - 1].as_py()
                    return BrokenRow(name, device.name_in(asked.group), first, last, reason)
    return None


def _rows_of(file: TsFileReader, device: Device, tags: list[str]) -> Iterator[pa.RecordBatch]:
    """Rows with a column for their device, or one for each tag, behind their time."""
    if device.is_table:
        values = [*device.segments[1:], *[None] * len(tags)]
        said = dict(zip(tags, values, strict=False))
    else:
        said = {"device": device.name}
    for batch in file.read_device(device, batch_rows=_ROWS):
        time, *columns = batch.columns
        constant = [pa.array([each] * len(batch), pa.string()) for each in said.values()]
        names = ["time", *said, *batch.schema.names[1:]]
        yield pa.RecordBatch.from_arrays([time, *constant, *columns], names=names)


def _why(constraint: Constraint, batch: pa.RecordBatch) -> str | None:
    """Why a batch does not pass, None if it does."""
    try:
        must_pass(constraint, batch)
    except Exception as error:
        return str(error)[:_LONGEST] or type(error).__name__
    return None


def _broken(constraint: Constraint, batch: pa.RecordBatch) -> tuple[int, int, str] | None:
    """The first rows that do not pass (begin, end) and why; as few as do not pass by themselves."""
    why = _why(constraint, batch)
    if why is None:
        return None
    begin, end = 0, len(batch)
    while end - begin > 1:
        middle = (begin + end) // 2
        for low, high in ((begin, middle), (middle, end)):
            half = _why(constraint, batch.slice(low, high - low))
            if half is not None:
                begin, end, why = low, high, half
                break
        else:
            break  # these break it together only
    return begin, end, why
