"""Files that are gone at the edge and kept here: should one come back, it is here already."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common.names import FilePath
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["Retired"]


class Retired:
    """The retired files of one sender; each partition is searched once."""

    def __init__(self, state: State, sender: str) -> None:
        self._state = state
        self._sender = sender
        self._groups: dict[tuple[str, str, int], dict[str, list[FileRow]]] = {}

    def find(self, path: FilePath, is_same: Callable[[FileRow], bool]) -> FileRow | None:
        """The visible retired file that had this path, and has this content."""
        return next((row for row in self._rows(path) if is_same(row)), None)

    def _rows(self, path: FilePath) -> list[FileRow]:
        group = self._groups.get(path.group)
        if group is None:
            group = self._groups[path.group] = {}
            for row in self._state.file_table.partition(*path.group):
                if row.retired and row.sender == self._sender:
                    group.setdefault(row.path, []).append(row)
        return group.get(path.text, [])
