"""Superseded files that are given again, since points that stood above them are deleted.

Deletions are each database's own. A device that was transferred may have files of several: where
one of these gave every point of a file of another one, which therefore is out of sight, and points
of it are deleted, the file below shows again what it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.names import storage_group_of
from receiver.load.deciding.told_deletions.hidden_files import HidingRecords, RecordsPart
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import author_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from receiver.load.deciding.told_deletions.known_deletions import KeptRecords
    from receiver.metadata.state.deletion_rows import DeletionsRow
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["let_through", "uncovered_by", "uncovered_files"]


def uncovered_files(state: State, parts: Sequence[RecordsPart]) -> list[FileRow]:
    """Find them.

    Args:
        state: committed.
        parts: the records that are to hide from now on, all of them.
    """
    if not parts or not state.owner_table.moves:
        return []
    authors = {each.author for each in parts}
    hiding = HidingRecords(state, parts)
    found = []
    for physical in state.file_table.gone.superseded():
        row = state.files[physical]
        above = (state.files.get(each) for each in row.rests) if row.author not in authors else ()
        if any(each is not None and hiding.meets(each, row) for each in above):
            found.append(row)
    return found


def uncovered_by(
    state: State, notes: Iterable[records.Op], kept: Iterable[KeptRecords]
) -> list[FileRow]:
    """The same for what a task notes, and what it lets be applied."""
    parts = [
        RecordsPart(
            storage_group_of(op.path),
            op.physical,
            op.form,
            op.content,
            op.floor,
            author_of(op.sender, op.author),
        )
        for op in notes
        if isinstance(op, records.DeletionsNoted) and op.applied
    ]
    for each in kept:
        group = storage_group_of(each.op.path)
        parts += [
            RecordsPart(
                group, each.op.physical, each.op.form, content, segment.floor, each.row.author
            )
            for _, content, segment in each.parts()
            if not each.op.held
        ]
    return uncovered_files(state, parts)


def let_through(rows: Iterable[DeletionsRow], digest: str) -> Iterator[RecordsPart]:
    """What is held in deletion files on a list."""
    for row in rows:
        begin = 0
        for each in row.segments:
            content, begin = row.content[begin : each.end], each.end
            if each.held == digest:
                group = storage_group_of(row.path)
                yield RecordsPart(group, row.physical, row.form, content, each.floor, row.author)
