"""Runs the command of a hook: no shell, a process group of its own, an end by a time limit.

The event comes from memory that looks like a file, so that a command which does not read holds
nobody up; what the command prints is read as long as it runs, and only its begin is kept. At the
limit its group gets SIGTERM, and SIGKILL after that. What a command that has ended left running is
not looked after.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from common.console.terminal import printable
from common.durable import memory_file
from common.hooks.delivery_outcome import DeliveryOutcome
from common.hooks.hook_event import HookEvent

__all__ = ["run_command"]

_log = logging.getLogger(__name__)

_KEPT = 4096
"""Bytes of what it prints that go into the log."""
_SHOWN = 300
_LOOK_S = 0.25
"""How often it is looked whether we are to stop."""
_GRACE_S = 2.0
"""Between SIGTERM and SIGKILL."""
_LAST_S = 0.5
"""For which an end is waited for behind SIGKILL."""
_left: set[int] = set()
"""Process groups of commands that have ended, of which something may be left."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run_command(
    command: Sequence[str],
    event: HookEvent,
    *,
    timeout: float,
    stopped: Callable[[], bool] = lambda: False,
    grace: float = _GRACE_S,
) -> DeliveryOutcome:
    """Run it with an event as a line on its standard input; exit code 0 takes the event.

    Args:
        command: the program, absolute, and its arguments.
        event: for it.
        timeout: seconds that it may take.
        stopped: whether we are to stop: then it is ended as at the limit.
        grace: seconds between SIGTERM and SIGKILL.
    """
    content = memory_file([event.line(), b"\n"])
    try:
        os.lseek(content, 0, os.SEEK_SET)
        child = subprocess.Popen(  # noqa: S603 - the operator's program, as a list, without a shell
            list(command),
            stdin=content,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=_environment(event),
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return DeliveryOutcome(ok=False, text=f"{command[0]} cannot be run: {why}")
    finally:
        os.close(content)
    assert child.stdout is not None
    with child.stdout:
        printed = bytearray()
        ended = _watch(child, printed, time.monotonic() + timeout, stopped)
        if not ended:
            _end_group(child, printed, grace)
    _collect(child.pid)
    return _outcome(command[0], child.returncode, printed, None if ended else timeout)


def _environment(event: HookEvent) -> Mapping[str, str]:
    """All that it finds there: nothing of ours, in which secrets may be."""
    return {
        "PATH": os.environ.get("PATH", _PATH),
        "LANG": "C.UTF-8",
        "TSFERRY_EVENT": event.kind,
        "TSFERRY_EVENT_ID": event.id,
        "TSFERRY_EVENT_STATE": event.state,
    }


def _watch(
    child: subprocess.Popen[bytes], printed: bytearray, end: float, stopped: Callable[[], bool]
) -> bool:
    """Read what it prints until it has ended; False if it has not by then.

    Most close their output as they end; of what holds it open longer nobody waits.
    """
    assert child.stdout is not None
    output = child.stdout.fileno()
    os.set_blocking(output, False)
    is_open = True
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while (left := end - time.monotonic()) > 0 and not stopped():
            pause = min(left, _LOOK_S)
            if not is_open:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(pause)
            elif selector.select(pause):
                is_open = _read(output, printed)
            if child.poll() is not None:
                if is_open:
                    _read(output, printed)
                return True
    return False


def _read(output: int, printed: bytearray) -> bool:
    """Read a piece, keep what is of the begin; False at its end."""
    try:
        piece = os.read(output, 1 << 16)
    except BlockingIOError:
        return True
    printed += piece[: max(0, _KEPT - len(printed))]
    return bool(piece)


def _end_group(child: subprocess.Popen[bytes], printed: bytearray, grace: float) -> None:
    # It leads its group, and is not waited for yet: the number is nobody else's.
    # One that became another user is not ours to end; nor does one end that waits for a disk.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGTERM)
    _watch(child, printed, time.monotonic() + grace, lambda: False)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # those of its group that did not heed it, too
    with suppress(subprocess.TimeoutExpired):
        child.wait(_LAST_S)


def _collect(group: int) -> None:
    """Let those of a group end for good that are ours since their parents ended.

    They come to the first process of a container, which is us in our image: nobody else asks what
    became of them. Those that still run are asked for again behind the next command.
    """
    _left.add(group)
    for each in list(_left):
        try:
            while os.waitpid(-each, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            _left.discard(each)


def _outcome(
    program: str, code: int | None, printed: bytearray, limit: float | None
) -> DeliveryOutcome:
    said = printable(printed.decode("utf-8", "replace").strip())
    if said:
        _log.info("%s: exit code %s: %s", program, code, said)
    more = f": {said[:_SHOWN]}" if said else ""
    if limit is not None:
        return DeliveryOutcome(ok=False, text=f"{program} did not end within {limit:g} s{more}")
    assert code is not None
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return DeliveryOutcome(ok=False, text=f"{program} was ended by {name}{more}")
    return DeliveryOutcome(ok=code == 0, text=f"{program}: exit code {code}{more}")
