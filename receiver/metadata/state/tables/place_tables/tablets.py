"""Tables and tablets: storage groups of what is loaded, and the runs of partitions they consist of.

A table that was dropped and one that has its name since are two: what is of the old one never comes
to be of the new one. What is asked is answered from maps: tables by id and by name, tablets by id,
and of each table its tablets in order of the partitions that they begin with.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

import msgspec

from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from receiver.metadata.state.tables import Appliers

__all__ = ["LoadedTableRow", "LoadedTables", "TableState", "TabletRow", "TabletTable"]

TableState = Literal["creating", "altering", "running"]

_BEGIN = attrgetter("begin")


class LoadedTableRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A table; see `records.TableMade`, `TableReplicasSet` and `TableTtlSet`.

    Attributes:
        created: the commit that made it.
        changed: the commit that the row is from.
        dropped: the commit that dropped it, 0 while it is there.
        replicas: storage nodes that are to have its tablets; None for as many as configured.
        ttl: of its storage group, in milliseconds; None for ever.
        version: the commit since which that is so, 0 where nothing was ever said.
    """

    id: str
    name: str
    created: int
    changed: int
    dropped: int = 0
    replicas: int | None = None
    ttl: int | None = None
    version: int = 0

    def is_there_at(self, ts: int) -> bool:
        """Whether it is there as of a commit."""
        return self.created <= ts and (not self.dropped or ts < self.dropped)


class TabletRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tablet; see `records.TabletMade`. It is gone with its table, or by itself before that.

    Attributes:
        dropped: the commit that dropped it by itself, 0 where none has.
    """

    id: str
    table: str
    begin: int
    end: int
    created: int
    changed: int
    by_hand: bool = False
    dropped: int = 0

    def is_there_at(self, ts: int) -> bool:
        """Whether it is there as of a commit, as far as its table is."""
        return self.created <= ts and (not self.dropped or ts < self.dropped)


class LoadedTables:
    """Tables.

    Attributes:
        rows: by id, those too that were dropped and are not yet forgotten.
        standings: how those that are there stand at storage nodes, by id, as who sees to that found
            it last; it is no commit, and gone with the process. None while nobody sees to it.
    """

    def __init__(self) -> None:
        self.rows: dict[str, LoadedTableRow] = {}
        self.standings: Mapping[str, TableState] | None = None
        self._names: dict[str, str] = {}
        self._drops: dict[str, int] = {}

    def named(self, name: str) -> LoadedTableRow | None:
        """The table that has a name."""
        found = self._names.get(name)
        return None if found is None else self.rows[found]

    def at(self, ts: int) -> list[LoadedTableRow]:
        """Those that are there as of a commit, by name."""
        there = (row for row in self.rows.values() if row.is_there_at(ts))
        return sorted(there, key=attrgetter("name"))

    def there(self) -> Iterator[LoadedTableRow]:
        """Those that are there now."""
        return (self.rows[each] for each in self._names.values())

    def dropped(self) -> list[LoadedTableRow]:
        """Those that are no more, and are not forgotten."""
        return [row for row in self.rows.values() if row.dropped]

    def last_drop(self, name: str) -> int:
        """The newest commit that dropped a table of a name; 0 for none that is not forgotten."""
        return self._drops.get(name, 0)

    def restore(self, row: LoadedTableRow) -> None:
        """Put a row in as it was."""
        self.rows[row.id] = row
        if row.dropped:
            self._drops[row.name] = max(row.dropped, self.last_drop(row.name))
        else:
            self._names[row.name] = row.id

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.TableMade: self._made,
            records.TableDropped: self._dropped,
            records.TableForgotten: self._forgotten,
            records.TableReplicasSet: self._replicas_set,
            records.TableTtlSet: self._ttl_set,
        }

    def _made(self, op: records.TableMade, ts: int) -> None:
        self.restore(LoadedTableRow(id=op.id, name=op.name, created=ts, changed=ts))

    def _dropped(self, op: records.TableDropped, ts: int) -> None:
        row = self.rows[op.id]
        del self._names[row.name]
        self.restore(msgspec.structs.replace(row, dropped=ts, changed=ts))

    def _forgotten(self, op: records.TableForgotten, ts: int) -> None:
        row = self.rows.pop(op.id)
        if self.last_drop(row.name) == row.dropped:
            del self._drops[row.name]

    def _replicas_set(self, op: records.TableReplicasSet, ts: int) -> None:
        row = self.rows[op.id]
        changed = msgspec.structs.replace(row, replicas=op.replicas, version=ts, changed=ts)
        self.rows[op.id] = changed

    def _ttl_set(self, op: records.TableTtlSet, ts: int) -> None:
        row = self.rows[op.id]
        self.rows[op.id] = msgspec.structs.replace(row, ttl=op.ttl, version=ts, changed=ts)


class TabletTable:
    """Tablets of all tables.

    Attributes:
        rows: by id, those too that were dropped and are not yet forgotten.
    """

    def __init__(self) -> None:
        self.rows: dict[str, TabletRow] = {}
        self._of_table: dict[str, list[TabletRow]] = {}
        self._dropped: dict[str, dict[str, TabletRow]] = {}

    def of_table(self, table: str) -> list[TabletRow]:
        """The tablets of a table, by id, in order of their partitions."""
        return list(self._of_table.get(table, ()))

    def every_of(self, table: str) -> list[TabletRow]:
        """The same with those that were dropped by themselves."""
        return [*self._of_table.get(table, ()), *self._dropped.get(table, {}).values()]

    def at(self, table: str, ts: int) -> list[TabletRow]:
        """The tablets that a table, by id, had as of a commit, in order of their partitions."""
        there = [row for row in self.every_of(table) if row.is_there_at(ts)]
        return sorted(there, key=_BEGIN)

    def dropped(self) -> list[TabletRow]:
        """Those that were dropped by themselves, and are not forgotten."""
        return [row for several in self._dropped.values() for row in several.values()]

    def holding(self, table: str, partition: int) -> TabletRow | None:
        """The tablet of a table, by id, that a partition is in."""
        several = self._of_table.get(table)
        if several is None:
            return None
        at = bisect_right(several, partition, key=_BEGIN) - 1
        return several[at] if at >= 0 and partition < several[at].end else None

    def overlapping(self, table: str, begin: int, end: int) -> Iterator[TabletRow]:
        """The tablets of a table that have a partition from `begin` to `end`, that one excluded."""
        several = self._of_table.get(table, [])
        at = max(0, bisect_right(several, begin, key=_BEGIN) - 1)
        for row in several[at:]:
            if row.begin >= end:
                return
            if begin < row.end:
                yield row

    def restore(self, row: TabletRow) -> None:
        """Put a row in as it was."""
        self.rows[row.id] = row
        if row.dropped:
            self._dropped.setdefault(row.table, {})[row.id] = row
            return
        several = self._of_table.setdefault(row.table, [])
        if several and several[-1].begin > row.begin:
            insort(several, row, key=_BEGIN)
        else:
            several.append(row)

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.TabletMade: self._made,
            records.TabletDropped: self._tablet_dropped,
            records.TabletForgotten: self._tablet_forgotten,
            records.TableForgotten: self._table_forgotten,
        }

    def _made(self, op: records.TabletMade, ts: int) -> None:
        self.restore(
            TabletRow(
                id=op.id,
                table=op.table,
                begin=op.begin,
                end=op.end,
                created=ts,
                changed=ts,
                by_hand=op.by_hand,
            )
        )

    def _tablet_dropped(self, op: records.TabletDropped, ts: int) -> None:
        row = self.rows[op.id]
        several = self._of_table[row.table]
        del several[bisect_left(several, row.begin, key=_BEGIN)]
        self.restore(msgspec.structs.replace(row, dropped=ts, changed=ts))

    def _tablet_forgotten(self, op: records.TabletForgotten, ts: int) -> None:
        row = self.rows.pop(op.id)
        del self._dropped[row.table][op.id]
        if not self._dropped[row.table]:
            del self._dropped[row.table]

    def _table_forgotten(self, op: records.TableForgotten, ts: int) -> None:
        for row in self.every_of(op.id):
            del self.rows[row.id]
        self._of_table.pop(op.id, None)
        self._dropped.pop(op.id, None)
