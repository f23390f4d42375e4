"""Commands of ours as forks of a process that has imported them.

Most of what a program costs a test is its imports: half a second of a processor for the sender, one
for the receiver. Where a test is about something else, its programs are forks of one process that
imports and does nothing else: processes of their own from the first line of `main` on, which are
killed, and end, as any other. The long tier, and tests of how programs start, have the interpreter
start them.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click

from common import crash
from tests.support import tiers
from tests.support.architecture import ROOT

COMMANDS = {"tsferry-receiver": "receiver.cli", "tsferry-sender": "sender.cli"}
_IMPORTED = (
    "receiver.web.serving",
    "receiver.cli.commands",
    "sender.cli.commands",
    "sender.daemon.daemon",
)
INSIDE = ("ip", "netns", "exec")
"""With the name of a network namespace behind it: one of our commands in there."""
_PR_SET_PDEATHSIG = 1


class Forked:
    """A program; what `subprocess.Popen` is, as far as the tests need it."""

    def __init__(self, pid: int, arguments: Sequence[str]) -> None:
        self.pid, self.args = pid, list(arguments)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        if self.returncode is None:
            self.returncode = _ask("ended", self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not.
        """
        if self.poll() is None:
            ending = os.pidfd_open(self.pid)
            try:
                waiting = select.poll()  # of any number of descriptors, unlike `select`
                waiting.register(ending, select.POLLIN)
                waiting.poll(None if timeout is None else timeout * 1000)
            finally:
                os.close(ending)
        if self.poll() is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        assert self.returncode is not None
        return self.returncode


def fork(
    arguments: Sequence[str], out: Path, err: Path, env: Mapping[str, str] | None = None
) -> Forked | subprocess.Popen[bytes]:
    """Start one of our commands, with its output in files, as the leader of a session.

    Args:
        arguments: the first is the path of the command; `INSIDE` and a name may stand before it.
        out: what it writes to stdout is added there.
        err: and to stderr; may be the same.
        env: beside the environment of this process.
    """
    if tiers.is_long():
        return spawn(arguments, out, err, env)
    whole = {**os.environ, **(env or {})}
    return Forked(_ask("start", list(arguments), str(out), str(err), whole), arguments)


def spawn(
    arguments: Sequence[str], out: Path, err: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """The same for any program, from the beginning; it is killed when this process ends."""
    with open(out, "ab") as stdout, open(err, "ab") as stderr:
        return subprocess.Popen(
            [*_ending_with_this(), *arguments],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )


def _ending_with_this() -> Sequence[str]:
    """What a command begins with that is killed as soon as this process ends, in whatever way.

    It is the thread that starts it whose end counts: of another than the main one it is none.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return ()
    return setpriv, "--pdeathsig", "KILL", "--"


def run(
    arguments: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """Run one of our commands to its end; what it wrote is in the answer."""
    with tempfile.TemporaryDirectory() as root:
        out, err = Path(root) / "out", Path(root) / "err"
        code = fork(arguments, out, err, env).wait(timeout)
        return subprocess.CompletedProcess(list(arguments), code, out.read_text(), err.read_text())


_lock = threading.Lock()


def _ask(*what: Any) -> Any:
    with _lock:
        _, line = _forking()
        line.send(what)
        return line.recv()


@functools.cache
def _forking() -> tuple[subprocess.Popen[bytes], Connection]:
    """The process that forks, which ends with this one, and the line to it."""
    ours, theirs = Pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.warm", str(theirs.fileno())],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()

    def leave() -> None:
        """In a fork of this process, which the line would outlive it with."""
        ours.close()
        _forking.cache_clear()

    os.register_at_fork(after_in_child=leave)
    return process, ours


# -- the process that forks ------------------------------------------------------------------------


def _forks(line: Connection) -> Callable[[], int] | None:
    """Fork as asked; returns in each fork, with the program that it is to be, and at the end."""
    me = os.getpid()
    while True:
        try:
            what, *given = line.recv()
        except (EOFError, ConnectionError):
            return None
        if what == "ended":
            pid, status = os.waitpid(given[0], os.WNOHANG)
            line.send(os.waitstatus_to_exitcode(status) if pid else None)
            continue
        ready, begins = os.pipe()
        if pid := os.fork():
            os.close(begins)
            os.read(ready, 1)  # until then it has what is not its own
            os.close(ready)
            line.send(pid)
            continue
        _end_with(me)
        line.close()
        os.close(ready)
        program = _become(*given)
        os.close(begins)
        return program


def _end_with(parent: int) -> None:
    """Have this process killed as soon as its parent ends, which has no threads."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended before that was said
        os._exit(1)


def _become(
    arguments: Sequence[str], out: str, err: str, env: Mapping[str, str]
) -> Callable[[], int]:
    os.setsid()
    for number, name in (1, out), (2, err):
        opened = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(env)
    importlib.reload(crash)  # where to die is read with it
    if tuple(arguments[:3]) == INSIDE:
        _go_into(arguments[3])
        arguments = arguments[4:]
    sys.argv = list(arguments)
    program: Callable[[], int] = importlib.import_module(COMMANDS[Path(arguments[0]).name]).main
    return program


def _go_into(namespace: str) -> None:
    with open(f"/run/netns/{namespace}", "rb") as there:
        if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns", namespace)


def _imported() -> None:
    for each in _IMPORTED:
        importlib.import_module(each)
    for command in COMMANDS.values():
        cli = importlib.import_module(f"{command}.commands").cli
        context = click.Context(cli)
        for name in cli.list_commands(context):
            cli.get_command(context, name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _imported()
    if program := _forks(Connection(int(sys.argv[1]))):
        sys.exit(program())
