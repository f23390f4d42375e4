"""What one task of a write does: sort its rows, write a file a bucket, send it as it grows."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from common.durable import ScratchDirectory
from receiver.operator.views.write_wire import StagedPart
from receiver.row_checks.constraints import constraints_of
from receiver.spark.sink.bucket_file import write_bucket
from receiver.spark.sink.device_book import DeviceBook
from receiver.spark.sink.incoming_rows import incoming_of
from receiver.spark.sink.sink_calls import SentPart, WriteCalls
from receiver.spark.sink.sorted_rows import Sorter

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from receiver.spark.sink.write_plan import WritePlan

__all__ = ["write_rows"]


def write_rows(
    plan: WritePlan, batches: Iterable[pa.RecordBatch], calls: WriteCalls | None = None
) -> list[StagedPart]:
    """Write the rows of a task under an id of this attempt.

    Args:
        plan: of the write.
        batches: of rows.
        calls: to the receiver; by this process's own token if left out.

    Returns:
        what the commit has to name; nothing counts before it does.

    Raises:
        TsferryError: a row is none, contradicts what the receiver has, or cannot be sent.
    """
    calls = calls or WriteCalls(plan.options, plan.task, os.environ)
    try:
        with ScratchDirectory("tsferry-write") as scratch:
            return _write(plan, batches, calls, Path(scratch.name))
    finally:
        calls.close()


def _write(
    plan: WritePlan, batches: Iterable[pa.RecordBatch], calls: WriteCalls, scratch: Path
) -> list[StagedPart]:
    check = constraints_of(plan.options.constraints, plan.tags)
    book = DeviceBook(plan, calls)
    rows = incoming_of(plan, book)

    def groups(devices: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        return np.array([each.group for each in book.devices], np.int32)[devices]

    sorter = Sorter(scratch, plan.options.buffer_bytes, plan.interval, groups)
    for batch in batches:
        if batch.num_rows:
            check(batch)
            sorter.add(rows.take(batch))
    attempt = secrets.token_hex(16)
    parts: list[StagedPart] = []
    for bucket, devices in sorted(sorter.finish().items()):
        part = SentPart(calls, attempt, len(parts), plan.block)
        if write_bucket(rows, devices, part.write):
            parts.append(part.finish(book.groups[bucket.group], bucket.partition))
    return parts
