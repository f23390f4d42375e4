"""Storage nodes: data directories of the receiver, and processes that keep files for it.

    state.node_table.rows        those that are there, by uuid
    state.node_table.named(text) the one that a uuid or a name means
    state.node_table.at(ts)      those that were there, as they were

What is known here was committed, and holds across restarts: who a node is, how often it has
started, and what operators said of it. Whether it is heard from, and how much room it has, is known
to whoever talks to it.

Versions of a row are kept for questions about the past, the last `_VERSIONS` of a node, and those
of the last `_FORGOTTEN` that were forgotten; `reach` says how far back that is the whole truth.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.metadata.state.tables import Appliers

__all__ = ["StorageNodeRow", "StorageNodeTable"]

_VERSIONS: Final = 64
_FORGOTTEN: Final = 256
_KIND_AND_NAME = attrgetter("kind", "name", "uuid")


class StorageNodeRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node; see `records.NodeRegistered`.

    Attributes:
        draining: the commit since which it is emptied, 0 while it is not.
        lost: the commit that declared it lost, 0 while it is not.
        created: the commit that made it.
        changed: the commit that the row is from.
        forgotten: the commit that took it away, in the last version of its row.
    """

    uuid: str
    kind: records.StorageNodeKind
    name: str
    host: str
    instance: int
    addresses: tuple[str, ...] = ()
    draining: int = 0
    lost: int = 0
    created: int
    changed: int
    forgotten: int = 0
    boot: str = ""

    @property
    def takes_files(self) -> bool:
        """Whether new files may come to it, as far as operators have said."""
        return not self.draining and not self.lost

    @property
    def said(self) -> Literal["draining", "lost"] | None:
        """What operators have said of it, None for nothing."""
        if self.lost:
            return "lost"
        return "draining" if self.draining else None


class StorageNodeTable:
    """Nodes.

    Attributes:
        rows: by uuid, those that are there.
        reach: the oldest commit as of which all nodes can be told.
    """

    def __init__(self) -> None:
        self.rows: dict[str, StorageNodeRow] = {}
        self.reach = 0
        self._past: dict[str, deque[StorageNodeRow]] = {}
        self._forgotten: deque[str] = deque()

    def named(self, text: str) -> list[StorageNodeRow]:
        """Those that a uuid, or a name, means: several where a disk took another one's place."""
        found = self.rows.get(text)
        if found is not None:
            return [found]
        return [row for row in self.rows.values() if row.name == text]

    def of_kind(self, kind: records.StorageNodeKind) -> list[StorageNodeRow]:
        """Those of a kind, by name."""
        return sorted((row for row in self.rows.values() if row.kind == kind), key=_KIND_AND_NAME)

    def at(self, ts: int) -> list[StorageNodeRow]:
        """Those that are there as of a commit, not before `reach`, by kind and name."""
        found = (self._at(uuid, ts) for uuid in {**self._past, **self.rows})
        return sorted((row for row in found if row is not None), key=_KIND_AND_NAME)

    def _at(self, uuid: str, ts: int) -> StorageNodeRow | None:
        row = self.rows.get(uuid)
        if row is None or row.changed > ts:
            past = reversed(self._past.get(uuid, ()))
            row = next((each for each in past if each.changed <= ts), None)
        return None if row is None or row.forgotten else row

    def versions(self) -> Iterator[StorageNodeRow]:
        """What `restore` needs: all versions, those of a node in their order."""
        for uuid in self._forgotten:
            yield from self._past[uuid]
        for uuid, row in self.rows.items():
            if uuid not in self._forgotten:
                yield from self._past.get(uuid, ())
            yield row

    def restore(self, row: StorageNodeRow) -> None:
        """Put the next version of a row in."""
        before = self.rows.pop(row.uuid, None)
        if before is not None:
            self._keep(before)
        if not row.forgotten:
            self.rows[row.uuid] = row
            return
        self._keep(row)
        if row.uuid not in self._forgotten:
            self._forgotten.append(row.uuid)
        if len(self._forgotten) > _FORGOTTEN:
            self._drop(self._forgotten.popleft())

    def _keep(self, row: StorageNodeRow) -> None:
        past = self._past.setdefault(row.uuid, deque())
        past.append(row)
        if len(past) > _VERSIONS:
            past.popleft()
            self.reach = max(self.reach, past[0].changed)

    def _drop(self, uuid: str) -> None:
        last = self._past.pop(uuid)[-1]
        now = self.rows.get(uuid, last)  # it may have come again
        self.reach = max(self.reach, now.changed)

    # -- operations --------------------------------------------------------------------------

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.NodeRegistered: self._registered,
            records.NodeDraining: self._draining,
            records.NodeLost: self._lost,
            records.NodeForgotten: self._forgot,
        }

    def _registered(self, op: records.NodeRegistered, ts: int) -> None:
        before = self.rows.get(op.uuid)
        self.restore(
            StorageNodeRow(
                uuid=op.uuid,
                kind=op.kind,
                name=op.name,
                host=op.host,
                instance=op.instance,
                addresses=tuple(op.addresses),
                draining=0 if before is None else before.draining,
                lost=0 if before is None else before.lost,
                created=ts if before is None else before.created,
                changed=ts,
                boot=op.boot,
            )
        )

    def _draining(self, op: records.NodeDraining, ts: int) -> None:
        row = self.rows[op.uuid]
        since = (row.draining or ts) if op.draining else 0
        self.restore(msgspec.structs.replace(row, draining=since, changed=ts))

    def _lost(self, op: records.NodeLost, ts: int) -> None:
        row = self.rows[op.uuid]
        since = (row.lost or ts) if op.lost else 0
        self.restore(msgspec.structs.replace(row, lost=since, changed=ts))

    def _forgot(self, op: records.NodeForgotten, ts: int) -> None:
        row = self.rows[op.uuid]
        self.restore(msgspec.structs.replace(row, forgotten=ts, changed=ts))
