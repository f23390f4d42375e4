"""The addresses of one receiver: at any time one of them answers, and the others stand by.

They are those of the configuration, in its order, from the one that answered last. What an answer
names as the place of another is no reason to carry a token there, so nobody is asked for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from common.errors import (
    BusyError,
    CloneError,
    NotTheWriterError,
    StoppedError,
    TsferryError,
    UnreachableError,
)
from sender.send.connection.backoff import retry_helps

__all__ = ["Addresses", "is_elsewhere"]

T = TypeVar("T")

_ITS_WORD = (StoppedError, CloneError, BusyError)
"""What only the one that is asked for says, or nobody: the others are not asked then."""


def is_elsewhere(error: TsferryError | None) -> bool:
    """Whether another address may answer by now, as nobody does here, or one that was fenced off.

    A receiver that finds out by a commit that it was says so in words of its own (503); asked once
    more, it says that it is none.
    """
    return isinstance(error, NotTheWriterError | UnreachableError)


class Addresses:
    """Those of one receiver; for the thread of its rounds.

    Attributes:
        now: the one that answered last; the first of the configuration, as long as none has.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        """Ask nobody.

        Args:
            urls: one at least.
        """
        self._urls = tuple(urls)
        self.now = self._urls[0]

    @property
    def are_several(self) -> bool:
        """Whether another one may take the place of this one."""
        return len(self._urls) > 1

    def prefer(self, url: str | None) -> None:
        """Begin with one that answered an earlier process, if it is still one of them."""
        if url in self._urls:
            self.now = url

    def asked(self, ask: Callable[[str], T]) -> T:
        """The answer of the first that gives one, from `now` on; it is `now` then.

        Raises:
            TsferryError: none did. What may pass comes before what may not: then it is worth
                another try.
        """
        at = self._urls.index(self.now)
        failures: list[TsferryError] = []
        for url in (*self._urls[at:], *self._urls[:at]):
            try:
                answer = ask(url)
            except _ITS_WORD:
                raise
            except TsferryError as error:
                failures.append(error)
            else:
                self.now = url
                return answer
        raise _of_all(failures)


def _of_all(failures: list[TsferryError]) -> TsferryError:
    """What is raised when no address answers: of the one that counts, with the words of all."""
    if len(failures) == 1:
        return failures[0]
    said = "; ".join(each.message for each in failures)
    if all(isinstance(each, NotTheWriterError) for each in failures):
        return UnreachableError(f"none of them is the receiver now, one will be: {said}")
    passing = next((each for each in failures if retry_helps(each)), None)
    first = passing or next(each for each in failures if not isinstance(each, NotTheWriterError))
    return type(first)(said, retry_after=first.retry_after, extra=first.extra)
