"""Deletions of a file whose bytes came again: they are those of the new file as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.deletion_notes import DeletionTable

__all__ = ["carried"]


def carried(table: DeletionTable, old: FileRow, physical: str) -> Iterator[records.Op]:
    """Note what is known of the deletions of one file for another one with the same content.

    Args:
        table: of the state.
        old: the file that goes.
        physical: the one that takes its place.
    """
    for row in table.of_file(old.physical):
        base = 0
        for segment in row.segments:
            yield records.DeletionsNoted(
                sender=row.sender,
                path=row.path,
                physical=physical,
                form=row.form,
                base=base,
                content=row.content[base : segment.end],
                floor=segment.floor,
                applied=segment.applied,
                held=segment.held,
                author=row.by,
                kept=segment.kept,
            )
            base = segment.end
