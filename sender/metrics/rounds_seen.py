"""What is known of the rounds with one receiver, for the measures of a sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sender.metrics.round_tallies import RoundTallies
    from sender.round.round_words.round_report import RoundReport

__all__ = ["RoundsSeen"]


class RoundsSeen(NamedTuple):
    """What is known of the rounds with one receiver.

    Attributes:
        receiver: its name.
        last: the last one, None before the first.
        looked: the last one that looked at the files.
        at: when the last one ended, seconds since the epoch.
        busy: whether a round runs.
        tallies: of the daemon; None of a single round, which counts nothing: a counter that began
            anew with each call of cron would say nothing either.
    """

    receiver: str
    last: RoundReport | None
    looked: RoundReport | None
    at: float
    busy: bool = False
    tallies: RoundTallies | None = None
