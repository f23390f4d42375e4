"""Transactions that were committed, for who did not get the answer."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from receiver.metadata.model import records
from receiver.metadata.state.table_rows import TxnRow

if TYPE_CHECKING:
    from receiver.metadata.state.tables import Appliers

__all__ = ["KEPT_TXNS", "TxnTable"]

KEPT_TXNS: Final = 65_536
"""Outcomes that are kept: a minute of two transactions a millisecond, days of what is usual."""


class TxnTable:
    """The last transactions that were committed.

    Attributes:
        rows: by id, in the order of their commits.
        forgotten: the highest id that is not kept any more, 0 for none. Ids grow with the time at
            which their transactions began, so one above it that is not here was never committed.
    """

    def __init__(self) -> None:
        self.rows: dict[int, TxnRow] = {}
        self.forgotten = 0
        # The first of a dictionary is behind all that went from it: looked for there, each commit
        # took longer than the rest of its transaction.
        self._order: deque[int] = deque()

    def restore(self, row: TxnRow) -> None:
        """Put a row in as it was; they come in their order."""
        self.rows[row.id] = row
        self._order.append(row.id)
        if len(self._order) > KEPT_TXNS:
            gone = self._order.popleft()
            del self.rows[gone]
            self.forgotten = max(self.forgotten, gone)

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {records.TxnCommitted: self.committed}

    def committed(self, op: records.TxnCommitted, ts: int) -> None:
        """A transaction is."""
        self.restore(TxnRow(id=op.id, created=ts, changed=ts))
