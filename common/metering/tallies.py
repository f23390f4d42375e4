"""What a process counts while it runs: how often something happened, and how long it took."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from typing import Final, NamedTuple

__all__ = ["DURATIONS", "Distribution", "Durations", "LabelledSums"]

DURATIONS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 300.0, 1800.0)
"""Seconds; upper ends of the buckets in which durations are counted."""


class LabelledSums:
    """Sums that only grow, each with its labels; any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[tuple[str, ...], float] = defaultdict(float)

    def add(self, amount: float = 1.0, *labels: str) -> None:
        """Add to the sum with these labels; their values must be few."""
        with self._lock:
            self._sums[labels] += amount

    def sums(self) -> dict[tuple[str, ...], float]:
        """Labels -> sum, as of now."""
        with self._lock:
            return dict(self._sums)


class Distribution(NamedTuple):
    """Durations that were counted.

    Attributes:
        buckets: upper end in seconds -> how many took so long or less; the last end is infinite.
        total: seconds of all of them together.
    """

    buckets: dict[float, int]
    total: float


class Durations:
    """How long something took, in buckets; any thread may tell."""

    def __init__(self, ends: tuple[float, ...] = DURATIONS) -> None:
        self._lock = threading.Lock()
        self._ends = ends
        self._counts = [0] * (len(ends) + 1)
        self._total = 0.0

    def observe(self, seconds: float) -> None:
        """It took so long once."""
        with self._lock:
            self._counts[bisect_left(self._ends, seconds)] += 1
            self._total += seconds

    def distribution(self) -> Distribution:
        """How long it took until now."""
        with self._lock:
            counts, total = list(self._counts), self._total
        buckets, below = {}, 0
        for end, count in zip((*self._ends, float("inf")), counts, strict=True):
            below += count
            buckets[end] = below
        return Distribution(buckets, total)
