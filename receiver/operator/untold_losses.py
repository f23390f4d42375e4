"""What went with the disks of the master before this one, and nobody was told of: it comes again.

A stand-by has none of the first one's disks. What edges were told to be loaded is at nodes by then
(`nodes.before_ack`). What was committed and had come to no node is nowhere: its task was not told,
so its edge has it still, and waits. Here it is found out, by the word of every node that may have
it, that there is none; then it goes the way of what is lost with a disk (`lost_directory`).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from common.errors import NotFoundError, TsferryError
from common.wire import Result
from receiver.load.placing import tree_of
from receiver.load.upkeep.lost_directory import DirectoryLoss, take_loss
from receiver.metadata.state.placed_files import parts_elsewhere, placed_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from receiver.datadirs.disks import Disks
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.placement.copies_back import CopiesBack
    from receiver.placement.placeable_nodes import PlaceableNode

__all__ = ["UntoldLosses"]

log = logging.getLogger(__name__)

_AGAIN: Final = 30.0
"""Seconds between two looks that have to find the same: a node that has a file whole as an upload
makes a copy of it as soon as it has read its list."""
_MOST: Final = 200
"""Files that are asked for in a pass."""
_REASON: Final = "it went with the disks of the master before this one, and had come to no node"


class UntoldLosses:
    """Finds them; for one thread."""

    def __init__(
        self,
        engine: Engine,
        disks: Disks,
        back: CopiesBack,
        nodes: Callable[[], Mapping[str, PlaceableNode]],
        untold: Callable[[str], str | None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            engine: of the master.
            disks: its data directories.
            back: asks nodes, and brings what one of them has.
            nodes: as they are now, by uuid.
            untold: the task of a sender that is committed and may not be told.
            monotonic: seconds.
        """
        self._engine = engine
        self._disks = disks
        self._back = back
        self._nodes = nodes
        self._untold = untold
        self._monotonic = monotonic
        self._begun = engine.newest_commit
        self._open: list[str] | None = None
        """Senders with such a task of an earlier life; None before the first look at all of them.
        What is committed in this life is here."""
        self._missed: dict[str, float] = {}

    def run_once(self, _: float = 0.0) -> int:
        """Look for them; how many have to come again."""
        nowhere = self._nowhere_here()
        if self._disks.away():  # asked behind the look, which one may have left meanwhile
            return 0  # what lies there is not lost
        now = self._monotonic()
        missed: dict[str, float] = {}
        lost: list[FileRow] = []
        for row in nowhere:
            if not self._is_nowhere(row):
                continue
            since = missed[row.physical] = self._missed.get(row.physical, now)
            if now - since >= _AGAIN:
                lost.append(row)
        self._missed = missed
        if not lost:
            return 0
        names = [row.physical for row in lost]
        log.warning("files come again from their senders", extra={"files": names, "why": _REASON})
        return take_loss(self._engine, DirectoryLoss(wanted=tuple(lost)), _REASON)

    def _nowhere_here(self) -> list[FileRow]:
        """Files of tasks that nobody was told of, which no data directory has, nor the store."""
        if self._open is None:
            with self._engine.reading() as state:
                self._open = list(state.senders)
        still: list[str] = []
        found: list[FileRow] = []
        for sender in self._open:
            rows = self._untold_files(sender)
            if rows is None:
                continue
            still.append(sender)
            found += [row for row in rows if tree_of(self._disks.standing(), row) is None]
        self._open = still
        return found[:_MOST]

    def _untold_files(self, sender: str) -> list[FileRow] | None:
        """Those of a sender's task which the store has not; None where there is no such task."""
        task = self._untold(sender)
        with self._engine.reading() as state:
            done = None if task is None else state.task_table.get(sender, task)
            if done is None or done.commit > self._begun:
                return None
            held = [
                state.file_table.held(sender, each.path)
                for each in done.outcomes
                if each.result in (Result.LOADED, Result.ALREADY)
            ]
            return [
                row
                for row in held
                if row is not None and row.visible and not parts_elsewhere(state, row).file
            ]

    def _is_nowhere(self, row: FileRow) -> bool:
        """Whether every node that may have a file says that it has not. One that has gives it."""
        nodes = self._nodes()
        with self._engine.reading() as state:
            placed = placed_nodes(state, row.physical)
        if not placed or not all(each.tells_all for each in nodes.values() if not each.is_lost):
            return False
        if any(each not in nodes or nodes[each].is_lost for each in placed):
            return False
        asked = self._back.has_it(row.physical)
        if any(asked.values()):
            self._bring(row)
            return False
        urls = {nodes[each].url for each in placed}
        return urls <= asked.keys() and None not in asked.values()

    def _bring(self, row: FileRow) -> None:
        try:
            self._back.bring(row)
        except (NotFoundError, TsferryError, OSError) as error:
            told = {"file": row.physical, "error": str(error)}
            log.warning("a file does not come back from a node", extra=told)
