"""Tables and tablets as operators and readers see them: where the files of a time are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import NotFoundError, UsageError
from receiver.metadata.query.row_source import Look
from receiver.metadata.query.seen_tables import (
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
    from collections.abc import Mapping, Sequence
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
    states = _states(there, found[:limit]) if at is None else {}
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
        begin: only those that may have a file with this time or a later one, in the unit of the
            files.
        end: only those that may have one with an earlier time than this.
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
    if begin is None and end is None:
        every = seen_tablets(look, row.name.__eq__)
        every = [each for each in every if each.table.id == row.id]
    else:
        every = located_tablets(look, row, begin, end)
    found = [each for each in every if passed is None or each.row.begin > passed]
    page = found[:limit]
    placed: Mapping[str, PlacementRow] = {}
    if at is None:
        with engine.reading() as state:
            rows = state.placement_table.rows
            placed = {each.row.id: rows[each.row.id] for each in page if each.row.id in rows}
    return TabletsPage(
        commit=look.ts,
        table=row.id,
        name=row.name,
        tablets=[_tablet(each, placed.get(each.row.id)) for each in page],
        gaps=[
            PartitionGap(begin=one, end=other)
            for one, other in gaps_between([each.row for each in page])
        ],
        next=str(page[-1].row.begin) if len(found) > limit else None,
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


def _cursor(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"after: {text!a} is no cursor of tablets") from None


def _states(
    there: ReceiverDirectories, tables: Sequence[SeenTable]
) -> dict[str, TableState | Literal[""]]:
    """How tables stand, by id; of those that only look at a receiver nothing is known."""
    if not isinstance(there, RunningReceiver):
        return {}
    with there.engine.reading() as state:
        rows = {each.row.id: placements_of(state, each.row) for each in tables}
    return {each.row.id: table_state(there, each.row, rows[each.row.id]) for each in tables}


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
