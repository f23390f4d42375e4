"""Proofs as background work: which partitions are due, what one attempt asks, what it commits.

Who reads the files, here or on another machine, gets questions and gives answers. Each piece of an
answer is a commit of its own that holds only while the attempt does (`WorkQueue.commit`), so that
nobody who slept adds to what another has done since. A partition that is due without a file to be
judged adds no work.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from common import crash
from common.errors import ConflictError, ProtocolError
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError
from receiver.metadata.state.tables.background_work import parts_of
from receiver.metadata.state.work_rows import WorkState
from receiver.superseding.due import JudgedPartition, due_of, unproved_senders

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Sequence

    from receiver.background.work_queue import WorkQueue
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.retired import PartitionKey
    from receiver.metadata.state.work_rows import WorkRow
    from receiver.superseding.asking import FileProof, PartitionAsked
    from receiver.superseding.due import DuePartition

__all__ = ["PROVE", "Judged", "PartitionProofs", "ProofWork", "place_of"]

log = logging.getLogger(__name__)

PROVE: Final = "prove"
"""The kind of this work."""
_MOST_WAITING: Final = 64
"""Of what is due so much waits in the table; the rest is added as it is taken."""
_BATCH: Final = 500
"""Proofs of one commit; each has a guard, and one for each file that it rests on."""


def place_of(key: PartitionKey) -> records.WorkPlace:
    """What whoever works on a partition has for itself: that of all virtual storage groups."""
    return records.WorkPlace(key.sg, key.partition)


class Judged(NamedTuple):
    """How many retired files were judged and not proved.

    Attributes:
        kept_files: that have points of their own, or cannot be read.
        kept_bytes: of those.
        skipped_files: of senders whose files nothing is proved of.
        skipped_bytes: of those.
    """

    kept_files: int
    kept_bytes: int
    skipped_files: int
    skipped_bytes: int


class ProofWork:
    """What is due, and what was found; any thread may call."""

    def __init__(
        self,
        engine: Engine,
        queue: WorkQueue,
        place: Callable[[FileRow], str | None],
        most_points: int,
    ) -> None:
        """Begin with nothing judged.

        Args:
            engine: the metadata engine.
            queue: its background work.
            place: where the bytes of a file are.
            most_points: see `PartitionAsked`.
        """
        self.queue = queue
        self._engine = engine
        self._place = place
        self._most_points = most_points
        self._lock = threading.Lock()
        self._judged: dict[PartitionKey, JudgedPartition] = {}
        self._never: frozenset[str] = frozenset()
        self._seen = -1

    def judged(self) -> Judged:
        """What was found, in numbers."""
        found = list(self._judged.values())
        pairs = [(*each.kept, *each.skipped) for each in found]
        return Judged(*map(sum, zip((0, 0, 0, 0), *pairs, strict=True)))

    def found(self, key: PartitionKey, physical: str) -> FileProof | None:
        """What was found of a retired file; None while it was not judged."""
        judged = self._judged.get(key)
        return None if judged is None else judged.found.get(physical)

    def awaits(self, key: PartitionKey, row: FileRow) -> bool:
        """Whether a retired file is to be judged, and was not yet."""
        return self.found(key, row.physical) is None and row.sender not in self._never

    def judge(self, key: PartitionKey, judged: JudgedPartition) -> None:
        """Note what is known of a partition now."""
        with self._lock:
            self._judged[key] = judged

    # -- the producer ------------------------------------------------------------------------

    def due(self) -> tuple[list[PartitionKey], int]:
        """Partitions that something has touched since they were gone over, as of which commit."""
        with self._engine.reading() as state:
            newest = state.newest
            again = any(each.again for each in list(self._judged.values()))
            if newest == self._seen and not again:
                return [], newest
            never = unproved_senders(state)
            there = state.file_table.gone.where()
            with self._lock:
                if never != self._never:
                    self._judged, self._never = {}, never
                self._judged = {key: self._judged[key] for key in there if key in self._judged}
            due = [key for key in there if self._is_touched(state, key)]
            if due:
                left = _left_alone(state)
                touched = state.file_table.gone.touched
                due = [key for key in due if left.get(place_of(key), -1) < touched(key)]
        return due, newest

    def gone_over(self, newest: int) -> None:
        """Note that all is done that was due as of a commit."""
        self._seen = newest

    def add(self, due: deque[PartitionKey]) -> None:
        """Add work for what is due, and take that out; the rest stays while much waits."""
        while due:
            key = due[0]
            with self._engine.reading() as state:
                if state.work_table.waiting(PROVE) >= _MOST_WAITING:
                    return
                is_open = bool(state.work_table.overlapping(place_of(key)))
            due.popleft()
            if not is_open and self._has_candidates(key):
                with suppress(ConflictError):  # somebody else was as fast
                    self.queue.add(PROVE, b"", [place_of(key)])

    def _is_touched(self, state: State, key: PartitionKey) -> bool:
        judged = self._judged.get(key)
        if judged is None or judged.again:
            return True
        notes = map(state.deletion_table.newest, judged.senders)
        return judged.at < max(state.file_table.gone.touched(key), *notes, 0)

    def _has_candidates(self, key: PartitionKey) -> bool:
        """Whether a file of a partition is to be judged; if none is, that is all there is to do."""
        judged = self._judged.get(key, JudgedPartition())
        due = due_of(self._engine, key, judged, lambda _: None, 1)
        if due.asked:
            return True
        self.judge(key, _judged_as(due, due.kept, again=False))
        return False

    # -- an attempt --------------------------------------------------------------------------

    def partitions(self, row: WorkRow) -> list[PartitionKey]:
        """What is due of the places of some work."""
        with self._engine.reading() as state:
            return [
                key
                for key in state.file_table.gone.where()
                if not parts_of(place_of(key)).isdisjoint(row.scope)
                and self._is_touched(state, key)
            ]

    def open(self, row: WorkRow, key: PartitionKey) -> PartitionProofs:
        """Begin with one of them."""
        judged = self._judged.get(key, JudgedPartition())
        due = due_of(self._engine, key, judged, self._place, self._most_points)
        return PartitionProofs(self, row, key, due)


class PartitionProofs:
    """One attempt at the proofs of a partition.

    Attributes:
        due: what is to be asked.
        proved: files that are superseded by it.
        overtaken: whether some have to be looked at again.
    """

    def __init__(self, work: ProofWork, row: WorkRow, key: PartitionKey, due: DuePartition) -> None:
        self.due = due
        self.proved = 0
        self.overtaken = False
        self._work = work
        self._row = row
        self._key = key
        self._found = dict(due.kept)

    def settle(self, asked: PartitionAsked, answer: Sequence[FileProof]) -> None:
        """Commit what was found of the candidates of a question.

        Raises:
            ConflictError: the work is not this attempt's any more.
            ProtocolError: the answer is of other files.
        """
        _check(asked, answer)
        good = [each for each in answer if each.proved]
        missed = self._commit(good)
        self.proved += len(good) - missed
        self.overtaken |= missed > 0
        self._found |= _unproved(asked, answer, self.due)

    def close(self) -> None:
        """Note what is known of the partition now; all questions are settled, or overtaken."""
        self._work.judge(self._key, _judged_as(self.due, self._found, again=self.overtaken))
        if self.proved:
            where = "/".join(self._key)
            log.info("files are superseded", extra={"files": self.proved, "partition": where})

    def _commit(self, proofs: Sequence[FileProof]) -> int:
        """Commit proofs; returns how many were overtaken."""
        missed = 0
        ordered = _lowest_first(proofs)
        rows = self.due.rows
        for low in range(0, len(ordered), _BATCH):
            batch = ordered[low : low + _BATCH]
            concerned = dict.fromkeys(
                physical for each in batch for physical in (each.physical, *each.rests)
            )
            guards = [Guard("file", each, rows[each].changed) for each in concerned]
            ops = [records.FileSuperseded(each.physical, each.rests) for each in batch]
            crash.point("proofs.decided")
            try:
                self._work.queue.commit(self._row, ops, guards)
            except (GuardFailed, RefusedCommitError) as error:
                log.info("files have changed while they were proved: %s", error)
                missed += len(batch)
                continue
            crash.point("proofs.committed")
        return missed


def _left_alone(state: State) -> dict[records.WorkPlace, int]:
    """What failed or was cancelled, and since when: until a partition changes, nobody adds it."""
    return {
        place: row.changed
        for row in state.work_table.rows.values()
        if row.kind == PROVE and row.state in (WorkState.FAILED, WorkState.CANCELLED)
        for place in row.scope
    }


def _judged_as(due: DuePartition, found: dict[str, FileProof], *, again: bool) -> JudgedPartition:
    kept = len(found), sum(due.rows[each].size for each in found)
    return JudgedPartition(due.at, due.senders, found, kept, due.skipped, again=again)


def _check(asked: PartitionAsked, answer: Iterable[FileProof]) -> None:
    known = {each.physical: each.candidate for each in asked.files}
    for proof in answer:
        if not known.get(proof.physical, False):
            raise ProtocolError(f"{proof.physical!a} was not to be judged")
        if any(each not in known or each == proof.physical for each in proof.rests):
            raise ProtocolError(f"{proof.physical!a} rests on files that were not asked about")


def _unproved(
    asked: PartitionAsked, answer: Iterable[FileProof], due: DuePartition
) -> dict[str, FileProof]:
    """What was found of the candidates of a question that are not proved."""
    told = {each.physical: each for each in answer}
    found = {}
    for file in asked.files:
        one = told.get(file.physical, due.maybe.get(file.physical)) if file.candidate else None
        if one is not None and not one.proved:
            found[file.physical] = one
            if one.unreadable:
                log.warning(
                    "a retired file cannot be proved",
                    extra={"file": file.physical, "why": one.unreadable},
                )
    return found


def _lowest_first(proofs: Iterable[FileProof]) -> list[FileProof]:
    """Each before those that it rests on: what is superseded supports nothing any more."""
    waiting = {each.physical: each for each in proofs}
    ordered: list[FileProof] = []

    def take(proof: FileProof) -> None:
        for physical in proof.rests:
            upper = waiting.pop(physical, None)
            if upper is not None:
                take(upper)
        ordered.append(proof)

    while waiting:
        take(waiting.pop(next(iter(waiting))))
    return ordered[::-1]
