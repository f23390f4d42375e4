"""The files that hold deletions, as entries that readers apply; `deletion_records` has the formats.

A record that the file ends within was being written: it is dropped, and said.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import NoReturn

from common.tsfile.deletion_records import (
    DeletionCondition,
    DeletionRecord,
    binary_record,
    text_record,
)
from common.tsfile.primitives import Malformed
from receiver.points.deleted.deletion_entries import (
    AllOf,
    AnyDevice,
    Deletion,
    DeviceIn,
    PathPattern,
    TableSeries,
    TagIs,
    TagNotNull,
    TagPredicate,
    without_trailing_nulls,
)
from receiver.points.errors import DamagedData, DataPlace

__all__ = ["DeletionFile", "parse_binary", "parse_text"]


@dataclasses.dataclass(frozen=True, slots=True)
class DeletionFile:
    """What a file of deletions holds.

    Attributes:
        name: of the file, for people.
        entries: its whole records.
        dropped: a sentence about the torn record at its end; empty if it ends with a whole one.
    """

    name: str
    entries: tuple[Deletion, ...]
    dropped: str = ""


def parse_text(content: bytes, name: str) -> DeletionFile:
    """Parse a ``.mods`` file.

    Raises:
        DamagedData: a line other than a torn last one is no deletion.
    """
    entries: list[Deletion] = []
    pos = 0
    while pos < len(content):
        end = content.find(b"\n", pos)
        if end < 0:
            return DeletionFile(name, tuple(entries), _torn(name, pos, len(content)))
        line = content[pos:end].removesuffix(b"\r")
        if line:
            entries.append(_parse_line(line, pos, name))
        pos = end + 1
    return DeletionFile(name, tuple(entries))


def _parse_line(line: bytes, pos: int, name: str) -> Deletion:
    try:
        path, start, end, offset = text_record(line, pos)
    except Malformed as bad:
        _damaged(bad.what, name, bad.at)
    return Deletion(PathPattern(path), start, end, offset)


def parse_binary(content: bytes, name: str, *, start: int = 0) -> DeletionFile:
    """Parse a ``.mods2`` file.

    Args:
        content: of the file.
        name: of the file, for people.
        start: where the first record of interest begins; of a shared file.

    Raises:
        DamagedData: a record is none, and is not a torn one at the end.
    """
    entries: list[Deletion] = []
    pos = start
    while pos < len(content):
        try:
            record, pos = binary_record(content, pos)
        except (IndexError, struct.error):
            return DeletionFile(name, tuple(entries), _torn(name, pos, len(content)))
        except Malformed as bad:
            _damaged(bad.what, name, bad.at)
        entries.append(Deletion(_series(record), record.start, record.end))
    return DeletionFile(name, tuple(entries))


def _series(record: DeletionRecord) -> PathPattern | TableSeries:
    if record.condition is None:
        return PathPattern(record.name)
    return TableSeries(record.name, _predicate(record.condition), frozenset(record.columns))


def _predicate(condition: DeletionCondition) -> TagPredicate:
    content = condition.content
    match condition.kind:
        case 0:
            return AnyDevice()
        case 1:
            return DeviceIn(frozenset({without_trailing_nulls(content)}))
        case 2:
            return TagIs(*content)
        case 3:
            return AllOf(tuple(map(_predicate, content)))
        case 4:
            return DeviceIn(frozenset(map(without_trailing_nulls, content)))
        case _:
            return TagNotNull(content)


def _torn(name: str, pos: int, size: int) -> str:
    return f"{name} ends within a deletion: its last {size - pos} bytes, from {pos} on, are dropped"


def _damaged(what: str, name: str, pos: int) -> NoReturn:
    raise DamagedData(what, DataPlace(name, offset=pos))
