"""What is committed when a step of the clock was followed."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from receiver.metadata.model.records import ClockCorrected
from receiver.metadata.model.timestamps import COUNTER_BITS, from_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.clock.judged_clock import ClockStep
    from receiver.metadata.model.true_times import TrueTimes

__all__ = ["correction"]


def correction(
    step: ClockStep, times: TrueTimes, commits: Sequence[int], *, now: float, ts: int, boot_id: str
) -> ClockCorrected:
    """The correction that a step of the clock stands for.

    Args:
        step: as the clock found it.
        times: the moments of timestamps before it.
        commits: timestamps of commits, as far back as they are known, in their order.
        now: the time, seconds since the epoch.
        ts: of the commit: the last one that is given as before.
        boot_id: of this boot of this machine.
    """
    moment, by = from_seconds(now), round(step.by * 1000) << COUNTER_BITS
    since, floor = step.since, 0
    if since > 0:
        floor = times.moment(since - 1)
    if step.by < 0 and (step.is_log_ahead or (step.is_sure and floor > moment)):
        # What was taken for right is ahead of the time: from the first commit on that is.
        number = bisect_left(commits, times.first(moment + 1))
        since = commits[number - 1] + 1 if number else commits[0] if commits else ts
        floor = times.moment(since - 1) if number else 0
    if step.by < 0 and step.booted is not None:
        # All of this boot is off by as much, what the time has come up with since then too.
        since = min(since, step.booted)
        floor = min(floor, times.moment(step.booted) + by)
    corrected = times.corrected(
        since,
        by=by,
        now=moment,
        newest=ts,
        floor=min(floor, moment),
    )
    return ClockCorrected(corrected.pieces, step.why, boot_id, step.offset)
