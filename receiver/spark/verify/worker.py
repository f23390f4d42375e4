"""What runs inside Spark's Python workers: groups of parts in, one row a part out.

A first attempt works in the worker itself. If the worker dies (killed for its memory, or by a fault
of ours), Spark starts the task again, and then each part is worked off in a process of its own, so
that the one which kills it becomes a row like any other.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from receiver.spark.verify.isolation import Isolated
from receiver.spark.verify.part_rows import Settings, do_part, row_of
from receiver.spark.verify.parts import FilePart, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

__all__ = ["Worker"]


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
        with _doing(self._settings) as do:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for part in unpack(self._groups.value[number]):
                        yield do(part)


@contextmanager
def _doing(settings: Settings) -> Iterator[Callable[[FilePart], pa.RecordBatch]]:
    """How a part is worked off in this attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    again = context is not None and context.attemptNumber() > 0
    if not (again or settings.isolated):
        yield lambda part: row_of(do_part(part, settings))
        return
    child = Isolated(settings)
    try:
        yield child.do
    finally:
        child.close()
