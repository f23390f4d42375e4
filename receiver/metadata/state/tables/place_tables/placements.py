"""Where copies of tablets are to lie, and which tablets something happened to lately.

What happened to files is kept in memory alone, and not for ever: `floor` says from which commit on
all of it is here. Who asks about a time before that has to look at all.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

import msgspec

from receiver.metadata.model import records
from receiver.metadata.state.tables.file_tables.retired import partition_of

if TYPE_CHECKING:
    from receiver.metadata.state.tables import Appliers
    from receiver.metadata.state.tables.place_tables.tablets import (
        LoadedTables,
        TabletRow,
        TabletTable,
    )

__all__ = ["PlacementRow", "PlacementTable"]

_REMEMBERED: Final = 20_000
"""Changes of files: 3 MB."""

_TOUCHING: Final = (
    records.FileLoaded,
    records.FileDeleted,
    records.FileQuarantined,
    records.FileRestored,
    records.FileSuperseded,
    records.FileRevived,
    records.FileUndeleted,
    records.FileForgotten,
    records.FileRetired,
    records.FileReturned,
    records.FileNamed,
    records.FileUnnamed,
    records.OriginNoted,
    records.DeletionsNoted,
)


class PlacementRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a tablet is placed; see `records.TabletPlaced`.

    Attributes:
        running: the commit since which its leader is known to have it, 0 while it is not.
        created: the commit of its first placement.
        changed: the commit that the row is from.
    """

    tablet: str
    generation: int
    nodes: tuple[str, ...]
    leader: str
    running: int = 0
    created: int
    changed: int


class PlacementTable:
    """Placements, at most one of a tablet.

    Attributes:
        rows: by tablet.
        floor: what happened behind this commit is remembered.
    """

    def __init__(self, tables: LoadedTables, tablets: TabletTable) -> None:
        """Begin with none; the tables are asked for what is in them."""
        self.rows: dict[str, PlacementRow] = {}
        self.floor = self._base = 0
        self._tables = tables
        self._tablets = tablets
        self._of_node: dict[str, dict[str, None]] = {}
        self._placed: OrderedDict[str, int] = OrderedDict()
        self._touched: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._changes: deque[tuple[int, tuple[str, int], str]] = deque()

    # -- questions ---------------------------------------------------------------------------

    def of_node(self, uuid: str) -> list[PlacementRow]:
        """Placements that have a node."""
        return [self.rows[each] for each in self._of_node.get(uuid, ())]

    def touched(self, table: str, begin: int, end: int) -> int:
        """The last commit that may have changed a file of some partitions of a table, by name."""
        found = (self._touched.get((table, each), 0) for each in range(begin, end))
        return max([self._base, *found])

    def since(self, ts: int) -> list[str] | None:
        """Tablets that were placed, or have a file that changed, behind a commit.

        None where that is not known: all may have.
        """
        if ts < self._base:
            return None
        found: dict[str, None] = {}
        for tablet, at in reversed(self._placed.items()):
            if at <= ts:
                break
            found[tablet] = None
        for (name, partition), at in reversed(self._touched.items()):
            if at <= ts:
                break
            table = self._tables.named(name)
            row = None if table is None else self._tablets.holding(table.id, partition)
            if row is not None and row.id in self.rows:
                found[row.id] = None
        return list(found)

    def changes(self, name: str, tablet: TabletRow, ts: int) -> list[str] | None:
        """Physical names of files of a tablet that changed behind a commit; None: not known."""
        if ts < max(self.floor, self._base):
            return None
        found: dict[str, None] = {}
        for at, (table, partition), physical in reversed(self._changes):
            if at <= ts:
                break
            if table == name and tablet.begin <= partition < tablet.end:
                found[physical] = None
        return list(found)

    # -- changes -----------------------------------------------------------------------------

    def begin_at(self, ts: int) -> None:
        """All that is here is as of a commit; what happened before it is not known."""
        self._base = ts

    def restore(self, row: PlacementRow) -> None:
        """Put a row in as it was."""
        self._drop(row.tablet)
        self.rows[row.tablet] = row
        for uuid in row.nodes:
            self._of_node.setdefault(uuid, {})[row.tablet] = None

    def _drop(self, tablet: str) -> None:
        row = self.rows.pop(tablet, None)
        if row is None:
            return
        for uuid in row.nodes:
            there = self._of_node[uuid]
            there.pop(tablet, None)
            if not there:
                del self._of_node[uuid]

    def operations(self) -> Appliers:
        """What it does with operations."""
        found: Appliers = {
            records.TabletPlaced: self._tablet_placed,
            records.TabletRunning: self._tablet_running,
            records.TableForgotten: self._table_forgotten,
            records.TabletForgotten: self._tablet_forgotten,
        }
        found.update(dict.fromkeys(_TOUCHING, self._file_changed))
        return found

    def _tablet_placed(self, op: records.TabletPlaced, ts: int) -> None:
        known = self.rows.get(op.tablet)
        self.restore(
            PlacementRow(
                tablet=op.tablet,
                generation=op.generation,
                nodes=tuple(op.nodes),
                leader=op.leader,
                created=ts if known is None else known.created,
                changed=ts,
            )
        )
        self._placed[op.tablet] = ts
        self._placed.move_to_end(op.tablet)

    def _tablet_running(self, op: records.TabletRunning, ts: int) -> None:
        row = self.rows[op.tablet]
        self.rows[op.tablet] = msgspec.structs.replace(row, running=ts, changed=ts)

    def _table_forgotten(self, op: records.TableForgotten, ts: int) -> None:
        for row in self._tablets.every_of(op.id):
            self._drop(row.id)
            self._placed.pop(row.id, None)

    def _tablet_forgotten(self, op: records.TabletForgotten, ts: int) -> None:
        self._drop(op.id)
        self._placed.pop(op.id, None)

    def _file_changed(self, op: records.FileLoaded | records.DeletionsNoted, ts: int) -> None:
        if op.physical is None:
            return
        found = partition_of(op.physical)
        key = found.sg, int(found.partition)
        self._touched[key] = ts
        self._touched.move_to_end(key)
        self._changes.append((ts, key, op.physical))
        if len(self._changes) > _REMEMBERED:
            self.floor = self._changes.popleft()[0]
