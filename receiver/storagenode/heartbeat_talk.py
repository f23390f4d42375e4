"""What a node says next, by what the master answered: registration, reports, and their pages.

Nothing here waits or sends. One heartbeat is under way at a time: the next one is made when the
last was answered or given up, so that what is reported goes on from what was acknowledged.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from receiver.heartbeats.node_wire import (
    PAGE_TABLETS,
    HeldTablets,
    NodeHeartbeat,
    TabletReport,
)
from receiver.storagenode.prompt_store import SilentStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from receiver.heartbeats.node_wire import (
        DirectoryRoom,
        HoldsTablets,
        NodeHeartbeatAnswer,
        NodeRegistration,
    )
    from receiver.storagenode.node_home import NodeHome

__all__ = ["HeartbeatTalk"]

log = logging.getLogger(__name__)

_BREATH: Final = 0.2
"""Seconds between two heartbeats that tell of changes: what changes meanwhile goes together."""


@dataclass
class _FullReport:
    """A full report under way.

    Attributes:
        number: counts them, from 1.
        held: what it tells, all of one moment.
        page: the next one.
    """

    number: int
    held: HeldTablets
    page: int = 0


class HeartbeatTalk:
    """The node's side of its talk with the master; for one thread.

    Attributes:
        listeners: hear each answer that counts.
    """

    def __init__(
        self,
        home: NodeHome,
        store: HoldsTablets,
        registration: Callable[[], NodeRegistration],
        rooms: Callable[[], Sequence[DirectoryRoom]],
        load: Callable[[], int] = lambda: 0,
        newest: Callable[[], int] = lambda: 0,
    ) -> None:
        """Begin with a registration.

        Args:
            home: who the node is.
            store: what it holds.
            registration: gives what a registration tells.
            rooms: gives how much room there is.
            load: gives how many calls are worked on.
            newest: gives the newest commit that a file of the node came with.
        """
        self.listeners: list[Callable[[NodeHeartbeatAnswer], object]] = []
        self._home = home
        self._store = store
        self._registration = registration
        self._rooms = rooms
        self._load = load
        self._newest = newest
        self._registers = True
        self._acknowledged: int | None = None
        self._full: _FullReport | None = None
        self._number = 0

    @property
    def is_registered(self) -> bool:
        """Whether the master knows this start."""
        return not self._registers

    def next(self) -> NodeHeartbeat:
        """What is said now."""
        # Lists are read between heartbeats: whoever hears this has to know what they brought.
        self._home.has_files_of(self._newest())
        seen = self._home.seen
        return NodeHeartbeat(
            start=self._home.start,
            engine="" if seen is None else seen.engine,
            incarnation=0 if seen is None else seen.incarnation,
            commit=0 if seen is None else seen.commit,
            life="" if seen is None else seen.life,
            registration=self._registration() if self._registers else None,
            report=None if self._registers else self._report_in_time(),
            directories=() if self._registers else tuple(self._rooms()),
            load=self._load(),
            doubt=self._home.doubt,
        )

    def answered(self, answer: NodeHeartbeatAnswer) -> float | None:
        """Hear the answer; returns seconds until there is more to say, None where there is nothing.

        Raises:
            ForeignMasterError, ReplacedMasterError: see `NodeHome.hear`; the answer counts for
                nothing.
        """
        self._home.hear(answer.master, lacks=answer.lacks)
        if answer.raise_to:
            self._home.raise_to(answer.raise_to)
        if answer.raise_to or answer.needs_reregister:
            self.begin_anew()
            return 0.0
        self._registers = False
        for each in self.listeners:
            each(answer)
        try:
            more = self._go_on(answer)
        except SilentStoreError:  # it is looked at anew with the next heartbeat
            more = None
        return None if answer.error else more

    def begin_anew(self) -> None:
        """Register with the next heartbeat: whoever hears it may know nothing of this node."""
        self._registers = True
        self._acknowledged = None
        self._full = None

    def _go_on(self, answer: NodeHeartbeatAnswer) -> float | None:
        full, received = self._full, answer.received
        self._acknowledged = answer.acknowledged
        if received is not None and full is not None and received.number == full.number:
            full.page = received.pages
            return 0.0
        if answer.needs_full_report or received is not None:
            self._begin_full()
            return 0.0
        if full is not None and answer.acknowledged != full.held.sequence:
            self._full = None  # it was not taken: looked at anew with the next heartbeat
            return None
        self._full = None
        return None if self._changes(answer.acknowledged) is None else _BREATH

    def _begin_full(self) -> None:
        self._number += 1
        self._full = None  # if what is held is not told in time
        self._full = _FullReport(self._number, self._store.held())

    def _report_in_time(self) -> TabletReport | None:
        """What is reported; nothing where a disk that hangs would be waited for."""
        try:
            return self._report()
        except SilentStoreError as error:
            log.warning("a heartbeat goes without a report: %s", error.message)
            return None

    def _report(self) -> TabletReport | None:
        if self._full is not None:
            return _page(self._full)
        return self._changes(self._acknowledged)

    def _changes(self, acknowledged: int | None) -> TabletReport | None:
        """What has changed behind that; None for nothing."""
        if acknowledged is None:
            return None
        changed = self._store.changed_since(acknowledged, PAGE_TABLETS)
        if changed is None:
            self._begin_full()
            return None if self._full is None else _page(self._full)
        if changed.sequence <= acknowledged:
            return None
        return TabletReport(
            is_incremental=True,
            base=acknowledged,
            sequence=changed.sequence,
            tablets=tuple(changed.tablets),
            removed=tuple(changed.removed),
        )


def _page(full: _FullReport) -> TabletReport:
    begin = full.page * PAGE_TABLETS
    tablets = full.held.tablets[begin : begin + PAGE_TABLETS]
    return TabletReport(
        is_incremental=False,
        sequence=full.held.sequence,
        number=full.number,
        page=full.page,
        is_last=begin + PAGE_TABLETS >= len(full.held.tablets),
        tablets=tuple(tablets),
    )
