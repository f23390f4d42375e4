"""What each test costs, in a processor's time: `pytest --costs FILE`.

Two workers keep two processors busy, and while a test waits another one runs: how long a test took
says little of what it costs. A line for each test has, with tabs between them, the seconds of a
processor that it, the programs that it started and what those started have used; the seconds by
the clock; how many descriptors this process has open after it; the worker; the test. What a
fixture of a module or of a session takes is with the first test that asks for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

_TICK = 1 / os.sysconf("SC_CLK_TCK")


class Costs:
    """Writes a line for each test of this process; those of several workers go into one file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._worker = os.environ.get("PYTEST_XDIST_WORKER", "-")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """From before the first fixture to after the last."""
        spent, begin = used(os.getpid()), time.monotonic()
        try:
            return (yield)
        finally:
            cost, took = used(os.getpid()) - spent, time.monotonic() - begin
            fds = len(os.listdir("/proc/self/fd"))
            line = f"{cost:.3f}\t{took:.3f}\t{fds}\t{self._worker}\t{item.nodeid}\n"
            with self._file.open("a") as file:
                file.write(line)


def used(pid: int) -> float:
    """Seconds of a processor of a process, of all below it, and of those of them that have ended.

    What has left its parent (the fork of a daemon) is not seen.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended meanwhile
        return 0.0
    own, of_ended = (sum(map(int, fields[at : at + 2])) * _TICK for at in (11, 13))
    if pid == os.getpid():
        own = time.process_time()  # which is not in hundredths
    below: list[int] = []
    for task in tasks:
        with suppress(OSError):  # this thread has ended meanwhile
            below += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
    return own + of_ended + sum(map(used, below))
