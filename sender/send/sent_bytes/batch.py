"""Many small files in one request; one that fails costs its own place, not the others'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from common import crash, wire
from common.digests import md5, xxh3_64
from common.errors import (
    CloneError,
    DigestError,
    ForbiddenError,
    GoneError,
    NoSpaceError,
    NotATsFileError,
    NotFoundError,
    NotTheWriterError,
    ProtocolError,
    StoppedError,
    TsferryError,
    UnauthorizedError,
    UnreachableError,
)
from sender.send.connection.backoff import retry_helps
from sender.send.sent_bytes.upload import ChangedWhileSentError, Content, ReceivedFile
from sender.send.task_calls import TaskCalls

__all__ = ["BatchSender", "SendOutcome"]

_MAX_FILES = 256
"""Of one request: what fits a receiver's patience for syncing each of them to disk."""
_HEADER_ROOM = wire.MAX_BATCH_HEADER + 4
_SMALLEST = 1 << 16

CONCERNS_ALL = (
    UnauthorizedError,
    ForbiddenError,
    CloneError,
    GoneError,
    NotFoundError,
    NotTheWriterError,
)
"""Refusals of a request that no other file would fare better with."""

SendOutcome = ReceivedFile | TsferryError | ChangedWhileSentError


@dataclass
class BatchSender:
    """Sends files in batches and says of each what became of it.

    Attributes:
        calls: of the task they belong to; each file has its own count of failures.
        body_bytes: of one request, at most.
    """

    calls: TaskCalls
    body_bytes: int
    _failures: dict[str, int] = field(default_factory=dict, init=False)
    _alone: set[str] = field(default_factory=set, init=False)
    _is_full: bool = field(default=False, init=False)

    def run(self, contents: Sequence[Content]) -> Iterator[tuple[Content, SendOutcome]]:
        """Send the files; yields each once, as soon as its fate is known.

        Raises:
            StoppedError: told to stop.
        """
        pending = list(contents)
        limit = self.body_bytes
        while pending:
            if self.calls.stop():
                raise StoppedError("told to stop")
            chosen = self._choose(pending, self.calls.client.bandwidth.block(limit))
            del pending[: len(chosen)]
            again: list[Content] = []
            failed: list[Content] = []
            failure: TsferryError | None = None
            fewer = _half_of(chosen)
            for content, outcome in self._results(chosen):
                if fewer and isinstance(outcome, NoSpaceError):  # some of them may find room
                    limit = fewer
                    again.append(content)
                elif isinstance(outcome, TsferryError) and self._try_again(content, outcome):
                    failure = outcome
                    again.append(content)
                    failed.append(content)
                elif content.path in self._alone and len(chosen) > 1:
                    again.append(content)
                else:
                    yield content, outcome
            pending[:0] = again
            if failure is not None:
                if isinstance(failure, UnreachableError):
                    limit = max(_SMALLEST, limit // 2)
                self._pause(failed, failure)

    def _results(self, chosen: Sequence[Content]) -> Iterator[tuple[Content, SendOutcome]]:
        """The fate of each file; a failure of the request is a failure of each of its files."""
        try:
            yield from self._request(chosen)
        except (StoppedError, *CONCERNS_ALL):
            raise
        except TsferryError as error:
            # Which of them the receiver could not stand is seen when each comes alone.
            if not retry_helps(error) and len(chosen) > 1:
                self._alone.update(content.path for content in chosen)
            yield from ((content, error) for content in chosen)

    def _choose(self, pending: Sequence[Content], limit: int) -> list[Content]:
        """The next files that fit into a body of `limit` bytes; always at least one."""
        chosen: list[Content] = []
        used = 0
        for content in pending[:_MAX_FILES]:
            used += content.size + _HEADER_ROOM
            alone = content.path in self._alone
            if chosen and (used > limit or alone):
                break
            chosen.append(content)
            if alone:
                break
        return chosen

    def _request(self, chosen: Sequence[Content]) -> list[tuple[Content, SendOutcome]]:
        """One request, and the receiver's word on each file."""
        fates: list[tuple[Content, SendOutcome]] = []
        packed: list[tuple[Content, wire.BatchEntry, bytes]] = []
        for content in chosen:
            data = content.read(0, content.size)
            if len(data) != content.size or not content.unchanged():
                fates.append((content, ChangedWhileSentError(content.path)))
                continue
            digests = {"md5": md5(data).hexdigest(), "xxh3": xxh3_64(data)}
            entry = wire.BatchEntry(path=content.path, size=content.size, **digests)
            packed.append((content, entry, data))
        if not packed:
            return fates
        crash.point("batch.before")
        body = wire.encode_batch((entry, data) for _, entry, data in packed)
        answer = self.calls.batch(body)
        results = self._matched(answer, [entry for _, entry, _ in packed])
        crash.point("batch.acknowledged")
        arrived = 0
        for (content, entry, _), result in zip(packed, results, strict=True):
            fate = self._outcome(entry, result)
            arrived += fate.sent if isinstance(fate, ReceivedFile) else 0
            fates.append((content, fate))
        self.calls.sent(arrived)
        return fates

    @staticmethod
    def _matched(
        answer: wire.BatchAnswer, entries: Sequence[wire.BatchEntry]
    ) -> list[wire.BatchResult]:
        if [result.path for result in answer.results] != [entry.path for entry in entries]:
            raise ProtocolError("the receiver answers a batch with other files than were sent")
        return answer.results

    @staticmethod
    def _outcome(entry: wire.BatchEntry, result: wire.BatchResult) -> SendOutcome:
        if result.problem is None and not result.quarantined:
            return ReceivedFile(entry.md5, entry.size, None)
        problem = result.problem or wire.Problem(detail="quarantined")
        error = wire.from_problem(problem)
        if result.quarantined and not isinstance(error, NotATsFileError):
            return NotATsFileError(error.message, extra=error.extra)
        return error

    def _try_again(self, content: Content, error: TsferryError) -> bool:
        if not retry_helps(error) and not isinstance(error, DigestError):
            return False
        is_cramped = isinstance(error, NoSpaceError)
        if is_cramped and self._is_full:  # others have waited for room long enough
            return False
        failures = self._failures.get(content.path, 0) + 1
        self._failures[content.path] = failures
        if failures <= self.calls.tries.retries:
            return True
        self._is_full = self._is_full or is_cramped
        return False

    def _pause(self, failed: Sequence[Content], error: TsferryError) -> None:
        failures = max(self._failures[content.path] for content in failed)
        what = failed[0].path if len(failed) == 1 else f"{len(failed)} files"
        self.calls.pause(what, failures, error)


def _half_of(chosen: Sequence[Content]) -> int:
    """Bytes of a body that holds fewer of some files, half of them perhaps; 0 for no such body."""
    used = sum(content.size + _HEADER_ROOM for content in chosen)
    return max(_SMALLEST, used // 2) if len(chosen) > 1 and used > _SMALLEST else 0
