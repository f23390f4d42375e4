"""Cache slots as they are, or were: how many each storage node has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.query.row_source import Look, Row, short

if TYPE_CHECKING:
    from receiver.metadata.query.questions import ShowCacheSlots

__all__ = ["SHOW_CACHE_SLOTS"]


def _rows(look: Look, _: ShowCacheSlots) -> list[Row]:
    with look as (state, _at):
        table = state.cache_slots
        if look.ts < table.reach:
            raise HistoryGoneError(
                f"which cache slots were where at {look.ts} is not known any more; ask for a later "
                "time",
                extra={"oldest": table.reach},
            )
        row = table.at(look.ts)
        if row is None:
            return []
        names = {each.uuid: each.name for each in state.node_table.at(look.ts)}
    return [
        (node, names.get(node), slots, size, row.version, row.changed)
        for node, slots, size in zip(row.nodes, row.shares(), row.sizes, strict=True)
    ]


SHOW_CACHE_SLOTS: Final = short(("node", "name", "slots", "bytes", "version", "since"), _rows)
