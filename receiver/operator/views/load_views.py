"""Loads at the centre as they are shown."""

from __future__ import annotations

import msgspec

from common.wire import Struct
from receiver.operator.views.step_now import StepNow

__all__ = ["CentreLoadView", "CentreLoadsAnswer"]


class CentreLoadView(Struct, frozen=True, kw_only=True):
    """A load at the centre that is not over.

    Attributes:
        task: its id.
        paths: that it was told to load; none of rows that a job writes, and of one that an earlier
            process was told.
        dry_run: whether it is to change nothing.
        begun_at: when, seconds since the epoch.
        committed: whether its files are visible, and it waits for their copies elsewhere alone.
        trouble: why it has to wait; None while it goes on.
        progress: how far it is.
    """

    task: str
    begun_at: float
    paths: list[str] = msgspec.field(default_factory=list)
    dry_run: bool = False
    committed: bool = False
    trouble: str | None = None
    progress: StepNow | None = None


class CentreLoadsAnswer(Struct, frozen=True, kw_only=True):
    """`GET /v1/loads`.

    Attributes:
        loads: those at the centre that are not over, the oldest first.
    """

    loads: list[CentreLoadView]
