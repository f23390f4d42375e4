"""The lives of the master: which process has spoken to storage nodes, and as of which commit.

They are kept for good, some 100 bytes for each start: by them a node that was away for longer than
the history is known to have heard this engine, and no copy of it that went its own way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from receiver.metadata.model import records

if TYPE_CHECKING:
    from receiver.metadata.state.tables import Appliers

__all__ = ["MasterLifeRow", "MasterLives"]


class MasterLifeRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """See `records.MasterLifeBegun`.

    Attributes:
        created: the commit that said so.
    """

    life: str
    after: int
    created: int


class MasterLives:
    """Lives, in their order.

    Attributes:
        rows: by id.
    """

    def __init__(self) -> None:
        self.rows: dict[str, MasterLifeRow] = {}
        self._last = ""
        self._ends: dict[str, int] = {}

    def end(self, life: str) -> int | None:
        """The newest commit that was there when another process opened the engine; None so far."""
        return self._ends.get(life)

    def restore(self, row: MasterLifeRow) -> None:
        """Put a row in behind the others."""
        if self._last:
            self._ends[self._last] = row.after
        self.rows[row.life] = row
        self._last = row.life

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {records.MasterLifeBegun: self._life_begun}

    def _life_begun(self, op: records.MasterLifeBegun, ts: int) -> None:
        self.restore(MasterLifeRow(life=op.life, after=op.after, created=ts))
