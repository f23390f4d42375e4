"""Blocks of one upload that come at the same time: placed at once, digested and counted in order.

A block joins only where the one before it ends, so there is no order to be found out. While one is
digested the next is written, and the one before it flushed; what fails takes those behind it along,
never those before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from common.errors import BusyError, OffsetError

__all__ = ["BLOCKS_AHEAD", "Turn", "Turns"]

BLOCKS_AHEAD = 8
"""Blocks of one upload that a sender may have on their way: each lies in memory here."""
_OVERTAKING_S = 0.2
"""The threads of two blocks that came in order may get here in another."""


class Turns:
    """Who may do what with an upload. All calls are safe from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._alone = False
        self._calls = 0
        self._coming = 0
        """Where the last block that joined ends."""
        self._digested = 0
        self._counted = 0
        self._failed_at: int | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep everybody else away.

        Raises:
            BusyError: somebody is there.
        """
        with self._changed:
            if self._alone or self._calls:
                raise _busy()
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False

    @contextmanager
    def joined(self, here: Callable[[], int], offset: int, length: int) -> Iterator[Turn]:
        """Be the next block.

        Args:
            here: bytes that count; asked where nobody is writing.
            offset: where the block begins.
            length: of it.

        Raises:
            BusyError: others are there, and it is not the next of theirs.
            OffsetError: the block does not begin where the copy ends.
        """
        with self._changed:
            self._changed.wait_for(lambda: offset <= self._next(here), _OVERTAKING_S)
            if self._calls == 0:
                self._coming = self._digested = self._counted = here()
                self._failed_at = None
            elif offset != self._coming or self._failed_at is not None:
                raise _busy()
            if self._alone:
                raise _busy()
            if offset != self._coming:
                raise _elsewhere(self._counted)
            first = self._calls == 0
            self._calls += 1
            self._coming = offset + length
            self._changed.notify_all()
        try:
            yield Turn(self, offset, offset + length, first)
        except BaseException:
            with self._changed:
                failed_at = self._failed_at
                self._failed_at = offset if failed_at is None else min(offset, failed_at)
            raise
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def _next(self, here: Callable[[], int]) -> int:
        return self._coming if self._calls else here()

    def await_digest(self, turn: Turn) -> None:
        """Wait until all before a block is in the digest; `OffsetError` if that failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._digested == turn.begin or self._is_lost(turn))
            self._check(turn)

    def await_count(self, turn: Turn) -> None:
        """Wait until all before a block counts; `OffsetError` if that failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._counted == turn.begin or self._is_lost(turn))
            self._check(turn)

    def digested(self, turn: Turn) -> None:
        """A block is in the digest."""
        with self._changed:
            self._digested = turn.end
            self._changed.notify_all()

    def counted(self, turn: Turn) -> None:
        """A block counts."""
        with self._changed:
            self._counted = turn.end
            self._changed.notify_all()

    def _is_lost(self, turn: Turn) -> bool:
        return self._failed_at is not None and self._failed_at < turn.begin

    def _check(self, turn: Turn) -> None:
        if self._is_lost(turn):
            raise _elsewhere(self._counted)


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of one block.

    Attributes:
        turns: of the upload.
        begin: its offset.
        end: the offset behind it.
        first: nobody else was there when it came.
    """

    turns: Turns
    begin: int
    end: int
    first: bool

    @contextmanager
    def digesting(self) -> Iterator[None]:
        """Once all before it is in the digest.

        Raises:
            OffsetError: what was before it failed.
        """
        self.turns.await_digest(self)
        yield
        self.turns.digested(self)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Once all before it counts.

        Raises:
            OffsetError: what was before it failed.
        """
        self.turns.await_count(self)
        yield
        self.turns.counted(self)


def _busy() -> BusyError:
    return BusyError("another request is writing this upload", retry_after=1)


def _elsewhere(here: int) -> OffsetError:
    return OffsetError(
        f"the block does not begin where the copy ends, at {here}", extra={"offset": here}
    )
