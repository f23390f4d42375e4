"""How much of a large commit is judged before others are let in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["AT_ONCE", "Pace", "paced", "weight_of"]

T = TypeVar("T")

AT_ONCE: Final = 256
"""Devices, or operations; judging a device takes some 25 microseconds."""
_NAMES: Final = 8
"""New series of one device that take as long as a device by itself."""


def weight_of(op: records.Op) -> int:
    """As how many devices an operation takes to be judged, without the devices that it has."""
    if type(op) is records.SeriesCreated:
        return 1 + len(op.names) // _NAMES
    return 1


class Pace:
    """Counts what is done, and pauses behind so much of it."""

    __slots__ = ("_at_once", "_left", "_pause")

    def __init__(self, pause: Callable[[], None], at_once: int = AT_ONCE) -> None:
        """Begin.

        Args:
            pause: called where nothing is under way; what it raises ends what is done.
            at_once: things that are done without a pause.
        """
        self._pause = pause
        self._at_once = self._left = at_once

    def step(self, weight: int = 1) -> None:
        """Something is about to be done that takes as long as so many devices."""
        if self._left <= 0:
            self._left = self._at_once
            self._pause()
        self._left -= weight


def paced(things: Iterable[T], pace: Pace | None) -> Iterable[T]:
    """The same things, with pauses between them."""
    return things if pace is None else _paced(things, pace)


def _paced(things: Iterable[T], pace: Pace) -> Iterator[T]:
    for each in things:
        pace.step()
        yield each
