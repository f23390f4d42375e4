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
from receiver.spark.source.selection import MAX_TIME, Span

if TYPE_CHECKING:
    from common.tsfile import Device, Tail
    from receiver.spark.source.files import SourceFile
    from receiver.spark.source.picking import Picker

__all__ = ["Slice", "plan"]

_LEAST_BYTES: Final = 4 << 20
"""A smaller partition costs more than it saves."""
_WANTED_PARTS: Final = 32
"""Partitions that even a small set is cut into, so that a cluster has something to do."""
_OPENING: Final = 512 << 10
"""What opening a file and reading its tail counts as."""
_MAX_FILES: Final = 2000
"""In one partition."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What one task reads of one file.

    Attributes:
        file: as workers know it.
        span: times.
        devices: names; None for all that are wanted.
        weight: about how many bytes that is.
    """

    file: SourceFile
    span: Span
    devices: tuple[str, ...] | None = None
    weight: int = 0


def plan(
    files: Iterable[SourceFile],
    span: Span,
    partition_bytes: int,
    picker: Picker,
    read: Callable[[SourceFile], Tail | None],
) -> list[tuple[Slice, ...]]:
    """Cut the work into partitions.

    Args:
        files: that may be read.
        span: of time that is wanted.
        partition_bytes: no partition has much more, where that can be had.
        picker: what of the files is wanted.
        read: the tail of a file; None where it cannot be read (the task will say why).
    """
    wanted = [each for each in files if picker.takes_file(each)]
    total = sum(each.size for each in wanted)
    limit = min(partition_bytes, max(_LEAST_BYTES, total // _WANTED_PARTS))
    slices: list[Slice] = []
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
    return _packed(slices, limit)


def _cut(whole: Slice, tail: Tail, devices: Sequence[Device], limit: int) -> list[Slice]:
    """A large file by device, and a large device by time."""
    found: list[Slice] = []
    names: list[str] = []
    weight = 0
    for device in devices:
        share = whole.file.size * device.point_count // max(1, tail.point_count)
        if share * 2 > limit * 3:
            found += _by_time(whole, device, share, limit)
            continue
        if names and weight + share > limit:
            found.append(replace(whole, devices=tuple(names), weight=weight + _OPENING))
            names, weight = [], 0
        names.append(device.name)
        weight += share
    if names:
        found.append(replace(whole, devices=tuple(names), weight=weight + _OPENING))
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
    part = max(1, sum(count for _, count in chunks) * limit // share)
    cuts: list[int] = []
    points = 0
    for start, count in chunks:
        if points >= part and (not cuts or start > cuts[-1]):
            cuts.append(start)
            points = 0
        points += count
    found, begin = [], whole.span.start
    for cut in (*cuts, None):
        end = MAX_TIME if cut is None else cut - 1
        span = Span(begin, min(end, whole.span.end))
        if not span.is_empty:
            weight = share // (len(cuts) + 1) + _OPENING
            found.append(replace(whole, span=span, devices=(device.name,), weight=weight))
        begin = max(begin, begin if cut is None else cut)
    return found


def _packed(slices: Sequence[Slice], limit: int) -> list[tuple[Slice, ...]]:
    """Slices in partitions, the heaviest first, as Spark packs files."""
    partitions: list[tuple[Slice, ...]] = []
    current: list[Slice] = []
    weight = 0
    for each in sorted(slices, key=lambda each: -each.weight):
        if current and (weight + each.weight > limit or len(current) >= _MAX_FILES):
            partitions.append(tuple(current))
            current, weight = [], 0
        current.append(each)
        weight += each.weight
    if current:
        partitions.append(tuple(current))
    return partitions
