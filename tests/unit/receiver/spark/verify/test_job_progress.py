from __future__ import annotations

import io
import threading
from types import SimpleNamespace

import pytest

from receiver.spark.verify import job_progress
from receiver.spark.verify.job_progress import JobProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_going_on_is_shown_on_a_terminal_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    progress = JobProgress(terminal)
    progress.say("starting")
    assert "starting" in terminal.getvalue()
    progress.clear()
    assert terminal.getvalue().rpartition("\r")[2] == ""


def test_a_job_is_followed_by_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(job_progress, "_EVERY_S", 0.001)
    seen = threading.Event()

    class Seen(Terminal):
        def write(self, text: str) -> int:
            if "3 of 10 tasks" in text:
                seen.set()
            return super().write(text)

    info = SimpleNamespace(numTasks=10, numCompletedTasks=3)
    tracker = SimpleNamespace(getActiveStageIds=lambda: [1], getStageInfo=lambda stage: info)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    with JobProgress(Seen()).over(spark, 1000, 10):  # type: ignore[arg-type]
        assert seen.wait(60)


def test_nothing_is_written_where_nobody_looks() -> None:
    pipe = io.StringIO()
    progress = JobProgress(pipe)
    progress.say("starting")
    progress.clear()
    assert pipe.getvalue() == ""
