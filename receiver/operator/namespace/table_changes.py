"""Tables that an operator makes and alters, and how far what was asked for is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import ConflictError
from receiver.metadata.commit.table_creation import (
    MOST_TABLETS_MADE,
    TableAlteration,
    alter_table,
    create_table,
    table_named,
)
from receiver.metadata.model.errors import TableRefusedError
from receiver.operator.views.table_views import TableStanding
from receiver.placement.assigning.table_standing import standing_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from receiver.metadata.state.state import State
    from receiver.metadata.state.tables.place_tables.placements import PlacementRow
    from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow, TableState
    from receiver.operator.directories import RunningReceiver
    from receiver.operator.views.table_views import TableChange, TableRequest

__all__ = [
    "change_table",
    "make_table",
    "placements_of",
    "splits_between",
    "table_standing",
    "table_state",
]


def make_table(there: RunningReceiver, asked: TableRequest) -> TableStanding:
    """Make a table; its tablets are placed behind this call.

    Raises:
        TableExistsError: there is one of that name.
        TableRefusedError: its name, its partitions or its replicas cannot be.
        StorageGroupNestedError: it would lie in another storage group, or one in it.
        ConflictError: storage nodes have tablets that are not known here.
    """
    splits = _splits(there, asked.name, asked)
    _check_replicas(there, asked.name, asked.replicas)
    ident, _ = create_table(there.engine, asked.name, splits, replicas=asked.replicas)
    there.copies.assignment.wake()
    return table_standing(there, ident)


def change_table(there: RunningReceiver, table: str, asked: TableChange) -> TableStanding:
    """Say something else of a table, by its name or id; nodes hear of it behind this call.

    Raises:
        TableMissingError: there is none.
        TableRefusedError: partitions or replicas cannot be.
        RefusedCommitError: there is a tablet where one is to be made.
        ConflictError: storage nodes have tablets that are not known here.
    """
    splits = _splits(there, table, asked)
    _check_replicas(there, table, asked.replicas)
    change = TableAlteration(asked.replicas, asked.as_configured, splits)
    alter_table(there.engine, table, change)
    there.copies.assignment.wake()
    return table_standing(there, table)


def table_standing(there: RunningReceiver, table: str) -> TableStanding:
    """How a table stands now, by its name or id.

    Raises:
        TableMissingError: there is none.
    """
    with there.engine.reading() as state:
        row = table_named(state, table)
        rows = placements_of(state, row)
    placed = [each for each in rows if each is not None]
    running = [each for each in placed if each.running]
    configured = there.config.nodes.replicas
    wanted = (row.replicas or configured) if configured else 0
    assignment = there.copies.assignment
    behind = assignment.behind(row) if wanted else frozenset()
    if behind is None:  # nobody was looked at since it was said
        behind = frozenset(uuid for each in placed for uuid in each.nodes)
    of_table = {each.tablet for each in placed}
    newer = {node for node, tablet in assignment.last.newer if tablet in of_table}
    return TableStanding(
        id=row.id,
        name=row.name,
        state=table_state(there, row, rows),
        replicas=wanted,
        ttl=row.ttl,
        version=row.version,
        tablets=len(rows),
        placed=len(placed),
        running=len(running),
        short=sum((0 if each is None else len(each.nodes)) < wanted for each in rows),
        behind=tuple(sorted(behind)),
        newer=tuple(sorted(newer)),
    )


def placements_of(state: State, table: LoadedTableRow) -> list[PlacementRow | None]:
    """Where the tablets of a table are placed, None for one that is not."""
    rows = state.placement_table.rows
    return [rows.get(each.id) for each in state.tablet_table.of_table(table.id)]


def table_state(
    there: RunningReceiver, table: LoadedTableRow, placements: Iterable[PlacementRow | None]
) -> TableState:
    """Whether what was asked for is done."""
    if not there.config.nodes.replicas:
        return "running"
    return standing_of(placements, there.copies.assignment.behind(table))


def splits_between(name: str, begin: int, end: int, every: int, interval: int) -> Sequence[int]:
    """The splits that cut a time into tablets.

    Args:
        name: of the table, for what is said.
        begin: milliseconds since the epoch.
        end: behind the last.
        every: milliseconds of a tablet.
        interval: of a partition, as the databases at the edges have it.

    Raises:
        TableRefusedError: that is no time, or `every` is no multiple of the interval.
    """
    if not begin < end:
        raise _refused(name, f"{begin} to {end} is no time, in milliseconds")
    if every <= 0 or every % interval:
        raise _refused(
            name,
            f"a tablet of {every} ms: expected a multiple of partition_interval, {interval}",
        )
    first, last, step = begin // interval, -(-end // interval), every // interval
    if (last - first) // step > MOST_TABLETS_MADE:
        raise _refused(name, f"more than {MOST_TABLETS_MADE} tablets: expected a longer `every`")
    return [*range(first, last, step), last]


def _splits(there: RunningReceiver, name: str, asked: TableChange) -> Sequence[int]:
    times = (asked.begin, asked.end)
    if asked.splits and (times != (None, None) or asked.every is not None):
        raise _refused(name, "expected either splits or times")
    splits: Sequence[int] = asked.splits
    if asked.begin is not None and asked.end is not None:
        interval = there.config.partition_interval_ms
        every = interval if asked.every is None else asked.every
        splits = splits_between(name, asked.begin, asked.end, every, interval)
    elif times != (None, None) or asked.every is not None:
        raise _refused(name, "a time has a begin and an end")
    if splits and not asked.despite_offers:
        _check_offers(there)
    return splits


def _check_offers(there: RunningReceiver) -> None:
    """See that no empty tablet is made where a node has one that was forgotten here."""
    strange = there.copies.assignment.last.strange
    if strange:
        raise ConflictError(
            f"storage nodes have {len(strange)} tablets that are not known here, as of a time that "
            "this receiver has not: `copies offered` shows what is in them. Take that first, or "
            "say that these are made all the same (despite_offers)"
        )


def _check_replicas(there: RunningReceiver, name: str, replicas: int | None) -> None:
    if replicas is None:
        return
    config = there.config.nodes
    if not config.replicas:
        raise _refused(name, "nodes.replicas is 0: no tablet is copied to a storage node here")
    if replicas < config.before_ack:
        raise _refused(
            name, f"{replicas} replicas; nodes.before_ack waits for {config.before_ack} of a file"
        )
    nodes = there.copies.nodes().values()
    hosts = len({each.host for each in nodes if each.takes})
    if replicas > hosts:
        raise _refused(
            name,
            f"{replicas} replicas, and storage nodes on {hosts} hosts are heard from that take any",
        )


def _refused(name: str, why: str) -> TableRefusedError:
    return TableRefusedError(f"{name}: {why}", extra={"path": name})
