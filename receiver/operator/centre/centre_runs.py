"""Loads at the centre that are under way side by side: who is next, and what became of each.

Each has a thread. Many may be read, and wait for copies elsewhere, at once; files are copied in and
committed one load after the other, in the order in which the loads were begun.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from common.console.step_progress import HeardStep
from common.errors import BusyError, ConflictError, ReadOnlyError, Transient, TsferryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from receiver.load.folder.current_task import CurrentTask
    from receiver.operator.views.load_wire import CentreLoadAnswer, CentreLoadRequest

__all__ = ["LOOK_AGAIN", "CentreRuns", "LoadRun"]

log = logging.getLogger(__name__)

LOOK_AGAIN: Final = 0.1
"""Seconds between two looks at what a load waits for."""
_MOST: Final = 16
"""Loads that are under way at once, those that wait for copies elsewhere among them."""
_KEPT: Final = 8
"""Loads that are over whose answer is kept; of older ones the engine knows what it has to."""
_IN_LINE: Final = "waiting for its turn"


class LoadRun:
    """A load that is under way, for who does it and who asks about it.

    Attributes:
        request: what was asked for.
        at: when it was begun, seconds since the epoch.
        step: how far it is.
        found: what became of it; None as long as it is not over.
        current: its task, once that is handed to the loader.
        behind: the load that has to be committed before, while it waits for that.
        cancelled: why it is not to go on; None while it may.
        may_load: whether its task is, or comes to be, on the disk, and is loaded by whoever has it.
    """

    def __init__(self, request: CentreLoadRequest, at: float, stopping: threading.Event) -> None:
        self.request = request
        self.at = at
        self.step = HeardStep()
        self.found: CentreLoadAnswer | Exception | None = None
        self.current: CurrentTask | None = None
        self.behind: str | None = None
        self.cancelled: str | None = None
        self.may_load = False
        self._stopping = stopping
        self._deciding = threading.Lock()

    @property
    def task(self) -> str:
        """Its id."""
        return self.request.task

    @property
    def is_stopped(self) -> bool:
        """Whether it is not to go on."""
        return self._stopping.is_set() or self.cancelled is not None

    def go_on(self) -> None:
        """See that it may go on.

        Raises:
            ReadOnlyError: the receiver is being stopped.
            ConflictError: it was cancelled.
        """
        self.must_run()
        if self.cancelled is not None:
            raise ConflictError(
                f"load {self.task} was cancelled ({self.cancelled}), and loads nothing"
            )

    def must_run(self) -> None:
        """See that the receiver goes on; raises as `go_on`, but not for what was cancelled."""
        if self._stopping.is_set():
            raise ReadOnlyError("the receiver is being stopped", retry_after=5)

    def cancel(self, reason: str) -> None:
        """Have it not go on; what the loader has by now is refused by a commit of its own."""
        with self._deciding:
            self.cancelled = reason
        self._withdraw()

    def go_on_to_load(self) -> None:
        """See that its task may be ended: from then on a commit alone says what becomes of it.

        Raises:
            ReadOnlyError, ConflictError: as `go_on`.
        """
        with self._deciding:
            self.go_on()
            self.may_load = True

    def hand_over(self, current: CurrentTask) -> None:
        """The loader is to have its task."""
        self.current = current
        self._withdraw()  # whichever came first, this or the word that it is cancelled

    def _withdraw(self) -> None:
        if self.current is not None and self.cancelled is not None:
            self.current.withdrawn = f"cancelled: {self.cancelled}"

    def wait_for(self, until: Callable[[], bool], step: str) -> None:
        """Wait for something that comes about elsewhere, as `step`; raises as `go_on`."""
        while not until():
            self.step.begin(step)
            self.go_on()
            self._stopping.wait(LOOK_AGAIN)


class CentreRuns:
    """The loads of this process; any thread may call."""

    def __init__(self, clock: Callable[[], float], is_done: Callable[[str], bool]) -> None:
        """Begin with none.

        Args:
            clock: seconds since the epoch.
            is_done: whether a load is committed, by its id.
        """
        self._clock = clock
        self._is_done = is_done
        self._changed = threading.Condition()
        self._runs: dict[str, LoadRun] = {}
        self._line: list[LoadRun] = []
        self._threads: list[threading.Thread] = []
        self.stopping = threading.Event()

    def close(self) -> None:
        """Have all of them end, and wait for that."""
        self.stopping.set()
        with self._changed:
            self._changed.notify_all()
            threads = list(self._threads)
        for each in threads:
            each.join()

    def all(self) -> list[LoadRun]:
        """Those that are not over, the oldest first."""
        with self._changed:
            return [each for each in self._runs.values() if each.found is None]

    def get(self, task: str) -> LoadRun | None:
        """A load by its id, if it is known here."""
        with self._changed:
            return self._runs.get(task)

    def made(self, request: CentreLoadRequest) -> LoadRun:
        """A load that its caller does, in its own thread, and nobody asks about."""
        return LoadRun(request, self._clock(), self.stopping)

    def begin(
        self,
        request: CentreLoadRequest,
        work: Callable[[LoadRun], CentreLoadAnswer],
        ended: Callable[[], None],
    ) -> None:
        """Begin a load, unless it is known already; one that may be said again begins anew.

        Args:
            request: what is asked for.
            work: does it, in a thread of its own.
            ended: called when it is over, before anybody is told.

        Raises:
            BusyError: too many are under way.
        """
        with self._changed:
            known = self._runs.get(request.task)
            if known is not None and not isinstance(known.found, Transient):
                return
            open_ones = [each for each in self._runs.values() if each.found is None]
            if len(open_ones) >= _MOST:
                raise BusyError(
                    f"{len(open_ones)} loads at the centre are under way, and no more go side by "
                    f"side; the oldest is {open_ones[0].task}: tsferry-receiver status says what "
                    "they wait for, and tasks cancel ends one",
                    retry_after=5,
                )
            self._runs.pop(request.task, None)  # the order is that of their begins
            run = self._runs[request.task] = self.made(request)
            if not request.dry_run:
                self._line.append(run)
            self._forget_old()
            thread = threading.Thread(
                target=self._run, args=(run, work, ended), name="centre-load", daemon=True
            )
            self._threads = [each for each in self._threads if each.is_alive()]
            self._threads.append(thread)
            thread.start()

    def _forget_old(self) -> None:
        over = [task for task, each in self._runs.items() if each.found is not None]
        for task in over[:-_KEPT]:
            del self._runs[task]

    def _run(
        self,
        run: LoadRun,
        work: Callable[[LoadRun], CentreLoadAnswer],
        ended: Callable[[], None],
    ) -> None:
        found: CentreLoadAnswer | Exception
        try:
            found = work(run)
        except Exception as error:
            if not isinstance(error, TsferryError | OSError):
                log.exception("a load at the centre failed", extra={"task": run.task})
            found = error
        if not isinstance(found, Transient):  # which may be asked once more
            ended()
        is_untold = run.cancelled is not None and isinstance(found, Exception)
        with self._changed:
            self._leave(run)
            run.found = found
            if is_untold and self._is_done(run.task):  # what was ended is the wait alone
                self._runs.pop(run.task, None)
            self._changed.notify_all()

    def answer(self, task: str, wait: float) -> LoadRun | None:
        """A load, once it is over or after `wait` seconds; None: it is not known here."""
        with self._changed:
            run = self._runs.get(task)
            if run is not None:
                self._changed.wait_for(lambda: run.found is not None, wait)
            return self._runs.get(task)

    def ended(self, run: LoadRun, wait: float) -> None:
        """Wait for the end of a load, for `wait` seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: run.found is not None, wait)

    # -- one after the other -------------------------------------------------------------------

    @contextmanager
    def turn(self, run: LoadRun) -> Iterator[None]:
        """Wait until all that were begun before are committed, or over; others wait for the block.

        Raises:
            ReadOnlyError, ConflictError: as `LoadRun.go_on`.
        """
        with self._changed:
            if run not in self._line:
                self._line.append(run)
        try:
            run.wait_for(lambda: self._is_next(run), _IN_LINE)
            yield
        finally:
            with self._changed:
                self._leave(run)
                self._changed.notify_all()

    def _is_next(self, run: LoadRun) -> bool:
        with self._changed:
            first = self._line[0]
            run.behind = None if first is run else first.task
            return first is run

    def _leave(self, run: LoadRun) -> None:
        if run in self._line:
            self._line.remove(run)
