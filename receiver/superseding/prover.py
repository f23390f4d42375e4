"""Proves behind the scenes what retired files give that no other file gives, and commits the rest.

It adds what is due to the background work, and does what of that nobody else has taken. Nothing is
kept but the commits: after a start each partition with retired files is gone over once, from then
on only what a commit has touched. What was found not to be proved is kept in memory. The files are
read by a process of its own, which stands back behind everything else; before each question it
waits while files are loaded, though not for ever, and not where space is needed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from common import crash
from common.errors import ConflictError, TsferryError
from common.threads import PeriodicThread
from receiver.background.side_process import ProcessDied, SideProcess, missing_decoders
from receiver.datadirs.disks import place_of
from receiver.superseding.asking import FileProof, PartitionAnswer, PartitionAsked
from receiver.superseding.proof_work import PROVE, ProofWork

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from common.durable import Tree
    from receiver.background.work_queue import WorkQueue
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.retired import PartitionKey
    from receiver.metadata.state.work_rows import WorkRow
    from receiver.superseding.proof_work import PartitionProofs

__all__ = ["ProofProgress", "Prover"]

log = logging.getLogger(__name__)

_EXECUTOR: Final = "receiver"
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
    """Looks for what is due, in a thread of its own.

    Attributes:
        work: what is due, for whoever else has a hand free.
    """

    def __init__(
        self,
        engine: Engine,
        queue: WorkQueue,
        trees: Callable[[], Sequence[Tree]],
        *,
        is_busy: Callable[[], bool],
        is_pressed: Callable[[], bool],
        memory: int,
        every: float,
        here: bool = True,
        in_turn: Callable[
            [Iterable[Sequence[FileRow]]], Generator[AbstractContextManager[None], None, None]
        ] = _as_they_are,
    ) -> None:
        """Prepare; nothing is read before `start` or `run_once`.

        Args:
            engine: the metadata engine.
            queue: its background work.
            trees: gives the data directories that count now.
            is_busy: whether files are being loaded, which goes first.
            is_pressed: whether space is needed, so that proofs go first.
            memory: bytes that the process may take that reads files.
            every: seconds between two looks for what is due.
            here: prove here; else what is due is only added, for others to do.
            in_turn: gives for each batch of files what has them lie on the disk while it is
                entered, if they can be had at all; those of the next may come meanwhile.
        """
        self._engine = engine
        self._queue = queue
        self._trees = trees
        self._is_busy = is_busy
        self._in_turn = in_turn
        self._is_pressed = is_pressed
        self._every = every
        self._here = here
        # 24 bytes each, sorted, and what is decoded
        self.work = ProofWork(engine, queue, self._place, max(1 << 16, memory >> 8))
        self._process: SideProcess[PartitionAsked, PartitionAnswer] = SideProcess(
            "receiver.superseding.worker", PartitionAnswer, memory=memory
        )
        self._problem = missing_decoders("retired files stay") if here else None
        self._is_first = True
        self._files, self._seconds = 0, 0.0
        self._running = threading.Lock()
        self._thread = PeriodicThread(
            "prover", self._go_over, log, "proofs have to wait", first=every, retry=every
        )

    # -- questions ---------------------------------------------------------------------------

    def progress(self) -> ProofProgress:
        """How far it is."""
        kept_files, kept_bytes, skipped_files, skipped_bytes = self.work.judged()
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
        return self.work.found(key, physical)

    def awaits(self, key: PartitionKey, row: FileRow) -> bool:
        """Whether a retired file is going to be judged, and was not yet."""
        return self._problem is None and self.work.awaits(key, row)

    # -- the thread --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, if files can be decoded here at all."""
        if self._problem is not None:
            log.warning("no retired file is proved: %s", self._problem)
            return
        self._thread.start()

    def close(self) -> None:
        """Stop at once; what was not committed is found again."""
        self._thread.close()
        self._process.close()

    def _go_over(self) -> float:
        self.run_once()
        return self._every

    def run_once(self) -> int:
        """Go over all that is due now; returns how many files are superseded by it."""
        if self._problem is not None:
            return 0
        with self._running:
            if self._is_first:  # who ran as this one has ended, or there were two of one engine
                self._queue.give_back(_EXECUTOR)
                self._is_first = False
            due, newest = self.work.due()
            proved, is_idle, left = 0, True, deque(due)
            while not self._thread.stopping.is_set():
                self.work.add(left)
                row = self._queue.take(_EXECUTOR, [PROVE]) if self._here else None
                if row is None:
                    if not left:
                        self.work.gone_over(newest)
                    break
                proved, is_idle = proved + self._do(row), False
            if is_idle:
                self._process.close()  # it has memory that others can use
            return proved

    # -- one partition -----------------------------------------------------------------------

    def _do(self, row: WorkRow) -> int:
        """Do what was taken; returns how many files are superseded by it."""
        proved = 0
        with self._queue.held(row) as lost:

            def stopped() -> bool:
                return self._thread.stopping.is_set() or lost.is_set()

            try:
                for key in self.work.partitions(row):
                    proofs = self.work.open(row, key)
                    try:
                        self._prove(proofs, stopped)
                    finally:
                        proved += proofs.proved
                    if stopped():
                        break
                    proofs.close()
                if self._thread.stopping.is_set():
                    self._queue.end(row, "pending", reason="the receiver stopped")
                else:
                    self._queue.end(row, "done")
            except ConflictError as error:  # what it has committed stays true
                log.info("somebody else has the proofs", extra={"why": error.message})
            except TsferryError as error:
                with suppress(TsferryError):
                    self._queue.end(row, "pending", reason=error.message)
                raise
            except Exception as error:
                with suppress(TsferryError):
                    self._queue.end(row, "failed", reason=f"{type(error).__name__}: {error}")
                raise
        return proved

    def _prove(self, proofs: PartitionProofs, stopped: Callable[[], bool]) -> None:
        """Have all questions of a partition answered, until it is stopped."""
        due = proofs.due
        batches = [[due.rows[each.physical] for each in asked.files] for asked in due.asked]
        with closing(self._in_turn(batches)) as turns:
            for asked, here in zip(due.asked, turns, strict=True):
                self._stand_back()
                began = time.monotonic()
                try:
                    with here:
                        placed = self._placed(asked, due.rows)
                        answer = self._ask(placed, [_MOST_DEATHS], stopped)
                except TsferryError as error:  # the next look finds them due again
                    log.info("files are not to be had now", extra={"error": str(error)})
                    proofs.overtaken = True
                    continue
                if stopped():
                    return
                self._files += len(answer)
                self._seconds += time.monotonic() - began
                crash.point("proofs.answered")
                proofs.settle(asked, answer)

    def _place(self, row: FileRow) -> str | None:
        """Where the bytes of a file are."""
        return place_of(self._trees(), row)

    def _stand_back(self) -> None:
        """Wait while others have work that goes first, as long as that is bearable."""
        until = time.monotonic() + _LONGEST_PAUSE
        while self._is_busy() and not self._is_pressed() and time.monotonic() < until:
            if self._thread.stopping.wait(0.2):
                return

    def _placed(self, asked: PartitionAsked, rows: Mapping[str, FileRow]) -> PartitionAsked:
        """The same question, with the places of files that have just come."""
        files = [
            each
            if each.path is not None
            else msgspec.structs.replace(each, path=self._place(rows[each.physical]))
            for each in asked.files
        ]
        return msgspec.structs.replace(asked, files=files)

    def _ask(
        self, asked: PartitionAsked, deaths: list[int], stopped: Callable[[], bool]
    ) -> list[FileProof]:
        """Have candidates judged; those over which the process dies are unreadable.

        Args:
            asked: the question.
            deaths: how many may still happen.
            stopped: whether nobody waits for the answer any more.
        """
        try:
            return self._process.ask(asked, stopped).proofs
        except ProcessDied as died:
            if stopped():
                return []
            log.warning("the process that reads for proofs died", extra={"how": str(died)})
        candidates = [each.physical for each in asked.files if each.candidate]
        deaths[0] -= 1
        if len(candidates) <= 1 or deaths[0] <= 0:
            return [FileProof(each, unreadable=_DIED) for each in candidates]
        middle = len(candidates) // 2
        found: list[FileProof] = []
        for part in (set(candidates[:middle]), set(candidates[middle:])):
            found += self._ask(_only(asked, part), deaths, stopped)
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
