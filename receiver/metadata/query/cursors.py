"""Cursors: answers that are fetched page by page by somebody far away.

A page is asked for by a token, and each page has the token of the next. The same token may be used
again until that next one is used, and gives the same rows: so a page whose way back was lost is
asked for once more, and nothing is skipped. What nobody asks about any more is forgotten after a
while, and there are never more cursors than a bound: then the one that rested longest goes.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from common.errors import GoneError
from common.text_numbers import whole_number
from receiver.metadata.query.answers import Answer, AnswerPlace
from receiver.metadata.query.row_source import Row

__all__ = ["AnswerPage", "Cursors"]

MOST: Final = 1000
IDLE: Final = 600.0
"""Seconds without a call, until a cursor is forgotten."""


class AnswerPage(NamedTuple):
    """A page of an answer.

    Attributes:
        rows: of it.
        next: token of the next page, None at the end.
    """

    rows: list[Row]
    next: str | None


@dataclass
class _Cursor:
    """An answer that goes on.

    Attributes:
        id: the part of its tokens that stays.
        answer: what is fetched from, by one thread at a time.
        size: rows of a page.
        number: of the page that was given last.
        begin: where that one began.
        used: when it was asked for.
        busy: held while a page is made.
    """

    id: str
    answer: Answer
    size: int
    number: int
    begin: AnswerPlace
    used: float
    busy: threading.Lock = field(default_factory=threading.Lock)


class Cursors:
    """The cursors of a server, for all threads.

    Args:
        clock: seconds that only grow.
        most: cursors at a time.
        idle: seconds without a call, until a cursor is forgotten.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        most: int = MOST,
        idle: float = IDLE,
    ) -> None:
        self._clock = clock
        self._most = most
        self._idle = idle
        self._lock = threading.Lock()
        self._cursors: OrderedDict[str, _Cursor] = OrderedDict()

    def __len__(self) -> int:
        return len(self._cursors)

    def open(self, answer: Answer, size: int) -> AnswerPage:
        """The first page of an answer; there is a cursor only if there is more.

        Raises:
            HistoryGoneError, NotATagError: of the question.
        """
        begin = answer.place
        rows = answer.fetch(size)
        if answer.place.ended:
            return AnswerPage(rows, None)
        cursor = _Cursor(secrets.token_hex(16), answer, size, 0, begin, self._clock())
        with self._lock:
            self._expire()
            while len(self._cursors) >= self._most:
                self._cursors.popitem(last=False)
            self._cursors[cursor.id] = cursor
        return AnswerPage(rows, _token(cursor))

    def next(self, token: str, size: int | None = None) -> tuple[Answer, AnswerPage]:
        """The answer and the page of it that a token stands for.

        Args:
            token: `next` of the page before.
            size: rows of this page and those that follow, where it is not as before.

        Raises:
            GoneError: the cursor was closed or forgotten, or has gone on beyond this page.
            HistoryGoneError: history does not reach back to its commit any more.
        """
        name, number = _split(token)
        cursor = self._used(name)
        with cursor.busy:
            if number == cursor.number + 1:
                cursor.number, cursor.begin = number, cursor.answer.place
            elif number == cursor.number and number:
                cursor.answer.place = cursor.begin
            else:
                raise GoneError("the cursor has gone on beyond this page; ask anew")
            cursor.size = size or cursor.size
            rows = cursor.answer.fetch(cursor.size)
            more = not cursor.answer.place.ended
            return cursor.answer, AnswerPage(rows, _token(cursor) if more else None)

    def close(self, token: str) -> None:
        """Forget a cursor; one that is not there is forgotten already."""
        with self._lock:
            self._cursors.pop(_split(token)[0], None)

    def _used(self, name: str) -> _Cursor:
        with self._lock:
            self._expire()
            cursor = self._cursors.get(name)
            if cursor is None:
                raise GoneError(
                    "there is no such cursor (any more): it was closed, or not used for "
                    f"{self._idle:.0f} seconds; ask anew"
                )
            cursor.used = self._clock()
            self._cursors.move_to_end(name)
            return cursor

    def _expire(self) -> None:
        oldest = self._clock() - self._idle
        while self._cursors:
            name, cursor = next(iter(self._cursors.items()))
            if cursor.used > oldest:
                return
            del self._cursors[name]


def _token(cursor: _Cursor) -> str:
    return f"{cursor.id}-{cursor.number + 1}"


def _split(token: str) -> tuple[str, int]:
    name, _, number = token.partition("-")
    found = whole_number(number)
    if found is None:
        raise GoneError("this is no cursor")
    return name, found
