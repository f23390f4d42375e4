import ctypes
import json
import os
import signal
import threading
import time

import pytest

from common.hooks import command_runner
from common.hooks.command_runner import run_command
from tests.support.hooked import event


def run(command, *, timeout=60.0, grace=0.2, **more):
    return run_command(command, event("full"), timeout=timeout, grace=grace, **more)


def script(tmp_path, text):
    path = tmp_path / "hook"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return [str(path)]


class _Limit:
    """A clock by which the time of a command is over as soon as it has written a file."""

    def __init__(self, written):
        self.written = written

    def monotonic(self):
        written = self.written
        return time.monotonic() if written.exists() and written.read_text().endswith("\n") else 0.0


def run_until(written, command, monkeypatch):
    """Run a command up to its limit, which does not come before it is so far."""
    monkeypatch.setattr(command_runner, "time", _Limit(written))
    return run(command, timeout=0.3)


def test_the_event_is_one_line_on_standard_input(tmp_path):
    out = tmp_path / "out"
    outcome = run([*script(tmp_path, 'cat > "$1"'), str(out)])
    assert outcome.ok
    line, end = out.read_bytes().split(b"\n")
    assert end == b""
    assert json.loads(line)["what"] == {"problem": "full", "receiver": ""}


def test_arguments_are_no_shells(tmp_path):
    out = tmp_path / "out"
    arguments = ["$(touch /nowhere)", "a b", ";", "*"]
    run([*script(tmp_path, f'printf "%s\\n" "$@" > {out}'), *arguments])
    assert out.read_text().splitlines() == arguments


def test_nothing_of_our_environment_but_the_path_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("TSFERRY_SENDER_RECEIVER__0__TOKEN", "secret")
    out = tmp_path / "out"
    run(script(tmp_path, f"exec /usr/bin/env > {out}"))
    names = {line.partition("=")[0] for line in out.read_text().splitlines()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {
        "PATH",
        "LANG",
        "TSFERRY_EVENT",
        "TSFERRY_EVENT_ID",
        "TSFERRY_EVENT_STATE",
    }


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("echo no room; exit 1", "exit code 1: no room"),
        ("kill -9 $$", "was ended by SIGKILL"),
        ("printf '\\033[2Jx\\n'; exit 3", "exit code 3"),
    ],
)
def test_what_is_no_success_says_what_came_of_it(tmp_path, text, word):
    outcome = run(script(tmp_path, text))
    assert not outcome.ok
    assert word in outcome.text
    assert "\033" not in outcome.text


def test_a_command_that_cannot_be_run_says_why(tmp_path):
    assert "No such file" in run([str(tmp_path / "none")]).text
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert "Permission denied" in run([str(plain)]).text
    plain.chmod(0o755)
    assert "Exec format error" in run([str(plain)]).text


def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    pid = tmp_path / "pid"
    hook = script(tmp_path, f"trap '' TERM; sleep 1000 & echo $! > {pid}; wait; sleep 1000")
    begin = time.monotonic()
    outcome = run_until(pid, hook, monkeypatch)
    assert "did not end within 0.3 s" in outcome.text
    assert time.monotonic() - begin < 100
    assert is_over(int(pid.read_text()))


def is_over(pid):
    """Whether a process that is nobody's child here has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    import select

    try:
        return bool(select.select([descriptor], [], [], 60)[0])
    finally:
        os.close(descriptor)


def test_one_that_writes_without_end_is_read_and_only_the_begin_is_kept(tmp_path, caplog):
    caplog.set_level("INFO")
    outcome = run(script(tmp_path, "exec yes"), timeout=0.3)
    assert not outcome.ok
    assert len(outcome.text) < 1000
    assert max(len(each.getMessage()) for each in caplog.records) < 10_000


def test_one_that_does_not_read_and_leaves_somebody_its_output_holds_nobody_up(tmp_path):
    pid = tmp_path / "pid"
    outcome = run(script(tmp_path, f"sleep 1000 & echo $! > {pid}; exec 0<&-; exit 0"))
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert outcome.ok


def test_one_that_runs_while_we_are_to_stop_is_ended(tmp_path):
    stop = threading.Event()
    begun = tmp_path / "begun"
    os.mkfifo(begun)

    def stop_then():
        begun.read_text()
        stop.set()

    waiting = threading.Thread(target=stop_then)
    waiting.start()
    outcome = run(script(tmp_path, f"echo > {begun}; exec sleep 1000"), stopped=stop.is_set)
    waiting.join()
    assert not outcome.ok


def test_one_that_may_not_be_ended_holds_nobody_up(tmp_path, monkeypatch):
    pid, kill = tmp_path / "pid", os.killpg

    def refused(group, signum):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "killpg", refused)
    begin = time.monotonic()
    hook = script(tmp_path, f"echo $$ > {pid}; exec sleep 1000")
    outcome = run_until(pid, hook, monkeypatch)
    assert "did not end within 0.3 s" in outcome.text
    assert time.monotonic() - begin < 100
    kill(int(pid.read_text()), signal.SIGKILL)
    os.waitpid(int(pid.read_text()), 0)


def test_as_the_first_process_of_a_container_we_leave_no_zombies(tmp_path, monkeypatch):
    subreaper = 36
    libc = ctypes.CDLL(None)
    pid = tmp_path / "pid"
    libc.prctl(subreaper, 1, 0, 0, 0)
    try:
        hook = script(tmp_path, f"trap '' TERM; sleep 1000 & echo $! > {pid}; wait; sleep 1000")
        run_until(pid, hook, monkeypatch)
        orphan = int(pid.read_text())
        assert is_over(orphan)
        run(["/bin/true"])
        with pytest.raises(ProcessLookupError):
            os.kill(orphan, 0)
    finally:
        libc.prctl(subreaper, 0, 0, 0, 0)
