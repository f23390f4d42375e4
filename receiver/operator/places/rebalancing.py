"""Tablets that an operator has go from full storage nodes to empty ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.errors import ConflictError
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.operator.views.copy_views import NodeBalance, RebalanceView
from receiver.placement.assigning.balancing import moves_to_balance, placed_bytes
from receiver.placement.assigning.due_tablets import due_tablets
from receiver.placement.assigning.expected_load import PlacedTablet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.state.tables.place_tables.placements import PlacementRow
    from receiver.operator.directories import RunningReceiver
    from receiver.operator.views.copy_views import RebalanceRequest
    from receiver.placement.assigning.balancing import TabletMove
    from receiver.placement.assigning.due_tablets import DueTablet

__all__ = ["rebalance_copies"]

_MOST: Final = 500
"""Tablets of one call: one commit, and what is copied until it is over."""


def rebalance_copies(there: RunningReceiver, request: RebalanceRequest) -> RebalanceView:
    """Tell what would go from which node to which, and, once that is confirmed, have it go.

    A tablet is placed anew, as one is whose node is emptied: the node that had it keeps it, and
    gives it to readers, until it is whole where it is placed.

    Raises:
        ConflictError: something was placed at this very moment; nothing was changed.
    """
    nodes, config = there.copies.nodes(), there.config.nodes
    due = {each.tablet.id: each for each in due_tablets(there.engine)} if config.replicas else {}
    placed = [_placed(each) for each in due.values()]
    moving = {each.tablet.id for each in due.values() if not _is_settled(there, each)}
    moves = moves_to_balance(placed, nodes, most=_MOST, staying=moving)
    if request.confirm and moves:
        _place(there, due, moves)
    taking = sorted(uuid for uuid, node in nodes.items() if node.takes)
    before = placed_bytes(placed, taking)
    after = dict(before)
    for move in moves:
        after[move.source] -= move.size
        after[move.target] += move.size
    with there.engine.reading() as state:
        rows = state.node_table.rows  # without one that was forgotten meanwhile
        names = {uuid: rows[uuid].name for uuid in taking if uuid in rows}
    return RebalanceView(
        tablets=len(moves),
        size=sum(each.size for each in moves),
        moving=len(moving),
        nodes=tuple(
            NodeBalance(node=uuid, name=names[uuid], before=before[uuid], after=after[uuid])
            for uuid in names
        ),
        done=request.confirm,
    )


def _placed(due: DueTablet) -> PlacedTablet:
    nodes = () if due.placement is None else due.placement.nodes
    return PlacedTablet(due.tablet.id, due.table.id, due.tablet.begin, due.size, nodes)


def _is_settled(there: RunningReceiver, due: DueTablet) -> bool:
    """Whether a tablet runs and is whole wherever it is placed: one that is not is on its way."""
    row = due.placement
    if row is None or not row.running:
        return False
    with there.engine.reading() as state:
        return set(there.copies.book.complete(state, due.tablet, row)) == set(row.nodes)


def _place(there: RunningReceiver, due: dict[str, DueTablet], moves: Sequence[TabletMove]) -> None:
    ops: list[records.Op] = []
    for move in moves:
        row = due[move.tablet].placement
        assert row is not None
        ops.append(_moved(row, move))
    try:
        there.engine.commit(ops)
    except RefusedCommitError as error:
        raise ConflictError(
            f"something was placed at the same moment, and nothing was changed: {error}; say it "
            "again"
        ) from error
    there.copies.assignment.wake()


def _moved(row: PlacementRow, move: TabletMove) -> records.TabletPlaced:
    """The leader stays, or one that has all of it is the next; with one copy there is none."""
    staying = [each for each in row.nodes if each != move.source]
    leader = row.leader if row.leader in staying else next(iter(staying), move.target)
    others = [each for each in (*staying, move.target) if each != leader]
    return records.TabletPlaced(row.tablet, row.generation + 1, (leader, *others), leader)
