"""The one thread that loads: tasks in the order of their ends, each until it is committed.

One thread, so that two loads never race for a device and the disk is asked by one at a time. A
load that cannot be done now (no space, a device that answers with an error) waits with a growing
pause and lets the others pass; it heals by itself when its cause is gone. After a failed sync
nothing is loaded any more in this process, as nothing may be written.
"""

from __future__ import annotations

import heapq
import logging
import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from common.durable import failed_sync
from common.errors import NoSpaceError, ReadOnlyError, TsferryError
from receiver.load.loading import load_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.config import DeletesConfig
    from receiver.disks import Disks
    from receiver.load.folder.current_task import CurrentTask
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.upkeep.ttl import Ttl
    from receiver.metadata.engine import Engine

__all__ = ["LoadJob", "Loader"]

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0


@dataclass(order=True)
class LoadJob:
    """A task that waits to be loaded, ordered by when it is due."""

    due: float
    number: int
    folder: SenderFolder = field(compare=False)
    task: CurrentTask = field(compare=False)
    attempts: int = field(default=0, compare=False)
    done: bool = field(default=False, compare=False)
    error: Exception | None = field(default=None, compare=False)
    """What the last attempt ended with; None before the first, and when it is done."""


class Loader:
    """A queue of tasks, and the thread that loads them."""

    def __init__(
        self,
        engine: Engine,
        ttl: Ttl,
        disks: Disks,
        *,
        keep_bytes: int,
        tokens_required: bool = False,
        deletes: DeletesConfig | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._engine = engine
        self._ttl = ttl
        self._disks = disks
        self._keep_bytes = keep_bytes
        self._tokens_required = tokens_required
        self._deletes = deletes
        self._clock = clock
        self._monotonic = monotonic
        self._jitter = jitter
        self._queue: list[LoadJob] = []
        self._number = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the attempt that is being made; what is not loaded is found at the start."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    @property
    def waiting(self) -> int:
        """Tasks that are not loaded yet."""
        with self._changed:
            return len(self._queue)

    @property
    def no_space(self) -> str | None:
        """Why a task cannot be loaded for want of space, None if none has to wait for that."""
        with self._changed:
            short = (job.error for job in self._queue if isinstance(job.error, NoSpaceError))
            return next((f"a task waits to be loaded: {error}" for error in short), None)

    def submit(self, folder: SenderFolder, task: CurrentTask) -> LoadJob:
        """Load a task as soon as may be; its end is durable."""
        with self._changed:
            self._number += 1
            job = LoadJob(self._monotonic(), self._number, folder, task)
            heapq.heappush(self._queue, job)
            self._changed.notify_all()
        return job

    def wait(self, until: Callable[[], bool], timeout: float) -> bool:
        """Wait for something that a load brings about; whether it has."""
        if self._thread is None:
            self.run_due()
        with self._changed:
            return self._changed.wait_for(lambda: until() or self._stopping, timeout) and until()

    def wait_for(self, job: LoadJob) -> None:
        """Wait until a job is done.

        Raises:
            TsferryError, OSError: its first attempt failed; it goes on in the background.
            ReadOnlyError: the receiver is being stopped.
        """
        tried = job.attempts
        self.wait(lambda: job.done or job.attempts > tried, threading.TIMEOUT_MAX)
        if job.done:
            return
        raise job.error or ReadOnlyError("the receiver is being stopped", retry_after=5)

    def run_due(self) -> None:
        """Make the attempts that are due, in the calling thread."""
        while (job := self._take()) is not None:
            self._attempt(job)

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopping:
                    return
                if not self._queue or self._queue[0].due > self._monotonic():
                    self._changed.wait(self._pause())
                    continue
            self.run_due()

    def _pause(self) -> float | None:
        if not self._queue:
            return None
        return max(0.01, self._queue[0].due - self._monotonic())

    def _take(self) -> LoadJob | None:
        with self._changed:
            if self._stopping or not self._queue or self._queue[0].due > self._monotonic():
                return None
            return self._queue[0]

    def _attempt(self, job: LoadJob) -> None:
        try:
            self._disks.first()
            load_task(
                self._engine,
                self._disks.standing(),
                job.folder,
                job.task,
                ttl=self._ttl,
                clock=self._clock,
                keep_bytes=self._keep_bytes,
                tokens_required=self._tokens_required,
                deletes=self._deletes,
            )
        except Exception as error:
            self._put_back(job, error)
        else:
            self._settle(job)

    def _settle(self, job: LoadJob) -> None:
        with self._changed:
            self._queue.remove(job)
            heapq.heapify(self._queue)
            job.done, job.error = True, None
            job.task.trouble = None
            self._changed.notify_all()

    def _put_back(self, job: LoadJob, error: Exception) -> None:
        if not isinstance(error, TsferryError | OSError):
            log.exception("a load failed", extra={"task": job.task.id})
        else:
            log.warning("a load has to wait", extra={"task": job.task.id, "error": str(error)})
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(job.attempts, 10))
        with self._changed:
            self._queue.remove(job)
            job.attempts += 1
            job.error = error
            job.task.trouble = failed_sync() or str(error)
            job.due = self._monotonic() + pause * (0.5 + self._jitter() / 2)
            heapq.heapify(self._queue)
            heapq.heappush(self._queue, job)
            self._changed.notify_all()
