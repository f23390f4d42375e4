"""Tables and tablets as operators and readers see them: where the files of a time are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.config.shared_rules import PER_MILLISECOND
from common.errors import NotFoundError, UsageError
from receiver.metadata.query.row_source import Look
from receiver.metadata.query.seen_tables import (
    AskedTimes,
    gaps_between,
    located_tablets,
    seen_tables,
    seen_tablets,
)
from receiver.metadata.sql.executing import moment
from receiver.operator.directories import RunningReceiver
from receiver.operator.namespace.table_changes import placements_of, table_state
from receiver.operator.views.table_views import (
    PartitionGap,
    TablesPage,
    TabletsPage,
    TabletView,
    TableView,
)
from receiver.transfer.said_lists.listing import page_limit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from receiver.metadata.engine import Engine
    from receiver.metadata.query.seen_tables import SeenTable, SeenTablet
    from receiver.metadata.state.tables.place_tables.placements import PlacementRow
    from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow, TableState
    from receiver.operator.directories import ReceiverDirectories

__all__ = ["list_tables", "list_tablets", "table_named"]


def list_tables(
    there: ReceiverDirectories,
    *,
    at: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> TablesPage:
    """A page of the tables, by name.

    Args:
        there: what to look at.
        at: a commit timestamp or a time; now, if left out.
        after: the cursor of the page before.
        limit: tables of the page; as many as the configuration allows, if left out.

    Raises:
        HistoryGoneError: the time is before the kept history.
        UsageError: it is no time.
    """
    engine = there.engine
    look = Look(engine, engine.at(moment(at)))
    limit = page_limit(limit, there.config.limits.max_page_items)
    found = seen_tables(look, lambda name: after is None or name > after)
    states = _states(there, found[:limit], None if at is None else look.ts)
    return TablesPage(
        commit=look.ts,
        commit_at=engine.times.seconds(look.ts),
        tables=[_table(each, engine, states.get(each.row.id, "")) for each in found[:limit]],
        next=found[limit - 1].row.name if len(found) > limit else None,
    )


def list_tablets(
    there: ReceiverDirectories,
    table: str,
    *,
    begin: int | None = None,
    end: int | None = None,
    at: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> TabletsPage:
    """A page of the tablets of a table, in order of their partitions.

    Args:
        there: what to look at.
        table: id of the table, or its name.
        begin: only those that have the partition of this time, in the unit of the files, or of a
            later one, or may have a file with one.
        end: the same of times before this one.
        at: a commit timestamp or a time; now, if left out.
        after: the cursor of the page before.
        limit: tablets of the page; as many as the configuration allows, if left out.

    Raises:
        NotFoundError: there is no such table then.
        HistoryGoneError: the time is before the kept history.
        UsageError: a time or cursor is none.
    """
    engine = there.engine
    look = Look(engine, engine.at(moment(at)))
    limit = page_limit(limit, there.config.limits.max_page_items)
    row = table_named(look, table)
    passed = None if after is None else _cursor(after)
    asked = None if begin is None and end is None else _asked(there, begin, end)
    if asked is None:
        every = seen_tablets(look, row.name.__eq__)
        every = [each for each in every if each.table.id == row.id]
    else:
        every = located_tablets(look, row, asked)
    found = [each for each in every if passed is None or each.row.begin > passed]
    page = found[:limit]
    more = len(found) > limit
    with engine.reading() as state:
        rows = state.placement_table.rows
        placed = {each.row.id: rows[each.row.id] for each in page if each.row.id in rows}
    if at is not None:
        placed = {each: row for each, row in placed.items() if row.changed <= look.ts}
    return TabletsPage(
        commit=look.ts,
        table=row.id,
        name=row.name,
        tablets=[_tablet(each, placed.get(each.row.id)) for each in page],
        gaps=[
            PartitionGap(begin=one, end=other)
            for one, other in gaps_between([each.row for each in every], asked)
            if (passed is None or one > passed) and (not more or other <= page[-1].row.begin)
        ],
        next=str(page[-1].row.begin) if more else None,
    )


def table_named(look: Look, table: str) -> LoadedTableRow:
    """A table by its id or name, as of a commit.

    Raises:
        NotFoundError: there is no such table then.
        HistoryGoneError: history does not reach back to the commit.
    """
    with look as (state, _):
        there = state.loaded_tables.at(look.ts)
    row = next((each for each in there if table in (each.id, each.name)), None)
    if row is None:
        raise NotFoundError(f"there is no table {table} at {look.ts}")
    return row


def _asked(there: ReceiverDirectories, begin: int | None, end: int | None) -> AskedTimes:
    config = there.config
    return AskedTimes(begin, end, config.partition_interval_ms * PER_MILLISECOND[config.time_unit])


def _cursor(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"after: {text!a} is no cursor of tablets") from None


def _states(
    there: ReceiverDirectories, tables: Sequence[SeenTable], ts: int | None
) -> dict[str, TableState | Literal[""]]:
    """How tables stand, by id; of those that only look at a receiver nothing is known.

    Args:
        there: what to look at.
        tables: of it.
        ts: the commit that is asked about; only the newest state is kept, so of a table that has
            changed since nothing is known. None for now.
    """
    if not isinstance(there, RunningReceiver):
        return {}
    with there.engine.reading() as state:
        rows = {each.row.id: placements_of(state, each.row) for each in tables}
    copied = there.config.nodes.replicas > 0
    return {
        each.row.id: table_state(there, each.row, rows[each.row.id])
        for each in tables
        if ts is None or not copied or _is_as_then(each.row, rows[each.row.id], ts)
    }


def _is_as_then(table: LoadedTableRow, placements: Sequence[PlacementRow | None], ts: int) -> bool:
    """Whether nothing was said of a table, and no tablet of it placed, behind a commit."""
    return table.version <= ts and all(
        each is not None and each.changed <= ts for each in placements
    )


def _table(each: SeenTable, engine: Engine, state: TableState | Literal[""]) -> TableView:
    return TableView(
        id=each.row.id,
        name=each.row.name,
        created=each.row.created,
        created_at=engine.times.seconds(each.row.created),
        dropped=each.row.dropped,
        tablets=each.tablets,
        files=each.total.files,
        size=each.total.size,
        first_time=each.total.first,
        last_time=each.total.last,
        points=each.total.points,
        state=state,
    )


def _tablet(each: SeenTablet, placed: PlacementRow | None) -> TabletView:
    nodes: tuple[str, ...] = ()
    if placed is not None:
        nodes = (placed.leader, *(uuid for uuid in placed.nodes if uuid != placed.leader))
    return TabletView(
        id=each.row.id,
        begin=each.row.begin,
        end=each.row.end,
        created=each.row.created,
        files=each.total.files,
        size=each.total.size,
        first_time=each.total.first,
        last_time=each.total.last,
        points=each.total.points,
        nodes=nodes,
        placed="" if placed is None else "running" if placed.running else "creating",
        generation=0 if placed is None else placed.generation,
    )
