"""Times that a series has both in a sequence and in an unsequence file, counted exactly.

Runs in workers, for the few devices of which two files have common time. Nothing here judges a
file: what cannot be read or is too large counts as not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from common.errors import TsferryError
from common.tsfile.device_names import split_database
from receiver.points.reader import TsFileReader
from receiver.spark.finder import shown
from receiver.spark.report.results import Duplicates
from receiver.spark.verify.examining.file_checks import opened
from receiver.spark.verify.examining.limits import TimeIsUp, time_limit
from receiver.spark.verify.examining.parts import Expected

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from common.tsfile import Device, Series

__all__ = ["MOST_POINTS", "Pair", "common_times"]

MOST_POINTS = 20_000_000
"""Of one series in one file and the common time; more are not compared."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two files, and the devices of which they have common time (by their catalogue names)."""

    sequence: Expected
    unsequence: Expected
    devices: tuple[str, ...]


def common_times(pair: Pair, limit: float | None) -> list[Duplicates]:
    """The series of two files that have times in common, or may have.

    Args:
        pair: what to compare.
        limit: seconds, after which the rest counts as not known.
    """
    found: list[Duplicates] = []
    done = 0
    try:
        with (
            time_limit(limit),
            opened(pair.sequence) as early,
            opened(pair.unsequence) as late,
            TsFileReader(early, name=pair.sequence.physical) as sequence,
            TsFileReader(late, name=pair.unsequence.physical) as unsequence,
        ):
            for device in pair.devices:
                found += _of_device(pair, device, sequence, unsequence)
                done += 1
    except (TimeIsUp, MemoryError, OSError, TsferryError):
        found += [_row(pair, each, "", None) for each in pair.devices[done:]]
    return found


def _of_device(
    pair: Pair, device: str, sequence: TsFileReader, unsequence: TsFileReader
) -> Iterator[Duplicates]:
    name = split_database(device)[1]
    early, late = sequence.device(name), unsequence.device(name)
    there = {each.measurement: each for each in early.series()}
    for series in late.series():
        other = there.get(series.measurement)
        if other is None or series.start is None or other.start is None:
            continue
        assert series.end is not None
        assert other.end is not None
        low, high = max(series.start, other.start), min(series.end, other.end)
        if low > high:
            continue
        try:
            mine = _times(unsequence, late, series, low, high)
            theirs = _times(sequence, early, other, low, high) if len(mine) else mine
        except _TooManyError:
            yield _row(pair, device, series.measurement, None)
            continue
        both = np.intersect1d(mine, theirs)
        if len(both):
            yield _row(pair, device, series.measurement, both)


class _TooManyError(Exception):
    pass


def _times(
    reader: TsFileReader, device: Device, series: Series, low: int, high: int
) -> npt.NDArray[np.int64]:
    """The times of a series' points from `low` to `high`."""
    pieces, count = [np.empty(0, np.int64)], 0
    for chunk in reader.chunks(device, series):
        said = chunk.statistics
        if not said.count or said.start > high or said.end < low:
            continue
        for block in reader.blocks(device, series, chunk, start=low, end=high):
            times = block.times
            valid = None if block.column is None else block.column.valid
            keep = (times >= low) & (times <= high)
            if valid is not None:
                keep &= valid.astype(bool)
            pieces.append(times[keep])
            count += len(pieces[-1])
            if count > MOST_POINTS:
                raise _TooManyError
    return np.concatenate(pieces)


def _row(
    pair: Pair, device: str, measurement: str, both: npt.NDArray[np.int64] | None
) -> Duplicates:
    return Duplicates(
        device,
        measurement,
        shown(pair.sequence.physical),
        shown(pair.unsequence.physical),
        None if both is None else len(both),
        None if both is None else int(both[0]),
        None if both is None else int(both[-1]),
    )
