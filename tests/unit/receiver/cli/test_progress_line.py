"""The line that shows how far a long work is."""

from __future__ import annotations

import pytest

from receiver.cli.progress_line import showing_progress
from receiver.storage.step_progress import StepCounter


def test_a_step_is_shown_at_its_begin_and_then_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("receiver.cli.progress_line.time.monotonic", lambda: now)
    with showing_progress(as_json=False) as told:
        counter = StepCounter("files", 4, 4096, told)
        counter.done(1024)  # at the same moment
        now = 110.0
        counter.done(1024)
    lines = capsys.readouterr().err.split("\r\x1b[K")
    assert lines[1:] == [
        "files: 0 of 4, 0 B of 4.0 KiB",
        "files: 2 of 4, 2.0 KiB of 4.0 KiB, 10 s left",
        "",
    ]
