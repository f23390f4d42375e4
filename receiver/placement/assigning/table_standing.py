"""How tables stand at storage nodes: whether what was asked for is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.place_tables.placements import PlacementRow
    from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow, TableState

__all__ = ["note_standings", "standing_of"]


def standing_of(
    placements: Iterable[PlacementRow | None], behind: frozenset[str] | None
) -> TableState:
    """How a table stands.

    Args:
        placements: of its tablets, None for one that is not placed.
        behind: nodes that have not confirmed what is known of it; None if nobody has looked.
    """
    if any(each is None or not each.running for each in placements):
        return "creating"
    return "running" if behind == frozenset() else "altering"


def note_standings(
    engine: Engine, behind: Callable[[LoadedTableRow], frozenset[str] | None]
) -> None:
    """Have those who look at tables see how they stand.

    Args:
        engine: of the master.
        behind: see `standing_of`.
    """
    with engine.reading() as state:
        placed, tablets = state.placement_table.rows, state.tablet_table
        state.loaded_tables.standings = {
            row.id: standing_of(
                [placed.get(each.id) for each in tablets.of_table(row.id)], behind(row)
            )
            for row in state.loaded_tables.there()
        }
