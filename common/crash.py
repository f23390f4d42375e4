"""Named places at which tests end the process, to see what a power cut there leaves behind.

`TSFERRY_CRASH_AT=<name>` (or `<name>:<n>` for the n-th passage; `*:<n>` for the n-th of any point)
kills this process with SIGKILL at that point: no `finally`, no `atexit`, no flush. Tests inside one
process may hand in a function instead (`arm`). Unarmed, a point costs one comparison.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SimulatedCrash", "arm", "point"]


class SimulatedCrash(BaseException):
    """Raised at a crash point by tests that stay in one process.

    Nobody cleans up after it: what is on disk then is what a death at that point leaves there.
    """


_hook: Callable[[str], None] | None = None


def point(name: str) -> None:
    """Mark a step after which the state on disk must make sense. Names read `<module>.<step>`."""
    if _hook is not None:
        _hook(name)


@contextmanager
def arm(hook: Callable[[str], None]) -> Iterator[None]:
    """Call `hook(name)` at every point while the context lasts (tests only)."""
    global _hook
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before


def _die_at(wanted: str) -> Callable[[str], None]:
    name, _, nth = wanted.partition(":")
    passages = itertools.count(1)  # one step under the interpreter's lock: exact between threads
    target = int(nth) if nth else 1

    def hook(here: str) -> None:
        if name in (here, "*") and next(passages) == target:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


if _wanted := os.environ.get("TSFERRY_CRASH_AT"):
    _hook = _die_at(_wanted)
