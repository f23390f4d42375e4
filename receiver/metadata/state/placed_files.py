"""The tablet of a file, and the storage nodes that are to have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.state.tables.retired import partition_of

if TYPE_CHECKING:
    from receiver.metadata.state.state import State
    from receiver.metadata.state.tables.placements import PlacementRow
    from receiver.metadata.state.tables.tablets import TabletRow

__all__ = ["placed_nodes", "placement_of"]


def placement_of(state: State, physical: str) -> tuple[TabletRow, PlacementRow] | None:
    """The tablet that a file lies in, and where that is placed; None where it is not."""
    key = partition_of(physical)
    table = state.loaded_tables.named(key.sg)
    if table is None:
        return None
    tablet = state.tablet_table.holding(table.id, int(key.partition))
    row = None if tablet is None else state.placement_table.rows.get(tablet.id)
    return None if tablet is None or row is None else (tablet, row)


def placed_nodes(state: State, physical: str) -> list[str]:
    """Nodes that are to have a file, and that nobody has said to be lost; perhaps they have it."""
    found = placement_of(state, physical)
    nodes = () if found is None else found[1].nodes
    rows = state.node_table.rows
    return [each for each in nodes if each in rows and not rows[each].lost]
