"""Storage nodes as they are, or were, as far as the catalogue knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.query.row_source import Look, Row, short

if TYPE_CHECKING:
    from receiver.metadata.query.questions import ShowStorageNodes
    from receiver.metadata.state.tables.place_tables.storage_nodes import StorageNodeRow

__all__ = ["SHOW_NODES", "seen_nodes"]


def seen_nodes(look: Look) -> list[StorageNodeRow]:
    """The nodes as of a commit, by kind and name.

    Raises:
        HistoryGoneError: the commit is before the kept history, or before what is kept of a node.
    """
    with look as (state, _):
        table = state.node_table
        if look.ts < table.reach:
            raise HistoryGoneError(
                f"how each node stood at {look.ts} is not known any more; ask for a later time",
                extra={"oldest": table.reach},
            )
        return table.at(look.ts)


def _rows(look: Look, _: ShowStorageNodes) -> list[Row]:
    return [
        (
            each.uuid,
            each.kind,
            each.name,
            each.host,
            each.instance,
            each.draining or None,
            each.lost or None,
            each.created,
        )
        for each in seen_nodes(look)
    ]


SHOW_NODES: Final = short(
    ("node", "kind", "name", "host", "instance", "draining", "lost", "created"), _rows
)
