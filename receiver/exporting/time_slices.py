"""How an export is cut: by storage group, time partition, and time, one output after another.

A slice is a span of time of one group, with all files that have a wanted point in it: so the merge
of a slice sees every copy of each of its points, whatever partition a file is in. Slices of a group
do not overlap, and cut where files begin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from receiver.metadata.model.records import DeviceRange
from receiver.metadata.state.ranges import DeviceTable
from receiver.spark.source.read_plans.selection import TimeRange

if TYPE_CHECKING:
    from receiver.exporting.wanted_points import WantedPoints
    from receiver.spark.finder import DataFile
    from receiver.spark.standing_in import StandIn

__all__ = ["TimeSlice", "as_read", "time_slices"]

_MOST_FILES: Final = 200
"""Of one slice, where that can be had: so many may be open at once."""


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """What is merged together.

    Attributes:
        number: its place among all of an export.
        group: of whose directory the output is; the database's name.
        partition: number of the time partition.
        span: times.
        files: all that have wanted points then.
    """

    number: int
    group: str
    partition: int
    span: TimeRange
    files: tuple[DataFile, ...]

    @property
    def directory(self) -> str:
        """Where its output lies in the exported directory."""
        return f"sequence/{self.group}/0/{self.partition}"


def time_slices(
    files: Iterable[DataFile], wanted: WantedPoints, file_bytes: int
) -> list[TimeSlice]:
    """Cut an export.

    Args:
        files: of a catalogue, all that were visible at its commit.
        wanted: of their points.
        file_bytes: of inputs, about, that make one slice.
    """
    groups: dict[str, list[DataFile]] = defaultdict(list)
    for file in map(_with_ranges, files):
        if wanted.takes_file(file):
            groups[file.database or ""].append(file)
    found: list[TimeSlice] = []
    for name, several in sorted(_joined(groups, wanted).items()):
        several.sort(key=lambda file: (_first(file), file.name))
        for partition, span in _spans(several, wanted.span, file_bytes):
            here = tuple(each for each in several if span.meets(each.first, each.last))
            if here:
                found.append(TimeSlice(len(found) + 1, name, partition, span, here))
    return found


def _with_ranges(file: DataFile) -> DataFile:
    """A file with times of its devices; of one that was deleted since they are not kept."""
    devices, first, last = file.devices, file.first, file.last
    if devices is None or first is None or last is None or next(devices.ranges(), None):
        return file
    ranges = [DeviceRange(each, first, last) for each in devices]
    return replace(file, devices=DeviceTable().pack(ranges, first, last))


def as_read(part: TimeSlice, stand_ins: Mapping[str, StandIn]) -> TimeSlice:
    """The slice with merged files in place of those they stand for.

    All copies of a point are in its slice, so what is read for some of them is so for all. Slices
    are cut by the files that were loaded: an export that goes on finds the same ones, whatever has
    been merged since.

    Args:
        part: of files that were loaded.
        stand_ins: by the name of a file, what stands for it.
    """
    found: dict[str, DataFile] = {}
    for file in part.files:
        stands = stand_ins.get(file.name)
        here = [file] if stands is None else stands.outputs
        found |= {each.name: each for each in here if part.span.meets(each.first, each.last)}
    return replace(part, files=tuple(found.values()))


def _joined(groups: dict[str, list[DataFile]], wanted: WantedPoints) -> dict[str, list[DataFile]]:
    """Groups that have a device in common, as where one was made anew elsewhere, are one."""
    owner: dict[str, str] = {}
    above: dict[str, str] = {}

    def root(name: str) -> str:
        while name in above:
            name = above[name]
        return name

    for name, files in sorted(groups.items()):
        for device in {each for file in files for each in file.devices or ()}:
            if wanted.takes_device(device):
                one, other = root(owner.setdefault(device, name)), root(name)
                if one != other:
                    above[other] = one
    joined: dict[str, list[DataFile]] = defaultdict(list)
    for name, files in groups.items():
        joined[root(name)] += files
    return joined


def _spans(
    files: Sequence[DataFile], span: TimeRange, file_bytes: int
) -> Iterator[tuple[int, TimeRange]]:
    """The spans of a group's slices, with the partition of the file that each begins with."""
    begins = [(_partition(files[0]), span.start)]
    seen = {_partition(files[0])}
    weight = count = 0
    for file in files:
        partition, first = _partition(file), max(_first(file), span.start)
        is_new = partition not in seen
        is_full = weight + file.size > file_bytes or count >= _MOST_FILES
        if first > begins[-1][1] and count and (is_new or is_full):
            begins.append((partition, first))
            weight = count = 0
        seen.add(partition)
        weight, count = weight + file.size, count + 1
    ends = [start - 1 for _, start in begins[1:]] + [span.end]
    for (partition, start), end in zip(begins, ends, strict=True):
        yield partition, TimeRange(start, end)


def _first(file: DataFile) -> int:
    assert file.first is not None  # those without points were left out
    return file.first


def _partition(file: DataFile) -> int:
    return int(file.name.split("/")[3])
