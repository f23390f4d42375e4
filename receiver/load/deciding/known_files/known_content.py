"""Content of a sender that is here already, under the path in question or another one.

A rename, a move to another tier or data directory, a file that comes back: the bytes are here, so
they do not travel, and the file keeps its row, its looks, and what is proved of it. That holds only
while its bytes stand on the disk, which is looked at, not believed. A file without points says
nothing of where it came from: it has no identity beyond its path. What ended since all its devices
are other senders' does not come back. Nor does a file of which something was deleted under a name
of another rank: points that were deleted, written again and compacted can make its very content,
and its deletions are none of the product's. They may come with the task that brings the product.
What was merged for good does not come back either: it is sent as a new file, since what it was
merged with stands where it stood. Nor does the merged file itself, should a database have been
given a copy of it: it ranks by what it is made of, and not by a path at an edge.

Devices of tables are those of the database that a file lies in, which its bytes do not name: the
same bytes in two databases are two files with points of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.names import FilePath
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.model.ranks import name_rank
from receiver.metadata.query.given_back import is_anothers
from receiver.metadata.state.table_rows import FileState, is_same_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["known_content", "somebody_elses"]

_GOOD = (FileState.LIVE, FileState.RETIRED, FileState.SUPERSEDED)


def known_content(
    state: State,
    sender: str,
    path: str,
    tail: str,
    is_same: Callable[[FileRow], bool],
    stands: Callable[[FileRow], bool],
    origin: str = "",
    is_deleted_from: Callable[[FileRow], bool] = lambda _: False,
) -> FileRow | None:
    """The file of a sender that has some content, whose bytes stand.

    One that has the very path is preferred, then one with a name that ranks the same, which has
    moved and has its own deletions, then one that the sender still has, then the one that was
    loaded last.

    Args:
        state: committed.
        sender: whose file.
        path: that the sender has the content under.
        tail: digest of its tail.
        is_same: whether a file with that tail has the content.
        stands: looks at the disk.
        origin: the edge that it comes from, of a forwarded file.
        is_deleted_from: whether the task at hand tells deletions of a file under other paths.
    """
    mine = FilePath.parse(path)

    def has_deletions(row: FileRow) -> bool:
        return is_deleted_from(row) or bool(state.deletion_table.of_file(row.physical))

    found = [
        row
        for row in state.file_table.of_tail(tail)
        if row.sender == sender
        and row.state in _GOOD
        and not (is_merged(row.physical) or _is_merged_in(row))
        and (row.origin is None or row.origin.sender == origin)
        and (row.points or path in row.paths)
        and (row.held or not is_anothers(state, row))
        and (_is_of_same_rank(row, path) or not has_deletions(row))
        and is_same_in(row, mine.sg)
        and is_same(row)
    ]

    def likeness(row: FileRow) -> tuple[bool, bool, bool, int]:
        return path in row.paths, _is_of_same_rank(row, path), not row.retired, row.created

    found.sort(key=likeness, reverse=True)
    return next((row for row in found if stands(row)), None)


def _is_merged_in(row: FileRow) -> bool:
    """Whether merged files alone give what a file had."""
    return row.state is FileState.SUPERSEDED and bool(row.rests) and all(map(is_merged, row.rests))


def somebody_elses(
    state: State, owner: str, tail: str, is_same: Callable[[FileRow], bool]
) -> str | None:
    """The way out where the owner of a file's device brought that very content; None if not.

    Args:
        state: committed.
        owner: another sender, to which a device of the file belongs.
        tail: digest of its tail.
        is_same: whether a file with that tail has the content.
    """
    rows = state.file_table.of_tail(tail)
    if not any(row.sender == owner and row.state in _GOOD and is_same(row) for row in rows):
        return None
    return (
        "this very content is here already, from that sender. Did this machine take its place: "
        "tsferry-receiver senders adopt. Do both send the same files: one of them leaves them out "
        "(storage_groups)"
    )


def _is_of_same_rank(row: FileRow, path: str) -> bool:
    """Whether one of a file's names ranks as a path does; of no database's, whether it is that."""
    mine = FilePath.parse(path)
    names = map(FilePath.parse, row.paths)
    return any((name_rank(each) or each.name) == (name_rank(mine) or mine.name) for each in names)
