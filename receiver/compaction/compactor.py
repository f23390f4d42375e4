"""Merges files behind the scenes: adds work for partitions that are due, and does what waits.

What is to be done is work of kind `merge` in the engine's table, one partition each; what of it is
merged is chosen when it is taken, so nothing but the partition is kept there. Which are due knows
`DuePartitions`.

It yields: nothing is begun while files wait to be loaded, and what runs stands still meanwhile,
though not for ever; by itself it works at the hours that are configured.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Self

from common.config.shared_rules import PER_MILLISECOND
from common.errors import ConflictError, TsferryError
from common.network.bandwidth import local_now
from common.threads import PeriodicThread
from receiver.background.side_process import ProcessDied, missing_decoders
from receiver.compaction.merge_process import MergeProcess, MergeRefused, MergesFiles
from receiver.compaction.merge_progress import (
    MERGE,
    CompactAnswer,
    MergeProgress,
    merge_progress,
)
from receiver.compaction.merge_run import LeaseLost, MergeRun
from receiver.compaction.worth_merging.choosing import MergeLimits
from receiver.compaction.worth_merging.due_partitions import DuePartitions
from receiver.compaction.worth_merging.merge_due import MergeRules, files_of
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.background.work_queue import WorkQueue
    from receiver.compaction.worth_merging.choosing import MergeChoice
    from receiver.compaction.worth_merging.merge_due import PartitionFiles
    from receiver.config import ReceiverConfig
    from receiver.datadirs.disks import Disks
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.retired import PartitionKey
    from receiver.metadata.state.work_rows import WorkRow

__all__ = ["Compactor"]

log = logging.getLogger(__name__)

_EXECUTOR: Final = "compactor"
_FOUND: Final = b"due"
"""Spec of what was found by itself; what an operator adds has none."""
_BY_HAND: Final = 10
"""Priority of what an operator asked for; what is found by itself has 0."""
_MET: Final = 5
"""Priority of what a reader met."""
_LONGEST_PAUSE: Final = 30.0
"""For loads to end."""
_TRY_AGAIN: Final = 600.0
"""Seconds until a partition is looked at again for which there was no room."""
_AFTER_SHORTAGE: Final = 86_400.0
"""Seconds for which nothing is merged by itself, after merged files had to make room."""
_MADE_ROOM: Final = (
    "merged files had to make room, as space was short: nothing is merged by itself for a day after"
)
_MOST_OUTPUTS: Final = 64
"""Of one merge, about: what it costs to begin anew is bounded."""
_MOST_CONFLICTS: Final = 3
"""Attempts at one partition that something comes between, until it has to be found anew."""


def _is_forced(row: WorkRow) -> bool:
    """Whether an operator asked for it."""
    return row.spec != _FOUND


class Compactor:
    """Producer and consumer of merges, in a thread of its own.

    Attributes:
        due: the partitions that are.
        chores: called behind the merges of a pass.
    """

    def __init__(
        self,
        engine: Engine,
        disks: Disks,
        work: WorkQueue,
        rules: MergeRules,
        *,
        is_busy: Callable[[], bool],
        room: Callable[[], int],
        is_time: Callable[[], bool],
        memory: int,
        every: float,
        here: bool = True,
        rate: int = 0,
        process: MergesFiles | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is read before `start` or `run_once`.

        Args:
            engine: the metadata engine.
            disks: the data directories.
            work: the queue.
            rules: what is left alone.
            is_busy: whether files are being loaded, which goes first.
            room: bytes that may be written now.
            is_time: whether anything is merged that nobody asked for.
            memory: bytes that the process may take.
            every: seconds between two looks.
            here: whether it merges, too, and does not only find what is to be merged.
            rate: bytes a second that a merge reads and writes at most; 0 for no limit.
            process: that merges; one of its own if left out.
            monotonic: seconds.
        """
        self._engine = engine
        self._work = work
        self._is_busy = is_busy
        self._is_time = is_time
        self._every = every
        self._here = here
        self._monotonic = monotonic
        self._process: MergesFiles = process or MergeProcess(memory=memory)
        self._missing = missing_decoders("nothing is merged") if here else None
        self._thread = PeriodicThread(
            "compactor", self._look_again, log, "merging has to wait", first=every, retry=every
        )
        self._running = threading.Lock()
        self.due = DuePartitions(engine, rules, lambda: self._monotonic())
        self._held_since: float | None = None
        self._short_until = 0.0
        self._chores_since = 0.0
        self._begun = False
        self.chores: list[Callable[[], object]] = []
        self.run = MergeRun(
            disks,
            work,
            lambda: self._process,
            rules,
            memory // 3,
            room,
            self._thread.stopping.is_set,
            self.is_held,
            rate,
        )

    @classmethod
    def configured(
        cls,
        config: ReceiverConfig,
        engine: Engine,
        disks: Disks,
        work: WorkQueue,
        *,
        is_busy: Callable[[], bool],
        room: Callable[[], int],
        awaits_proof: Callable[[PartitionKey, FileRow], bool],
        by_itself: bool = True,
    ) -> Self:
        """As a configuration has it.

        Args:
            config: of the receiver.
            engine: the metadata engine.
            disks: the data directories.
            work: the queue.
            is_busy: see above.
            room: see above.
            awaits_proof: whether a retired file may soon be superseded.
            by_itself: whether the configuration may have it merge what nobody asked for.
        """
        merge = config.merge
        target = merge.target_bytes
        interval = config.partition_interval_ms * PER_MILLISECOND[config.time_unit]
        rules = MergeRules(
            limits=MergeLimits(
                target, merge.min_files, most_bytes=target * _MOST_OUTPUTS, interval=interval
            ),
            quiet=merge.quiet,
            partition_interval=config.partition_interval_ms,
            trees=disks.standing,
            awaits_proof=awaits_proof,
            unit=config.time_unit,
        )
        return cls(
            engine,
            disks,
            work,
            rules,
            is_busy=is_busy,
            room=room,
            is_time=lambda: by_itself and merge.enabled and merge.hours.hold(local_now()),
            memory=merge.memory,
            every=merge.every,
            here=merge.here or not by_itself,
            rate=merge.max_bytes_per_second or 0,
        )

    # -- questions ---------------------------------------------------------------------------

    @property
    def is_stopped(self) -> bool:
        """Whether it is to stop."""
        return self._thread.stopping.is_set()

    def progress(self) -> MergeProgress:
        """How far it is."""
        short = _MADE_ROOM if self._monotonic() < self._short_until else None
        problem = self._missing or self.due.problem() or short
        return merge_progress(self._engine)._replace(problem=problem)

    # -- the thread --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, if files can be merged here at all."""
        if self._missing is not None:
            log.warning("nothing is merged: %s", self._missing)
            return
        self._thread.start()

    def close(self) -> None:
        """Stop at once; what was not committed is begun anew."""
        self._thread.close()
        self._process.close()

    def _look_again(self) -> float:
        self.run_once()
        return self._every

    def run_once(self) -> int:
        """Merge all that is due now; returns how many compactions were made."""
        if self._missing is not None:
            return 0
        with self._running:
            made = 0
            if not self._begun:  # of a life that was cut off, and nobody else's
                self._work.give_back(_EXECUTOR)
                self._begun = True
            if self._may_begin():
                self.look()
            while self._here and (row := self._take()) is not None:
                made += self._do(row)
            self._process.close()  # it has memory that others can use
            self._chores_since = self._monotonic()
            for chore in self.chores if not self._thread.stopping.is_set() else ():
                chore()
            return made

    def is_awaited(self) -> bool:
        """Whether merging is to have its turn again, for what takes long behind it.

        If so it has it at once, and so has what gave way, behind it.
        """
        if not self._thread.is_woken and self._monotonic() < self._chores_since + self._every:
            return False
        self._thread.wake()
        return True

    def made_room(self, key: PartitionKey) -> None:
        """What was merged had to go, as space was short: for a while nothing is merged by itself.

        Otherwise it would be merged anew as soon as there is room, and go again, round after round.

        Args:
            key: of the partition that it was of, which is looked at again then.
        """
        self._short_until = self._monotonic() + _AFTER_SHORTAGE
        self.due.add(key)

    def _may_begin(self) -> bool:
        """Whether what nobody asked for is merged now."""
        return self._is_time() and self._monotonic() >= self._short_until

    # -- what is due -------------------------------------------------------------------------

    def look(self) -> int:
        """Add work for partitions that are due; returns for how many."""
        self.due.follow()
        added = 0
        for key in self.due.waiting():
            if self._thread.stopping.is_set():
                break
            added += self._consider(key)
        return added

    def _consider(self, key: PartitionKey) -> bool:
        """Add work for a partition, if it is due; whether it is."""
        added = self.due.is_due(key) and self._add(key, forced=False).work > 0
        self.due.looked_at(key)
        return added

    def met(self, key: PartitionKey) -> None:
        """Merge what is due of a partition before others: a reader met many files there."""
        self.due.met(key)
        self._thread.wake()

    def compact(self, path: str, partition: str | None = None) -> list[CompactAnswer]:
        """Have partitions of storage groups merged as far as can be, now and whatever the hour.

        Args:
            path: of a storage group, or of what several lie below.
            partition: number of one; all if left out.

        Returns:
            of each partition that there is, what became of it.
        """
        answers = []
        for key in self.due.below(path, partition):
            self.due.forget(key)
            choices = self.due.choices(files_of(self._engine, key), forced=True)
            if not choices:
                answers.append(CompactAnswer(key, reason="nothing of it can be merged"))
                continue
            answer = self._add(key, forced=True)
            answers.append(answer._replace(files=sum(len(each.rows) for each in choices)))
        self._thread.wake()
        return answers

    def _add(self, key: PartitionKey, *, forced: bool) -> CompactAnswer:
        scope = records.WorkPlace(key.sg, key.partition)
        try:
            work = self._work.add(
                MERGE,
                b"" if forced else _FOUND,
                [scope],
                priority=_BY_HAND if forced else _MET if self.due.is_met(key) else 0,
            )
        except ConflictError as error:
            return CompactAnswer(key, reason=error.message)
        return CompactAnswer(key, work=work)

    # -- what is done ------------------------------------------------------------------------

    def may_be_taken(self) -> bool:
        """Whether the merge that waits first is to be begun now, here or elsewhere."""
        with self._engine.reading() as state:
            first = state.work_table.first_waiting([MERGE])
        return first is not None and (_is_forced(first) or self._may_begin())

    def _take(self) -> WorkRow | None:
        """What is to be done next, if anything is to be done now."""
        if self._thread.stopping.is_set() or not self.may_be_taken():
            return None
        self.stand_back()
        return None if self._thread.stopping.is_set() else self._work.take(_EXECUTOR, [MERGE])

    def _do(self, row: WorkRow) -> bool:
        """Do a piece of work: one merge, of the first of its partitions that has one.

        Returns:
            whether a compaction came of it.
        """
        found = self.first_of(row)
        if found is None:
            self._end(row, "done", "nothing is to be merged")
            return False
        there, choice = found
        try:
            self.run.carry_out(row, there, choice)
        except Exception as error:
            self.ended(row, there, choice, error)
            return False
        self.ended(row, there, choice)
        return True

    def ended(
        self,
        row: WorkRow,
        there: PartitionFiles,
        choice: MergeChoice,
        error: Exception | None = None,
    ) -> None:
        """Note what became of a merge, wherever it was made, and add what is to be done then.

        Args:
            row: the work; where the merge failed it ends here.
            there: what was chosen from.
            choice: what was merged.
            error: why it was not. What is no answer of a merge is raised again.
        """
        if error is None:
            self.due.at(there.key).problem = ""
            self.due.add(there.key)
        else:
            self._failed(row, there, choice, error)
        if self._thread.stopping.is_set():
            return
        if not _is_forced(row):
            self.due.follow()  # something may have come
            self._consider(there.key)
        elif (error is None or choice.mark in self.due.at(there.key).refused) and self.first_of(
            row
        ):
            self._add_again(row)

    def first_of(self, row: WorkRow) -> tuple[PartitionFiles, MergeChoice] | None:
        """What of the scope of work is to be merged next; None if nothing is."""
        return self.due.first_of(row.scope, forced=_is_forced(row))

    def _add_again(self, row: WorkRow) -> None:
        """Go on with what an operator asked for: each merge is a piece of work."""
        try:
            self._work.add(row.kind, row.spec, row.scope, priority=row.priority)
        except ConflictError as error:
            log.info("merging does not go on", extra={"error": str(error)})

    def _failed(
        self, row: WorkRow, there: PartitionFiles, choice: MergeChoice, error: Exception
    ) -> None:
        key = there.key
        match error:
            case LeaseLost():
                log.warning("a merge was overtaken", extra={"work": row.id, "error": str(error)})
            case ConflictError() | GuardFailed() | RefusedCommitError():
                self._again(row, key, error.message)
            case MergeRefused() | ProcessDied():
                if self._thread.stopping.is_set():
                    self._end(row, "pending", "the receiver is stopped")
                elif self.due.has_changed(choice):  # what was read may have gone under the reader
                    self._again(row, key, str(error))
                elif isinstance(error, ProcessDied) and choice.mark not in self.due.at(key).died:
                    # Killed by hand, or for what others took; of a fault of theirs it dies again.
                    self.due.at(key).died.add(choice.mark)
                    self._again(row, key, str(error))
                else:
                    self._refuse(row, there, choice, error)
            case TsferryError() | OSError():  # no room, a disk that is away
                self._put_off(row, key, str(error))
            case _:
                raise error

    def _again(self, row: WorkRow, key: PartitionKey, why: str) -> None:
        """Something came between: it is tried once more, as things are now."""
        if row.attempt < _MOST_CONFLICTS:
            self._end(row, "pending", why)
        else:
            self._put_off(row, key, why)

    def _put_off(self, row: WorkRow, key: PartitionKey, why: str) -> None:
        """It is not to be done now."""
        self.due.note(key, why).not_before = self._monotonic() + _TRY_AGAIN
        self._end(row, "failed", why)

    def _refuse(
        self, row: WorkRow, there: PartitionFiles, choice: MergeChoice, error: Exception
    ) -> None:
        """Files are not to be merged: halves of them are tried, until it is known which."""
        died = isinstance(error, ProcessDied)
        why = f"the process that merges died: {error}" if died else str(error)
        names = ", ".join(each.physical for each in choice.rows[:2])
        some = names if len(choice.rows) <= 2 else f"{names} and {len(choice.rows) - 2} others"
        log.warning("files are not merged", extra={"files": some, "why": why})
        learnt = self.due.note(there.key, f"{some} are not merged: {why}")
        learnt.refused.add(choice.mark)
        learnt.deaths += died
        self._end(row, "failed", f"{some}: {why}")
        self.due.add(there.key)

    def _end(self, row: WorkRow, end: records.WorkEnd, reason: str) -> None:
        try:
            self._work.end(row, end, reason=reason)  # type: ignore[arg-type]
        except ConflictError as error:
            log.info("work was ended by others", extra={"work": row.id, "error": str(error)})

    # -- others go first ---------------------------------------------------------------------

    def is_held(self) -> bool:
        """Whether it stands still now, for others."""
        if not self._is_busy():
            self._held_since = None
            return False
        now = self._monotonic()
        if self._held_since is None:
            self._held_since = now
        return now - self._held_since < _LONGEST_PAUSE

    def stand_back(self) -> None:
        """Wait while others have work that goes first, as long as that is bearable."""
        while self.is_held():
            if self._thread.stopping.wait(0.2):
                return
