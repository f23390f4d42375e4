"""A time-out of a test that a finaliser ate is raised again, and fails the test in any case.

`pytest-timeout` raises in whatever the test does at that moment. If that is a finaliser (`__del__`,
or a generator that is thrown away and waits for something), Python prints it and goes on: the test
would pass, or hang with no time-out left.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from typing import Any

import pytest

__all__ = ["pytest_runtest_call"]

_SOON = 0.01
"""Seconds until it is raised again; whatever the finaliser belongs to goes on by then."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """See the module."""
    eaten: list[str] = []
    before = sys.unraisablehook

    def heard(found: Any) -> None:
        if isinstance(found.exc_value, pytest.fail.Exception):
            eaten.append(f"{found.exc_value}; {found.object!r} had eaten it")
            if callable(signal.getsignal(signal.SIGALRM)):
                signal.setitimer(signal.ITIMER_REAL, _SOON)
        before(found)

    sys.unraisablehook = heard
    try:
        answer = yield
    finally:
        sys.unraisablehook = before
    if eaten:
        pytest.fail(eaten[0])
    return answer
