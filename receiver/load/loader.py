"""The threads that load: tasks in the order of their ends, each until it is committed.

A load waits for the disk more than for anything else, so a few of them go side by side; a race for
a device is settled by the guards of their commits. So that nobody is held up by somebody else's
large load, one large one at a time is worked on, and one of a sender: there is always a thread for
the small ones of the others.

A load that cannot be done now (no space, a device that answers with an error) waits with a growing
pause and lets the others pass; it heals by itself when its cause is gone. After a failed sync
nothing is loaded any more in this process, as nothing may be written.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from common.durable import failed_sync
from common.errors import NoSpaceError, ReadOnlyError, TsferryError
from common.metering.tallies import Durations, LabelledSums
from receiver.load.loading import load_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.config import DeletesConfig
    from receiver.datadirs.disks import Disks
    from receiver.load.folder.current_task import CurrentTask
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.upkeep.ttl import Ttl
    from receiver.metadata.engine import Engine

__all__ = ["LoadJob", "Loader"]

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0
_AT_ONCE = 4
"""Loads side by side. 40 small tasks that end together took 5 to 7 s one after the other, 0.5 to 1
s with two of these, 0.4 s with four and with eight (two busy cores and their disk, 2026-11-29)."""
_LARGE = 1000
"""Files and ends of a task that is not loaded beside another one as large: what a sender puts into
one by default is not."""


@dataclass(order=True)
class LoadJob:
    """A task that waits to be loaded, ordered by when it is due."""

    due: float
    number: int
    folder: SenderFolder = field(compare=False)
    task: CurrentTask = field(compare=False)
    attempts: int = field(default=0, compare=False)
    begun: bool = field(default=False, compare=False)
    """A thread is making an attempt."""
    done: bool = field(default=False, compare=False)
    error: Exception | None = field(default=None, compare=False)
    """What the last attempt ended with; None before the first, and when it is done."""

    @property
    def is_large(self) -> bool:
        """Whether others would have to wait for it for long."""
        record = self.task.record
        return len(record.manifest or ()) + len(record.deleted) > _LARGE


class Loader:
    """A queue of tasks, and the threads that load them.

    Attributes:
        attempts: how many there were, by what came of them: `loaded` or `delayed`.
        durations: of attempts.
    """

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
        self._threads: list[threading.Thread] = []
        self.attempts = LabelledSums()
        self.durations = Durations()

    def start(self) -> None:
        """Start the threads."""
        for number in range(_AT_ONCE):
            thread = threading.Thread(target=self._run, name=f"loader-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Stop after the attempts that are being made; what is not loaded is found at the start."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        while self._threads:
            self._threads.pop().join()

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
            self._queue.append(job)
            self._changed.notify_all()
        return job

    def wait(self, until: Callable[[], bool], timeout: float) -> bool:
        """Wait for something that a load brings about; whether it has."""
        if not self._threads:
            self.run_due()
        with self._changed:
            return self._changed.wait_for(lambda: until() or self._stopping, timeout) and until()

    def hurry(self, task: CurrentTask) -> None:
        """Make the next attempt to load a task now, if it waits for one."""
        with self._changed:
            for job in self._queue:
                if job.task is task:
                    job.due = self._monotonic()
            self._changed.notify_all()

    def stir(self) -> None:
        """Have those look again who wait for something that came about elsewhere."""
        with self._changed:
            self._changed.notify_all()

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
        while (job := self._begin()) is not None:
            self._attempt(job)

    def _run(self) -> None:
        while True:
            with self._changed:
                while (job := self._begin()) is None:
                    if self._stopping:
                        return
                    self._changed.wait(self._pause())
            self._attempt(job)

    def _begin(self) -> LoadJob | None:
        """The job to make an attempt at now, None if there is none."""
        with self._changed:
            job = self._next()
            if self._stopping or job is None or job.due > self._monotonic():
                return None
            job.begun = True
            return job

    def _pause(self) -> float | None:
        job = self._next()
        return None if job is None else max(0.01, job.due - self._monotonic())

    def _next(self) -> LoadJob | None:
        """The first that may be begun beside those that are."""
        begun = [job for job in self._queue if job.begun]
        busy = {job.folder.uuid for job in begun}
        large = any(job.is_large for job in begun)
        free = (job for job in self._queue if not job.begun and job.folder.uuid not in busy)
        return min((job for job in free if not (large and job.is_large)), default=None)

    def _attempt(self, job: LoadJob) -> None:
        begin = self._monotonic()
        try:
            self._disks.check(job.folder.tree)
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
            self.attempts.add(1, "delayed")
            self._put_back(job, error)
        else:
            self.attempts.add(1, "loaded")
            self._settle(job)
        finally:
            self.durations.observe(self._monotonic() - begin)

    def _settle(self, job: LoadJob) -> None:
        with self._changed:
            self._queue.remove(job)
            job.begun, job.done, job.error = False, True, None
            job.task.trouble = None
            self._changed.notify_all()

    def _put_back(self, job: LoadJob, error: Exception) -> None:
        if not isinstance(error, TsferryError | OSError):
            log.exception("a load failed", extra={"task": job.task.id})
        else:
            log.warning("a load has to wait", extra={"task": job.task.id, "error": str(error)})
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(job.attempts, 10))
        with self._changed:
            job.begun = False
            job.attempts += 1
            job.error = error
            job.task.trouble = failed_sync() or str(error)
            job.due = self._monotonic() + pause * (0.5 + self._jitter() / 2)
            self._changed.notify_all()
