"""Files of senders that a mirror took over from, which go with what it deletes.

A box that was replaced goes on with the same database, so its word is about what the old box listed
too; but only about what it had itself. That is known of a file of its predecessor in two ways: the
successor listed that very content, or it was proved that files of the successor give every point
of it. What else the old box brought is kept: no look of the new one can tell whether it was deleted
or never came over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.state.table_rows import FileState, is_same_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["files_that_go_with", "heir_of"]

_ENDED = (FileState.RETIRED, FileState.SUPERSEDED)


def files_that_go_with(state: State, ended: Sequence[FileRow]) -> list[FileRow]:
    """Find the files of predecessors that files of a mirror take with them.

    They are retired or superseded, and all their devices are the mirror's by now.

    Args:
        state: committed.
        ended: what the mirror deletes, of one sender.
    """
    if not ended:
        return []
    table, heir = state.file_table, ended[0].sender
    found: dict[str, FileRow] = {}
    waiting = list(ended)
    while waiting:
        going = waiting.pop()
        equal = [row for row in table.of_tail(going.tail) if _is_same_content(row, going)]
        resting = [
            row for row in table.resting_on(going.physical) if _is_given_by(state, row, heir, found)
        ]
        for row in (*equal, *resting):
            if row.physical not in found and _is_predecessors(state, row, heir):
                found[row.physical] = row
                waiting.append(row)
    return list(found.values())


def _is_same_content(row: FileRow, other: FileRow) -> bool:
    """A file without points has no identity beyond its path; neither has one of another edge."""
    return (
        (row.size, row.md5) == (other.size, other.md5)
        and (row.points > 0 or row.path in other.paths)
        and is_same_in(row, other.parsed.sg)
        and _edge_of(row) == _edge_of(other)
    )


def _edge_of(row: FileRow) -> str:
    return "" if row.origin is None else row.origin.sender


def _is_predecessors(state: State, row: FileRow, heir: str) -> bool:
    if row.sender == heir or row.state not in _ENDED:
        return False
    return heir_of(state, row) in (heir, "")


def heir_of(state: State, row: FileRow) -> str | None:
    """The one sender that all devices of a file belong to now; empty for a file without any."""
    owners = {
        None if found is None else found.sender for found in map(state.owners.get, row.devices)
    }
    return None if len(owners) > 1 else owners.pop() if owners else ""


def _is_given_by(state: State, row: FileRow, heir: str, going: dict[str, FileRow]) -> bool:
    """Whether every point of a superseded file was given by files that a sender listed."""
    waiting, known = list(row.rests), set(row.rests)
    while waiting:
        physical = waiting.pop()
        if physical in going:
            continue
        other = state.files.get(physical)
        if other is None:
            return False
        if other.sender == heir:
            continue
        if other.state is not FileState.SUPERSEDED:
            return False
        waiting += [each for each in other.rests if each not in known]
        known.update(other.rests)
    return True
