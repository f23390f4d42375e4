"""What senders say of the time: whether their clocks agree with one that is in doubt."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["WRITTEN", "SendersClocks"]

_AGREES = 300.0
"""Seconds by which a clock may differ: what a request takes, and how badly edge clocks go."""
_LASTS = 86400.0
"""Seconds for which a word counts; a clock that was right goes on well for as long."""
_MOST = 10_000
WRITTEN = 1_795_824_000.0
"""2026-11-28, when this was written. Boxes whose clock has no battery begin at the same wrong time
and so agree with each other, in years that were long ago by then."""


class _Word(NamedTuple):
    machine: str
    offset: float
    heard: float


class SendersClocks:
    """The clocks of senders, each as the offset of its time from this machine's boot clock.

    So a word keeps its worth when the clock of this machine is set.
    """

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id
        self._words: dict[str, _Word] = {}

    def heard(self, sender: str, machine: str, clock: float, boot: float) -> None:
        """A sender told what its clock shows.

        Args:
            sender: its uuid.
            machine: which boot of which machine it runs on; empty if it does not tell.
            clock: seconds since the epoch.
            boot: the boot clock of this machine when that came.
        """
        if machine == self._boot_id or not math.isfinite(clock) or clock <= 0:
            return  # it has the same clock as we, or none
        self._words.pop(sender, None)
        self._words[sender] = _Word(machine or sender, clock - boot, boot)
        if len(self._words) > _MOST:
            del self._words[next(iter(self._words))]

    def agree(self, offset: float, boot: float, *, known: int) -> int:
        """How many machines say that a clock is right; 0 where that is not enough.

        At least two must, and more than say otherwise. Where only one sender is known its word is
        enough to follow the clock: it can confirm what this machine's own shows, no more.

        Args:
            offset: of the wall clock from the boot clock.
            boot: the boot clock.
            known: senders that the receiver knows.
        """
        if boot + offset < WRITTEN:
            return 0
        lately = [each for each in self._words.values() if boot - each.heard <= _LASTS]
        words: dict[str, bool] = {}
        for each in lately:  # machines with several senders have one vote, the last word
            words[each.machine] = abs(each.offset - offset) <= _AGREES
        for_it = sum(words.values())
        is_enough = for_it >= (1 if known == 1 else 2) and 2 * for_it > len(words)
        return for_it if is_enough else 0
