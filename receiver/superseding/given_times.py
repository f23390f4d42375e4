"""Which times of which series a file gives: what is stored, without what was deleted of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from receiver.points.deleted.deletions import deleted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from common.tsfile import Device, Series
    from receiver.points import ChunkRef, TsFileReader
    from receiver.points.deleted.deletions import Deletions

__all__ = ["GivenTimes", "SeriesName", "given_times"]


class SeriesName(NamedTuple):
    """A series of a device; without a measurement it is the rows of a table."""

    device: str
    measurement: str
    table: bool


class GivenTimes(NamedTuple):
    """The times that a file gives of a series.

    Attributes:
        series: which.
        times: strictly increasing.
        stored: points that were decoded, deleted ones and those that others of the file hide too.
    """

    series: SeriesName
    times: npt.NDArray[np.int64]
    stored: int


def given_times(
    file: TsFileReader, device: Device, deletions: Deletions, start: int, end: int
) -> Iterator[GivenTimes]:
    """The times of all series of a device within a range; a null is no point, a row of a table is.

    Raises:
        DamagedData, UnsupportedData: something is not as the file says, or cannot be decoded.
        OSError: the file cannot be read.
    """
    for measurement, series in file.columns(device).items():
        rows_only = not measurement and device.aligned
        if rows_only and not device.is_table:
            continue
        parts: list[npt.NDArray[np.int64]] = []
        stored = 0
        for ref in file.chunks(device, series):
            for times, count in _of_chunk(file, device, series, ref, deletions, start, end):
                stored += 0 if rows_only else count
                if len(times):
                    parts.append(times)
        name = SeriesName(device.name, measurement, device.is_table)
        yield GivenTimes(name, _joined(parts), stored)


def _of_chunk(
    file: TsFileReader,
    device: Device,
    series: Series,
    ref: ChunkRef,
    deletions: Deletions,
    start: int,
    end: int,
) -> Iterator[tuple[npt.NDArray[np.int64], int]]:
    """Times of a chunk that are given, block by block, and how many points they are of."""
    rows = (ref.time_chunk or ref).statistics
    if not rows.count or rows.end < start or rows.start > end:
        return
    # Without a range the times of a chunk are decoded once for all columns.
    low, high = (None, None) if start <= rows.start and rows.end <= end else (start, end)
    ranges = deletions.ranges(device, series.measurement, chunk=ref.offset)
    for block in file.blocks(device, series, ref, start=low, end=high):
        times = block.times
        if block.column is not None and block.column.valid is not None:
            times = times[block.column.valid]
        if low is not None:
            first = int(np.searchsorted(times, start, side="left"))
            times = times[first : int(np.searchsorted(times, end, side="right"))]
        yield times[~deleted(times, ranges)] if ranges else times, len(times)


def _joined(parts: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    if not parts:
        return np.zeros(0, np.int64)
    times = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if len(times) > 1 and not (times[1:] > times[:-1]).all():
        times = np.unique(times)  # chunks that overlap
    return times
