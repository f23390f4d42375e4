"""How much of a large commit is judged before others are let in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["AT_ONCE", "Pace", "paced"]

T = TypeVar("T")

AT_ONCE: Final = 256
"""Devices, or operations; judging a device takes some 25 microseconds."""


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

    def step(self) -> None:
        """Something is about to be done."""
        if not self._left:
            self._left = self._at_once
            self._pause()
        self._left -= 1


def paced(things: Iterable[T], pace: Pace | None) -> Iterable[T]:
    """The same things, with pauses between them."""
    return things if pace is None else _paced(things, pace)


def _paced(things: Iterable[T], pace: Pace) -> Iterator[T]:
    for each in things:
        pace.step()
        yield each
