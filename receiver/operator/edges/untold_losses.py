"""What went with the disks of the master before this one, and nobody was told of: it comes again.

A stand-by has none of the first one's disks. What edges were told to be loaded is at nodes by then
(`nodes.before_ack`). What was committed and had come to no node is nowhere: its task was not told,
so its edge has it still, and waits. Here it is found out, by the word of every node that may have
it, that there is none; then it goes the way of what is lost with a disk (`lost_directory`).

A sender has one task at a time: that may be untold. An upload without a task may be as well, and so
may several loads of the centre: writes from Spark, SQL, files. Whether these were told nobody
knows any more; what of them fewer nodes than need be are known to have is asked for.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from common.errors import NotFoundError, TsferryError
from common.wire import Result
from receiver.load.placing import tree_of
from receiver.load.upkeep.lost_directory import DirectoryLoss, take_loss
from receiver.metadata.model.centre_source import is_centre
from receiver.metadata.state.placed_files import parts_elsewhere, placed_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from receiver.datadirs.disks import Disks
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.placement.copies_there.copies_back import CopiesBack
    from receiver.placement.placeable_nodes import PlaceableNode

__all__ = ["UntoldLosses"]

log = logging.getLogger(__name__)

_AGAIN: Final = 30.0
"""Seconds between two looks that have to find the same: a node that has a file whole as an upload
makes a copy of it as soon as it has read its list."""
_LONGEST: Final = 20.0
"""Seconds for which nodes are asked in a pass; the next one goes on from there."""
_LAST: Final = 32
"""Tasks of a source that are looked at: loads at the centre that go at once are fewer."""
_NAMED: Final = 100
"""Of these the log names so many."""
_REASON: Final = "it went with the disks of the master before this one, and had come to no node"


class _Task(NamedTuple):
    """A task that may be untold.

    Attributes:
        is_of_round: its sender's only one; else nobody can say whether it was told.
    """

    sender: str
    task: str
    is_of_round: bool


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
        lacks: Callable[[State, FileRow], bool] = lambda state, row: True,
        has_told: Callable[[str], bool] = lambda node: True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            engine: of the master.
            disks: its data directories.
            back: asks nodes, and brings what one of them has.
            nodes: as they are now, by uuid.
            untold: the task of a sender that is committed and may not be told.
            lacks: whether fewer nodes are known to have a file than need be.
            has_told: whether a node has told of all that it has in this life of the master.
            monotonic: seconds.
        """
        self._engine = engine
        self._disks = disks
        self._back = back
        self._nodes = nodes
        self._untold = untold
        self._lacks = lacks
        self._has_told = has_told
        self._monotonic = monotonic
        self._begun = engine.newest_commit
        self._open: list[_Task] | None = None
        """Such tasks of an earlier life; None before the first look at all. What is committed in
        this life is here."""
        self._missed: dict[str, float] = {}
        self._asked = ""

    def run_once(self, _: float = 0.0) -> int:
        """Look for them; how many have to come again."""
        nowhere = self._nowhere_here()
        if self._disks.away():  # asked behind the look, which one may have left meanwhile
            return 0  # what lies there is not lost
        now = self._monotonic()
        self._missed = {name: at for name, at in self._missed.items() if name in nowhere}
        lost: list[FileRow] = []
        for name in self._in_turn(nowhere):
            if self._monotonic() - now >= _LONGEST:
                break
            self._asked = name
            row, is_of_round = nowhere[name]
            if not self._is_nowhere(row, is_brought=is_of_round):
                self._missed.pop(name, None)
                continue
            since = self._missed.setdefault(name, now)
            if now - since >= _AGAIN:
                lost.append(row)
        if not lost:
            return 0
        names = [row.physical for row in lost]
        told = {"files": names[:_NAMED], "count": len(names), "why": _REASON}
        log.warning("files come again from their senders", extra=told)
        return take_loss(self._engine, DirectoryLoss(wanted=tuple(lost)), _REASON)

    def _in_turn(self, names: Mapping[str, object]) -> list[str]:
        """All, from behind the one that was asked for last: none is behind others for good."""
        every = sorted(names)
        at = bisect_right(every, self._asked)
        return every[at:] + every[:at]

    def _nowhere_here(self) -> dict[str, tuple[FileRow, bool]]:
        """Files of tasks that nobody was told of, which no data directory has, nor the store.

        By name, and whether they are of their sender's only task.
        """
        if self._open is None:
            with self._engine.reading() as state:
                senders = list(state.senders)
            self._open = [task for each in senders for task in self._tasks_of(each)]
        still: list[_Task] = []
        found: dict[str, tuple[FileRow, bool]] = {}
        for task in self._open:
            rows = self._untold_files(task)
            if rows is None:
                continue
            still.append(task)
            for row in rows:
                if tree_of(self._disks.standing(), row) is None:
                    found[row.physical] = row, task.is_of_round
        self._open = still
        return found

    def _tasks_of(self, sender: str) -> Iterator[_Task]:
        """Those that may be untold."""
        with self._engine.reading() as state:
            known = state.senders.get(sender)
            newest = state.task_table.newest(sender, _LAST)
            of_round = None if known is None else known.epoch_task
            done = None if of_round is None else state.task_table.get(sender, of_round)
            started = 0 if known is None or of_round is None else known.changed
        if of_round is not None:
            yield _Task(sender, of_round, is_of_round=True)
        behind = started if done is None else done.commit
        for row in newest:
            # What came behind the task of a round is none itself: it was an upload without one.
            is_single = row.count == 1 and row.commit > behind
            is_left = of_round is None and row is newest[-1]
            if row.task != of_round and (is_centre(sender) or is_single or is_left):
                yield _Task(sender, row.task, is_of_round=False)

    def _untold_files(self, task: _Task) -> list[FileRow] | None:
        """Those of a task which the store has not; None where it is told, or there is none such."""
        if task.is_of_round and self._untold(task.sender) != task.task:
            return None
        with self._engine.reading() as state:
            done = state.task_table.get(task.sender, task.task)
            if done is None or done.commit > self._begun:
                return None
            held = [
                state.file_table.held(task.sender, each.path)
                for each in done.outcomes
                if each.result in (Result.LOADED, Result.ALREADY)
            ]
            rows = [
                row
                for row in held
                if row is not None and row.visible and not parts_elsewhere(state, row).file
            ]
            if task.is_of_round:
                return rows
            return [row for row in rows if self._lacks(state, row)] or None

    def _is_nowhere(self, row: FileRow, *, is_brought: bool) -> bool:
        """Whether every node that may have a file says that it has not. One that has gives it."""
        nodes = self._nodes()
        with self._engine.reading() as state:
            placed = placed_nodes(state, row.physical)
        # One that has the tablet, and is not to have it any more, is known by its report alone.
        every = [(uuid, each) for uuid, each in nodes.items() if not each.is_lost]
        if not placed or not all(each.tells_all and self._has_told(uuid) for uuid, each in every):
            return False
        if any(each not in nodes or nodes[each].is_lost for each in placed):
            return False
        try:
            asked = self._back.has_it(row.physical)
        except NotFoundError:
            return False  # it was forgotten meanwhile
        if any(asked.values()):
            if is_brought:
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
