"""Looks at what is no commit: edges that are late, files that are lost, the disk, a failed flush.

What stands is told once, and once more when it is over; what was told is kept with the queue, so a
restart tells nothing again.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_hexdigest

from common.durable import failed_sync
from common.hooks.event_content import FilesTold, LateEdge, StandingTrouble, ToldFile, told_files
from common.threads import PeriodicThread
from receiver.metadata.query.lost import lost_files
from receiver.operator.edges.lateness import presences

if TYPE_CHECKING:
    from common.hooks.hook_service import HookService
    from receiver.operator.directories import RunningReceiver

__all__ = ["StandingLooks"]

_log = logging.getLogger(__name__)

_EVERY_S: Final = 10.0
_EDGES_S: Final = 60.0
"""Between two passes over all senders."""
_LATE: Final = "late:"
_LOST: Final = "lost:"


class StandingLooks:
    """Looks at a receiver; its thread, unless a test calls `look`.

    Args:
        hooks: are told.
        there: the receiver.
        monotonic: seconds that nobody sets.
    """

    def __init__(
        self,
        hooks: HookService,
        there: RunningReceiver,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hooks = hooks
        self._there = there
        self._monotonic = monotonic
        self._edges_at = monotonic()
        self._lost_at = -1
        self._thread = PeriodicThread(
            "hooks-looks",
            self._look_again,
            _log,
            "hooks: what stands cannot be looked at",
            first=_EVERY_S,
            retry=_EVERY_S,
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._thread.close()

    def _look_again(self) -> float:
        self.look()
        return _EVERY_S

    def look(self) -> None:
        """Look at all that is due."""
        engine, load = self._there.engine, self._there.load
        read_only = failed_sync() or engine.failed
        self._trouble("read_only", read_only)
        if not read_only:  # which is behind whatever else does not come through then
            self._trouble("disk", load.problem())
        self._look_at_lost()
        now = self._monotonic()
        if now >= self._edges_at:
            self._edges_at = now + _EDGES_S
            self._look_at_edges()

    def _trouble(self, kind: str, problem: str | None) -> None:
        # By whether it stands: figures in the words change from look to look.
        what = StandingTrouble(problem=problem or "")
        if kind == "disk":
            self._hooks.stands("disk", kind, "short" if problem else "", what)
        else:
            self._hooks.stands("read_only", kind, "failed" if problem else "", what)

    def _look_at_edges(self) -> None:
        if not self._hooks.tells("late"):
            return
        told = self._hooks.standing(_LATE)
        with self._there.engine.reading() as state:
            rows = list(state.senders.values())
        found = [
            (row, presence)
            for row, presence in presences(self._there, rows)
            if presence.is_late or f"{_LATE}{row.uuid}" in told
        ]
        for row, presence in found:
            self._hooks.stands(
                "late",
                f"{_LATE}{row.uuid}",
                "late" if presence.is_late else "",
                LateEdge(
                    sender=row.uuid,
                    label=row.label,
                    heard_at=presence.heard_at,
                    late_after=presence.late_after,
                ),
            )

    def _look_at_lost(self) -> None:
        engine = self._there.engine
        newest = engine.newest_commit
        if newest == self._lost_at or not self._hooks.tells("lost"):
            return
        by_sender: dict[str, list[ToldFile]] = defaultdict(list)
        with engine.reading() as state:
            for row in lost_files(state):
                by_sender[row.sender].append(ToldFile(path=row.path, reason=row.reason))
            labels = {uuid: row.label for uuid, row in state.senders.items() if uuid in by_sender}
        told = {key.removeprefix(_LOST) for key in self._hooks.standing(_LOST)}
        for sender in sorted(told | by_sender.keys()):
            files = by_sender.get(sender, [])
            what = FilesTold(
                sender=sender,
                label=labels.get(sender, ""),
                files=len(files),
                named=told_files(files),
            )
            standing = xxh3_64_hexdigest("\n".join(sorted(each.path for each in files)).encode())
            self._hooks.stands("lost", f"{_LOST}{sender}", standing if files else "", what)
        self._lost_at = newest
