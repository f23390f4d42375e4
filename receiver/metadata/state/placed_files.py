"""The tablet of a file, the nodes that are to have it, and what is known to be elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.tables.file_tables.retired import partition_of
from receiver.metadata.state.tables.file_tables.uploaded import InStore

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.place_tables.placements import PlacementRow
    from receiver.metadata.state.tables.place_tables.tablets import TabletRow

__all__ = [
    "holding_nodes",
    "is_left_to_nodes",
    "parts_elsewhere",
    "placed_nodes",
    "placement_of",
    "released_placement",
]


def placement_of(state: State, physical: str) -> tuple[TabletRow, PlacementRow] | None:
    """The tablet that a file lies in, and where that is placed; None where it is not."""
    key = partition_of(physical)
    table = state.loaded_tables.named(key.sg)
    if table is None:
        return None
    tablet = state.tablet_table.holding(table.id, int(key.partition))
    row = None if tablet is None else state.placement_table.rows.get(tablet.id)
    return None if tablet is None or row is None else (tablet, row)


def released_placement(state: State, physical: str) -> tuple[TabletRow, PlacementRow] | None:
    """The tablet that a released file lies in, that of a dropped table too, and where it is placed.

    None of a file that was not released.
    """
    row = state.released_table.rows.get(physical)
    if row is None:
        return None
    tablet = state.tablet_table.rows.get(row.tablet)
    placement = state.placement_table.rows.get(row.tablet)
    return None if tablet is None or placement is None else (tablet, placement)


def placed_nodes(state: State, physical: str) -> list[str]:
    """Nodes that are to have a file, and that nobody has said to be lost; perhaps they have it."""
    found = placement_of(state, physical)
    nodes = () if found is None else found[1].nodes
    rows = state.node_table.rows
    return [each for each in nodes if each in rows and not rows[each].lost]


def parts_elsewhere(state: State, row: FileRow) -> InStore:
    """What of a file need not be in a data directory: the object store has it, or nodes do.

    What is in none of them then is *remote*: neither lost nor missing. Nodes keep no `.resource`.
    """
    stored = state.uploaded_table.parts(row)
    return stored._replace(file=stored.file or row.physical in state.released_table.rows)


def holding_nodes(state: State, physical: str, *, proved: bool = False) -> list[str]:
    """Nodes that may have a released file: none that is said to be lost, or none any more.

    Args:
        state: committed.
        physical: of the file.
        proved: without those that are to have it now, and have not proved it when it was released.
    """
    row = state.released_table.rows.get(physical)
    rows = state.node_table.rows
    nodes = () if row is None else row.nodes
    there = [each for each in nodes if each in rows and not rows[each].lost]
    # Who is forgotten had its tablets made elsewhere before: there they are.
    if proved and all(each in rows for each in nodes):
        return there
    return [*there, *(each for each in placed_nodes(state, physical) if each not in there)]


def is_left_to_nodes(state: State, physical: str, given_up: AbstractSet[str]) -> bool:
    """Whether nodes may have a superseded file that is read again once others are given up.

    Args:
        state: committed.
        physical: of the superseded file.
        given_up: files that readers are not to see any more, since nobody has them.
    """
    row = state.files.get(physical)
    if row is None or row.state is not FileState.SUPERSEDED or not placed_nodes(state, physical):
        return False
    seen = {physical}
    waiting = [*row.rests]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        above = state.files.get(name)
        if above is None:
            continue
        if above.visible and name in given_up:
            return True
        if above.state is FileState.SUPERSEDED:
            waiting += above.rests
    return False
