"""Tables and tablets that a commit makes or drops without saying so; whoever commits need not know.

The first file of a storage group makes a table, the first of a partition a tablet. With the storage
group goes its table, where nothing is left in it; files that come later under the name are of
another one. So a table is there from the first of what it has, and its name is free with the commit
that deletes it, in the one order that commits have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from receiver.metadata.model import records
from receiver.metadata.model.paths import IllegalPathError, directory_nodes, parse_stored
from receiver.metadata.state.tables.file_tables.retired import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from receiver.metadata.model.paths import Nodes
    from receiver.metadata.state.state import State

__all__ = ["missing_tablets", "table_nodes", "with_tablets"]

_SHOWING = (
    records.FileLoaded,
    records.FileRestored,
    records.FileRevived,
    records.FileUndeleted,
)
_DROPPING = records.StorageGroupDeleted
_TELLING = (records.TableMade, records.TtlSet)


def table_nodes(name: str) -> Nodes | None:
    """Where a table stands in the schema, by its name; None for what can stand nowhere there."""
    try:
        return directory_nodes(name)
    except IllegalPathError:
        return None


def with_tablets(state: State, ops: Sequence[records.Op]) -> Sequence[records.Op]:
    """The operations, with the tables and tablets that they make or drop.

    Args:
        state: committed.
        ops: of a commit.

    Returns:
        the same object where nothing is to be added.
    """
    draft: _Draft | None = None
    made: list[records.Op] = []
    for op in ops:
        if isinstance(op, _SHOWING):
            key = partition_of(op.physical)
            partition = int(key.partition)
            row = None if draft else state.loaded_tables.named(key.sg)
            if row is None or state.tablet_table.holding(row.id, partition) is None:
                draft = draft or _Draft(state, ops)
                for each in draft.with_partition(key.sg, partition):
                    made.append(each)
                    made += draft.with_ttl_of(each)
        elif isinstance(op, _DROPPING):
            draft = draft or _Draft(state, ops)
            made += draft.without_group(parse_stored(op.path))
        elif isinstance(op, records.TabletDropped):
            draft = draft or _Draft(state, ops)
            draft.gone.add(op.id)
        made.append(op)
        if isinstance(op, _TELLING):
            draft = draft or _Draft(state, ops)
            made += draft.with_ttl_of(op)
    return made if len(made) > len(ops) else ops


def missing_tablets(state: State) -> Iterator[records.Op]:
    """What makes the tables and tablets of files that were loaded before there were any.

    And tells tables of a TTL that was set before they knew of any.
    """
    draft = _Draft(state, ())
    for row in state.loaded_tables.there():
        ttl = _ttl_of(state, row.name)
        if ttl != row.ttl:
            yield records.TableTtlSet(row.id, ttl)
    totals = state.file_table.by_partition
    for name in totals.groups():
        for partition in totals.partitions(name):
            yield from draft.with_partition(name, partition)


class _Draft:
    """The tables as a commit has changed them so far.

    Attributes:
        gone: tablets that it has dropped.
    """

    def __init__(self, state: State, ops: Sequence[records.Op]) -> None:
        self._state = state
        self._ops = ops
        self._tables: dict[str, str | None] = {}
        self._tablets: set[tuple[str, int]] = set()
        self._ttls: dict[Nodes, int | None] = {}
        self._told: dict[str, int | None] = {}
        self.gone: set[str] = set()

    def _table(self, name: str) -> str | None:
        if name in self._tables:
            return self._tables[name]
        row = self._state.loaded_tables.named(name)
        return None if row is None else row.id

    def with_partition(self, name: str, partition: int) -> Iterator[records.Op]:
        """What makes the tablet that a partition of a table lies in, if there is none."""
        table = self._table(name)
        if table is None:
            table = self._tables[name] = uuid4().hex
            yield records.TableMade(table, name)
        if (table, partition) in self._tablets:
            return
        there = self._state.tablet_table.holding(table, partition)
        if there is None or there.id in self.gone:
            self._tablets.add((table, partition))
            yield records.TabletMade(uuid4().hex, table, partition, partition + 1)

    def with_ttl_of(self, op: records.Op) -> Iterator[records.Op]:
        """What tells tables of the TTL of their storage group, where one of both is new."""
        if isinstance(op, records.TableMade):
            self._tables[op.name] = op.id
            nodes = table_nodes(op.name) or ()
            above = (each for each in self._ttls if nodes[: len(each)] == each)
            group = next(above, None)
            ttl = _ttl_of(self._state, op.name) if group is None else self._ttls[group]
            if ttl is not None:
                yield records.TableTtlSet(op.id, ttl)
        elif isinstance(op, records.TtlSet):
            group = parse_stored(op.path)
            self._ttls[group] = op.ttl
            for row in self._state.loaded_tables.there():
                nodes = table_nodes(row.name) or ()
                is_meant = self._table(row.name) == row.id and nodes[: len(group)] == group
                if is_meant and self._told.get(row.id, row.ttl) != op.ttl:
                    self._told[row.id] = op.ttl
                    yield records.TableTtlSet(row.id, op.ttl)

    def without_group(self, nodes: Nodes) -> Iterator[records.Op]:
        """What drops the tables of a storage group that have no file behind the commit."""
        for row in list(self._state.loaded_tables.there()):
            there = table_nodes(row.name) or ()
            is_meant = self._table(row.name) == row.id and there[: len(nodes)] == nodes
            if is_meant and self._is_left_empty(row.name):
                self._tables[row.name] = None
                yield records.TableDropped(row.id)

    def _is_left_empty(self, name: str) -> bool:
        totals = self._state.file_table.by_partition
        files = sum(totals.of(name, each, each + 1).files for each in totals.partitions(name))
        for op in self._ops:
            if isinstance(op, _SHOWING) and partition_of(op.physical).sg == name:
                return False
            if isinstance(op, records.FileDeleted) and partition_of(op.physical).sg == name:
                row = self._state.files.get(op.physical)
                files -= row is not None and row.visible
        return files == 0


def _ttl_of(state: State, name: str) -> int | None:
    """The TTL of the storage group that a table is or lies in, by the table's name."""
    nodes = table_nodes(name)
    group = None if nodes is None else state.schema.groups.of(nodes)
    return None if group is None else state.schema.groups.ttl(group)
