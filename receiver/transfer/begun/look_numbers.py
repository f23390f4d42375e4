"""Which numbers a look can have: files rank by them, and deletions reach files by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.model.timestamps import COUNTER_BITS, from_seconds

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine

__all__ = ["latest_look"]

_AHEAD = 1000 << COUNTER_BITS
"""A second: room for rounds that commit nothing while the newest commit is ahead of the clock."""


def latest_look(engine: Engine) -> int:
    """What no look can have reached yet.

    A look is numbered behind the newest commit. A sender that was at another engine before, or at
    this one before it was restored from a copy, goes on from the numbers of that one, which the
    time had given. So what a task tells of is not behind its own commit, and each later look, which
    is, is behind all of that: no record of a deletion reaches what a later look brings.
    """
    return max(engine.newest_commit, engine.times.first(from_seconds(engine.clock()))) + _AHEAD
