"""The way into a command: what a Ctrl-C comes to, from the first line on."""

import signal
import subprocess
import sys

from tests.support.architecture import ROOT

WEAK = """
import signal, weakref
class Thing: pass
thing = Thing()
kept = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
del thing  # an exception from a callback goes to stderr, and nowhere else
"""


def run(program, tmp_path, *, before="", interpreter=(sys.executable,)):
    code = f"import signal, sys\nfrom common.console.start import enter\n{program}\n{before}\n"
    return subprocess.run(
        [*interpreter, "-c", code + "sys.exit(enter('x', program))"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=60,
    )


def told(done):
    return done.returncode, done.stdout, done.stderr


def test_ctrl_c_at_work_is_an_exception_and_then_130(tmp_path):
    program = """
def program():
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        print("tidy")
"""
    assert told(run(program, tmp_path)) == (130, "tidy\n", "x: error: interrupted\n")


def test_ctrl_c_in_an_import_ends_at_once_where_an_exception_would_be_lost(tmp_path):
    (tmp_path / "weak.py").write_text(WEAK)
    program = "def program():\n    import weak\n    print('went on')"
    assert told(run(program, tmp_path)) == (130, "", "x: error: interrupted\n")


def test_ctrl_c_before_it_waits_if_it_is_blocked(tmp_path):
    before = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
signal.raise_signal(signal.SIGINT)
"""
    done = run("def program():\n    print('began')", tmp_path, before=before)
    assert told(done) == (130, "", "x: error: interrupted\n")


def test_after_the_work_nothing_is_said(tmp_path):
    before = "import atexit\natexit.register(signal.raise_signal, signal.SIGINT)"
    done = run("def program():\n    return 7", tmp_path, before=before)
    assert told(done) == (-signal.SIGINT, "", "")


def test_where_ctrl_c_is_ignored_it_stays_so(tmp_path):
    program = "def program():\n    signal.raise_signal(signal.SIGINT)\n    return 7"
    ignoring = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable)
    assert told(run(program, tmp_path, interpreter=ignoring)) == (7, "", "")


def test_streams_that_are_closed_lead_nowhere_and_no_file_gets_their_numbers(tmp_path):
    program = """
def program():
    import os
    file = os.open("data", os.O_CREAT | os.O_WRONLY)
    print(sys.stdin.read(), "to nobody")
    print("to nobody", file=sys.stderr, flush=True)
    os.write(1, b"to nobody")
    os.write(2, b"to nobody")
    with open("numbers", "w") as told:
        told.write(str(file > 2))
    return 7
"""
    code = (
        "import sys\nfrom common.console.start import enter\n"
        f"{program}\nsys.exit(enter('x', program))"
    )
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 7
    assert (tmp_path / "numbers").read_text() == "True"
    assert (tmp_path / "data").read_bytes() == b""
