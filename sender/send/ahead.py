"""Several blocks of one file on their way at once: one is read while others travel and are flushed.

Each block begins to travel when the one before it is out, so they arrive in order; the answers are
awaited in order, too. Only what was answered counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from threading import Event

from common.errors import TsferryError

__all__ = ["AHEAD", "BlocksAhead"]

AHEAD = 2
"""Blocks of one file on their way, where the receiver allows it."""


@dataclass(frozen=True, slots=True)
class _OnTheWay:
    end: int
    size: int
    answer: Future[int]


@dataclass
class BlocksAhead:
    """Sends blocks by threads of a pool.

    Attributes:
        pool: carries out the requests.
        send: (offset, block, call when the body is out) -> the offset that was answered.
    """

    pool: Executor
    send: Callable[[int, bytes, Callable[[], None]], int]
    _sent: deque[_OnTheWay] = field(default_factory=deque, init=False)
    _out: Event | None = field(default=None, init=False)

    @property
    def full(self) -> bool:
        """Whether an answer has to come before the next block may go."""
        return len(self._sent) >= AHEAD

    def __bool__(self) -> bool:
        return bool(self._sent)

    def put(self, offset: int, block: bytes) -> None:
        """Send one more, as soon as the body of the last one is out."""
        if self._out is not None:
            self._out.wait()
        out = self._out = Event()
        answer = self.pool.submit(self.send, offset, block, out.set)
        answer.add_done_callback(lambda _: out.set())
        self._sent.append(_OnTheWay(offset + len(block), len(block), answer))

    def next(self) -> tuple[int, int, int]:
        """The answer to the oldest: the offset that was answered, that of its end, its bytes.

        Raises:
            TsferryError: it failed.
        """
        oldest = self._sent.popleft()
        return oldest.answer.result(), oldest.end, oldest.size

    def settle(self) -> None:
        """After a failure: wait until nothing is on its way any more, whatever came of it."""
        while self._sent:
            try:
                self._sent.popleft().answer.result()
            except TsferryError:
                continue
