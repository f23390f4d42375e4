"""What runs inside Spark's Python workers, and parts in a process of their own that may kill it.

A first attempt works in the worker itself. If the worker dies (killed for its memory, or by a fault
of ours), Spark starts the task again, and then each part is worked off in a process of its own, so
that the one which kills it becomes a row like any other.

The child is started anew (no fork: threads and locks of this process stay out of it), works off one
part after the other, and is replaced when it died or took too long. Its memory is limited, so that
it meets `MemoryError` before the machine meets its end. Between the two is a socket with frames: a
pickled part in, an Arrow stream of one row out.
"""

from __future__ import annotations

import itertools
import os
import pickle
import resource
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from receiver.background.line_frames import receive_frame, send_frame
from receiver.spark.report.results import Finding, Severity
from receiver.spark.verify.examining.part_rows import Settings, do_part, row_of
from receiver.spark.verify.examining.parts import FilePart, PartResult, unpack
from receiver.spark.worker_garbage import keep_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from receiver.spark.verify.examining.file_checks import CheckedPart

__all__ = ["Isolated", "Worker", "main"]

_START_S = 120.0
"""For a child to import what it needs on a slow machine, beyond the limit of the part."""


class Worker:
    """The function that `mapInArrow` is given.

    Args:
        groups: packed groups of parts, by number; a broadcast value.
        settings: for all of them.
    """

    def __init__(self, groups: Any, settings: Settings) -> None:
        self._groups = groups
        self._settings = settings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Numbers of groups in, rows out."""
        parts = (
            part
            for batch in batches
            for number in batch.column(0).to_pylist()
            for part in unpack(self._groups.value[number])
        )
        with _doing(self._settings) as (do, is_here):
            for part in _fetched_ahead(parts) if is_here else parts:
                yield do(part)
        keep_modules()


def _fetched_ahead(parts: Iterable[FilePart]) -> Iterator[FilePart]:
    """The same; those that are in the object store only are fetched while others are worked on."""
    for part in parts:
        if part.expected.place is None:
            yield part
            continue
        from receiver.spark.verify.examining.reading_ahead import read_ahead

        yield from read_ahead(itertools.chain([part], parts))


@contextmanager
def _doing(settings: Settings) -> Iterator[tuple[Callable[[FilePart], pa.RecordBatch], bool]]:
    """How a part is worked off in this attempt, and whether that is in this process."""
    from pyspark import TaskContext

    context = TaskContext.get()
    again = context is not None and context.attemptNumber() > 0
    if not (again or settings.isolated):
        yield lambda part: row_of(do_part(part, settings)), True
        return
    child = Isolated(settings)
    try:
        yield child.do, False
    finally:
        child.close()


class Isolated:
    """Works off parts in a child process; never raises for what becomes of it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._child: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def do(self, part: FilePart) -> pa.RecordBatch:
        """The row of a part."""
        child, line = self._child = self._child or _start()
        end = time.monotonic() + self._settings.limit + _START_S
        try:
            send_frame(line, pickle.dumps((part, self._settings), pickle.HIGHEST_PROTOCOL))
            row = receive_frame(line, lambda: time.monotonic() >= end)
        except (OSError, EOFError):
            if time.monotonic() >= end:
                self.close()
                return _given_up(part, f"no answer after {self._settings.limit:g} seconds")
            line.close()
            status = child.wait()
            self.close()
            how = f"signal {-status}" if status < 0 else f"exit code {status}"
            return _given_up(part, f"the process that read it died ({how})")
        return pa.ipc.open_stream(row).read_next_batch()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            child, line = self._child
            line.close()
            child.kill()
            child.wait()
        self._child = None


def _start() -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    path = os.pathsep.join(each for each in sys.path if each)
    with theirs:
        child = subprocess.Popen(  # noqa: S603 - this interpreter, this package
            [
                sys.executable,
                "-P",
                "-m",
                "receiver.spark.verify.examining.isolation",
                str(theirs.fileno()),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": path},
        )
    return child, ours


def _given_up(part: FilePart, why: str) -> pa.RecordBatch:
    from receiver.spark.verify.examining.file_checks import CheckedPart

    finding = Finding(Severity.UNPROVED, "worker", None, None, None, why)
    checked: CheckedPart = CheckedPart(PartResult(part.file, part.part, findings=[finding]))
    return row_of(checked)


def main() -> None:
    """The child: parts in, rows out, until the other end is closed."""
    limited = False
    with socket.socket(fileno=int(sys.argv[1])) as line:
        while True:
            try:
                content = receive_frame(line)
            except EOFError:
                return
            part, settings = pickle.loads(content)  # noqa: S301 - from the process that started this
            if not limited:
                resource.setrlimit(resource.RLIMIT_DATA, (settings.memory, settings.memory))
                limited = True
            row = row_of(do_part(part, settings))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, row.schema) as stream:
                stream.write_batch(row)
            send_frame(line, sink.getvalue().to_pybytes())


if __name__ == "__main__":
    main()
