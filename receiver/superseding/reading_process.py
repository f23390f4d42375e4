"""The process beside the server that reads files for proofs, as the server has it."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from receiver.superseding.asking import PartitionAnswer, receive_frame, send_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.superseding.asking import PartitionAsked

__all__ = ["ProcessDied", "ReadingProcess", "missing_decoders"]

_NEEDED = ("numpy", "numba", "pyarrow", "lz4")


class ProcessDied(Exception):
    """It ended before it answered: for want of memory, by a fault in native code, or by hand."""


def missing_decoders() -> str | None:
    """Why no file can be decoded here; None if they can."""
    missing = [each for each in _NEEDED if importlib.util.find_spec(each) is None]
    if not missing:
        return None
    return f"{' and '.join(missing)} missing: install tsferry[receiver]; retired files stay"


class ReadingProcess:
    """Started when it is asked for the first time; ended by `close`, or by itself without us."""

    def __init__(self, *, memory: int) -> None:
        """Prepare.

        Args:
            memory: bytes that it may take.
        """
        self._memory = memory
        self._child: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def ask(self, asked: PartitionAsked, stopped: Callable[[], bool]) -> PartitionAnswer:
        """Have a partition judged.

        Raises:
            ProcessDied: there is no answer; or we are to stop.
        """
        _, line = self._child = self._child or self._start()
        try:
            send_frame(line, msgspec.msgpack.encode(asked))
            return msgspec.msgpack.decode(receive_frame(line, stopped), type=PartitionAnswer)
        except (OSError, EOFError) as error:
            status = self.close()
            raise ProcessDied(f"exit status {status}") from error

    def close(self) -> int | None:
        """End the process; returns how it ended by itself, None if it did not."""
        if self._child is None:
            return None
        child, line = self._child
        self._child = None
        line.close()
        status = child.poll()
        child.kill()
        child.wait()
        return status

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(each for each in sys.path if each)
        with theirs:
            child = subprocess.Popen(  # noqa: S603 - this interpreter, this package
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "receiver.superseding.worker",
                    str(theirs.fileno()),
                    str(self._memory),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": path},
            )
        return child, ours
