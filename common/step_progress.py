"""How far a long work is, for whoever watches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["StepCounter", "StepProgress", "ToldProgress", "untold"]


class StepProgress(NamedTuple):
    """A moment of a step.

    Attributes:
        step: what is being done, with what.
        done: of these, so many are done with.
        total: of them all.
        bytes: of those that are done with.
        total_bytes: of all.
    """

    step: str
    done: int
    total: int
    bytes: int
    total_bytes: int


ToldProgress = Callable[[StepProgress], None]
"""Called at the begin of a step, and with each thing that is done with; by one thread at a time."""


def untold(_: StepProgress) -> None:
    """Nobody watches."""


class StepCounter:
    """Counts what is done with in one step, and tells of it."""

    def __init__(self, step: str, total: int, total_bytes: int, told: ToldProgress) -> None:
        self._now = StepProgress(step, 0, total, 0, total_bytes)
        self._told = told
        told(self._now)

    def done(self, size: int, count: int = 1) -> None:
        """Done with so many, of so many bytes."""
        now = self._now
        self._now = now._replace(done=now.done + count, bytes=now.bytes + size)
        self._told(self._now)
