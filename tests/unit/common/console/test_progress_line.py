"""How far a long work of a command is."""

from __future__ import annotations

import pytest

from common.console.progress_line import showing_progress
from common.console.step_progress import StepCounter


def test_a_step_is_shown_with_its_bytes_and_count(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with showing_progress(as_json=False) as told:
        counter = StepCounter("files", 4, 4096, told)
        counter.done(1024)
    shown = capsys.readouterr().err
    assert "files:   0%|" in shown
    assert "/4.00k" in shown
    assert "0 of 4" in shown
    assert shown.rpartition("\r")[2] == ""


def test_nothing_is_shown_where_json_is_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with showing_progress(as_json=True) as told:
        StepCounter("files", 4, 4096, told)
    assert capsys.readouterr().err == ""
