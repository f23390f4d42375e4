"""How far a long work is, for whoever watches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

__all__ = ["HeardStep", "StepCounter", "StepProgress", "ToldProgress", "stepping", "untold"]

T = TypeVar("T")


class StepProgress(NamedTuple):
    """A moment of a step.

    Attributes:
        step: what is being done, with what.
        done: of these, so many are done with.
        total: of them all; 0 where nobody knows how much it is.
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


class HeardStep:
    """The newest moment of a work that one thread does and others ask about."""

    def __init__(self) -> None:
        self.now: StepProgress | None = None

    def told(self, now: StepProgress) -> None:
        """Remember it; a `ToldProgress`."""
        self.now = now

    def begin(self, step: str) -> None:
        """A step begins of which nobody knows how much it is."""
        self.now = StepProgress(step, 0, 0, 0, 0)

    def forget(self) -> None:
        """The work is over, or another one begins."""
        self.now = None


def stepping(
    step: str, things: Sequence[T], size: Callable[[T], int], told: ToldProgress
) -> Iterator[T]:
    """Go through things as one step: each is done with when the next one is asked for.

    Args:
        step: what is being done with them.
        things: all of them.
        size: bytes of one.
        told: hears of it.
    """
    sizes = [size(each) for each in things]
    counter = StepCounter(step, len(things), sum(sizes), told)
    for each, of_it in zip(things, sizes, strict=True):
        yield each
        counter.done(of_it)
