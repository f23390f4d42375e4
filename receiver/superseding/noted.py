"""Deletions that a proof applies to a file: its own, and those of others that came later."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from common.tsfile import parse_name
from receiver.points.deleted.deletion_entries import NamePattern
from receiver.points.deleted.deletion_files import parse_binary, parse_text
from receiver.points.deleted.deletions import DeletionRecords, Deletions, older_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.tsfile import Device
    from receiver.points.deleted.deletion_entries import Deletion
    from receiver.superseding.asking import FileAsked, NotesAsked

__all__ = ["NotesOfPartition"]


class NotesOfPartition:
    """The deletions of the senders of a partition."""

    def __init__(self, notes: Iterable[NotesAsked]) -> None:
        self._own: dict[str, list[DeletionRecords]] = defaultdict(list)
        self._reaching: dict[str, list[tuple[NotesAsked, DeletionRecords]]] = defaultdict(list)
        self._shared: dict[tuple[str, int], Deletions] = {}
        for each in notes:
            records = _records(each)
            if each.physical is not None:
                self._own[each.physical].append(records)
            if each.floor:
                self._reaching[each.sender].append((each, records))
        for reaching in self._reaching.values():
            reaching.sort(key=lambda one: -one[0].floor)

    def hide_no_more(self, file: FileAsked, other: FileAsked) -> bool:
        """Whether all that hides points of a file hides those of another one too.

        Records of the other one may hide more of the file than of that: there they concern the
        chunks before an offset.
        """
        if file.physical in self._own or other.physical in self._own:
            return False
        as_late = file.sender == other.sender and file.closed >= other.closed
        return as_late or self._reaching_count(file) == 0

    def of(self, file: FileAsked, devices: Iterable[Device]) -> Deletions:
        """What hides points of a file.

        Raises:
            DamagedData: records are none.
        """
        reaching = self._reaching.get(file.sender, [])
        count = self._reaching_count(file)
        own = self._own.get(file.physical, [])
        if own:
            others = [each for note, each in reaching[:count] if note.physical != file.physical]
            return Deletions.noted(own, others, devices)
        key = (file.sender, count)
        if key not in self._shared:  # many files were closed about the same time
            others = [each for _, each in reaching[:count]]
            self._shared[key] = Deletions.noted([], others, ())
        return self._shared[key]

    def _reaching_count(self, file: FileAsked) -> int:
        """How many notes of its sender came behind a look that had the file closed."""
        reaching = self._reaching.get(file.sender, [])
        return bisect_right(reaching, -file.closed, key=lambda one: -one[0].floor)

    def touch(self, file: FileAsked) -> bool:
        """Whether deletions that came since a file was judged may hide what it alone gives.

        Raises:
            DamagedData: records are none.
        """
        for note, records in self._reaching.get(file.sender, []):
            since = note.commit > file.judged and note.floor >= file.closed
            if since and _hides(records, file):
                return True
        return any(_hides(each, file) for each in self._own.get(file.physical, ()))


def _hides(records: DeletionRecords, file: FileAsked) -> bool:
    parse = parse_text if records.form == "mods" else parse_binary
    entries = parse(records.content, records.name).entries
    return any(_concerns(entry, file, records) for entry in entries)


def _concerns(entry: Deletion, file: FileAsked, records: DeletionRecords) -> bool:
    for each in file.exclusive:
        if entry.end < each.first or entry.start > each.last:
            continue
        if each.table or not each.measurement or records.older:
            return True
        names = NamePattern(False, parse_name(each.device)[1])
        if entry.series.matches_series(names, each.measurement):
            return True
    return False


def _records(note: NotesAsked) -> DeletionRecords:
    name = f"{note.physical or 'a file that is not loaded'}.{note.form}"
    older: frozenset[str] = frozenset()
    if note.devices:
        older = older_patterns(parse_text(note.content, name).entries, note.devices)
    return DeletionRecords(name, note.form, note.content, older)
