"""The class that Spark knows of a write: it is planned and committed by the driver."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from common.errors import ConflictError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from receiver.operator.views.write_wire import StagedPart
    from receiver.spark.sink.write_plan import WritePlan

__all__ = ["TsFileBatchWriter", "WrittenParts", "planned_writer"]


@dataclass(frozen=True)
class WrittenParts(WriterCommitMessage):
    """What a task tells the driver: the files that it has sent."""

    parts: tuple[StagedPart, ...]


class TsFileBatchWriter(DataSourceArrowWriter):
    """Writes in each task, and makes one load of it all.

    Spark names to `commit` what one attempt of each task has told, so what others have sent, that
    failed or came second, is none of it, and goes with the write.
    """

    def __init__(self, plan: WritePlan) -> None:
        """Make one of a write that is open."""
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenParts:
        """The rows of a task."""
        from receiver.spark.sink.task_rows import write_rows

        return WrittenParts(tuple(write_rows(self._plan, iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Load what the tasks have written, all of it in one commit.

        Raises:
            ConflictError: the receiver refuses it; nothing is loaded, or a file is bad by now.
            TsferryError: it cannot now.
        """
        from receiver.spark.sink.sink_calls import WriteCalls

        parts: list[StagedPart] = []
        for each in messages:
            if not isinstance(each, WrittenParts):
                raise UsageError("a task has not told what it wrote; nothing is loaded")
            parts += each.parts
        calls = WriteCalls(self._plan.options, self._plan.task, os.environ)
        try:
            if not parts:
                calls.drop()
                return
            answer = calls.commit(parts)
        finally:
            calls.close()
        for file in answer.files:
            if file.result == "refused":
                raise ConflictError(f"nothing of this write is loaded: {file.reason}")
            if file.result == "missing":
                raise ConflictError(
                    "this write is loaded, and rows of it are not to be read: of a file of it is "
                    f"said: {file.reason}"
                )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """End the write with nothing; what cannot be removed now goes by itself later."""
        from receiver.spark.sink.sink_calls import WriteCalls

        calls = WriteCalls(self._plan.options, self._plan.task, os.environ)
        try:
            calls.drop()
        finally:
            calls.close()


def planned_writer(given: Mapping[str, str], schema: StructType) -> TsFileBatchWriter:
    """Open a write at the receiver.

    Raises:
        UsageError: an option or a column is wrong.
        TsferryError: the receiver refuses it.
    """
    from receiver.spark.sink.sink_calls import WriteCalls
    from receiver.spark.sink.sink_options import parse_sink_options
    from receiver.spark.sink.write_plan import SinkColumn, WritePlan, planned_columns

    options = parse_sink_options(given)
    columns = [
        SinkColumn(each.name, each.dataType.simpleString(), dict(each.metadata or {}))
        for each in schema.fields
    ]
    fields, tags = planned_columns(options, columns)
    plan = WritePlan(options, secrets.token_hex(16), fields, tags)
    calls = WriteCalls(options, plan.task, os.environ)
    try:
        opened = calls.open(options.owners, options.on_duplicate)
    finally:
        calls.close()
    return TsFileBatchWriter(
        replace(plan, owner=opened.owner, interval=opened.interval, block=opened.block)
    )
