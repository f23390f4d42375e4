"""Whether a content under another name was made behind a deletion that hides what has it here.

A database writes a deletion beside each closed file that has points of its devices and times. A
name that came since, with the very content of such a file and nothing deleted beside it, is no
rename of it: the points were deleted and written again, and a compaction gave them that content.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from common.names import storage_group_of
from receiver.load.deciding.told_deletions.hidden_files import (
    HidingRecords,
    RecordsPart,
    applied_parts,
)
from receiver.metadata.state.table_rows import author_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.wire import DeletionsPart
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["OutlivedDeletions"]


class OutlivedDeletions:
    """Deletions of one sender; they are read when a content is asked about, and once."""

    def __init__(self, state: State, sender: str, told: Sequence[DeletionsPart] = ()) -> None:
        """Begin.

        Args:
            state: committed.
            sender: whose.
            told: what the task at hand tells.
        """
        self._state = state
        self._sender = sender
        self._told = told
        self._beside = {part.path for part in told}

    def by(self, path: str, row: FileRow) -> bool:
        """Whether what the sender has under a path is of after them, and a file like it is not.

        Args:
            path: another name than any of the file's.
            row: the file, which the sender has still, as far as is known.
        """
        if not row.held or path in self._beside:
            return False
        if self._state.deletion_table.unloaded(self._sender, path):
            return False
        return self._hiding.meets(row, row)

    @cached_property
    def _hiding(self) -> HidingRecords:
        known = applied_parts(self._state.deletion_table.of_sender(self._sender))
        told = (
            RecordsPart(
                storage_group_of(part.path),
                None,
                part.form,
                part.content,
                part.floor,
                author_of(self._sender, part.author),
            )
            for part in self._told
            if part.applied
        )
        return HidingRecords(self._state, [*known, *told])
