"""A test that had no time left fails, wherever the time-out was raised."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.support.heard_timeouts import pytest_runtest_call


class Eats:
    """Is thrown away while the time is up."""

    def __del__(self) -> None:
        pytest.fail("Timeout (>300s)")


@pytest.fixture
def alarm() -> Iterator[None]:
    """As `pytest-timeout` has it; and what it has of this test comes back."""

    def up(*_: Any) -> None:
        pytest.fail("Timeout (>300s)")

    left = signal.setitimer(signal.ITIMER_REAL, 0)
    handler = signal.signal(signal.SIGALRM, up)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, *left)


def begun() -> Generator[None, Any, Any]:
    """What stands around a test; around this one it stands as well, and sets back what it had."""
    sys.unraisablehook = lambda _: None
    call = pytest_runtest_call()
    next(call)
    return call


@pytest.mark.usefixtures("alarm")
def test_a_time_out_that_a_finaliser_ate_is_raised_again_where_the_test_hangs() -> None:
    call = begun()
    Eats()
    with pytest.raises(pytest.fail.Exception, match="Timeout") as again:
        signal.pause()
    with pytest.raises(pytest.fail.Exception):
        call.throw(again.value)


@pytest.mark.usefixtures("alarm")
def test_a_test_that_passes_all_the_same_fails_and_names_the_finaliser() -> None:
    call = begun()
    Eats()
    signal.setitimer(signal.ITIMER_REAL, 0)
    with pytest.raises(pytest.fail.Exception, match=r"Eats.__del__.* had eaten it"):
        next(call)


@pytest.mark.usefixtures("alarm")
def test_other_tests_pass() -> None:
    call = begun()
    with pytest.raises(StopIteration):
        next(call)
