"""The threads of the copies: each does one thing again and again, and says what is in its way.

Who fails is tried again after a pause, which grows. Who finds that another receiver has taken over
ends all of them for good.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from common.errors import StoppedError, TsferryError
from common.threads import join_begun
from receiver.metadata.model.errors import FencedError
from receiver.storage.stores.store_trouble import StoreTrouble, trouble_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["CopyJobs"]

log = logging.getLogger(__name__)

_SOONEST, _LATEST = 0.5, 30.0
"""Seconds that a store which failed is left alone, doubled each time, if it does not say more."""


class CopyJobs:
    """Jobs by their names, from `start` to `close`.

    Attributes:
        stop: set when they are to end.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Prepare; names of jobs that are never started do no harm."""
        self.stop = threading.Event()
        self._fenced = threading.Event()
        self._troubles: dict[str, StoreTrouble] = {}
        self._wakes = {name: threading.Event() for name in names}
        self._threads: list[threading.Thread] = []

    def start(self, jobs: Mapping[str, Callable[[], float]]) -> None:
        """Begin; each job says for how many seconds it rests when it is done."""
        for name, job in jobs.items():
            thread = threading.Thread(target=self._keep_doing, args=(name, job), name=name)
            self._threads.append(thread)
            thread.start()

    def halt(self) -> None:
        """Tell all of them to end."""
        self.stop.set()
        self.hurry(*self._wakes)

    def join(self) -> None:
        """Wait until they have."""
        for thread in self._threads:
            join_begun(thread)

    def hurry(self, *names: str) -> None:
        """Have jobs go on now, but for those that something is in the way of."""
        for name in names:
            self._wakes[name].set()

    def tell_of(self, name: str, trouble: StoreTrouble | None) -> None:
        """Something is in the way that no error says, or is no more."""
        if trouble is None:
            self._troubles.pop(name, None)
        else:
            self._troubles[name] = trouble

    @property
    def is_fenced(self) -> bool:
        """Whether another receiver has taken over."""
        return self._fenced.is_set()

    def trouble(self) -> StoreTrouble | None:
        """What is in the way, None if nothing is."""
        return next(iter(dict(self._troubles).values()), None)

    def go_on(self) -> None:
        """Nothing, as long as nobody said `halt`.

        Raises:
            StoppedError: somebody did.
        """
        if self.stop.is_set():
            raise StoppedError("told to stop")

    def _keep_doing(self, name: str, job: Callable[[], float]) -> None:
        pause, patience, wake = 0.0, _SOONEST, self._wakes[name]
        while not self._fenced.is_set():
            # Who has failed is left alone for its pause, whoever is in a hurry.
            (self.stop if name in self._troubles else wake).wait(pause)
            wake.clear()
            if self.stop.is_set():
                return
            try:
                pause, patience = job(), _SOONEST
                self._troubles.pop(name, None)
                continue
            except StoppedError:
                return
            except FencedError as error:
                self._troubles = {name: trouble_of(error)}  # nothing else is of weight any more
                self._fenced.set()
                log.error("this receiver was replaced; it copies nothing any more")
            except (TsferryError, OSError) as error:
                trouble = trouble_of(error)
                if self._troubles.get(name) != trouble:
                    log.warning("copies have to wait", extra={"job": name, "error": trouble.text})
                self._troubles[name] = trouble
                pause = max(patience, getattr(error, "retry_after", None) or 0.0)
            except Exception as error:
                self._troubles[name] = trouble_of(error)
                log.exception("copying failed")
                pause = patience
            patience = min(2 * patience, _LATEST)
