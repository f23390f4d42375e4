from __future__ import annotations

import io

from receiver.spark.verify.job_progress import JobProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_in_one_line() -> None:
    terminal = Terminal()
    progress = JobProgress(terminal)
    progress.say("starting")
    progress.clear()
    assert terminal.getvalue() == "\r\x1b[Kstarting\r\x1b[K"


def test_nothing_is_written_where_nobody_looks() -> None:
    pipe = io.StringIO()
    progress = JobProgress(pipe)
    progress.say("starting")
    with progress.over(None, 10, 1):  # type: ignore[arg-type]
        pass
    assert pipe.getvalue() == ""
