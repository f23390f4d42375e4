"""Tables and tablets as they are, or were, with what readers see in them.

What they hold now is kept beside the files. Of the past it is counted: each look at the past goes
through all files that were seen then.
"""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from receiver.metadata.query import questions as ask
from receiver.metadata.query.row_source import Look, Row, short
from receiver.metadata.query.seen_files import MeantFiles, seen_files
from receiver.metadata.state.tables.file_tables.partition_totals import PartitionTotal
from receiver.metadata.state.tables.file_tables.retired import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow, TabletRow

__all__ = [
    "SHOW_TABLES",
    "SHOW_TABLETS",
    "AskedTimes",
    "SeenTable",
    "SeenTablet",
    "gaps_between",
    "located_tablets",
    "seen_tables",
    "seen_tablets",
]

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1
_BEGIN: Final = attrgetter("begin")
_Totals = dict[tuple[str, int], PartitionTotal]
"""By storage group and partition."""


class SeenTable(NamedTuple):
    """A table as of a commit.

    Attributes:
        row: of it, as it is now.
        tablets: how many it had.
        total: of the files that readers saw.
    """

    row: LoadedTableRow
    tablets: int
    total: PartitionTotal


class SeenTablet(NamedTuple):
    """A tablet as of a commit; see `SeenTable`."""

    row: TabletRow
    table: LoadedTableRow
    total: PartitionTotal


def seen_tables(look: Look, meant: Callable[[str], bool] = lambda _: True) -> list[SeenTable]:
    """The tables as of a commit, by name.

    Args:
        look: at the state.
        meant: whether a table of a name is wanted.

    Raises:
        HistoryGoneError: history does not reach back to the commit.
    """
    with look as (state, _):
        there = [row for row in state.loaded_tables.at(look.ts) if meant(row.name)]
    found = {row.id: SeenTable(row, 0, PartitionTotal()) for row in there}
    for each in seen_tablets(look, meant):
        sums = found.get(each.table.id)
        if sums is not None:  # else it came since
            total = sums.total.with_other(each.total) if sums.tablets else each.total
            found[each.table.id] = SeenTable(each.table, sums.tablets + 1, total)
    return list(found.values())


def seen_tablets(look: Look, meant: Callable[[str], bool] = lambda _: True) -> list[SeenTablet]:
    """The tablets as of a commit, by the names of their tables and by their partitions.

    Raises:
        HistoryGoneError: history does not reach back to the commit.
    """
    with look as (state, _):
        every = list(state.loaded_tables.rows.values())
    tables = [row for row in every if row.is_there_at(look.ts) and meant(row.name)]
    tables.sort(key=attrgetter("name"))
    with look as (state, at):  # what is summed up is copied: a group may have very many partitions
        several = [state.tablet_table.every_of(table.id) for table in tables]
        kept = (
            None
            if at is not None
            else state.file_table.by_partition.copied(each.name for each in tables)
        )
    there = [
        (table, row)
        for table, rows in zip(tables, several, strict=True)
        for row in sorted(rows, key=_BEGIN)
        if row.is_there_at(look.ts)
    ]
    if kept is not None:
        return [
            SeenTablet(row, table, kept.of(table.name, row.begin, row.end)) for table, row in there
        ]
    past = _past_totals(look, {table.name for table in tables})
    return [SeenTablet(row, table, _sum(past, table.name, row)) for table, row in there]


def _past_totals(look: Look, names: set[str]) -> _Totals:
    found: _Totals = {}
    for row, *_ in seen_files(
        look, within=lambda directory: partition_of(f"{directory}/").sg in names
    ):
        key = partition_of(row.physical)
        place = key.sg, int(key.partition)
        found[place] = found.get(place, PartitionTotal()).with_other(PartitionTotal.of(row))
    return found


def _sum(totals: _Totals, name: str, row: TabletRow) -> PartitionTotal:
    if row.end - row.begin == 1:
        return totals.get((name, row.begin), PartitionTotal())
    sums = PartitionTotal()
    for (group, partition), total in totals.items():
        if group == name and row.begin <= partition < row.end:
            sums = sums.with_other(total)
    return sums


class AskedTimes(NamedTuple):
    """A range of times, in the unit of the files.

    Attributes:
        begin: the least; None for all before `end`.
        end: the first that is not asked for; None for all from `begin` on.
        interval: of a partition.
    """

    begin: int | None
    end: int | None
    interval: int

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last time."""
        first = _LEAST if self.begin is None else self.begin
        return first, _GREATEST if self.end is None else self.end - 1

    @property
    def is_any(self) -> bool:
        """Whether there is a time in it."""
        first, last = self.ends
        return first <= last

    @property
    def partitions(self) -> tuple[int, int]:
        """The first partition that times of it belong to, and the first behind the last."""
        first, last = self.ends
        return first // self.interval, last // self.interval + 1

    def is_kept_in(self, row: TabletRow) -> bool:
        """Whether times of it belong to partitions of a tablet."""
        begin, end = self.partitions
        return row.begin < end and begin < row.end


def located_tablets(look: Look, table: LoadedTableRow, asked: AskedTimes) -> list[SeenTablet]:
    """The tablets of a table for a range of times, by their partitions.

    These are those that have partitions of these times, be they empty, and those that may have a
    file with one all the same. As things are now only what is there at those times is looked at.

    Args:
        look: at the state.
        table: that is there as of it.
        asked: which times.
    """
    if not asked.is_any:
        return []
    first, last = asked.ends
    with look as (state, at):
        if at is None:
            kept = state.file_table.by_partition
            met = [
                state.tablet_table.holding(table.id, each)
                for each in kept.meeting(table.name, first, last)
            ]
            met += state.tablet_table.overlapping(table.id, *asked.partitions)
            rows = sorted({row.id: row for row in met if row is not None}.values(), key=_BEGIN)
            return [SeenTablet(row, table, kept.of(table.name, row.begin, row.end)) for row in rows]
    every = seen_tablets(look, table.name.__eq__)
    return [
        each
        for each in every
        if each.table.id == table.id and (asked.is_kept_in(each.row) or _meets(each, first, last))
    ]


def _meets(each: SeenTablet, first: int, last: int) -> bool:
    total = each.total
    return (
        total.first is not None
        and total.last is not None
        and total.first <= last
        and first <= total.last
    )


def gaps_between(
    tablets: Sequence[TabletRow], asked: AskedTimes | None = None
) -> list[tuple[int, int]]:
    """The runs of partitions, end excluded, that are in no tablet.

    Args:
        tablets: of one table, all or those for `asked`, by their partitions.
        asked: which times; from and up to these too, where they have an end. None for all.
    """
    ends = [(row.begin, row.end) for row in tablets if asked is None or asked.is_kept_in(row)]
    if asked is not None and asked.is_any:
        begin, end = asked.partitions
        first = [] if asked.begin is None else [(begin, begin)]
        ends = [*first, *ends, *([] if asked.end is None else [(end, end)])]
    return [(one[1], other[0]) for one, other in pairwise(ends) if one[1] < other[0]]


# -- their sources ---------------------------------------------------------------------------------


def _is_meant(asked: ask.ShowTables | ask.ShowTablets) -> Callable[[str], bool]:
    meant = MeantFiles(asked.pattern)
    return lambda name: meant.may_be_in(f"sequence/{name}/0/0")


def _tables(look: Look, asked: ask.ShowTables) -> list[Row]:
    with look as (state, at):
        standings = state.loaded_tables.standings if at is None else None
    return [
        (
            each.row.name,
            each.row.id,
            each.tablets,
            *each.total[:4],
            each.row.created,
            each.row.dropped or None,
            *_asked_of(each.row, look.ts),
            _state_of(each.row, standings),
        )
        for each in seen_tables(look, _is_meant(asked))
    ]


def _asked_of(row: LoadedTableRow, ts: int) -> tuple[int | None, int | None]:
    """Replicas and TTL, as far as they are known of that time: only the newest is kept."""
    return (row.replicas, row.ttl) if row.version <= ts else (None, None)


def _state_of(row: LoadedTableRow, standings: Mapping[str, str] | None) -> str | None:
    if row.dropped:
        return "deleting"
    return None if standings is None else standings.get(row.id, "running")


def _tablets(look: Look, asked: ask.ShowTablets) -> list[Row]:
    return [
        (
            each.table.name,
            each.row.id,
            each.row.begin,
            each.row.end,
            *each.total[:4],
            each.row.created,
            each.row.dropped or each.table.dropped or None,
        )
        for each in seen_tablets(look, _is_meant(asked))
    ]


_SUMS: Final = ("files", "size", "first time", "last time", "created", "deleted")
SHOW_TABLES: Final = short(("table", "id", "tablets", *_SUMS, "replicas", "ttl", "state"), _tables)
SHOW_TABLETS: Final = short(("table", "tablet", "begin", "end", *_SUMS), _tablets)
