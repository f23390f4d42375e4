"""What a partition costs its readers, and which of its files to merge: plain functions.

What is merged together is whole *units*: files that overlap each other, directly or by others, with
all that a compaction merged of them before. So no file outside of what is merged has a time of a
device in common with it. A unit with files of two senders, with a file that a transfer of devices
cuts, or with one that something else is to happen to first, is left alone.

What was merged before is merged again only where as much again comes with it: each byte is then
written at most about log2(all bytes / bytes of the first merge) times, however small the files are
that come. Late files that overlap what was merged wait until they are half of it, or very many.

No output has points of two time partitions, so that who asks for a time opens few. Files that reach
over so many that as many outputs would come of them are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from common.digests import xxh3_128
from receiver.compaction.worth_merging.file_units import stand_apart, units_of
from receiver.compaction.worth_merging.time_windows import count_of, time_windows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from receiver.compaction.worth_merging.file_units import FileUnit
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow

__all__ = ["MergeChoice", "MergeLimits", "ReadingCost", "choose", "cost_of"]

_SMALL: Final = 4
"""A file below this part of the target is small."""
_LARGE: Final = 4
"""A file of so many times the target is cut, when an operator asks for it."""
_AGAIN: Final = 2
"""What comes with something merged before has to be this part of it."""
_MANY: Final = 10
"""So many times the fewest files: late ones that need not be a part of what they overlap."""


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """What is merged at a time.

    Attributes:
        target_bytes: an output has about so many.
        min_files: fewer that readers would be spared are not worth it.
        most_files: of one merge: more than its commit may guard.
        most_bytes: of the inputs of one merge.
        interval: width of a time partition, in the unit of the data: an output has points of one.
            0: it may have those of several.
    """

    target_bytes: int
    min_files: int = 10
    most_files: int = 10_000
    most_bytes: int = 1 << 40
    interval: int = 0


@dataclass(frozen=True, slots=True)
class ReadingCost:
    """What a partition costs its readers.

    Attributes:
        files: that they open.
        overlapping: of these, with times of a device in common with another one.
        retired_bytes: of files that are gone at the edge.
    """

    files: int
    overlapping: int
    retired_bytes: int


@dataclass(frozen=True, slots=True)
class MergeChoice:
    """Files that are to be merged together.

    Attributes:
        sender: whose they are.
        rows: of the files, by time.
        mark: the same as long as none of the rows changes.
    """

    sender: str
    rows: tuple[FileRow, ...]
    mark: bytes

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(row.size for row in self.rows)


# -- what to merge -------------------------------------------------------------------------------


def cost_of(rows: Sequence[FileRow], compactions: Iterable[CompactedRow]) -> ReadingCost:
    """What a partition costs its readers.

    Args:
        rows: of its visible files.
        compactions: that hold in it.
    """
    units = units_of(rows, compactions)
    return ReadingCost(
        files=sum(each.pieces for each in units),
        overlapping=sum(each.overlapping for each in units),
        retired_bytes=sum(row.size for row in rows if row.retired),
    )


def choose(
    rows: Sequence[FileRow],
    compactions: Iterable[CompactedRow],
    limits: MergeLimits,
    *,
    may_merge: Callable[[FileRow], bool] = lambda _: True,
    refused: Collection[bytes] = (),
    forced: bool = False,
) -> list[MergeChoice]:
    """What of a partition to merge, in the order of time.

    Args:
        rows: of its visible files.
        compactions: that hold in it.
        limits: of one merge.
        may_merge: whether nothing else is to happen to a file first.
        refused: marks of what could not be merged; halves of it are tried.
        forced: merge whatever spares readers one file, and what was merged before again; and cut
            files that are large.
    """
    found: list[MergeChoice] = []
    gathered: dict[str, _Gathered] = {}

    def close(sender: str) -> None:
        group = gathered.pop(sender, _Gathered())
        if group.units:
            found.extend(_of_group(sender, group.units, limits, refused, forced))

    for unit in units_of(rows, compactions):
        names = unit.spans.device.tolist()
        if not _may_go(unit, limits, may_merge):
            if forced and _is_to_be_cut(unit, limits, may_merge) and _mark([unit]) not in refused:
                found.append(MergeChoice(unit.rows[0].sender, tuple(unit.rows), _mark([unit])))
            meeting = [each for each, its in gathered.items() if not its.devices.isdisjoint(names)]
            for each in meeting:
                close(each)
            continue
        sender = unit.rows[0].sender
        if not gathered.setdefault(sender, _Gathered()).has_room_for(unit, limits):
            close(sender)
        gathered.setdefault(sender, _Gathered()).add(unit, names)
    for sender in list(gathered):
        close(sender)
    return found


@dataclass(slots=True)
class _Gathered:
    """Units of one sender that may be merged together, in the order of time."""

    units: list[FileUnit] = field(default_factory=list)
    devices: set[int] = field(default_factory=set)
    size: int = 0
    files: int = 0

    def has_room_for(self, unit: FileUnit, limits: MergeLimits) -> bool:
        """Whether one more merge takes all of it."""
        size, files = self.size + unit.size, self.files + len(unit.rows)
        return size <= limits.most_bytes and files <= limits.most_files

    def add(self, unit: FileUnit, devices: Iterable[int]) -> None:
        """Take it in."""
        self.units.append(unit)
        self.devices.update(devices)
        self.size += unit.size
        self.files += len(unit.rows)


def _may_go(unit: FileUnit, limits: MergeLimits, may_merge: Callable[[FileRow], bool]) -> bool:
    """Whether a unit is one that is merged at all."""
    if len(unit.rows) > limits.most_files or unit.size > limits.most_bytes:
        return False
    if not unit.overlapping and unit.size * _SMALL >= limits.target_bytes * unit.pieces:
        return False  # readers would be spared nothing
    sender = unit.rows[0].sender
    return all(row.sender == sender and may_merge(row) for row in unit.rows)


def _is_to_be_cut(
    unit: FileUnit, limits: MergeLimits, may_merge: Callable[[FileRow], bool]
) -> bool:
    """Whether a unit is one large file: who asks for a few of its devices reads an index of all."""
    (first, *others), size = unit.rows, unit.size
    is_large = _LARGE * limits.target_bytes <= size <= limits.most_bytes
    return is_large and not others and not unit.merged and may_merge(first)


def _of_group(
    sender: str,
    group: list[FileUnit],
    limits: MergeLimits,
    refused: Collection[bytes],
    forced: bool,
) -> Iterator[MergeChoice]:
    """What of several units is merged together; they stand in the order of time."""
    parts = [group] if forced else _without_large(group, limits)
    if len(parts) != 1 or len(parts[0]) != len(group):
        for part in parts:
            yield from _of_group(sender, part, limits, refused, forced)
        return
    if not _is_worth(group, limits, forced):
        return
    mark = _mark(group)
    if mark in refused or not stand_apart(group):
        if len(group) > 1:
            middle = len(group) // 2
            for half in (group[:middle], group[middle:]):
                yield from _of_group(sender, half, limits, refused, forced)
        return
    rows = tuple(row for unit in group for row in unit.rows)
    yield MergeChoice(sender, rows, mark)


def _without_large(group: list[FileUnit], limits: MergeLimits) -> list[list[FileUnit]]:
    """What is left of a group on both sides of what is too large for what comes with it.

    Not around it: what is merged of both sides would have its times between its own.
    """
    size = sum(each.size for each in group)
    for unit in sorted((each for each in group if each.merged), key=lambda each: -each.size):
        merged = unit.size - unit.fresh_bytes
        if (size - merged) * _AGAIN < merged and unit.fresh < _MANY * limits.min_files:
            at = group.index(unit)
            return [each for each in (group[:at], group[at + 1 :]) if each]
    return [group]


def _is_worth(group: Sequence[FileUnit], limits: MergeLimits, forced: bool) -> bool:
    pieces = sum(each.pieces for each in group)
    overlapping = sum(each.overlapping for each in group)
    size = sum(each.size for each in group)
    rows = (row for unit in group for row in unit.rows)
    windows = time_windows(((row.first, row.last) for row in rows), limits.interval)
    spared = pieces + overlapping - max(1, count_of(windows), -(-size // limits.target_bytes))
    return spared >= (1 if forced else limits.min_files - 1)


def _mark(group: Iterable[FileUnit]) -> bytes:
    said = sorted(f"{row.physical}:{row.changed}" for unit in group for row in unit.rows)
    return xxh3_128("\n".join(said).encode())
