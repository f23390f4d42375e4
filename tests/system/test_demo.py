"""The demo brings its five troubles about; it and the quickstart leave no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.architecture import ROOT
from tests.support.procs import wait_until


@pytest.mark.long
def test_the_demo_shows_each_trouble_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "demo.py", "--once"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    shown = {line.split()[0]: line for line in done.stdout.splitlines() if line[:1].isalpha()}
    assert shown["fine"].endswith("-")
    assert "belongs to another edge" in shown["conflict"]
    assert shown["late"].endswith("late")
    assert "two machines speak under" in shown["cloned"]
    assert "no space" in shown["full"] or "`full` is left out" in done.stdout
    for edge in ("conflict", "late", "cloned"):
        assert f"\n- {edge}" in done.stdout, "where the page has it"
    assert "/ui/   log in with tsf_" in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert running_below(tmp_path) == []


@pytest.mark.long
def test_ctrl_c_ends_the_demo_while_it_starts_and_nothing_is_left(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, ROOT / "scripts" / "demo.py"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: list(tmp_path.glob("*/fine/schema/sync/uuid.txt")), "an edge")
    finally:
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does: a command may run now
    said, _ = demo.communicate(timeout=600)
    assert (demo.returncode, "error" in said) == (0, False), said
    assert list(tmp_path.iterdir()) == []
    assert running_below(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_quickstart_whose_terminal_is_closed_leaves_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    quickstart = subprocess.Popen(
        [sys.executable, ROOT / "scripts" / "quickstart.py", "--dir", run],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until((run / "centre" / "ready").exists, "the receiver")
        os.killpg(quickstart.pid, number) if number == signal.SIGHUP else quickstart.terminate()
        assert quickstart.wait(60) == 128 + number
        assert running_below(run) == []
    finally:
        with suppress(ProcessLookupError):
            os.killpg(quickstart.pid, signal.SIGKILL)


def running_below(directory: Path) -> list[str]:
    """Processes that name a directory in their command."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in line:
            found.append(line)
    return found
