"""How far the job is, on one line of a terminal; nothing where nobody looks."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from common.terminal import LiveLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["JobProgress"]

_EVERY_S = 0.5


class JobProgress:
    """Writes to a stream, if that is a terminal.

    Args:
        stream: standard error, unless told otherwise.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._line = LiveLine(stream)

    def say(self, text: str) -> None:
        """Show what is going on in the place of what was there."""
        self._line.say(text)

    def clear(self) -> None:
        """Leave an empty line."""
        self._line.clear()

    @contextmanager
    def over(self, spark: SparkSession, weight: int, groups: int) -> Iterator[None]:
        """Follow the job that is run within the block.

        Args:
            spark: that runs it.
            weight: bytes that it reads, about.
            groups: tasks that it has.
        """
        if not self._line.is_seen:
            yield
            return
        stop = threading.Event()
        thread = threading.Thread(
            target=self._follow, args=(spark, weight, groups, stop), name="progress", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.clear()

    def _follow(self, spark: SparkSession, weight: int, groups: int, stop: threading.Event) -> None:
        tracker, begun, most = spark.sparkContext.statusTracker(), time.monotonic(), 0
        while not stop.wait(_EVERY_S):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None and info.numTasks == groups:
                    most = max(most, info.numCompletedTasks)
            done = weight * most // max(1, groups)
            passed = time.monotonic() - begun
            left = f", {passed / most * (groups - most):.0f} s left" if most else ""
            self.say(
                f"verifying: {most} of {groups} tasks, about {done / 1e6:,.0f} of "
                f"{weight / 1e6:,.0f} MB{left}"
            )
