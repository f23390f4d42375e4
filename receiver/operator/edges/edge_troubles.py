"""What is wrong with an edge, by its signs of life: judged here for all who show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.operator.edges.ending import certificate_trouble
from receiver.operator.edges.lateness import presences
from receiver.transfer import epochs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from common.wire import Heartbeat
    from receiver.metadata.state.state import State
    from receiver.operator.directories import ReceiverDirectories

__all__ = ["edge_concerns", "heard_troubles", "is_doubled"]

_DOUBLED_FOR: Final = 3600.0
"""Seconds since the last machine was turned away: a daemon comes again long before."""
_FAILING_FOR: Final = 1800.0
"""Seconds until rounds that end early are of concern: a restart, or a line that was cut, passes."""
_NAMED: Final = 3


def is_doubled(refused_at: float | None, now: float) -> bool:
    """Whether two machines speak under a uuid, by when one of them was last turned away."""
    return refused_at is not None and now - refused_at < _DOUBLED_FOR


def heard_troubles(beat: Heartbeat | None, refused_at: float | None, now: float) -> Iterator[str]:
    """What is to be said of an edge that is heard.

    Args:
        beat: its last heartbeat.
        refused_at: when a machine under its uuid was last turned away.
        now: seconds since the epoch.
    """
    if is_doubled(refused_at, now):
        yield "two machines speak under its uuid"
    if beat is None:
        return
    if beat.problem:
        yield f"its last round: {beat.problem}"
    for count, what in (
        (beat.conflicts, "in conflict"),
        (beat.failed, "not taken"),
        (beat.overdue, "wait for too long"),
    ):
        if count:
            yield f"{count} {what}"
    if (ending := certificate_trouble(beat, now)) is not None:
        yield ending


def edge_concerns(there: ReceiverDirectories, state: State, now: float) -> list[str]:
    """What is to be said of all of them: uuids of two machines, and rounds that keep ending early.

    Args:
        there: of the receiver.
        state: with the senders.
        now: seconds since the epoch.
    """
    doubled, failing = [], []
    for row, known in presences(there, state.senders.values()):
        if known.last is None or epochs.is_removed(row):
            continue
        name, since = row.label or row.uuid, known.last.failing_since
        if is_doubled(known.last.clone_refused_at, now):
            doubled.append(name)
        elif since is not None and now - since > _FAILING_FOR and not known.is_late:
            failing.append(name)
    found = []
    if doubled:
        found.append(f"two machines speak under one uuid: {_names(doubled)} (senders list)")
    if failing:
        found.append(f"rounds end early, for over half an hour: {_names(failing)} (senders list)")
    return found


def _names(found: Sequence[str]) -> str:
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{', '.join(found[:_NAMED])}{more}"
