"""Blocks of one upload that arrive by several connections, given to workers in order.

On a long line one connection carries little, so a sender lets several blocks of a file travel at
once, each by a connection of its own. They arrive in any order and count in one only: a block that
is here waits, without a thread, while one before it is still arriving, or while as many as are of
use are being worked on.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Block", "InOrder"]

_AT_ONCE = 3
"""Blocks of one upload with workers: one is written while those before it are flushed."""


@dataclass(frozen=True, slots=True)
class Block:
    """Which bytes a request brings of which upload.

    Attributes:
        upload: its path.
        offset: of the first of them.
        end: behind the last.
    """

    upload: str
    offset: int
    end: int


class _Request(Protocol):
    block: Block | None


class _Connection(Protocol):
    @property
    def request(self) -> _Request | None:
        """What is arriving."""

    @property
    def requests(self) -> Sequence[_Request]:
        """What is here whole."""


class InOrder:
    """The blocks that wait. `ready` belongs to the loop, the rest to any thread."""

    def __init__(self) -> None:
        self._arrived: deque[_Connection] = deque()
        self._done: deque[str] = deque()
        self._waiting: list[_Connection] = []
        self._working: Counter[str] = Counter()

    def arrived(self, channel: _Connection) -> None:
        """A connection's next request is a block, and it is here whole."""
        self._arrived.append(channel)

    def done(self, upload: str) -> None:
        """A worker is done with a block of an upload."""
        self._done.append(upload)

    def ready(self, channels: Iterable[_Connection]) -> list[_Connection]:
        """Those whose block is to be worked on now.

        Args:
            channels: all connections; by some of them blocks are arriving.
        """
        while self._done:
            upload = self._done.popleft()
            self._working[upload] -= 1
            if not self._working[upload]:
                del self._working[upload]
        while self._arrived:
            self._waiting.append(self._arrived.popleft())
        return self._choose(_arriving(channels)) if self._waiting else []

    def _choose(self, arriving: dict[str, list[_Request]]) -> list[_Connection]:
        chosen: list[_Connection] = []
        held: dict[str, list[_Connection]] = defaultdict(list)
        for channel in sorted(self._waiting, key=_offset):
            block = channel.requests[0].block
            assert block is not None
            before = any(
                each.block is not None and each.block.offset < block.offset
                for each in arriving[block.upload]
            )
            if before or held[block.upload] or self._working[block.upload] >= _AT_ONCE:
                held[block.upload].append(channel)
                continue
            chosen.append(channel)
            self._working[block.upload] += 1
            for each in arriving[block.upload]:
                # What begins before the end of this one comes by a connection that was given up.
                if each.block is not None and each.block.offset < block.end:
                    each.block = None
        self._waiting = [channel for channels in held.values() for channel in channels]
        return chosen


def _arriving(channels: Iterable[_Connection]) -> dict[str, list[_Request]]:
    found: dict[str, list[_Request]] = defaultdict(list)
    for channel in channels:
        if channel.request is not None and channel.request.block is not None:
            found[channel.request.block.upload].append(channel.request)
    return found


def _offset(channel: _Connection) -> int:
    block = channel.requests[0].block
    return block.offset if block is not None else 0
