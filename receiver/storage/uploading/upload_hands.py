"""Several threads bring files, each until no more is due; one takes what they brought together.

They do not wait for it, nor does it wake for each file: of a small one that would be a good part of
what it costs.
"""

from __future__ import annotations

import threading
from concurrent.futures import wait
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Executor, Future

__all__ = ["UploadHands"]

_Item = TypeVar("_Item")


class UploadHands(Generic[_Item]):
    """One run of them."""

    def __init__(self) -> None:
        """Prepare; nothing is brought yet."""
        self._changed = threading.Condition()
        self._come: list[_Item] = []
        self._most = 1
        self._at_work = 0
        self._is_halted = False

    def add(self, item: _Item) -> None:
        """Called by a thread that brought something."""
        with self._changed:
            self._come.append(item)
            if len(self._come) >= self._most:
                self._changed.notify()

    def halt(self) -> None:
        """Begin no other file; what is under way comes to its end."""
        self._is_halted = True

    def batches(
        self,
        pool: Executor,
        count: int,
        bring: Callable[[], bool],
        *,
        most: int,
        seconds: float,
    ) -> Generator[list[_Item]]:
        """What they bring, until all have ended; a batch may be empty.

        Args:
            pool: has room for so many threads.
            count: of threads.
            bring: brings one more; False if there is none.
            most: items that are waited for.
            seconds: that they are waited for.

        Raises:
            BaseException: what `bring` raised, when all have ended; nothing is given behind it.
        """
        self._most, self._at_work = most, count
        hands: list[Future[None]] = [pool.submit(self._work, bring) for _ in range(count)]
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(self._is_enough, seconds)
                    come, is_over = self._come, not self._at_work
                    self._come = []
                if is_over:
                    for each in hands:
                        each.result()
                yield come
                if is_over:
                    return
        finally:
            self.halt()
            wait(hands)

    def _is_enough(self) -> bool:
        return len(self._come) >= self._most or not self._at_work

    def _work(self, bring: Callable[[], bool]) -> None:
        try:
            while not self._is_halted and bring():
                pass
        except BaseException:
            self.halt()
            raise
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify()
