"""Files of a partition that are merged together or not at all: its units.

All that overlap each other, directly or by others, are one, with all that a compaction merged of
them before. Found over columns: a partition may have millions of ranges.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow

__all__ = ["FileUnit", "met_by_others", "stand_apart", "units_of"]

_WITHOUT_TIME: Final = -(1 << 63)
_UNSIGNED: Final = (1 << 64) - 1
_Int64s: TypeAlias = npt.NDArray[np.int64]


class _Spans(NamedTuple):
    """Times of devices, as columns: of files, or of units."""

    device: _Int64s
    first: _Int64s
    last: _Int64s
    owner: _Int64s


@dataclass(slots=True, eq=False)
class FileUnit:
    """Files that are merged together or not at all.

    Attributes:
        rows: of them, by time.
        merged: compactions that they are in; all of their inputs are here.
        fresh: files that are in none.
        fresh_bytes: of those.
        size: bytes of all files.
        pieces: files that readers open for it.
        overlapping: of these, such that overlap.
        spans: first and last time of each device.
    """

    rows: list[FileRow]
    merged: list[CompactedRow]
    fresh: int
    fresh_bytes: int
    size: int
    pieces: int
    overlapping: int
    spans: _Spans

    @property
    def first(self) -> int:
        """Its earliest time."""
        return int(self.spans.first.min()) if len(self.spans.first) else _WITHOUT_TIME


def units_of(rows: Sequence[FileRow], compactions: Iterable[CompactedRow]) -> list[FileUnit]:
    """The units of a partition, in the order of time."""
    if not rows:
        return []
    spans = _spans_of(rows)
    sets = _Sets(len(rows))
    pairs = _overlapping(spans)
    for one, other in pairs.tolist():
        sets.join(one, other)
    overlapping = set(pairs.ravel().tolist())
    number = {row.physical: at for at, row in enumerate(rows)}
    merged: list[tuple[int, CompactedRow]] = []
    members: set[int] = set()
    for each in compactions:
        inputs = [number[name] for name in each.inputs if name in number]
        for at in inputs:
            sets.join(inputs[0], at)
        members.update(inputs)
        if inputs:
            merged.append((inputs[0], each))
    files: dict[int, list[int]] = defaultdict(list)
    for at in range(len(rows)):
        files[sets.of(at)].append(at)
    rows_of: dict[int, list[CompactedRow]] = defaultdict(list)
    for at, each in merged:
        rows_of[sets.of(at)].append(each)
    parts = _by_unit(spans, np.array([sets.of(at) for at in range(len(rows))], np.int64))
    empty = _Spans(*(np.zeros(0, np.int64),) * 4)
    units = [
        _unit(
            sorted((rows[at] for at in several), key=lambda row: (row.first or 0, row.physical)),
            rows_of[top],
            [rows[at] for at in several if at not in members],
            sum(at in overlapping for at in several if at not in members),
            parts.get(top, empty),
        )
        for top, several in files.items()
    ]
    return sorted(units, key=attrgetter("first"))


def _unit(
    rows: list[FileRow],
    merged: list[CompactedRow],
    fresh: Sequence[FileRow],
    meeting: int,
    spans: _Spans,
) -> FileUnit:
    outputs = sum(len(each.outputs) for each in merged)
    return FileUnit(
        rows=rows,
        merged=merged,
        fresh=len(fresh),
        fresh_bytes=sum(row.size for row in fresh),
        size=sum(row.size for row in rows),
        pieces=len(fresh) + outputs,
        overlapping=meeting + (outputs if meeting else 0),
        spans=spans,
    )


def _spans_of(rows: Sequence[FileRow]) -> _Spans:
    """The times of all files, owned by their numbers."""
    columns: list[tuple[_Int64s, _Int64s, _Int64s, _Int64s]] = []
    for at, row in enumerate(rows):
        ids, base, offsets = row.devices.parts()
        pairs = np.frombuffer(offsets, offsets.typecode).astype(np.uint64).reshape(-1, 2)
        there = pairs[:, 0] <= pairs[:, 1]
        # Behind what 63 bits hold it goes on with negative numbers, as times do.
        times = (pairs[there] + np.uint64(base & _UNSIGNED)).view(np.int64)
        device = np.frombuffer(ids, ids.typecode)[: len(pairs)][there].astype(np.int64)
        columns.append((device, times[:, 0], times[:, 1], np.full(len(device), at, np.int64)))
    return _Spans(*(np.concatenate(each) for each in zip(*columns, strict=True)))


def _overlapping(spans: _Spans) -> _Int64s:
    """Pairs of owners, such that all that overlap each other come together by them."""
    count = len(spans.first)
    order = np.lexsort((spans.first, spans.device))
    device, first, last, owner = (each[order] for each in spans)
    ends = np.unique(last)
    # One number that is greater in a later device, and within a device for a later end.
    group = np.cumsum(np.concatenate(([0], device[1:] != device[:-1])))[:count]
    reach = group * (len(ends) + 1) + np.searchsorted(ends, last)
    furthest = np.maximum.accumulate(reach)
    who = np.maximum.accumulate(np.where(reach == furthest, np.arange(count), 0))
    before = who[:-1]
    met = (group[before] == group[1:]) & (first[1:] <= last[before])
    # A pair is one number: pairs as rows are sorted fifty times slower.
    files = int(owner.max(initial=0)) + 1
    codes = np.unique(owner[before[met]] * files + owner[1:][met])
    return np.stack([codes // files, codes % files], axis=1)


def _by_unit(spans: _Spans, unit_of: _Int64s) -> dict[int, _Spans]:
    """The times of each unit: of each device from the first to the last."""
    if not len(spans.first):
        return {}
    unit = unit_of[spans.owner]
    order = np.lexsort((spans.device, unit))
    device, first, last, unit = (
        each[order] for each in (spans.device, spans.first, spans.last, unit)
    )
    new = (device[1:] != device[:-1]) | (unit[1:] != unit[:-1])
    begins = np.flatnonzero(np.concatenate(([True], new)))
    every = _Spans(
        device[begins],
        np.minimum.reduceat(first, begins),
        np.maximum.reduceat(last, begins),
        unit[begins],
    )
    cuts = np.flatnonzero(every.owner[1:] != every.owner[:-1]) + 1
    parts = zip(*(np.split(each, cuts) for each in every), strict=True)
    return {int(part[3][0]): _Spans(*part) for part in parts}


class _Sets:
    """Numbers that belong together."""

    def __init__(self, count: int) -> None:
        self._above = list(range(count))

    def of(self, number: int) -> int:
        """The one that stands for all that a number belongs to."""
        above = self._above
        while above[number] != number:
            above[number] = number = above[above[number]]
        return number

    def join(self, one: int, other: int) -> None:
        one, other = self.of(one), self.of(other)
        if one != other:
            self._above[max(one, other)] = min(one, other)


def met_by_others(rows: Sequence[FileRow], others: Sequence[FileRow]) -> frozenset[str]:
    """Physical paths of files that overlap others, directly or by files of their own.

    Args:
        rows: of a partition.
        others: of other ones.
    """
    if not rows or not others:
        return frozenset()
    sets = _Sets(len(rows) + len(others))
    for low, high in _overlapping(_spans_of([*rows, *others])).tolist():
        sets.join(low, high)
    met = {sets.of(at) for at in range(len(rows), len(rows) + len(others))}
    return frozenset(row.physical for at, row in enumerate(rows) if sets.of(at) in met)


def stand_apart(group: Sequence[FileUnit]) -> bool:
    """Whether units stand one behind the other in each device, with nothing else between."""
    spans = _Spans(*(np.concatenate(each) for each in zip(*(u.spans for u in group), strict=True)))
    order = np.argsort(spans.device, kind="stable")  # of one device in the order of the units
    device, first, last = spans.device[order], spans.first[order], spans.last[order]
    return not ((device[1:] == device[:-1]) & (first[1:] <= last[:-1])).any()
