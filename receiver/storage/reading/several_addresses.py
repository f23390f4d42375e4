"""Addresses of which one leads: a receiver and those that may take its place, asked in turn.

They are those that somebody has named. Where one that does not lead says that another does, its
word is no reason to carry a token there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import urlsplit

from common.config import is_loopback
from common.errors import NotTheWriterError, TsferryError, UnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Failover", "SlowAnswerError", "addresses_in", "checked_addresses"]

C = TypeVar("C")
T = TypeVar("T")

_ELSEWHERE = (NotTheWriterError, UnreachableError)
_SOON: Final = 4.0
"""Seconds without a byte of an answer, until the others are asked whether one of them leads: a
machine that hangs takes connections, and a minute is long where another one has taken its place."""


class SlowAnswerError(UnreachableError):
    """One has taken the connection and has not answered within the time that it was given."""


class Failover(Generic[C]):
    """Asks the one that answered last, or else the others in turn; any thread may ask."""

    def __init__(
        self,
        several: Sequence[C],
        elsewhere: tuple[type[Exception], ...] = _ELSEWHERE,
    ) -> None:
        """Begin with the first.

        Args:
            several: whoever may lead, one at least.
            elsewhere: what another one may say otherwise.
        """
        self._several = tuple(several)
        self._elsewhere = elsewhere
        self._at = 0
        self._soon = _SOON

    @property
    def current(self) -> C:
        """The one that answered last."""
        return self._several[self._at]

    @property
    def are_several(self) -> bool:
        """Whether there is another one."""
        return len(self._several) > 1

    def ask(self, call: Callable[[C], T]) -> T:
        """What the first one says that says something.

        Raises:
            Exception: as one refused it that another cannot answer for; or, of all, as the first
                that may say something else later, with the words of each. That comes before a *not
                the writer*, which one that has lost its place says for good while the next one is
                not there yet.
        """
        failures: dict[int, Exception] = {}
        first = self._at
        for step in range(len(self._several)):
            at = (first + step) % len(self._several)
            try:
                answer = call(self._several[at])
            except self._elsewhere as error:
                failures[at] = error
            else:
                self._at = at
                return answer
        raise self._of_all(failures)

    def ask_soon(self, call: Callable[[C, float | None], T]) -> T:
        """The same, of a question that may be asked twice: who does not answer soon is passed over.

        Where no other one leads it is asked once more, and waited for as long as it takes. If it
        answers then, it is slow and does not hang, and gets more time from the next call on.

        Args:
            call: asks one, which has so many seconds for each piece of its answer; None for as many
                as it ever has. It raises `SlowAnswerError` for one that takes longer.

        Raises:
            Exception: as `ask`.
        """
        if not self.are_several:
            return call(self.current, None)
        failures: dict[int, Exception] = {}

        def soon(one: C) -> T:
            try:
                return call(one, self._soon)
            except self._elsewhere as error:
                failures[self._several.index(one)] = error
                raise

        try:
            return self.ask(soon)
        except self._elsewhere:
            slow = [at for at, each in failures.items() if isinstance(each, SlowAnswerError)]
            if not slow:
                raise
        answer = self._ask_at_length(slow, failures, call)
        self._soon *= 2
        return answer

    def _ask_at_length(
        self,
        slow: Sequence[int],
        failures: dict[int, Exception],
        call: Callable[[C, float | None], T],
    ) -> T:
        for at in slow:
            try:
                answer = call(self._several[at], None)
            except self._elsewhere as error:
                failures[at] = error
            else:
                self._at = at
                return answer
        raise self._of_all(failures)

    def _of_all(self, failures: Mapping[int, Exception]) -> Exception:
        """What is raised where none says anything: of one that counts, with the words of all."""
        every = failures.values()
        found = next(filter(_may_pass, every), next(iter(every)))
        if len(failures) == 1 or not isinstance(found, TsferryError):
            return found
        said = [_with_name(self._several[at], failures[at]) for at in sorted(failures)]
        made = type(found)("; ".join(said), retry_after=found.retry_after, extra=found.extra)
        made.__cause__ = found
        return made


def _with_name(one: object, error: Exception) -> str:
    """The words of one, with where it is if they do not say it."""
    where, said = one if isinstance(one, str) else getattr(one, "url", None), str(error)
    return said if where is None or where in said else f"{where}: {said}"


def _may_pass(error: Exception) -> bool:
    return bool(getattr(error, "retry", False))


def addresses_in(text: str) -> tuple[str, ...]:
    """The addresses that a text names, with commas between them, each without its last slash."""
    return tuple(each.strip().rstrip("/") for each in text.split(",") if each.strip())


def checked_addresses(text: str, what: str, *, with_token: bool) -> tuple[str, ...]:
    """The addresses that a text names, for calls to whichever of them leads.

    Args:
        text: one, or several with commas between them.
        what: names it in messages.
        with_token: whether a token goes there.

    Raises:
        UsageError: there is none, one is no URL, or the token would travel where others can read
            it.
    """
    found = addresses_in(text)
    if not found:
        raise UsageError(f"{what} = {text!r}: expected an address, or several with commas")
    for each in found:
        try:
            parts = urlsplit(each)
        except ValueError as error:
            raise UsageError(f"{what} = {each!r}: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{what} = {each!r}: expected https://HOST:PORT, or http://")
        if with_token and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise UsageError(
                f"{what} = {each!r}: expected https, since others can read a token on http"
            )
    return found
