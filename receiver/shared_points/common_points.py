"""Looks for points that two files have: the same time of the same series, or row of a table."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np

from common.tsfile import Corrupt, Device
from receiver.points.deleted.deletions import Deletions
from receiver.points.errors import DamagedData, UnsupportedData
from receiver.points.reader import TsFileReader
from receiver.shared_points.compare_asked import CompareAnswer, SharedPoint
from receiver.superseding.given_times import given_times

if TYPE_CHECKING:
    import numpy.typing as npt

    from receiver.shared_points.compare_asked import CompareAsked, ComparedDevice, ComparedFile

__all__ = ["compare"]

_OPEN: Final = 32
"""Files that are open at a time."""


def compare(asked: CompareAsked) -> CompareAnswer:
    """Find a point that a new file has in common with one that is there, or with another new one.

    Deletions beside the files count for nothing: what was deleted is found all the same.
    """
    opened = _OpenFiles(asked.files)
    try:
        for each in asked.devices:
            found = _shared(asked, opened, each)
            if found is not None:
                return CompareAnswer(found)
    except (DamagedData, UnsupportedData, Corrupt, OSError) as error:
        return CompareAnswer(None, str(error))
    finally:
        opened.close()
    return CompareAnswer(None)


def _shared(asked: CompareAsked, opened: _OpenFiles, wanted: ComparedDevice) -> SharedPoint | None:
    # Those that are there come first, so that a time of theirs stands before that of a new one.
    files = sorted(wanted.files, key=lambda number: asked.files[number].is_new)
    series: dict[str, list[tuple[int, npt.NDArray[np.int64]]]] = defaultdict(list)
    for number in files:
        file, devices = opened.at(number)
        device = devices.get(wanted.name)
        if device is None:
            continue
        for given in given_times(file, device, Deletions(), wanted.first, wanted.last):
            if len(given.times):
                series[given.series.measurement].append((number, given.times))
    for measurement, parts in series.items():
        if measurement and "" in series:
            continue  # of a table the rows are compared
        hit = _repeated(asked, parts)
        if hit is not None:
            time, other, new = hit
            return SharedPoint(wanted.name, measurement, time, new, other)
    return None


def _repeated(
    asked: CompareAsked, parts: list[tuple[int, npt.NDArray[np.int64]]]
) -> tuple[int, int, int] | None:
    """A time that comes twice, and the files that have it: the one there or before, the new one."""
    if len(parts) < 2:
        return None
    times = np.concatenate([each for _, each in parts])
    owners = np.concatenate(
        [np.full(len(each), at, np.int32) for at, (_, each) in enumerate(parts)]
    )
    order = np.argsort(times, kind="stable")
    times, owners = times[order], owners[order]
    is_new = np.array([asked.files[number].is_new for number, _ in parts])[owners]
    twice = (times[1:] == times[:-1]) & is_new[1:]
    if not asked.among_new:
        twice &= ~is_new[:-1]
    where = np.flatnonzero(twice)
    if not len(where):
        return None
    at = int(where[0])
    return int(times[at]), parts[owners[at]][0], parts[owners[at + 1]][0]


class _OpenFiles:
    """Files with their devices, the last few of them open."""

    def __init__(self, files: list[ComparedFile]) -> None:
        self._files = files
        self._open: OrderedDict[int, tuple[TsFileReader, dict[str, Device]]] = OrderedDict()

    def at(self, number: int) -> tuple[TsFileReader, dict[str, Device]]:
        """A file, and its devices as the catalogue calls them."""
        found = self._open.get(number)
        if found is None:
            file = self._files[number]
            reader = TsFileReader(file.path, name=file.name)
            found = reader, {each.name_in(file.group): each for each in reader.tail.devices}
            self._open[number] = found
            if len(self._open) > _OPEN:
                self._open.popitem(last=False)[1][0].close()
        self._open.move_to_end(number)
        return found

    def close(self) -> None:
        """Close all."""
        for reader, _ in self._open.values():
            reader.close()
