"""How the work is cut: files into groups, large files by device and time.

As Spark does with its own formats: small files share a partition, a large one is cut. What a cut
file holds is in its tail: points a device, and where its chunks begin in time. A cut between two
chunks of a device is a time: one part ends before it, the next begins with it. So each row is in
exactly one part, whatever the chunks look like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from common.tsfile import Status
from receiver.spark.source.read_plans.overlapping import MergedFile, MergeSlice, clusters_of
from receiver.spark.source.read_plans.selection import MAX_TIME, MIN_TIME, TimeRange
from receiver.spark.work import deal, spread

if TYPE_CHECKING:
    from common.tsfile import Device, Tail
    from receiver.spark.finder import DataFile
    from receiver.spark.source.read_plans.picking import Picker

__all__ = ["Slice", "overlapping_in", "plan"]

_LEAST_BYTES: Final = 4 << 20
"""A smaller partition costs more than it saves."""
_LEAST_STORED: Final = 16 << 20
"""The same of files that may come from the object store: each task waits for its first one, and has
others fetched meanwhile if there are some."""
_WANTED_PARTS: Final = 32
"""Partitions that even a small set is cut into, so that a cluster has something to do."""
_OPENING: Final = 128 << 10
"""What opening a file and reading its tail counts as. With more, small files that overlap nothing
would be spread over so many tasks that few of them are decoded together."""
_TOGETHER_STORED: Final = 64 << 20
"""Of files that overlap, where the object store has some: all of them come into a worker's memory
(`open_stores`), since each device is read of all of them."""
_MAX_FILES: Final = 2000
"""In one partition, about."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What one task reads of one file.

    Attributes:
        file: as workers know it.
        span: times.
        devices: names; None for all that are wanted.
        weight: about how many bytes that is.
    """

    file: DataFile
    span: TimeRange
    devices: tuple[str, ...] | None = None
    weight: int = 0


def plan(
    files: Iterable[DataFile],
    span: TimeRange,
    partition_bytes: int,
    picker: Picker,
    read: Callable[[DataFile], Tail | None],
    *,
    merge: bool = False,
    beside: Iterable[MergedFile] = (),
) -> list[tuple[Slice | MergeSlice, ...]]:
    """Cut the work into partitions.

    Args:
        files: that may be read.
        span: of time that is wanted.
        partition_bytes: no partition has much more, where that can be had.
        picker: what of the files is wanted.
        read: the tail of a file; None where it cannot be read (the task will say why).
        merge: files that overlap are read together.
        beside: files that have no rows to give, but may have higher or the same values.
    """
    wanted = [each for each in files if picker.takes_file(each)]
    total = sum(each.size for each in wanted)
    least = _LEAST_STORED if any(e.is_in_known_store for e in wanted) else _LEAST_BYTES
    limit = min(partition_bytes, max(least, total // _WANTED_PARTS))
    slices: list[Slice | MergeSlice] = []
    if merge:
        wanted, together = _together(wanted, beside, span, limit, picker, read)
        slices += together
    for file in wanted:
        whole = Slice(file.for_worker(), span, None, file.size + _OPENING)
        if file.size * 2 <= limit * 3:
            slices.append(whole)
            continue
        tail = read(file)
        if tail is None or tail.status is not Status.COMPLETE:
            slices.append(whole)
        else:
            slices += _cut(whole, tail, list(picker.devices(file, tail)), limit)
    count = max(-(-sum(each.weight for each in slices) // limit), -(-len(slices) // _MAX_FILES))
    return [tuple(each) for each in deal(slices, count, lambda each: each.weight)]


def overlapping_in(parts: Iterable[Sequence[Slice | MergeSlice]]) -> frozenset[str]:
    """Names of the files that have rows to give and are read together with others."""
    return frozenset(
        each.file.name
        for part in parts
        for piece in part
        if isinstance(piece, MergeSlice)
        for each in piece.files
        if each.is_fresh
    )


def _together(
    wanted: Sequence[DataFile],
    beside: Iterable[MergedFile],
    span: TimeRange,
    limit: int,
    picker: Picker,
    read: Callable[[DataFile], Tail | None],
) -> tuple[list[DataFile], list[MergeSlice]]:
    """The files that overlap no other, and slices of those that do."""
    every = [MergedFile(each) for each in wanted]
    every += [each for each in beside if picker.takes_file(each.file)]
    if any(each.file.is_in_known_store for each in every):
        limit = min(limit, _TOGETHER_STORED)
    clusters = clusters_of(every, picker, read)
    taken = {number for each in clusters for number in each.members}
    sent = {
        number: replace(every[number], file=every[number].file.for_worker()) for number in taken
    }
    files = [sent.get(number, each) for number, each in enumerate(every)]
    slices = [
        part
        for each in clusters
        for part in each.slices(
            files, span, limit, lambda number: files[number].file.size + _OPENING
        )
    ]
    return [each for number, each in enumerate(wanted) if number not in taken], slices


def _cut(whole: Slice, tail: Tail, devices: Sequence[Device], limit: int) -> list[Slice]:
    """A large file by device, and a large device by time."""

    def share(device: Device) -> int:
        return whole.file.size * device.point_count // max(1, tail.point_count)

    found: list[Slice] = []
    small: list[Device] = []
    for device in devices:
        if share(device) * 2 > limit * 3:
            found += _by_time(whole, device, share(device), limit)
        else:
            small.append(device)
    for run in spread(small, max(1, -(-sum(map(share, small)) // limit)), share):
        if run:
            weight = sum(map(share, run)) + _OPENING
            found.append(replace(whole, devices=tuple(each.name for each in run), weight=weight))
    return found


def _by_time(whole: Slice, device: Device, share: int, limit: int) -> list[Slice]:
    """Parts of one device, cut where chunks begin."""
    column = device.time_column()
    longest = column or max(device.series(), key=lambda each: len(each.chunks))
    chunks = sorted(
        (each.statistics.start, each.statistics.count)
        for each in longest.chunks
        if each.statistics.count
    )
    runs = spread(chunks, -(-share // limit), lambda chunk: chunk[1])
    cuts = sorted({run[0][0] for run in runs[1:] if run})
    weight = share // (len(cuts) + 1) + _OPENING
    bounds = zip([MIN_TIME, *cuts], [*(cut - 1 for cut in cuts), MAX_TIME], strict=True)
    spans = (whole.span.cut(*each) for each in bounds)
    return [
        replace(whole, span=span, devices=(device.name,), weight=weight)
        for span in spans
        if not span.is_empty
    ]
