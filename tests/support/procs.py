"""Programs of ours as child processes: started, waited for, killed by pid, always reaped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support import warm

BOUND = 120.0
"""Seconds after which a condition that should have come true has not."""


def wait_until(condition: Callable[[], Any], what: str, *, bound: float = BOUND) -> Any:
    """Poll until the condition is true and return what it gave; fail after `bound` seconds.

    Where asking is much work (it may start a program), it pauses twice as long as it asked: what is
    waited for needs the processor as well.
    """
    end = time.monotonic() + bound
    while True:
        begin = time.monotonic()
        if found := condition():
            return found
        now = time.monotonic()
        if now > end:
            raise AssertionError(f"not within {bound:g} s: {what}")
        time.sleep(min(max(0.01, 2 * (now - begin)), 0.25))


class Child:
    """One process, the leader of a session of its own, with its output in a file."""

    def __init__(
        self,
        arguments: Sequence[str],
        output: Path,
        *,
        env: Mapping[str, str] | None = None,
        forked: bool = False,
    ) -> None:
        self.arguments = list(arguments)
        self.output = output
        start = warm.fork if forked else warm.spawn
        self._process = start(self.arguments, output, output, env)
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def running(self) -> bool:
        return self.returncode is None

    def text(self) -> str:
        """What it has written so far."""
        return self.output.read_text(errors="replace")

    def until(self, condition: Callable[[], Any], what: str, *, bound: float = BOUND) -> Any:
        """Wait for something that this process brings about; fail at once if it ended instead."""

        def either() -> Any:
            found = condition()
            if not found and not self.running and not (found := condition()):
                raise AssertionError(
                    f"{self.arguments} ended with {self.returncode} before {what}:\n{self.text()}"
                )
            return found

        return wait_until(either, what, bound=bound)

    def wait(self, *, bound: float = BOUND) -> int:
        """Its exit code, once it has ended by itself."""
        try:
            return self._process.wait(timeout=bound)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.arguments} still runs after {bound:g} s:\n{self.text()}"
            ) from None

    def signal(self, number: int) -> None:
        """Send a signal to it, if it still runs."""
        if self.running:
            os.kill(self.pid, number)

    def kill(self) -> int:
        """End it as a power cut would, with what it started; returns its exit code."""
        if self.running:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        return self._process.wait()

    def terminate(self, *, bound: float = BOUND) -> int:
        """Ask it to end (SIGTERM); returns its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(bound=bound)


class Children:
    """Starts processes and knows them all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._all: list[Child] = []

    def python(
        self, module: str, *arguments: object, env: Mapping[str, str] | None = None
    ) -> Child:
        """`python -m module arguments...`, with the interpreter of the tests."""
        return self.start([sys.executable, "-m", module, *map(str, arguments)], env=env)

    def start(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        forked: bool = False,
    ) -> Child:
        """Any program; one of ours may be a fork of what has imported it (`tests.support.warm`)."""
        output = self._directory / f"output-{len(self._all)}.txt"
        child = Child(arguments, output, env=env, forked=forked)
        self._all.append(child)
        return child

    def end_all(self) -> None:
        """Kill what still runs, and reap all of it."""
        for child in self._all:
            child.kill()


@contextmanager
def children(directory: Path) -> Iterator[Children]:
    """Processes that end with the block, however it ends; their output goes into `directory`."""
    made = Children(directory)
    try:
        yield made
    finally:
        made.end_all()
