"""What a daemon counts over its rounds with one receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.metering.tallies import Durations, LabelledSums

if TYPE_CHECKING:
    from sender.round.round_words.round_report import RoundReport

__all__ = ["RoundTallies"]


class RoundTallies:
    """Sums over the rounds of a process.

    Attributes:
        rounds: by how they ended: `done`, `failed`.
        durations: of them.
        sums: `files`, `bytes`, `deleted`, `resumed`.
        success_at: when one last came to its end, seconds since the epoch; 0 for never.
    """

    def __init__(self) -> None:
        self.rounds = LabelledSums()
        self.durations = Durations()
        self.sums = LabelledSums()
        self.success_at = 0.0

    def count(self, report: RoundReport, at: float) -> None:
        """A round has ended, at this moment."""
        self.rounds.add(1, "done" if report.error is None else "failed")
        self.durations.observe(report.seconds)
        self.sums.add(report.sent, "files")
        self.sums.add(report.bytes, "bytes")
        self.sums.add(report.deleted, "deleted")
        self.sums.add(len(report.resumed), "resumed")
        if report.error is None:
            self.success_at = at
