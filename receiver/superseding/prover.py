"""Proves behind the scenes what retired files give that no other file gives, and commits the rest.

Nothing is kept but the commits: after a start each partition with retired files is gone over once,
from then on only what a commit has touched. What was found not to be proved is kept in memory.
The files are read by a process of its own, which stands back behind everything else; before each
question it waits while files are loaded, though not for ever, and not where space is needed.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from common import crash
from common.errors import TsferryError
from common.threads import join_begun
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError
from receiver.superseding.asking import FileProof, PartitionAsked
from receiver.superseding.due import DuePartition, JudgedPartition, due_of, unproved_senders
from receiver.superseding.reading_process import ProcessDied, ReadingProcess, missing_decoders

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from contextlib import AbstractContextManager

    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.retired import PartitionKey

__all__ = ["ProofProgress", "Prover"]

log = logging.getLogger(__name__)

_BATCH = 500
"""Proofs of one commit; each has a guard, and one for each file that it rests on."""
_LONGEST_PAUSE = 30.0
"""For loads to end, before each question."""
_MOST_DEATHS = 40
"""Of the reading process over one partition, until it is left alone."""
_DIED = "the process that read it died"


class ProofProgress(NamedTuple):
    """How far the proofs are.

    Attributes:
        waiting_files: retired, and not judged yet.
        waiting_bytes: of those.
        kept_files: retired and found to have points that exist nowhere else, or not to be read.
        kept_bytes: of those.
        superseded_files: proved, their bytes still on the disk.
        superseded_bytes: of those.
        files_per_second: judged, while it is at work; 0 before the first.
        problem: why nothing is proved, None if nothing is in the way.
    """

    waiting_files: int = 0
    waiting_bytes: int = 0
    kept_files: int = 0
    kept_bytes: int = 0
    superseded_files: int = 0
    superseded_bytes: int = 0
    files_per_second: float = 0.0
    problem: str | None = None


def _as_they_are(
    batches: Iterable[Sequence[FileRow]],
) -> Generator[AbstractContextManager[None], None, None]:
    yield from (nullcontext() for _ in batches)


class Prover:
    """Looks for what is due, in a thread of its own."""

    def __init__(
        self,
        engine: Engine,
        trees: Callable[[], Sequence[Tree]],
        *,
        is_busy: Callable[[], bool],
        is_pressed: Callable[[], bool],
        memory: int,
        every: float,
        in_turn: Callable[
            [Iterable[Sequence[FileRow]]], Generator[AbstractContextManager[None], None, None]
        ] = _as_they_are,
    ) -> None:
        """Prepare; nothing is read before `start` or `run_once`.

        Args:
            engine: the metadata engine.
            trees: gives the data directories that count now.
            is_busy: whether files are being loaded, which goes first.
            is_pressed: whether space is needed, so that proofs go first.
            memory: bytes that the process may take that reads files.
            every: seconds between two looks for what is due.
            in_turn: gives for each batch of files what has them lie on the disk while it is
                entered, if they can be had at all; those of the next may come meanwhile.
        """
        self._engine = engine
        self._trees = trees
        self._is_busy = is_busy
        self._in_turn = in_turn
        self._is_pressed = is_pressed
        self._every = every
        self._most_points = max(1 << 16, memory >> 8)  # 24 bytes each, sorted, and what is decoded
        self._process = ReadingProcess(memory=memory)
        self._problem = missing_decoders()
        self._judged: dict[PartitionKey, JudgedPartition] = {}
        self._never: frozenset[str] = frozenset()
        self._seen = -1
        self._files, self._seconds = 0, 0.0
        self._stop = threading.Event()
        self._running = threading.Lock()
        self._thread: threading.Thread | None = None

    # -- questions ---------------------------------------------------------------------------

    def progress(self) -> ProofProgress:
        """How far it is."""
        judged = list(self._judged.values())
        kept_files, kept_bytes = map(sum, zip((0, 0), *(each.kept for each in judged), strict=True))
        skipped_files, skipped_bytes = map(
            sum, zip((0, 0), *(each.skipped for each in judged), strict=True)
        )
        with self._engine.reading() as state:
            gone = state.file_table.gone
            return ProofProgress(
                waiting_files=max(0, gone.retired_files - kept_files - skipped_files),
                waiting_bytes=max(0, gone.retired_bytes - kept_bytes - skipped_bytes),
                kept_files=kept_files,
                kept_bytes=kept_bytes,
                superseded_files=gone.superseded_files,
                superseded_bytes=gone.superseded_bytes,
                files_per_second=self._files / self._seconds if self._seconds else 0.0,
                problem=self._problem,
            )

    def found(self, key: PartitionKey, physical: str) -> FileProof | None:
        """What was found of a retired file; None while it was not judged."""
        judged = self._judged.get(key)
        return None if judged is None else judged.found.get(physical)

    # -- the thread --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, if files can be decoded here at all."""
        if self._problem is not None:
            log.warning("no retired file is proved: %s", self._problem)
            return
        self._thread = threading.Thread(target=self._run, name="prover", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop at once; what was not committed is found again."""
        self._stop.set()
        join_begun(self._thread)
        self._thread = None
        self._process.close()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.run_once()
            except (TsferryError, OSError) as error:
                log.warning("proofs have to wait", extra={"error": str(error)})
            except Exception:
                log.exception("proving failed")

    def run_once(self) -> int:
        """Go over all that is due now; returns how many files are superseded by it."""
        if self._problem is not None:
            return 0
        with self._running:
            proved = 0
            due, newest = self._due()
            for key in due:
                if self._stop.is_set():
                    return proved
                proved += self._prove(key)
            self._seen = newest
            if not due:
                self._process.close()  # it has memory that others can use
            return proved

    def _due(self) -> tuple[list[PartitionKey], int]:
        """Partitions that something has touched since they were gone over, as of which commit."""
        with self._engine.reading() as state:
            newest = state.newest
            if newest == self._seen and not any(each.again for each in self._judged.values()):
                return [], newest
            never = unproved_senders(state)
            if never != self._never:
                self._judged, self._never = {}, never
            there = state.file_table.gone.where()
            due = [key for key in there if self._is_touched(state, key)]
        self._judged = {key: self._judged[key] for key in there if key in self._judged}
        return due, newest

    def _is_touched(self, state: State, key: PartitionKey) -> bool:
        judged = self._judged.get(key)
        if judged is None or judged.again:
            return True
        notes = map(state.deletion_table.newest, judged.senders)
        return judged.at < max(state.file_table.gone.touched(key), *notes, 0)

    # -- one partition -----------------------------------------------------------------------

    def _prove(self, key: PartitionKey) -> int:
        """Judge a partition; returns how many of its files are superseded by it."""
        judged = self._judged.get(key, JudgedPartition())
        due = due_of(self._engine, key, judged, self._place, self._most_points)
        found = dict(due.kept)
        proved, overtaken = 0, False
        batches = [[due.rows[each.physical] for each in asked.files] for asked in due.asked]
        with closing(self._in_turn(batches)) as turns:
            for asked, here in zip(due.asked, turns, strict=True):
                self._stand_back()
                began = time.monotonic()
                try:
                    with here:
                        answer = self._ask(self._placed(asked, due), [_MOST_DEATHS])
                except TsferryError as error:  # the next look finds them due again
                    log.info("files are not to be had now", extra={"error": str(error)})
                    overtaken = True
                    continue
                if self._stop.is_set():
                    return proved
                self._files += len(answer)
                self._seconds += time.monotonic() - began
                crash.point("proofs.answered")
                good = [each for each in answer if each.proved]
                missed = self._commit(good, due)
                proved += len(good) - missed
                overtaken |= missed > 0
                found |= _unproved(asked, answer, due)
        kept = len(found), sum(due.rows[each].size for each in found)
        self._judged[key] = JudgedPartition(
            due.at, due.senders, found, kept, due.skipped, again=overtaken
        )
        if proved:
            log.info("files are superseded", extra={"files": proved, "partition": "/".join(key)})
        return proved

    def _place(self, row: FileRow) -> str | None:
        """Where the bytes of a file are."""
        tree = next((each for each in self._trees() if each.exists(row.physical)), None)
        return None if tree is None else str(tree.path / row.physical)

    def _stand_back(self) -> None:
        """Wait while others have work that goes first, as long as that is bearable."""
        until = time.monotonic() + _LONGEST_PAUSE
        while self._is_busy() and not self._is_pressed() and time.monotonic() < until:
            if self._stop.wait(0.2):
                return

    def _placed(self, asked: PartitionAsked, due: DuePartition) -> PartitionAsked:
        """The same question, with the places of files that have just come."""
        files = [
            each
            if each.path is not None
            else msgspec.structs.replace(each, path=self._place(due.rows[each.physical]))
            for each in asked.files
        ]
        return msgspec.structs.replace(asked, files=files)

    def _ask(self, asked: PartitionAsked, deaths: list[int]) -> list[FileProof]:
        """Have candidates judged; those over which the process dies are unreadable.

        Args:
            asked: the question.
            deaths: how many may still happen.
        """
        try:
            return self._process.ask(asked, self._stop.is_set).proofs
        except ProcessDied as died:
            if self._stop.is_set():
                return []
            log.warning("the process that reads for proofs died", extra={"how": str(died)})
        candidates = [each.physical for each in asked.files if each.candidate]
        deaths[0] -= 1
        if len(candidates) <= 1 or deaths[0] <= 0:
            return [FileProof(each, unreadable=_DIED) for each in candidates]
        middle = len(candidates) // 2
        found: list[FileProof] = []
        for part in (set(candidates[:middle]), set(candidates[middle:])):
            found += self._ask(_only(asked, part), deaths)
        return found

    def _commit(self, proofs: Sequence[FileProof], due: DuePartition) -> int:
        """Commit proofs; returns how many were overtaken."""
        missed = 0
        ordered = _lowest_first(proofs)
        for low in range(0, len(ordered), _BATCH):
            batch = ordered[low : low + _BATCH]
            concerned = dict.fromkeys(
                physical for each in batch for physical in (each.physical, *each.rests)
            )
            guards = [Guard("file", each, due.rows[each].changed) for each in concerned]
            ops = [records.FileSuperseded(each.physical, each.rests) for each in batch]
            crash.point("proofs.decided")
            try:
                self._engine.commit(ops, guards)
            except (GuardFailed, RefusedCommitError) as error:
                log.info("files have changed while they were proved: %s", error)
                missed += len(batch)
                continue
            crash.point("proofs.committed")
        return missed


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


def _only(asked: PartitionAsked, candidates: set[str]) -> PartitionAsked:
    """The same question about some of the candidates; the others count as other files."""
    files = [
        each
        if each.physical in candidates or not each.candidate
        else msgspec.structs.replace(each, candidate=False)
        for each in asked.files
    ]
    return PartitionAsked(files, asked.notes, asked.most_points)


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
