"""How far the job is, as Spark's own count of tasks tells it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from common.console.progress_bar import WorkProgress
from common.console.terminal import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["JobProgress"]

_EVERY_S = 0.5


class JobProgress:
    """Shows it on a stream.

    Args:
        stream: standard error, unless told otherwise.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._shown = WorkProgress(stream)

    def say(self, text: str) -> None:
        """Show on a terminal what is going on in the place of what was there."""
        self._shown.say(text)

    def clear(self) -> None:
        """Leave nothing."""
        self._shown.clear()

    @contextmanager
    def over(self, spark: SparkSession, weight: int, groups: int) -> Iterator[None]:
        """Follow the job that is run within the block.

        Args:
            spark: that runs it.
            weight: bytes that it reads, about.
            groups: tasks that it has.
        """
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
        tracker, most = spark.sparkContext.statusTracker(), 0
        while not stop.wait(_EVERY_S):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None and info.numTasks == groups:
                    most = max(most, info.numCompletedTasks)
            done = weight * most // max(1, groups)
            note = f"{most} of {counted(groups, 'task')}"
            self._shown.show("verifying", done, weight, size=True, note=note)
