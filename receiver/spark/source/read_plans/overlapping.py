"""Which files overlap: have times of one device in common, so that they are to be read together.

Files are gathered into clusters, by what a catalogue has of their devices or else by their tails.
A cluster that is more than one task should read is cut by time, where files begin, and where that
does not do by devices. A row is in exactly one of the pieces, since each holds all files that meet
it. What overlaps nothing is in no cluster.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from common.tsfile import Status
from receiver.metadata.model.records import DeviceRange
from receiver.metadata.state.ranges import DeviceTable
from receiver.spark.source.read_plans.picking import row_device
from receiver.spark.source.read_plans.selection import MAX_TIME, MIN_TIME, TimeRange
from receiver.spark.work import spread

if TYPE_CHECKING:
    from array import array

    from common.tsfile import Tail
    from receiver.metadata.state.ranges import Devices
    from receiver.spark.finder import DataFile
    from receiver.spark.source.read_plans.picking import Picker

__all__ = ["Cluster", "MergeSlice", "MergedFile", "clusters_of"]

_Int64s: TypeAlias = npt.NDArray[np.int64]

_MOST_FILES: Final = 200
"""Of one task, where that can be had: all of them are open at once."""


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A file and its part in an answer.

    Attributes:
        file: that is read.
        counts: whether its points are given where it is the highest.
        before: whether they were given already; then only what differs is given.
    """

    file: DataFile
    counts: bool = True
    before: bool = False

    @property
    def is_fresh(self) -> bool:
        """Whether it has rows to give."""
        return self.counts and not self.before


@dataclass(frozen=True, slots=True)
class MergeSlice:
    """What one task reads of several files together.

    Attributes:
        files: as workers know them.
        span: times.
        devices: names as the result has them; None for all that are wanted.
        weight: about how many bytes that is.
    """

    files: tuple[MergedFile, ...]
    span: TimeRange
    devices: frozenset[str] | None = None
    weight: int = 0


@dataclass(frozen=True, slots=True)
class _Spans:
    """Times of devices in files, as columns; `file` is a number."""

    device: _Int64s
    first: _Int64s
    last: _Int64s
    file: _Int64s

    def filter(self, keep: npt.NDArray[Any]) -> _Spans:
        """Some of them."""
        return _Spans(self.device[keep], self.first[keep], self.last[keep], self.file[keep])


class Cluster:
    """Files that overlap each other, directly or by others.

    Attributes:
        members: their numbers.
    """

    def __init__(self, spans: _Spans, names: Callable[[int], str]) -> None:
        self._spans, self._names = spans, names
        self.members: Final = np.unique(spans.file).tolist()
        begin = np.full(len(self.members), MAX_TIME)
        end = np.full(len(self.members), MIN_TIME)
        at = np.searchsorted(self.members, spans.file)
        np.minimum.at(begin, at, spans.first)
        np.maximum.at(end, at, spans.last)
        self._begin, self._end = begin, end

    def slices(
        self, files: Sequence[MergedFile], span: TimeRange, limit: int, weight: Callable[[int], int]
    ) -> Iterator[MergeSlice]:
        """What tasks read of it.

        Args:
            files: all there are, by number.
            span: times that are wanted.
            limit: bytes that a task should read.
            weight: bytes of a file, by number.
        """
        weights = np.array([weight(each) for each in self.members], np.float64)
        count = max(-(-int(weights.sum()) // limit), -(-len(weights) // _MOST_FILES))
        for part in self._by_time(span, weights, count):
            meets = (self._begin <= part.end) & (self._end >= part.start)
            chosen = tuple(
                files[each] for each, met in zip(self.members, meets, strict=True) if met
            )
            if not any(each.is_fresh for each in chosen):
                continue
            share = int((weights * self._share(part))[meets].sum())
            if share * 2 <= limit * 3:
                yield MergeSlice(chosen, part, None, share)
            else:
                yield from self._smaller(MergeSlice(chosen, part, None, share), -(-share // limit))

    def _share(self, part: TimeRange) -> npt.NDArray[np.float64]:
        """Of each file how much of its time is in a part."""
        begin, end = self._begin.astype(np.float64), self._end.astype(np.float64)
        within = np.minimum(end, part.end) - np.maximum(begin, part.start) + 1
        return np.clip(within / (end - begin + 1), 0, 1)

    def _by_time(
        self, span: TimeRange, weights: npt.NDArray[np.float64], count: int
    ) -> Iterator[TimeRange]:
        order = np.argsort(self._begin, kind="stable").tolist()
        runs = spread(order, count, lambda at: int(weights[at]))
        begins = {int(self._begin[run[0]]) for run in runs if run}
        yield from _parts(span, sorted(begins)[1:])

    def _smaller(self, whole: MergeSlice, count: int) -> Iterator[MergeSlice]:
        """By devices, or one device by time."""
        spans = self._spans
        here = (spans.first <= whole.span.end) & (spans.last >= whole.span.start)
        devices = [self._names(each) for each in np.unique(spans.device[here]).tolist()]
        weight = whole.weight // count
        if len(devices) > 1:
            for run in spread(devices, min(count, len(devices)), lambda _: 1):
                if run:
                    yield MergeSlice(whole.files, whole.span, frozenset(run), weight)
            return
        begin = max(whole.span.start, int(self._begin.min()))
        end = min(whole.span.end, int(self._end.max()))
        cuts = {begin + (end - begin) * at // count for at in range(1, count)} - {begin}
        for part in _parts(whole.span, sorted(cuts)):
            meets = [
                each
                for each, number in zip(whole.files, self._numbers(whole.span), strict=True)
                if self._begin[number] <= part.end and self._end[number] >= part.start
            ]
            if any(each.is_fresh for each in meets):
                yield MergeSlice(tuple(meets), part, None, weight)

    def _numbers(self, span: TimeRange) -> list[int]:
        found: list[int] = np.flatnonzero(
            (self._begin <= span.end) & (self._end >= span.start)
        ).tolist()
        return found


def _parts(span: TimeRange, cuts: Sequence[int]) -> Iterator[TimeRange]:
    for start, end in itertools.pairwise([MIN_TIME, *cuts, None]):
        part = span.cut(start, None if end is None else end - 1)
        if not part.is_empty:
            yield part


def clusters_of(
    files: Sequence[MergedFile], picker: Picker, read: Callable[[DataFile], Tail | None]
) -> list[Cluster]:
    """The files that overlap others in wanted devices and times.

    Args:
        files: wanted ones, of one catalogue or of none; numbers are places in it.
        picker: what of them is wanted.
        read: the tail of a file; one that cannot be read overlaps nothing (its task says why).
    """
    if len(files) < 2:
        return []
    maybe = [(at, files[at].file) for at in _may_overlap([each.file for each in files])]
    takes: Callable[[str], bool]
    if all(_has_ranges(file) for _, file in maybe):
        known = {at: file.devices for at, file in maybe if file.devices is not None}
        takes = picker.takes_name
    else:
        table = DeviceTable()
        known = {at: _packed(file, picker, read, table) for at, file in maybe}
        takes = _any_name
    if not known:
        return []
    names = next(iter(known.values())).name
    spans = _wanted(_spans(known), picker.span, lambda ident: takes(names(ident)))
    fresh = np.array([each.is_fresh for each in files], np.bool_)
    if not fresh.all():
        spans = spans.filter(_concerned(spans, fresh))
    groups = _groups(spans)
    return [Cluster(spans.filter(rows), names) for rows in groups]


def _may_overlap(files: Sequence[DataFile]) -> list[int]:
    """Numbers of those whose whole times meet those of others, as far as a catalogue can tell."""
    points = [at for at, each in enumerate(files) if not each.is_known or each.first is not None]
    first = np.array([files[at].first if files[at].is_known else MIN_TIME for at in points])
    last = np.array([files[at].last if files[at].is_known else MAX_TIME for at in points])
    device = np.zeros(len(points), np.int64)
    number = np.array(points, np.int64)
    spans = _Spans(device, first.astype(np.int64), last.astype(np.int64), number)
    found: list[int] = sorted(
        itertools.chain.from_iterable(spans.file[rows].tolist() for rows in _groups(spans))
    )
    return found


def _has_ranges(file: DataFile) -> bool:
    """Whether a catalogue has the times of its devices; of a file that was deleted it has not."""
    return file.devices is not None and (not len(file.devices) or len(file.devices.parts()[2]) > 0)


def _any_name(_: str) -> bool:
    return True


def _packed(
    file: DataFile, picker: Picker, read: Callable[[DataFile], Tail | None], table: DeviceTable
) -> Devices:
    """The wanted devices of a file, by its tail where a catalogue does not have their times."""
    ranges: list[DeviceRange] = []
    if file.devices is not None and _has_ranges(file):
        ranges = [
            DeviceRange(*each) for each in file.devices.ranges() if picker.takes_name(each[0])
        ]
    elif (tail := read(file)) is not None and tail.status is Status.COMPLETE:
        ranges = [
            DeviceRange(row_device(each, file.database), each.start, each.end)
            for each in picker.devices(file, tail)
        ]
    first = min((each.first for each in ranges if each.first is not None), default=None)
    last = max((each.last for each in ranges if each.last is not None), default=None)
    return table.pack(ranges, first, last)


def _spans(known: dict[int, Devices]) -> _Spans:
    """The ranges of all devices; a catalogue may have very many files of few devices."""
    parts: dict[int, list[tuple[int, int, array[int], array[int]]]] = defaultdict(list)
    for number, devices in known.items():
        ids, base, offsets = devices.parts()
        if len(offsets):  # of a deleted file there are none
            parts[offsets.itemsize].append((number, base, ids, offsets))
    columns = [_as_spans(some, size) for size, some in parts.items()]
    empty = np.empty(0, np.int64)
    if not columns:
        return _Spans(empty, empty, empty, empty)
    return _Spans(*(np.concatenate(each) for each in zip(*columns, strict=True)))


def _as_spans(
    parts: Sequence[tuple[int, int, array[int], array[int]]], size: int
) -> tuple[_Int64s, _Int64s, _Int64s, _Int64s]:
    numbers, bases, ids, offsets = zip(*parts, strict=True)
    counts = [len(each) for each in ids]
    names = np.frombuffer(b"".join(ids), f"u{ids[0].itemsize}").astype(np.int64)
    times = np.frombuffer(b"".join(offsets), f"u{size}").astype(np.int64).reshape(-1, 2)
    has = times[:, 0] <= times[:, 1]
    times += np.repeat(np.array(bases, np.int64), counts)[:, None]
    files = np.repeat(np.array(numbers, np.int64), counts)
    return names[has], times[has, 0], times[has, 1], files[has]


def _wanted(spans: _Spans, span: TimeRange, takes: Callable[[int], bool]) -> _Spans:
    """What of it a query is about, cut to its times."""
    ids, which = np.unique(spans.device, return_inverse=True)
    wanted = np.array([takes(each) for each in ids.tolist()], np.bool_)
    keep = wanted[which] & (spans.first <= span.end) & (spans.last >= span.start)
    found = spans.filter(keep)
    first, last = np.maximum(found.first, span.start), np.minimum(found.last, span.end)
    return _Spans(found.device, first, last, found.file)


def _sorted(spans: _Spans) -> tuple[_Int64s, _Int64s]:
    """The rows in order of device and time; and of each the one that reaches furthest so far."""
    order = np.lexsort((spans.file, spans.last, spans.first, spans.device))
    place = np.empty(len(order), np.int64)
    place[np.argsort(spans.last[order], kind="stable")] = np.arange(len(order))
    dense = np.unique(spans.device[order], return_inverse=True)[1]
    key = dense * len(order) + place  # devices ascend, so each begins anew
    best = np.maximum.accumulate(key)
    return order, np.maximum.accumulate(np.where(key == best, np.arange(len(key)), 0))


def _concerned(spans: _Spans, fresh: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Rows of files that have rows to give, and those that meet one of these."""
    mine = fresh[spans.file]
    keep = mine.copy()
    some = spans.filter(mine)
    if not len(some.file):
        return keep
    order, reach = _sorted(some)
    devices, firsts = some.device[order], some.first[order]
    lasts = some.last[order][reach]
    for at in np.flatnonzero(~mine).tolist():
        low, high = np.searchsorted(devices, (spans.device[at], spans.device[at] + 1))
        behind = low + np.searchsorted(firsts[low:high], spans.last[at], side="right")
        keep[at] = behind > low and lasts[behind - 1] >= spans.first[at]
    return keep


def _groups(spans: _Spans) -> list[_Int64s]:
    """The rows of files that overlap, cluster by cluster; none of a file that overlaps none."""
    if len(spans.file) < 2:
        return []
    order, reach = _sorted(spans)
    device, first, last = spans.device[order], spans.first[order], spans.last[order]
    before = reach[:-1]
    met = (device[1:] == device[:-1]) & (first[1:] <= last[before])
    parent: dict[int, int] = {}

    def root(number: int) -> int:
        while (above := parent.setdefault(number, number)) != number:
            parent[number] = number = parent[above]
        return number

    file = spans.file[order]
    at = np.flatnonzero(met)
    for one, other in zip(file[at + 1].tolist(), file[before[at]].tolist(), strict=True):
        if one != other:
            parent[root(one)] = root(other)
    numbers: dict[int, list[int]] = defaultdict(list)
    for number in list(parent):
        numbers[root(number)].append(number)
    if not numbers:
        return []
    label = np.full(int(spans.file.max()) + 1, -1, np.int64)
    for cluster, members in enumerate(numbers.values()):
        label[members] = cluster
    rows = np.argsort(label[spans.file], kind="stable")
    bounds = np.searchsorted(label[spans.file][rows], np.arange(len(numbers) + 1))
    return [rows[low:high] for low, high in itertools.pairwise(bounds.tolist())]
