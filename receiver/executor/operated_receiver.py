"""The receiver of this machine, as an operator's command does its tasks: it runs, or it does not.

A task is done in the same words either way. Where a server runs it is asked by its operator's
token; where none runs, its directories are opened, and nobody else does anything meanwhile.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from common import __version__, wire
from common.digests import xxh3_64
from common.durable import free_bytes
from common.errors import ProtocolError
from receiver.background.remote_work import RemoteKind, RemoteWork
from receiver.background.work_queue import WorkQueue
from receiver.compaction.compactor import Compactor
from receiver.compaction.merge_progress import MERGE
from receiver.compaction.merged_upkeep import MergedUpkeep
from receiver.compaction.remote_merges import RemoteMerges
from receiver.datadirs.disks import Disks
from receiver.executor.worker_calls import AskedQuestion
from receiver.open_engine import open_engine
from receiver.operator.asked_work.background_tasks import task_number
from receiver.operator.directories import ReceiverDirectories
from receiver.operator.views.background_views import TaskTaken
from receiver.superseding.proof_work import PROVE
from receiver.superseding.prover import Prover
from receiver.superseding.remote_proofs import RemoteProofs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Literal

    from receiver.config import ReceiverConfig
    from receiver.operator.client import OperatorClient, ServerAnswer

__all__ = ["OperatorCalls", "OperatorReads", "StoppedCalls", "stopped_receiver"]


class OperatorCalls:
    """Calls to the server that runs; see `AsksServer`."""

    def __init__(self, client: OperatorClient) -> None:
        self._client = client

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None],
        headers: Mapping[str, str],
        body: bytes,
    ) -> ServerAnswer:
        """An answer; raises as the server refused it."""
        return self._client.exchange(method, path, query, headers, body)


class OperatorReads:
    """Bytes of files that are on none of its disks, from the server that runs."""

    def __init__(self, client: OperatorClient) -> None:
        self._client = client

    def read(self, physical: str, begin: int, length: int) -> bytes:
        """So many bytes at an offset; raises as the server refused it."""
        got = b""
        while len(got) < length:
            at = begin + len(got)
            piece = self._client.exchange(
                "GET",
                f"{wire.BASE}/catalogue/content",
                {"path": physical},
                {"Range": f"bytes={at}-{begin + length - 1}"},
                b"",
            ).body
            if not 0 < len(piece) <= length - len(got):
                raise ProtocolError(f"{len(piece)} bytes of {length} of {physical}")
            got += piece
        return got


class StoppedCalls:
    """What an executor says, where no server runs; see `ExecutorCalls`."""

    def __init__(self, work: RemoteWork, executor: str) -> None:
        """Take nothing yet.

        Args:
            work: of the directories.
            executor: the name of this one.
        """
        self._work = work
        self._executor = executor

    def take(self, kinds: Sequence[str], task: str = "") -> TaskTaken | None:
        """Take a task, or what is to be done next."""
        ident = task_number(task) if task else None
        row = self._work.take(self._executor, kinds, __version__, task=ident)
        if row is None:
            return None
        return TaskTaken(
            task=str(row.id), attempt=row.attempt, kind=row.kind, lease=self._work.lease
        )

    def renew(self, task: TaskTaken) -> None:
        """Say that it is still being done."""
        self._work.renew(int(task.task), task.attempt, self._executor)

    def question(self, task: TaskTaken) -> AskedQuestion | None:
        """What is to be answered next; None: the task has ended."""
        found = self._work.question(int(task.task), task.attempt, self._executor)
        return None if found is None else AskedQuestion(found.tag, found.content)

    def put(self, task: TaskTaken, tag: str, number: int, offset: int, content: bytes) -> None:
        """Send a block of a file that goes with an answer."""
        self._work.put(
            int(task.task), task.attempt, self._executor, tag, number, offset,
            memoryview(content), xxh3_64(content),
        )  # fmt: skip

    def answer(self, task: TaskTaken, tag: str, content: bytes) -> None:
        """Answer a question."""
        self._work.answer(int(task.task), task.attempt, self._executor, tag, content)

    def end(self, task: TaskTaken, end: Literal["failed", "pending"], reason: str) -> None:
        """Say that it failed, or give it back."""
        self._work.end(int(task.task), task.attempt, self._executor, end, reason)


@contextmanager
def stopped_receiver(config: ReceiverConfig) -> Iterator[tuple[ReceiverDirectories, RemoteWork]]:
    """Open the directories of a receiver that does not run, for its tasks.

    Raises:
        LockedError: it runs.
    """
    with open_engine(config) as engine, Disks.open(config, engine) as disks:
        queue = WorkQueue(engine)
        prover = Prover(
            engine,
            queue,
            disks.standing,
            is_busy=lambda: False,
            is_pressed=lambda: False,
            memory=config.proofs.memory,
            every=config.proofs.every,
            here=False,
        )
        compactor = Compactor.configured(
            config,
            engine,
            disks,
            queue,
            is_busy=lambda: False,
            room=lambda: free_bytes(disks.roomiest().path) - 2 * config.limits.min_free_bytes,
            awaits_proof=lambda key, row: config.proofs.enabled and prover.awaits(key, row),
            by_itself=False,
        )
        MergedUpkeep(
            engine, disks, keep_deleted=config.load.keep_deleted, is_pressed=lambda: False
        ).recover()
        merges = RemoteMerges(compactor, queue, block=config.limits.max_chunk_bytes)
        work = RemoteWork(
            engine,
            queue,
            {
                PROVE: RemoteKind(lambda row: RemoteProofs(prover.work, row)),
                MERGE: RemoteKind(merges.begin, merges.is_open),
            },
        )
        try:
            yield ReceiverDirectories(config, engine, disks), work
        finally:
            work.sweep()
            compactor.close()
            prover.close()
