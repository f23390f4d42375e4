"""Several blocks of one file on their way at once: one is read while others travel and are flushed.

On a quick line a block begins to travel when the one before it is out, so they arrive in order. On
a slow one it does not wait for that: several connections carry more than one does, by far on a
line that loses packets; the receiver puts in order what comes. The answers are awaited in order,
and only what was answered counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

import msgspec

from common.errors import TsferryError
from sender.send.connection.paced_body import Departure

__all__ = ["AHEAD", "MOST_AHEAD", "BlocksAhead"]

AHEAD = 3
"""Blocks of one file on their way on a quick line, where the receiver allows it."""
MOST_AHEAD = 8
"""Blocks of all files on their way on a slow one."""
_SLOW_S = 1.0
_PATIENCE_S = 60.0
"""For the head of a request: a connection is made, or the request fails, before that."""


class _OnTheWay(msgspec.Struct, frozen=True):
    end: int
    size: int
    answer: Future[int]


@dataclass
class BlocksAhead:
    """Sends blocks by threads of a pool.

    Attributes:
        pool: carries out the requests.
        send: (offset, block, how far its body has gone) -> the offset that was answered.
        most: blocks on their way on a slow line.
        slow: the line took more than a second for a block.
    """

    pool: Executor
    send: Callable[[int, bytes, Departure], int]
    most: int = AHEAD
    slow: bool = field(default=False, init=False)
    _sent: deque[_OnTheWay] = field(default_factory=deque, init=False)
    _last: Departure | None = field(default=None, init=False)

    @property
    def full(self) -> bool:
        """Whether an answer has to come before the next block may go."""
        return len(self._sent) >= (self.most if self.slow else min(AHEAD, self.most))

    def __bool__(self) -> bool:
        return bool(self._sent)

    def put(self, offset: int, block: bytes) -> None:
        """Send one more, as soon as the last one is out, or the line is known to be slow."""
        if self._last is not None:
            self._last.begun.wait(_PATIENCE_S)
            self.slow = self.slow or not self._last.out.wait(_SLOW_S)
        last = self._last = Departure()
        answer = self.pool.submit(self.send, offset, block, last)
        answer.add_done_callback(lambda _: last.over())
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
