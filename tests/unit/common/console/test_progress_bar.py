"""How far a long work is: bars on a terminal, plain lines elsewhere, none glued to a log line."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import termios
from contextlib import suppress

import pytest

from common.console.logs import LogConfig, set_up
from common.console.progress_bar import WorkProgress, beside_bars, duration_text

MIB = 1 << 20


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_a_bar_has_share_rate_and_time_left_and_leaves_no_trace(terminal: Terminal) -> None:
    progress = WorkProgress(terminal, drawn=0.0)
    progress.show("dc1: send", 1 * MIB, 4 * MIB, size=True, note="1 of 4 files")
    progress.show("dc1: send", 2 * MIB, 4 * MIB, size=True, note="2 of 4 files")
    last = terminal.getvalue().rpartition("\r")[2]
    assert last.startswith("dc1: send:  50%|")
    assert "2.00M/4.00M" in last
    assert "B/s, " in last
    assert " left, 2 of 4 files" in last
    progress.clear()
    assert terminal.getvalue().rpartition("\r")[2] == ""
    assert "\n" not in terminal.getvalue()


def test_what_was_done_before_is_no_speed(terminal: Terminal) -> None:
    progress = WorkProgress(terminal, drawn=0.0)
    progress.show("send", 3 * MIB, 4 * MIB, size=True)
    assert "?B/s, ? left" in terminal.getvalue()
    progress.clear()


def test_several_works_have_a_row_each(terminal: Terminal) -> None:
    progress = WorkProgress(terminal, drawn=0.0)
    progress.say("dc1: scan", row="dc1")
    progress.show("dc2: send", 1, 2, row="dc2")
    assert "dc1: scan" in terminal.getvalue()
    assert "\ndc2: send:" in terminal.getvalue().replace("\r", "")
    progress.clear()


def test_there_is_no_colour_and_nothing_of_a_name_reaches_the_terminal_raw(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    progress = WorkProgress(terminal, drawn=0.0)
    progress.show("\x1b[31mevil\n", 1, 2, note="\x1b[2J")
    progress.clear()
    assert "\x1b[3" not in terminal.getvalue()
    assert "\x1b[2J" not in terminal.getvalue()
    assert r"\x1b[31mevil\n" in terminal.getvalue()


def test_a_log_line_meanwhile_stands_on_a_line_of_its_own(terminal: Terminal) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    progress = WorkProgress(terminal, drawn=0.0)
    try:
        set_up(LogConfig(), stream=terminal)
        progress.show("send", 1, 2)
        logging.getLogger("receiver").warning("something")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        progress.clear()
    (line,) = [each for each in terminal.getvalue().split("\n") if "something" in each]
    written = line.rpartition("\r")[2]
    assert written.endswith("WARNING receiver: something")
    assert "send" not in written
    assert terminal.getvalue().index("send:") < terminal.getvalue().index("something")
    assert "send:" in terminal.getvalue().partition("something")[2], "the bar is drawn again"


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_without_a_terminal_there_are_plain_lines_seldom(
    monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    stream = Terminal() if term == "dumb" else io.StringIO()
    now = [0.0]
    progress = WorkProgress(stream, clock=lambda: now[0])
    for second in range(61):
        now[0] = float(second)
        progress.say("starting", row="other")
        progress.show("send", second * MIB, 120 * MIB, size=True, note=f"{second} files")
    assert stream.getvalue().splitlines() == [
        "send: 1 %, 2.0 MiB of 120.0 MiB, 1.0 MiB/s, 2 min left, 2 files",
        "send: 26 %, 32.0 MiB of 120.0 MiB, 1.0 MiB/s, 88 s left, 32 files",
    ]
    progress.clear()


@pytest.mark.parametrize(("lines", "shown"), [(0, "send: 50 %, 1 of 2"), (24, "send:  50%|")])
def test_a_terminal_without_a_size_has_plain_lines(
    monkeypatch: pytest.MonkeyPatch, lines: int, shown: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    outer, inner = os.openpty()
    now = iter([0.0, 9.0, 9.0])
    with open(outer, "rb", buffering=0) as screen:
        with open(inner, "w") as stream:
            termios.tcsetwinsize(inner, (lines, 80 if lines else 0))
            progress = WorkProgress(stream, clock=lambda: next(now), drawn=0.0)
            progress.show("send", 1, 2)
            progress.clear()
        said = b""
        with suppress(OSError):  # nobody has the other end any more
            while found := screen.read(200):
                said += found
    assert shown in said.decode()


def test_a_short_work_without_a_terminal_says_nothing_and_a_quiet_one_never() -> None:
    stream, now = io.StringIO(), [0.0]
    progress = WorkProgress(stream, clock=lambda: now[0])
    for second in range(2):
        now[0] = float(second)
        progress.show("send", second, 2)
    assert stream.getvalue() == ""
    quiet = WorkProgress(stream, quiet=True, clock=lambda: now[0])
    for second in range(100):
        now[0] = float(second)
        quiet.show("send", second, 100)
    assert stream.getvalue() == ""


def test_nothing_is_loaded_to_draw_with_until_something_is_drawn() -> None:
    code = (
        "import sys; import common.console.cli; import common.console.progress_bar as p; "
        "w = p.WorkProgress(); "
        "w.show('x', 1, 2); w.clear(); print('tqdm' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, env=os.environ,
    )  # fmt: skip
    assert done.stdout == "False\n"
    with beside_bars(io.StringIO()):
        pass


def test_a_stream_that_is_closed_is_no_concern_of_bars(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", sys.modules.get("tqdm", sys))
    closed = io.StringIO()
    closed.close()
    with beside_bars(closed):
        pass


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (120, "2 min"), (5400, "1.5 h")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
