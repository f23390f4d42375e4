"""What was learnt of the clock, and since when it is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.model import records
from receiver.metadata.model.true_times import TrueTimes
from receiver.metadata.state.table_rows import ClockRow

if TYPE_CHECKING:
    from receiver.metadata.state.tables import Appliers

__all__ = ["NEVER", "ClockCorrections"]

NEVER = 1 << 63


class ClockCorrections:
    """The corrections of the clock; only the last counts, for it has those before in it.

    Attributes:
        row: the last correction.
        times: the moments of timestamps.
    """

    def __init__(self) -> None:
        self.row = ClockRow(judged_since=NEVER)
        self.times = TrueTimes()

    def restore(self, row: ClockRow) -> None:
        """Put the row in as it was."""
        self.row = row
        self.times = TrueTimes(row.pieces)

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.EngineMade: self._engine_made,
            records.ClockCorrected: self._clock_corrected,
        }

    def _engine_made(self, op: records.EngineMade, ts: int) -> None:
        self.row = ClockRow(judged_since=0 if op.judged else NEVER)

    def _clock_corrected(self, op: records.ClockCorrected, ts: int) -> None:
        self.restore(
            ClockRow(
                judged_since=min(self.row.judged_since, ts),
                pieces=tuple(op.pieces),
                why=op.why,
                boot=op.boot,
                offset=op.offset,
                changed=ts,
            )
        )
