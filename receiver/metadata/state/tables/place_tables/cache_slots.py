"""Which storage nodes keep what of the object store, for readers: by slots, in versions.

The last `_VERSIONS` are kept for questions about the past; `reach` says how far back that is the
whole truth.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.metadata.state.tables import Appliers

__all__ = ["CacheSlotsRow", "CacheSlotsTable"]

_VERSIONS: Final = 64


class CacheSlotsRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The slots; see `records.CacheSlotsSet`.

    Attributes:
        changed: the commit that the row is from.
    """

    version: int
    nodes: tuple[str, ...]
    sizes: tuple[int, ...]
    owners: bytes
    changed: int

    def owner(self, slot: int) -> str | None:
        """The node that has a slot; None where no node keeps anything."""
        if not self.nodes:
            return None
        return self.nodes[int.from_bytes(self.owners[2 * slot : 2 * slot + 2])]

    def shares(self) -> list[int]:
        """How many slots each node has, in the order of the nodes."""
        found = [0] * len(self.nodes)
        for slot in range(len(self.owners) // 2):
            found[int.from_bytes(self.owners[2 * slot : 2 * slot + 2])] += 1
        return found


class CacheSlotsTable:
    """The versions.

    Attributes:
        reach: the oldest commit as of which the slots can be told.
    """

    def __init__(self) -> None:
        self.reach = 0
        self._versions: deque[CacheSlotsRow] = deque()

    @property
    def row(self) -> CacheSlotsRow | None:
        """As they are now; None before the first version."""
        return self._versions[-1] if self._versions else None

    @property
    def before(self) -> CacheSlotsRow | None:
        """The version before that."""
        return self._versions[-2] if len(self._versions) > 1 else None

    def at(self, ts: int) -> CacheSlotsRow | None:
        """As of a commit, not before `reach`."""
        return next((each for each in reversed(self._versions) if each.changed <= ts), None)

    def versions(self) -> Iterator[CacheSlotsRow]:
        """What `restore` needs, in order."""
        yield from self._versions

    def restore(self, row: CacheSlotsRow) -> None:
        """Put the next version in."""
        self._versions.append(row)
        while len(self._versions) > _VERSIONS:
            self._versions.popleft()
        if self._versions[0].version > 1:
            self.reach = self._versions[0].changed

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {records.CacheSlotsSet: self._set}

    def _set(self, op: records.CacheSlotsSet, ts: int) -> None:
        self.restore(
            CacheSlotsRow(
                version=op.version,
                nodes=tuple(op.nodes),
                sizes=tuple(op.sizes),
                owners=op.owners,
                changed=ts,
            )
        )
