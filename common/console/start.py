"""The way into a command: Ctrl-C in its first second, too, is one line and exit code 130.

Most of that second goes into imports. This module is what a command imports first, so it imports
nothing that takes time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

__all__ = ["enter"]

_INTERRUPTED = 130  # common.errors.EXIT_STOPPED: 128 + SIGINT, as a shell reports it


def enter(name: str, program: Callable[[], int], *, daemon: str | None = None) -> int:
    """Run a program, which imports what it needs by itself, to its exit code.

    Args:
        name: of the program.
        program: is run.
        daemon: the command that runs until it is stopped, and reads its configuration again on
            SIGHUP: one that comes before it can do so waits, and does not end the process.

    Whoever starts it with SIGINT blocked has it held back until it can be answered here: a process
    that begins again by `exec` loses none, and shows no traceback of the interpreter's.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not _would_be_lost(frame):
            raise KeyboardInterrupt
        _say(name)
        os._exit(_INTERRUPTED)

    _open_what_is_closed()
    if daemon is not None and daemon in sys.argv:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        # Where Ctrl-C is ignored, as under nohup, it stays so.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = program()
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the interpreter's own end is no place
    except KeyboardInterrupt:
        _say(name)
        return _INTERRUPTED
    return code


def _open_what_is_closed() -> None:
    """Have standard streams that were handed over closed (`2>&-`) lead nowhere.

    Else the first files that are opened get their numbers, and what is written to standard error
    by whatever means goes into these; and `sys.stderr` is None.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one: those below it are open by now.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _would_be_lost(frame: FrameType | None) -> bool:
    """Whether an import is under way, or what logging does around a fork, and loses an exception.

    Some of what an import calls (the callbacks of weak references, `__set_name__`) turns an
    exception into another one, or into a traceback and nothing else.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib"):
            return True
        if code.co_name in ("_acquireLock", "_releaseLock", "_after_at_fork_child_reinit_locks"):
            return True
        frame = frame.f_back
    return False


def _say(name: str) -> None:
    with suppress(OSError, RuntimeError):  # nobody reads it; it came in the middle of another line
        sys.stderr.write(f"{name}: error: interrupted\n")
        sys.stderr.flush()
