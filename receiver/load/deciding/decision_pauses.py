"""Others go on in the middle of a decision about very many files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.metadata.state.lock import Reading

__all__ = ["pauses"]

_WITHOUT_PAUSE: Final = 0.02
"""Seconds that nobody can look at the state for a decision: of 20,000 files it takes 0.6 s."""


def pauses(
    reading: Reading,
    monotonic: Callable[[], float] = time.monotonic,
    *,
    commits: bool = False,
) -> Callable[[], None]:
    """What lets others read now and then, called between two files.

    Args:
        reading: the one that a decision is made in.
        monotonic: seconds.
        commits: whether others may commit, too: what is decided is then of no single moment, and
            only good for who decides once more.
    """
    due = monotonic() + _WITHOUT_PAUSE

    def pause() -> None:
        nonlocal due
        if monotonic() >= due:
            reading.give_way(stands=not commits)
            due = monotonic() + _WITHOUT_PAUSE

    return pause
