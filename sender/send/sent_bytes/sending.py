"""The bytes of a task: several files at once, small ones together, one failure not another's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace

import msgspec

from common import wire
from common.errors import (
    CloneError,
    DigestError,
    GoneError,
    NotFoundError,
    NotTheWriterError,
    ReadOnlyError,
    StoppedError,
    TsferryError,
    UnauthorizedError,
    UnreachableError,
    UnsafePathError,
)
from sender.config import TransferConfig
from sender.kept.loaded_list.snapshot import Snapshot
from sender.send.calls import UploadState
from sender.send.sent_bytes.ahead import AHEAD, MOST_AHEAD
from sender.send.sent_bytes.batch import BatchSender
from sender.send.sent_bytes.content import (
    OpenFile,
    Prepared,
    SmallFile,
    opened,
    opened_resource,
    small_file,
    small_resource,
)
from sender.send.sent_bytes.node_sending import NodeOffer, NodeSending
from sender.send.sent_bytes.progress import Meter
from sender.send.sent_bytes.upload import ChangedWhileSentError, ReceivedFile, TusUpload
from sender.send.task_calls import TaskCalls

__all__ = ["Fate", "SendJob", "Sending"]

_UNIT_FILES = 200
_TOGETHER = 16 << 20
"""Bytes in one block, or one batch, of each file that is on its way: what is held of many at once
stays what it is of one."""
_ENDS_ALL = (
    UnauthorizedError,
    CloneError,
    GoneError,
    NotFoundError,
    NotTheWriterError,
    ReadOnlyError,
    StoppedError,
)
"""After one of these no file of this task would fare better."""


class SendJob(msgspec.Struct, frozen=True):
    """A file to send.

    Attributes:
        prepared: the file.
        file: whether its bytes are wanted.
        resource: whether those of its resource are.
        begin: a partial upload to go on with.
        offer: a storage node that its bytes may go to.
    """

    prepared: Prepared
    file: bool = True
    resource: bool = False
    begin: UploadState | None = None
    offer: NodeOffer | None = None

    @property
    def path(self) -> str:
        """As it stands on the wire."""
        return self.prepared.entry.path


Fate = ReceivedFile | TsferryError | ChangedWhileSentError
"""What became of a file; of a file whose resource alone was wanted, what became of that."""
_Fates = tuple[list[tuple[SendJob, Fate]], TsferryError | None]
"""Of the files of a unit, and what ended it early."""
_Future = Future[_Fates]


@dataclass
class Sending:
    """Sends the files of one task.

    Attributes:
        calls: of the task.
        snapshot: holds the files.
        config: how files travel.
        limits: of the receiver.
        meter: hears of progress.
        ask: whether the receiver has a planned file whole by now.
        by_nodes: sends files by storage nodes, where that may be.
    """

    calls: TaskCalls
    snapshot: Snapshot
    config: TransferConfig
    limits: wire.Limits
    meter: Meter
    ask: Callable[[Prepared], bool]
    by_nodes: NodeSending | None = None

    def __post_init__(self) -> None:
        self._halt = threading.Event()
        self._pool: ThreadPoolExecutor | None = None
        self._most_ahead = 1
        self._workers = 1
        self._told_to_stop = self.calls.stop
        tries = msgspec.structs.replace(self.calls.tries, sleep=self._pause)
        self.calls = replace(self.calls, tries=tries, stop=self._stopped)
        if self.by_nodes is not None:
            self.by_nodes = replace(self.by_nodes, calls=self.calls)

    def run(self, jobs: Sequence[SendJob]) -> Generator[list[tuple[SendJob, Fate]]]:
        """Send all; yields each job once, with what became of it, a few at a time.

        Whoever leaves it early closes it by name: it waits for its threads then, and an interrupt
        of a wait in a finaliser would reach nobody.

        Raises:
            TsferryError: nothing more can be sent in this task: the receiver is out of reach or
                refuses us, or the process is to stop. What was yielded stays true.
        """
        units = list(self._units(jobs))
        if not units:
            return
        workers = self._workers = min(self.config.parallel, len(units))
        # A file that travels alone may use the connections that several would share.
        most = min(self.limits.blocks_ahead, MOST_AHEAD)
        self._most_ahead = max(min(AHEAD, most), most // workers)
        with (
            # One more than there are blocks on their way: it digests the one that goes next.
            ThreadPoolExecutor((self._most_ahead + 1) * workers, "block") as blocks,
            ThreadPoolExecutor(workers, "send") as pool,
        ):
            self._pool = blocks if self._most_ahead > 1 else None
            futures = [pool.submit(self._unit, unit) for unit in units]
            failure: TsferryError | None = None
            try:
                for future in as_completed(futures):
                    fates, failed = self._result(future)
                    yield fates
                    failure = failure or failed or self._lost(fates)
                    if failure is not None:
                        self._give_up(futures)
            finally:
                self._give_up(futures)
        if failure is not None:
            raise failure

    @staticmethod
    def _result(future: _Future) -> _Fates:
        return ([], None) if future.cancelled() else future.result()

    def _give_up(self, futures: Sequence[_Future]) -> None:
        self._halt.set()
        for future in futures:
            future.cancel()

    def _lost(self, fates: Sequence[tuple[SendJob, Fate]]) -> TsferryError | None:
        """After a file was given up for want of a connection: is there any connection?"""
        if not any(isinstance(fate, UnreachableError) for _, fate in fates):
            return None
        try:
            self.calls.client.task(self.calls.task)
        except (UnreachableError, *_ENDS_ALL) as error:
            return error
        except TsferryError:
            return None
        return None

    def _pause(self, seconds: float) -> bool:
        """Sleep in short steps; True when nothing more is to be sent."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._halt.is_set() or self._told_to_stop():
                return True
            if self._halt.wait(min(left, 0.25)):
                return True
        return self._stopped()

    def _stopped(self) -> bool:
        return self._halt.is_set() or self._told_to_stop()

    # -- units of work ---------------------------------------------------------------------

    def _units(self, jobs: Sequence[SendJob]) -> Iterator[list[SendJob]]:
        """Large files alone, the largest first; small ones in requests' worth."""
        large = [job for job in jobs if not self._small(job)]
        for job in sorted(large, key=lambda each: -each.prepared.entry.size):
            yield [job]
        unit: list[SendJob] = []
        size = 0
        for job in jobs:
            if not self._small(job):
                continue
            if unit and (size + _size(job) > self._body_bytes or len(unit) >= _UNIT_FILES):
                yield unit
                unit, size = [], 0
            unit.append(job)
            size += _size(job)
        if unit:
            yield unit

    @property
    def _body_bytes(self) -> int:
        shared = min(self.config.chunk_bytes, _TOGETHER // self.config.parallel)
        return min(self.limits.max_batch_bytes, max(shared, self.config.batch_bytes))

    @property
    def _block_bytes(self) -> int:
        shared = min(self.config.chunk_bytes, _TOGETHER // self._workers)
        return min(self.limits.max_chunk_bytes, shared)

    def _small(self, job: SendJob) -> bool:
        entry = job.prepared.entry
        sizes = [entry.size] if job.file else []
        sizes += [entry.resource.size] if job.resource and entry.resource else []
        return job.begin is None and all(size <= self._batch_room for size in sizes)

    @property
    def _batch_room(self) -> int:
        """Bytes of the largest file that fits into a batch alone, and is meant to be in one."""
        frame = wire.MAX_BATCH_HEADER + 9
        return min(self.config.batch_bytes, self.limits.max_batch_bytes - frame)

    def _unit(self, jobs: list[SendJob]) -> _Fates:
        """Carry out a unit in a thread of its own; its fates, and what ended it early."""
        fates: list[tuple[SendJob, Fate]] = []
        try:
            send = self._together if self._small(jobs[0]) else self._alone
            for each in send(jobs):
                fates.append(each)
        except TsferryError as error:
            return fates, error
        finally:
            self.meter.done(len(fates))
            for job, fate in fates:
                if isinstance(fate, ReceivedFile):
                    entry = job.prepared.entry
                    self.meter.happened("sent", file=str(entry.path), bytes=entry.size)
        return fates, None

    def _together(self, jobs: list[SendJob]) -> Iterator[tuple[SendJob, Fate]]:
        """Small files and their resources, in one batch after the other."""
        contents: list[SmallFile] = []
        found: dict[str, Fate] = {}
        with self.snapshot.staying() as snapshot:
            for job in jobs:
                if job.file:
                    contents.append(small_file(snapshot, job.prepared))
                if job.resource:
                    contents.append(small_resource(snapshot, job.prepared))
            for content, outcome in self._batches().run(contents):
                found[content.path] = outcome
        for job in jobs:
            yield job, _joined(job, found)

    def _batches(self) -> BatchSender:
        return BatchSender(self.calls, self._body_bytes)

    def _alone(self, jobs: list[SendJob]) -> Iterator[tuple[SendJob, Fate]]:
        """A large file in blocks, then its resource."""
        for job in jobs:
            fate: Fate | None = None
            try:
                if job.file:
                    with opened(self.snapshot, job.prepared) as content:
                        fate = self._upload(job, content)
                if job.resource and (fate is None or isinstance(fate, ReceivedFile)):
                    beside = self._resource(job)
                    fate = beside if fate is None or not isinstance(beside, ReceivedFile) else fate
            except (OSError, UnsafePathError) as error:
                fate = ChangedWhileSentError(f"cannot be read: {error}")
            assert fate is not None, job
            yield job, fate

    def _resource(self, job: SendJob) -> Fate:
        """The resource of a large file: one request if it is small, as most are."""
        entry = job.prepared.entry.resource
        assert entry is not None
        if entry.size <= self._batch_room:
            content = small_resource(self.snapshot, job.prepared)
            return next(iter(self._batches().run([content])))[1]
        with opened_resource(self.snapshot, job.prepared) as large:
            return self._upload(job, large)

    def _upload(self, job: SendJob, content: OpenFile) -> Fate:
        try:
            if self.by_nodes is not None and job.offer is not None and content.path == job.path:
                return self._by_node(job, content, job.offer, self.by_nodes)
            begin = job.begin if content.path == job.path else None
            return self._tus(job, content, self.calls, begin).run()
        except ChangedWhileSentError as change:
            return change
        except TsferryError as error:
            if isinstance(error, _ENDS_ALL):
                raise
            return error

    def _by_node(
        self, job: SendJob, content: OpenFile, offer: NodeOffer, nodes: NodeSending
    ) -> ReceivedFile:
        """By a node, or, if none is of use, to the receiver after all."""
        found = nodes.send(
            job.prepared,
            content,
            offer,
            job.begin,
            lambda calls, begin: self._tus(job, content, calls, begin),
        )
        if isinstance(found, ReceivedFile):
            return found
        try:
            return self._tus(job, content, self.calls, found).run()
        except DigestError:
            if found is None:
                raise
            # What it had read from a node was not what this sender has.
            return self._tus(job, content, self.calls, None).run()

    def _tus(
        self, job: SendJob, content: OpenFile, calls: TaskCalls, begin: UploadState | None
    ) -> TusUpload:
        asks = content.path == job.path
        return TusUpload(
            calls,
            content,
            self._block_bytes,
            begin,
            (lambda: self.ask(job.prepared)) if asks and calls is self.calls else (lambda: False),
            self._pool,
            self._most_ahead,
            job.prepared.entry.md5 if asks else None,
        )


def _size(job: SendJob) -> int:
    entry = job.prepared.entry
    resource = entry.resource.size if job.resource and entry.resource else 0
    return (entry.size if job.file else 0) + resource + 2 * (wire.MAX_BATCH_HEADER + 4)


def _joined(job: SendJob, found: dict[str, Fate]) -> Fate:
    """The fate of a file with its resource: it is received when both are."""
    received: ReceivedFile | None = None
    for path in (job.path, job.prepared.addition.path.resource.text):
        fate = found.get(path)
        if fate is None:
            continue
        if not isinstance(fate, ReceivedFile):
            return fate
        sent = fate.sent + (received.sent if received else 0)
        md5 = received.md5 if received else (fate.md5 if job.file else "")
        received = ReceivedFile(md5, sent, received.resumed if received else fate.resumed)
    assert received is not None, job.path
    return received
