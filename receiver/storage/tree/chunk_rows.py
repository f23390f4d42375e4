"""The second tier of a file: a row for each chunk, from the index at the file's end.

The index says where a chunk begins, and nowhere how long it is; up to the next chunk of the file,
or to the index, whoever reads has all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from common.tsfile.layout import DataType
from common.tsfile.tail import read_tail

if TYPE_CHECKING:
    from common.tsfile.byte_source import TsFileOrigin
    from common.tsfile.statistics import Statistics
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["chunk_rows"]

_LONGS: Final = frozenset({DataType.INT32, DataType.INT64, DataType.TIMESTAMP, DataType.DATE})
_DOUBLES: Final = frozenset({DataType.FLOAT, DataType.DOUBLE})


def chunk_rows(source: TsFileOrigin, row: FileRow) -> list[tuple[Any, ...]]:
    """Rows of `CHUNKS`, none of what is no whole TsFile.

    Args:
        source: the file.
        row: of it.

    Raises:
        OSError, TsferryError: the file cannot be read.
    """
    tail = read_tail(source)
    if not tail.complete:
        return []
    physical = row.physical
    _, group, _, partition, _ = physical.split("/")
    every = [(device, series) for device in tail.devices for series in device.columns()]
    starts = sorted({chunk.offset for _, series in every for chunk in series.chunks})
    ends = dict(zip(starts, [*starts[1:], tail.meta_offset], strict=False))
    return [
        (
            physical,
            row.created,
            group,
            int(partition),
            device.name_in(group),
            series.measurement,
            series.data_type.name,
            number,
            chunk.offset,
            ends[chunk.offset] - chunk.offset,
            *_of_points(chunk.statistics, series.data_type),
        )
        for device, series in every
        for number, chunk in enumerate(series.chunks)
    ]


def _of_points(found: Statistics, kind: DataType) -> tuple[Any, ...]:
    """Count, first and last time, minimum and maximum by the kind of the value, sum."""
    none = (None, None)
    if not found.count:
        return (0, *none, *none, *none, *none, None)
    bounds = (found.min, found.max)
    return (
        found.count,
        found.start,
        found.end,
        *(bounds if kind in _LONGS else none),
        *(bounds if kind in _DOUBLES else none),
        *(bounds if kind == DataType.STRING else none),
        None if found.sum is None else float(found.sum),
    )
