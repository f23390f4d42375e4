"""All tablets that are to lie somewhere, with where they are placed and what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.place_tables.placements import PlacementRow
    from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow, TabletRow

__all__ = ["DueTablet", "due_tablets"]

_AT_ONCE: Final = 500
"""Tablets that are looked at while commits wait."""


class DueTablet(NamedTuple):
    """A tablet of a table that is there.

    Attributes:
        tablet: its row.
        table: that of its table.
        size: bytes of its files that readers see.
        placement: where it is placed; None if it is not.
        proved: nodes that have proved to have a file of it which left the master's disks, of the
            one with most; 0 where none has left.
    """

    tablet: TabletRow
    table: LoadedTableRow
    size: int
    placement: PlacementRow | None
    proved: int = 0


def due_tablets(engine: Engine) -> list[DueTablet]:
    """All tablets of tables that are there; commits go on in between."""
    with engine.reading() as state:
        every = [
            (table, tablet)
            for table in state.loaded_tables.there()
            for tablet in state.tablet_table.of_table(table.id)
        ]
    found: list[DueTablet] = []
    for begin in range(0, len(every), _AT_ONCE):
        with engine.reading() as state:
            totals = state.file_table.by_partition
            placements, released = state.placement_table.rows, state.released_table
            for table, tablet in every[begin : begin + _AT_ONCE]:
                size = totals.of(table.name, tablet.begin, tablet.end).size
                proved = released.copies(tablet.id)
                found.append(DueTablet(tablet, table, size, placements.get(tablet.id), proved))
    return found
