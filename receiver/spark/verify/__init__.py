"""The verification: the command, the job, what is proved of a file, and verdicts on their way.

Room: `examining` what is looked for in files, one by one and against each other.
"""

from __future__ import annotations

import signal
from types import FrameType

from common.console.start import enter

__all__ = ["main"]

NAME = "tsferry-verify"


def main() -> int:
    """Run the command `tsferry-verify`; returns its exit code."""
    return enter(NAME, _run)


def _run() -> int:
    before = signal.signal(signal.SIGTERM, _as_ctrl_c)
    try:
        from common.console.cli import run
        from receiver.spark.verify.cli import cli

        return run(cli, NAME, extra="spark")
    finally:
        signal.signal(signal.SIGTERM, before)


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    """SIGTERM is as Ctrl-C: whatever was done, no Java is left behind."""
    handler = signal.getsignal(signal.SIGINT)  # PySpark sets one that cancels its jobs
    if callable(handler):
        handler(signal.SIGINT, frame)
    raise KeyboardInterrupt
