"""Which files deletion records hide whole, as far as the catalogue tells: for the guard to count.

Nothing is hidden, kept or proved by this: readers apply records to points.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from common.errors import TsferryError
from common.names import storage_group_of
from common.tsfile import parse_name
from common.tsfile.device_names import split_database
from receiver.metadata.model.paths import device_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from receiver.metadata.state.deletion_rows import DeletionsRow
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.points.deleted.deletion_entries import Deletion, NamePattern

__all__ = ["HidingRecords", "RecordsPart", "applied_parts", "older_names"]


class RecordsPart(NamedTuple):
    """Records of one deletion file that a look saw together.

    Attributes:
        group: storage group of the file that it belongs to.
        physical: that file, if it is loaded.
        form: of the deletion file.
        content: whole records.
        floor: see `records.DeletionsNoted`.
        author: whose files they reach.
    """

    group: str
    physical: str | None
    form: str
    content: bytes
    floor: int
    author: str


def applied_parts(rows: Iterable[DeletionsRow]) -> Iterator[RecordsPart]:
    """What is applied of deletion files."""
    for row in rows:
        begin = 0
        for each in row.segments:
            content, begin = row.content[begin : each.end], each.end
            if each.applied:
                group = storage_group_of(row.path)
                yield RecordsPart(group, row.physical, row.form, content, each.floor, row.author)


def older_names(noted: DeletionsRow, row: FileRow | None) -> frozenset[str]:
    """The patterns of a deletion file that name all that lies below as well, as those of 0.12 do.

    Args:
        noted: the deletion file.
        row: of its TsFile, whose devices tell; also when that is deleted.
    """
    if noted.form != "mods" or row is None:
        return frozenset()
    from receiver.points.deleted.deletions import older_in

    return older_in(noted.content, noted.path, row.devices.names())


class HidingRecords:
    """Records of deletion files of one sender."""

    def __init__(self, state: State, parts: Iterable[RecordsPart]) -> None:
        """Read them; what is no record hides nothing here, whoever reads the points says so."""
        self._state = state
        self._parts = [(each, _entries(state, each)) for each in parts]

    def concerns(self, row: FileRow) -> bool:
        """Whether one of them is of a device of a file."""
        entries = self._reaching(row)
        return any(
            each.series.concerns(_names(device)) for device in row.devices for each in entries
        )

    def hides(self, row: FileRow) -> bool:
        """Whether they hide all that a file has: each device in its whole range of time."""
        entries = self._reaching(row)
        ranges = list(row.devices.ranges())
        return bool(entries and ranges) and all(
            self._hides_device(entries, device, first, last) for device, first, last in ranges
        )

    def meets(self, row: FileRow, other: FileRow) -> bool:
        """Whether what reaches a file is of a device of another one, and of its times there."""
        entries = self._reaching(row)
        return bool(entries) and any(
            each.series.concerns(_names(device)) and each.start <= last and first <= each.end
            for device, first, last in other.devices.ranges()
            for each in entries
        )

    def _reaching(self, row: FileRow) -> list[Deletion]:
        closed, author, group = row.closed, row.author, storage_group_of(row.physical)
        return [
            entry
            for part, entries in self._parts
            if part.physical == row.physical
            or (
                (part.author, part.group) == (author, group) and part.floor and part.floor >= closed
            )
            for entry in entries
        ]

    def _hides_device(self, entries: list[Deletion], device: str, first: int, last: int) -> bool:
        names = _names(device)
        found = [each for each in entries if each.series.concerns(names)]
        return bool(found) and all(
            _covers(
                [each for each in found if each.series.matches_series(names, name)], first, last
            )
            for name in self._series_of(device) or [""]
        )

    def _series_of(self, device: str) -> list[str]:
        """What the schema knows of the device's series; it may know more than the file has."""
        if device.startswith("/"):
            return []
        return self._state.schema.devices.series_names(device_nodes(device))


def _entries(state: State, part: RecordsPart) -> tuple[Deletion, ...]:
    from receiver.points.deleted.deletion_entries import PathPattern
    from receiver.points.deleted.deletion_files import parse_binary, parse_text
    from receiver.points.deleted.deletions import older_patterns

    parse = parse_text if part.form == "mods" else parse_binary
    try:
        entries = parse(part.content, part.physical or "").entries
    except TsferryError:
        return ()
    row = state.files.get(part.physical or "")
    if part.form != "mods" or row is None:
        return entries
    older = older_patterns(entries, [each for each in row.devices if not each.startswith("/")])
    return tuple(
        dataclasses.replace(each, series=PathPattern(each.series.text, prefix=True))
        if isinstance(each.series, PathPattern) and each.series.text in older
        else each
        for each in entries
    )


def _names(device: str) -> NamePattern:
    from receiver.points.deleted.deletion_entries import NamePattern, without_trailing_nulls

    is_table, nodes = parse_name(split_database(device)[1])
    return NamePattern(is_table, without_trailing_nulls(nodes) if is_table else nodes)


def _covers(entries: list[Deletion], first: int, last: int) -> bool:
    """Whether every time of a range is deleted by one of them."""
    for start, end in sorted((each.start, each.end) for each in entries):
        if start > first:
            return False
        if end >= last:
            return True
        first = max(first, end + 1)
    return False
