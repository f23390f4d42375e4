"""What a node holds, told in time or not at all: a disk that hangs holds its locks as well."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from common.errors import Transient

if TYPE_CHECKING:
    from receiver.heartbeats.node_wire import ChangedTablets, HeldTablets, HoldsTablets

__all__ = ["PromptStore", "SilentStoreError"]

_PATIENCE: Final = 1.0
"""Seconds: a heartbeat without a report is better than none."""


class SilentStoreError(Transient):
    """What is held is not told in time: something waits for a disk."""

    slug = "silent-store"


class _Question:
    """Something that was asked, and is answered by a thread of its own."""

    def __init__(self, what: Callable[[], Any]) -> None:
        self._what = what
        self._answered = threading.Event()
        self._answer: Any = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="held", daemon=True).start()

    def _run(self) -> None:
        try:
            self._answer = self._what()
        except BaseException as error:
            self._error = error
        self._answered.set()

    def wait(self, seconds: float) -> Any:
        if not self._answered.wait(seconds):
            raise SilentStoreError("what is held is not told: something waits for a disk")
        if self._error is not None:
            raise self._error
        return self._answer


class PromptStore:
    """A store that never has anybody wait long; see `HoldsTablets`. For one thread."""

    def __init__(self, store: HoldsTablets, *, patience: float = _PATIENCE) -> None:
        """Ask nothing yet.

        Args:
            store: that is asked.
            patience: seconds that an answer may take.
        """
        self._store = store
        self._patience = patience
        self._open: tuple[tuple[object, ...], _Question] | None = None

    def held(self) -> HeldTablets:
        """See `HoldsTablets`.

        Raises:
            SilentStoreError: there is no answer in time.
        """
        found: HeldTablets = self._ask(("held",), self._store.held)
        return found

    def changed_since(self, sequence: int, most: int) -> ChangedTablets | None:
        """See `HoldsTablets`.

        Raises:
            SilentStoreError: there is no answer in time.
        """
        asked = ("changed", sequence, most)
        found: ChangedTablets | None = self._ask(
            asked, lambda: self._store.changed_since(sequence, most)
        )
        return found

    def notify(self, changed: Callable[[], None]) -> None:
        """See `HoldsTablets`."""
        self._store.notify(changed)

    def _ask(self, what: tuple[object, ...], how: Callable[[], Any]) -> Any:
        """Ask, or go on waiting for what was asked: no more than one question is ever open."""
        if self._open is None:
            self._open = what, _Question(how)
        asked, question = self._open
        answer = question.wait(self._patience)
        self._open = None
        return answer if asked == what else self._ask(what, how)
