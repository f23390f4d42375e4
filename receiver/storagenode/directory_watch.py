"""Looks at the data directories of a node now and then, so that nobody else waits for a disk.

A disk that hangs answers no call, and whoever asks it hangs as well: so each directory has a thread
of its own that asks, and all others are told what it found last. A look that has gone on for too
long says itself that the directory is away.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from common.durable import Closing
from common.threads import PeriodicThread
from receiver.heartbeats.node_wire import DirectoryRoom

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.durable import Tree
    from receiver.storagenode.node_directories import NodeDisk

__all__ = ["DirectoryWatch"]

log = logging.getLogger(__name__)

_EVERY: Final = 1.0
"""Seconds between two looks at a directory."""
_PATIENCE: Final = 15.0
"""Seconds that a disk has to answer: one that sleeps needs ten."""
_ENDING: Final = 1.0
"""Seconds that the end waits for a look: one that hangs is left."""


class _Look:
    """What is known of one directory."""

    def __init__(self, disk: NodeDisk, room: DirectoryRoom) -> None:
        self.disk = disk
        self.room = room
        self.asked: float | None = None


class DirectoryWatch(Closing):
    """See the module; looks once by itself, and goes on from `begin` on. Any thread may ask."""

    def __init__(
        self,
        disks: Sequence[NodeDisk],
        *,
        every: float = _EVERY,
        patience: float = _PATIENCE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at each once.

        Args:
            disks: of the node, just opened.
            every: seconds between two looks.
            patience: seconds that a look may take.
            monotonic: seconds that nobody sets.
        """
        self._every = every
        self._patience = patience
        self._monotonic = monotonic
        self._looks = [_Look(each, each.room()) for each in disks]
        self._threads = [
            PeriodicThread(
                f"directory-{number}",
                partial(self._step, number),
                log,
                "a data directory cannot be looked at",
                first=every,
            )
            for number in range(len(self._looks))
        ]

    def begin(self) -> None:
        """Look on; once only."""
        for each in self._threads:
            each.start()

    def rooms(self) -> list[DirectoryRoom]:
        """What a master is told of the directories; no disk is asked."""
        return [self._room(each) for each in self._looks]

    def free(self, tree: Tree) -> int:
        """Free bytes of a directory that is there, 0 of another one; no disk is asked."""
        found = (self._room(each) for each in self._looks if each.disk.tree is tree)
        room = next(found, None)
        return 0 if room is None or room.problem else room.free

    def _room(self, look: _Look) -> DirectoryRoom:
        asked = look.asked
        silent = 0.0 if asked is None else self._monotonic() - asked
        if silent <= self._patience:
            return look.room
        return _with_problem(look.room, f"its disk has not answered for {silent:.0f} s")

    def look(self, number: int) -> None:
        """Look at one directory now; hangs as long as its disk does."""
        look = self._looks[number]
        look.asked = self._monotonic()
        look.room = look.disk.room()
        look.asked = None

    def _step(self, number: int) -> float:
        look = self._looks[number]
        try:
            self.look(number)
        except Exception as error:
            log.exception("a data directory cannot be looked at")
            look.room = _with_problem(look.room, f"{type(error).__name__}: {error}"[:1000])
            look.asked = None
        return self._every

    def close(self) -> None:
        """Look no more; a look that hangs is left to itself. Closing twice is harmless."""
        for each in self._threads:
            each.close(_ENDING)


def _with_problem(room: DirectoryRoom, problem: str) -> DirectoryRoom:
    return DirectoryRoom(path=room.path, uuid=room.uuid, problem=problem, begun=room.begun)
