"""The files of a tablet as the catalogue has them, in the order of their physical names."""

from __future__ import annotations

from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from common.names import Kind
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.place_tables.tablets import TabletRow

__all__ = ["rows_behind"]

_PAGE: Final = 1000
"""Files that are looked at together."""


def rows_behind(state: State, tablet: TabletRow, name: str, after: str | None) -> Iterator[FileRow]:
    """Files of a tablet by physical name, from behind one: visible ones, and some others.

    What has left the master's disks is nowhere else, and stays as long as its row, seen or not.
    """
    rows = (state.files.get(each) for each in state.released_table.of_tablet(tablet.id))
    unseen = sorted(
        (row for row in rows if row is not None and not row.visible),
        key=attrgetter("physical"),
    )
    behind = (row for row in unseen if after is None or row.physical > after)
    return merge(_visible_behind(state, tablet, name, after), behind, key=attrgetter("physical"))


def _visible_behind(
    state: State, tablet: TabletRow, name: str, after: str | None
) -> Iterator[FileRow]:
    for directory in _directories(state, tablet, name):
        if after is not None and after >= f"{directory}0":  # '0' is what follows '/'
            continue
        behind = max(f"{directory}/", after or "")
        while True:
            rows = state.file_table.among(FileState.LIVE, behind, _PAGE)
            inside = [each for each in rows if each.physical.startswith(f"{directory}/")]
            yield from inside
            if len(inside) < len(rows) or len(rows) < _PAGE:
                break
            behind = rows[-1].physical


def _directories(state: State, tablet: TabletRow, name: str) -> list[str]:
    """Directories of a tablet's partitions that may have visible files, in order."""
    found: list[str] = []
    for kind in Kind:
        behind = f"{kind}/{name}/"
        while rows := state.file_table.among(FileState.LIVE, behind, 1):
            parts = rows[0].physical.split("/")
            if parts[:2] != [str(kind), name]:
                break
            found += [
                f"{kind}/{name}/{parts[2]}/{number}" for number in range(tablet.begin, tablet.end)
            ]
            behind = f"{kind}/{name}/{parts[2]}0"
    return sorted(found)
