"""A process beside the server: it is asked (msgpack), works behind everything else, and answers.

What decodes or writes files runs
there, so that want of memory or a fault in native code ends that process and not the server.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from receiver.background.line_frames import receive_frame, send_frame

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ProcessDied", "SideProcess", "die_with_parent", "missing_decoders", "serve"]

_Asked = TypeVar("_Asked", bound=msgspec.Struct)
_Answer = TypeVar("_Answer", bound=msgspec.Struct)

_NEEDED = ("numpy", "numba", "pyarrow", "lz4")
_NICE: Final = 19
_SESSION_NICE: Final = Path("/proc/self/autogroup")
"""Of this process's session; see sched(7), *The autogroup feature*."""
_LOOK_AGAIN: Final = 0.01
_DYING: Final = 5.0
"""Seconds for which a process that is gone from its line may take to end."""
_PR_SET_PDEATHSIG: Final = 1
_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30}
"""Number of the call `ioprio_set`, which the C library has no function for, by machine."""
_IOPRIO_IDLE: Final = 3 << 13
"""Class and level for a disk that nobody else wants."""


class ProcessDied(Exception):
    """It ended before it answered: for want of memory, by a fault in native code, or by hand."""


def missing_decoders(left: str) -> str | None:
    """Why no file can be decoded here; None if they can.

    Args:
        left: what follows of that, in words.
    """
    missing = [each for each in _NEEDED if importlib.util.find_spec(each) is None]
    if not missing:
        return None
    return f"{' and '.join(missing)} missing: install tsferry[receiver]; {left}"


class SideProcess(Generic[_Asked, _Answer]):
    """Started when it is asked for the first time; ended by `close`, or by itself without us."""

    def __init__(self, module: str, answer: type[_Answer], *, memory: int) -> None:
        """Prepare.

        Args:
            module: that it runs.
            answer: what it answers with.
            memory: bytes that it may take.
        """
        self._module = module
        self._answer = answer
        self._memory = memory
        self._child: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def ask(
        self,
        asked: _Asked,
        stopped: Callable[[], bool],
        paused: Callable[[], bool] = lambda: False,
    ) -> _Answer:
        """Have something worked on.

        Args:
            asked: what.
            stopped: asked every half second; the process is ended where it says so.
            paused: asked as often; the process stands still as long as it says so.

        Raises:
            ProcessDied: there is no answer; or we are to stop.
        """
        child, line = self._child = self._child or self._start()
        held = ended = False

        def is_over() -> bool:
            nonlocal held, ended
            if stopped():
                ended = True
                return True
            if _has_ended(child.pid, 0):  # what it has begun may hold its line
                return True
            if paused() != held:
                held = not held
                child.send_signal(signal.SIGSTOP if held else signal.SIGCONT)
            return False

        try:
            send_frame(line, msgspec.msgpack.encode(asked))
            return msgspec.msgpack.decode(receive_frame(line, is_over), type=self._answer)
        except (OSError, EOFError) as error:
            status = self._end(0 if ended else _DYING)  # its line ends a moment before it does
            raise ProcessDied(f"exit status {status}") from error

    def close(self) -> int | None:
        """End the process; returns how it ended by itself, None if it did not.

        What it has begun ends with it, but for what made itself a group of its own.
        """
        return self._end(0)

    def _end(self, patience: float) -> int | None:
        if self._child is None:
            return None
        child, line = self._child
        self._child = None
        line.close()
        by_itself = _has_ended(child.pid, patience)
        # It leads its group, and is not waited for yet: the number is nobody else's.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()  # where that group is not to be ended
        status = child.wait()
        return status if by_itself else None

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(each for each in sys.path if each)
        with theirs:
            child = subprocess.Popen(  # noqa: S603 - this interpreter, this package
                [
                    sys.executable,
                    "-P",
                    "-m",
                    self._module,
                    str(theirs.fileno()),
                    str(self._memory),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,  # whose niceness is its own: see `_yield_as_session`
            )
        return child, ours


def _has_ended(pid: int, patience: float) -> bool:
    """Whether a process of ours ends by itself within some seconds; nobody has waited for it then.

    Args:
        pid: of it.
        patience: seconds.
    """
    until = time.monotonic() + patience
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_AGAIN)
    return True


# -- in the process ------------------------------------------------------------------------------


def serve(answer: Callable[[_Asked], _Answer], asked: type[_Asked]) -> None:
    """Answer what comes on the socket that the first argument names, in so much memory.

    It stands back behind everything else of the machine, and ends when the other end is gone.

    Args:
        answer: works.
        asked: what it is asked.
    """
    os.nice(_NICE)
    yields = False
    memory = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    decoder = msgspec.msgpack.Decoder(asked)
    own = os.getpid()
    with socket.socket(fileno=int(sys.argv[1])) as line:
        while True:
            try:
                request = decoder.decode(receive_frame(line))
                yields = yields or _yield_as_session()
                answered = msgspec.msgpack.encode(answer(request))
                if os.getpid() != own:  # what works has forked, and came back in both
                    os._exit(0)
                send_frame(line, answered)
            except (EOFError, BrokenPipeError, ConnectionError):
                return


def _yield_as_session() -> bool:
    """Have all other sessions go first, and not only those of the same one; False: try it again.

    Where the kernel shares a processor among sessions, niceness counts within one alone: a sender
    of another session would get half of a processor beside this process. In a group of a service
    manager that has a share of its own it is that share which counts, and this changes nothing.
    """
    if os.getsid(0) != os.getpid():  # the session is another's, who would stand back with this
        return True
    try:
        _SESSION_NICE.write_bytes(b"%d" % _NICE)
    except BlockingIOError:  # the kernel takes ten changes a second, of all sessions
        return False
    except OSError:  # a kernel without, or one whose /proc is not to be written
        return True
    return True


def die_with_parent() -> None:
    """Have this process end with the thread that started it, and read and write behind all others.

    For what works long before it looks at its line again, and is stopped now and then: a process
    that stands still sees no end of a line.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:  # where it cannot be said, niceness says it in part
        libc.syscall(number, 1, 0, _IOPRIO_IDLE)
