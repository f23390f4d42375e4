"""Which records of deletion files count at a commit, one look's at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from receiver.metadata.state.deletion_rows import DeletionsRow

__all__ = ["AppliedDeletions", "applied_deletions"]


class AppliedDeletions(NamedTuple):
    """Whole records that one look saw first.

    Attributes:
        row: the deletion file that they are of.
        content: the records.
        floor: see `records.DeletionsNoted`.
        commit: that noted them, or let them through.
    """

    row: DeletionsRow
    content: bytes
    floor: int
    commit: int


def applied_deletions(rows: Iterable[DeletionsRow], at: int) -> Iterator[AppliedDeletions]:
    """What readers leave out points by, as of a commit, in the order of each deletion file.

    Of a TsFile with both forms the newer one counts: a database that has both has written it from
    the other. While what it began with is not applied (held, or only kept), both count.

    Args:
        rows: what is noted, whenever.
        at: the commit.
    """
    rows = [_at(row, at) for row in rows]
    renewed = {_file(row) for row in rows if row.form == "mods2" and _begin_counts(row, at)}
    for row in rows:
        if row.form == "mods" and _file(row) in renewed:
            continue
        begin = 0
        for segment in row.segments:
            content, begin = row.content[begin : segment.end], segment.end
            if segment.applied and segment.commit <= at:
                yield AppliedDeletions(row, content, segment.floor, segment.commit)


def _at(row: DeletionsRow, at: int) -> DeletionsRow:
    """A row with the file that it was of at a commit."""
    if row.past <= at:
        return row
    return msgspec.structs.replace(row, physical=row.was, past=0)


def _file(row: DeletionsRow) -> tuple[str, str | None, str, int]:
    return row.sender, row.physical, row.path, row.past


def _begin_counts(row: DeletionsRow, at: int) -> bool:
    first = row.segments[0]
    return first.applied and first.commit <= at
