"""What a script has started and made ends with it, however it is told to end."""

from __future__ import annotations

import signal
import sys

__all__ = ["end_on_signals"]


def end_on_signals() -> None:
    """SIGTERM, and SIGHUP of a terminal that is closed, end a script as an error does.

    Its processes, directories and mounts are cleaned up on the way out. A receiver does not go by
    SIGHUP, with which a server reads its configuration again. Under nohup it stays ignored.
    """
    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, lambda number, _: sys.exit(128 + number))
