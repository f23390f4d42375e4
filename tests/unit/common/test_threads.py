"""What is done again and again goes on whatever a step comes to, and ends when it is told to."""

from __future__ import annotations

import logging
import threading

import pytest

from common.errors import DigestError, NoSpaceError, StoppedError
from common.threads import PeriodicThread
from tests.support.procs import BOUND

_log = logging.getLogger(__name__)


class Steps:
    """Steps that end as they are told, and the seconds that came before each."""

    def __init__(self, *outcomes: float | Exception | None) -> None:
        self.outcomes = [*outcomes]
        self.pauses: list[float | None] = []
        self.done = threading.Event()

    def take(self) -> float | None:
        outcome = self.outcomes.pop(0)
        if not self.outcomes:
            self.thread.stopping.set()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def run(self, **options: float | None) -> list[float | None]:
        """The pauses that are made until the last step, which is told to stop."""
        self.thread = thread = PeriodicThread("steps", self.take, _log, "no step", **options)
        thread._woken.wait = self.pauses.append  # type: ignore[method-assign, assignment]
        thread.start()
        assert thread._thread is not None
        thread._thread.join(BOUND)
        assert not thread._thread.is_alive()
        thread.close()
        return self.pauses


def test_each_step_says_when_the_next_comes() -> None:
    assert Steps(3.0, None, StoppedError("told to")).run() == [0.0, 3.0, None]
    assert Steps(3.0, StoppedError("told to")).run(first=7.0) == [7.0, 3.0]


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (NoSpaceError("full"), logging.WARNING),
        (DigestError("bad"), logging.ERROR),
        (ValueError("Invalid IPv6 URL"), logging.ERROR),
    ],
    ids=["passing", "lasting", "unforeseen"],
)
def test_a_step_that_fails_is_told_and_taken_again(
    error: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert Steps(3.0, error, StoppedError("told to")).run(retry=9.0) == [0.0, 3.0, 9.0]
    assert [(each.levelno, each.message) for each in caplog.records] == [(level, "no step")]
    assert bool(caplog.records[0].exc_info) == isinstance(error, ValueError)


def test_who_waits_is_woken_and_ends_when_it_is_closed() -> None:
    taken = threading.Semaphore(0)
    thread = PeriodicThread("steps", lambda: taken.release(), _log, "no step", first=None)
    thread.start()
    assert not taken.acquire(blocking=False)
    thread.wake()
    assert taken.acquire(timeout=BOUND)
    thread.close()
    thread.close()
    assert not taken.acquire(blocking=False), "to be closed is no reason for a step"


def test_what_is_woken_during_a_step_has_its_step_behind_it() -> None:
    first, taken = threading.Event(), threading.Semaphore(0)

    def step() -> None:
        if not first.is_set():
            first.set()
            thread.wake()
        taken.release()

    thread = PeriodicThread("steps", step, _log, "no step")
    thread.start()
    try:
        assert all(taken.acquire(timeout=BOUND) for _ in range(2))
    finally:
        thread.close()
