"""The edges of a receiver, searched, sorted and in pages, however many there are.

What an edge is found and sorted by costs some microseconds each; all that is told of one is looked
up for those of the page alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.query.lost import lost_files
from receiver.operator.directories import RunningReceiver, time_of
from receiver.operator.edges.edge_troubles import heard_troubles
from receiver.operator.edges.lateness import presences
from receiver.operator.edges.senders import loaded_bad, senders_named
from receiver.operator.list_asked import ListAsked
from receiver.transfer import epochs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from common.wire import Heartbeat
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import SenderRow
    from receiver.operator.directories import ReceiverDirectories
    from receiver.operator.edges.lateness import Presence
    from receiver.operator.views.sender_views import SenderView

__all__ = ["EDGE_ORDERS", "EdgeRow", "FleetPage", "edge_row", "list_fleet"]

_SLICE = 500
"""Edges that are looked at without letting a commit in between."""


class EdgeRow(NamedTuple):
    """An edge of a page.

    Attributes:
        view: all that is known of it.
        troubles: what somebody should look at, in words; the worst first.
    """

    view: SenderView
    troubles: tuple[str, ...]


@dataclass(frozen=True)
class FleetPage:
    """A page of edges.

    Attributes:
        edges: of the page.
        first: number of the first of them among those that were found, from 0 on.
        found: how many were found.
        known: how many there are, those too that were removed.
        troubled: how many of these have some trouble.
    """

    edges: list[EdgeRow]
    first: int
    found: int
    known: int
    troubled: int


@dataclass(frozen=True)
class _Key:
    uuid: str
    label: str
    folder: str
    version: str
    heard: float
    complete_until: int
    pending: int
    files: int
    size: int
    troubles: tuple[str, ...]

    def has(self, text: str) -> bool:
        return (
            not text
            or text in self.uuid
            or text in self.label.casefold()
            or text in self.folder.casefold()
        )


class _Waiting(NamedTuple):
    """By edge: files in quarantine, lists of deletes that are held, lost files."""

    refused: Counter[str]
    held: Counter[str]
    lost: Counter[str]


_BY: dict[str, Callable[[_Key], Any]] = {
    "label": lambda key: (key.label.casefold(), key.uuid),
    "version": lambda key: key.version,
    "heard": lambda key: key.heard,
    "complete": lambda key: key.complete_until,
    "pending": lambda key: key.pending,
    "files": lambda key: key.files,
    "bytes": lambda key: key.size,
    "trouble": lambda key: len(key.troubles),
}
EDGE_ORDERS = tuple(_BY)
"""What a fleet can be sorted by."""
_NEVER = -(1 << 63)


def list_fleet(there: ReceiverDirectories, asked: ListAsked | None = None) -> FleetPage:
    """A page of the edges.

    Args:
        there: what to look at; only a server that runs knows heartbeats and what loads.
        asked: which of them, by label, uuid or folder; sorted by one of `EDGE_ORDERS`.

    Raises:
        UsageError: there is no such order.
    """
    asked = asked or ListAsked()
    with there.engine.reading() as state:
        rows = list(state.senders.values())
        waiting = _waiting(state)
    presence = {row.uuid: each for row, each in presences(there, rows)}
    keys = list(_keys_of(there, rows, waiting, presence))
    found = asked.found(keys, _BY, has=_Key.has, troubles=lambda key: key.troubles)
    page = asked.page(found)
    views = {each.uuid: each for each in senders_named(there, [key.uuid for key in page])}
    return FleetPage(
        edges=[EdgeRow(views[key.uuid], key.troubles) for key in page if key.uuid in views],
        first=asked.first,
        found=len(found),
        known=len(keys),
        troubled=sum(bool(key.troubles) for key in keys),
    )


def edge_row(there: ReceiverDirectories, sender: str) -> EdgeRow | None:
    """One edge by its uuid; None if it was never here."""
    with there.engine.reading() as state:
        row = state.senders.get(sender)
        if row is None:
            return None
        waiting = _waiting(state)
    presence = {each.uuid: found for each, found in presences(there, [row])}
    (key,) = _keys_of(there, [row], waiting, presence)
    (view,) = senders_named(there, [sender])
    return EdgeRow(view, key.troubles)


def _waiting(state: State) -> _Waiting:
    return _Waiting(
        refused=Counter(row.sender for row in state.quarantine.values()),
        held=Counter(row.sender for row in state.held_deletes.waiting()),
        lost=Counter(row.sender for row in lost_files(state)),
    )


def _keys_of(
    there: ReceiverDirectories,
    rows: Sequence[SenderRow],
    waiting: _Waiting,
    presence: Mapping[str, Presence],
) -> Iterator[_Key]:
    now = time_of(there)
    for at in range(0, len(rows), _SLICE):
        part = rows[at : at + _SLICE]
        with there.engine.reading() as state:
            table = state.file_table
            sums = [
                (table.totals(row.uuid), loaded_bad(state, row.uuid), table.listed.of(row.uuid)[0])
                for row in part
            ]
        for row, (total, bad, listed) in zip(part, sums, strict=True):
            known = presence[row.uuid]
            last = known.last
            said = None if last is None else last.beat
            of_load = _of_load(there, row, empty=listed == 0 < total.files)
            counted = _counted(row.uuid, waiting, bad)
            refused = None if last is None else last.clone_refused_at
            heard = heard_troubles(said, refused, now)
            yield _Key(
                uuid=row.uuid,
                label=row.label,
                folder=row.directory,
                version="" if last is None else last.version,
                heard=known.heard_at or 0.0,
                complete_until=_until(said),
                pending=0 if said is None else said.pending_files,
                files=total.files,
                size=total.size,
                troubles=(*of_load, *(("late",) if known.is_late else ()), *heard, *counted),
            )


def _of_load(there: ReceiverDirectories, row: SenderRow, *, empty: bool) -> Iterator[str]:
    """What is wrong with what loads of an edge, or with its list."""
    task = None
    if isinstance(there, RunningReceiver):
        folder = there.load.folders.find(row.uuid)
        task = None if folder is None else folder.task
    if task is not None and task.trouble:
        yield f"the load waits: {task.trouble}"
    if empty and task is None and not epochs.is_removed(row):
        yield "lists nothing"


def _counted(sender: str, waiting: _Waiting, bad: int) -> Iterator[str]:
    """What waits for somebody here."""
    if waiting.lost[sender]:
        yield f"{waiting.lost[sender]} lost"
    if waiting.refused[sender] + bad:
        yield f"{waiting.refused[sender] + bad} in quarantine"
    if waiting.held[sender]:
        yield "deletions held"


def _until(said: Heartbeat | None) -> int:
    return _NEVER if said is None or said.complete_until is None else said.complete_until
