"""Which senders are late: silent for longer than they may be; and which have one label."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from common.config.units import parse_duration
from common.errors import UsageError
from receiver.metadata.model.centre_source import is_centre
from receiver.operator.directories import RunningReceiver, time_of
from receiver.operator.views.sender_views import LateView, SharedLabel
from receiver.transfer import epochs
from receiver.transfer.heard_senders import read_heard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from receiver.metadata.model.true_times import TrueTimes
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import SenderRow
    from receiver.operator.directories import ReceiverDirectories
    from receiver.operator.views.status_views import StatusView
    from receiver.transfer.heard_senders import HeardSender

__all__ = [
    "NEVER_LATE",
    "Presence",
    "is_edge",
    "label_concerns",
    "late_senders",
    "presence_of",
    "presences",
    "several_labels",
    "shared_labels",
    "silence_of",
]

NEVER_LATE = 0.0
"""In place of a silence: a sender that is never late."""


class Presence(NamedTuple):
    """When a sender was heard, how long it may be silent, and whether it was longer.

    Attributes:
        heard_at: when it was heard last, seconds since the epoch; None where that is not known.
        late_after: silence, in seconds, after which it is late; 0 for never.
        is_late: whether it is; None where that is not known.
        last: what is kept of it; None for nothing.
    """

    heard_at: float | None
    late_after: float
    is_late: bool | None
    last: HeardSender | None = None


def presences(
    there: ReceiverDirectories, rows: Iterable[SenderRow]
) -> Iterator[tuple[SenderRow, Presence]]:
    """Senders, and whether each is late; of many, ask behind the engine's lock, with a copy.

    Args:
        there: of a receiver that runs or not; a node that only reads does not know.
        rows: of the senders.
    """
    heard: Mapping[str, HeardSender] | None
    if isinstance(there, RunningReceiver):
        heard = there.checks.heard.all()
    else:
        heard = read_heard(there.config.schema_dir)
    late_after, now = there.config.senders.late_after, time_of(there)
    times = there.engine.times
    for row in rows:
        if heard is None:
            yield row, Presence(None, _allowed(row, late_after), None)
        else:
            last = heard.get(row.uuid)
            yield row, presence_of(times, row, last, late_after=late_after, now=now)


def presence_of(
    times: TrueTimes, row: SenderRow, last: HeardSender | None, *, late_after: float, now: float
) -> Presence:
    """Whether a sender is late, by what is kept of its signs of life.

    One of which none is kept (since a version that kept none) was heard with its last commit, or
    when it came first. One that was removed is never late, nor is the centre itself.

    Args:
        times: that commits stand for.
        row: of the sender.
        last: what is kept of it.
        late_after: as configured, for one that has none of its own.
        now: seconds since the epoch.
    """
    at = times.seconds(row.last_commit or row.first_seen) if last is None else last.at
    allowed = _allowed(row, late_after)
    awaited = allowed > NEVER_LATE and not epochs.is_removed(row)
    return Presence(at, allowed, awaited and now - at > allowed, last)


def silence_of(text: str) -> float | None:
    """The silence that somebody wrote, in seconds: 0 for `never`, None for `default`.

    Raises:
        UsageError: it is none.
    """
    if text == "default":
        return None
    if text == "never":
        return NEVER_LATE
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f'--late-after: {error}; expected 2d, 90m, "never" or "default"') from None


def is_edge(row: SenderRow) -> bool:
    """Whether a sender is somebody who is to come: neither removed nor the centre itself."""
    return not (epochs.is_removed(row) or is_centre(row.uuid))


def _allowed(row: SenderRow, late_after: float) -> float:
    if is_centre(row.uuid):  # its loads come when somebody has some
        return NEVER_LATE
    return late_after if row.late_after is None else row.late_after


def late_senders(there: ReceiverDirectories, state: State) -> list[LateView] | None:
    """Those that are late, the longest silent first; None where it is not known."""
    found = []
    for row, presence in presences(there, state.senders.values()):
        if presence.is_late is None:
            return None
        if presence.is_late:
            found.append(LateView(sender=row.uuid, label=row.label, heard_at=presence.heard_at))
    return sorted(found, key=lambda each: each.heard_at or 0.0)


def label_concerns(view: StatusView) -> list[str]:
    """What is to be said of labels that several senders have."""
    return [
        f"{len(each.senders)} senders are called {each.label!a}: {', '.join(each.senders[:3])}"
        for each in view.shared_labels
    ]


def several_labels(rows: Iterable[SenderRow]) -> dict[str, list[str]]:
    """Labels that several rows have -> their uuids, whether they are there or not."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row.label:
            found[row.label].append(row.uuid)
    return {label: uuids for label, uuids in found.items() if len(uuids) > 1}


def shared_labels(
    state: State, several: Mapping[str, Sequence[str]] | None = None
) -> list[SharedLabel]:
    """Labels that several senders have; one that was removed or replaced has none any more.

    Args:
        state: with the senders.
        several: their `several_labels`, where these were found before.
    """
    labels = []
    found = several_labels(state.senders.values()) if several is None else several
    for label, uuids in sorted(found.items()):
        there = [each for each in uuids if each in state.senders and _is_there(state, each)]
        if len(there) > 1:
            labels.append(SharedLabel(label=label, senders=tuple(sorted(there))))
    return labels


def _is_there(state: State, sender: str) -> bool:
    """Whether it was neither removed nor replaced: then it lists none of what is kept of it."""
    lists = state.file_table.listed.of(sender)[0] > 0
    replaced = not lists and state.file_table.totals(sender).files > 0
    return not (replaced or epochs.is_removed(state.senders[sender]))
