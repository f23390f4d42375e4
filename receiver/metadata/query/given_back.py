"""Files that ended since their devices went to other senders, and of which one came back.

A sender whose device is transferred is not told of its end: its file stays on its list there and
counts no more. So when the device comes back it has to be asked: what it still has stands above all
that others brought meanwhile, and what it has no more is to be told as gone. Of what was superseded
meanwhile and has left the disk nothing is known here any more: so it is asked for its whole list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.sender_tables.owners import OwnerMove

__all__ = ["GivenBack", "came_back", "ended_with_transfer", "is_anothers", "is_given_back"]

_ENDED = (FileState.RETIRED, FileState.SUPERSEDED)


def is_anothers(state: State, row: FileRow) -> bool:
    """Whether all devices of a file are other senders' by now."""
    owners = [state.owners.get(device) for device in row.devices]
    return bool(owners) and all(
        owner is not None and owner.sender != row.sender for owner in owners
    )


def ended_with_transfer(state: State, row: FileRow) -> bool:
    """Whether a file ended since its devices went to other senders, and its own never told so."""
    moves = (state.owner_table.moves.get(device, ()) for device in row.devices)
    return row.retired and any(
        move.commit == row.last_look and move.sender != row.sender and not move.released
        for several in moves
        for move in several
    )


def is_given_back(state: State, row: FileRow) -> bool:
    """Whether a file ended with a transfer, has a device that is its sender's again, and waits."""
    if row.state not in _ENDED or not ended_with_transfer(state, row):
        return False
    owners = (state.owners.get(device) for device in row.devices)
    if not any(owner is not None and owner.sender == row.sender for owner in owners):
        return False
    return all(state.file_table.held(row.sender, path) is None for path in row.paths)


def came_back(state: State, sender: str, since: int) -> bool:
    """Whether a device was given to a sender since a commit, that had gone from one to another."""
    return state.owner_table.moved > since and any(
        _comes_back(moves, sender) and moves[-1].commit > since
        for moves in state.owner_table.moves.values()
    )


class GivenBack:
    """Finds them, and remembers where to look until the next transfer."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, tuple[str, ...]]] = {}

    def of(self, state: State, sender: str) -> list[FileRow]:
        """Those of a sender."""
        moved = state.owner_table.moved
        known = self._known.get(sender)
        if known is None or known[0] != moved:
            found = tuple(row.physical for row in _search(state, sender))
            known = self._known[sender] = (moved, found)
        rows = (state.files.get(physical) for physical in known[1])
        return [row for row in rows if row is not None and is_given_back(state, row)]


def _search(state: State, sender: str) -> list[FileRow]:
    if not any(_comes_back(moves, sender) for moves in state.owner_table.moves.values()):
        return []
    return [
        row for row in state.files.values() if row.sender == sender and is_given_back(state, row)
    ]


def _comes_back(moves: Sequence[OwnerMove], sender: str) -> bool:
    """Whether a device is a sender's again, as far as its transfers tell.

    Who had it first is not among them.
    """
    return len(moves) > 1 and moves[-1].sender == sender and not moves[-1].released
