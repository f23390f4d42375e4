"""A write of rows into a real node, without Spark and without HTTP: tasks one after the other."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from receiver.node import Node
from receiver.operator.centre.load_owners import named_owners
from receiver.operator.views.load_wire import CentreLoadAnswer
from receiver.operator.views.write_wire import KnownDevice, StagedPart, WriteRequest
from receiver.spark.sink.sink_options import parse_sink_options
from receiver.spark.sink.task_rows import write_rows
from receiver.spark.sink.write_plan import SinkColumn, WritePlan, planned_columns
from receiver.spark.source.inferring import columns_of, list_sources, plan_of, read_tail_of
from receiver.spark.source.read_plans.result_columns import ResultColumn
from receiver.spark.source.read_plans.slicing import plan as plan_parts
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices


class NodeCalls:
    """What `WriteCalls` does, asked of the node itself."""

    def __init__(self, node: Node, task: str) -> None:
        self._writes, self.task = node.operator.writes, task
        self.asked: list[str] = []
        self.largest = 0

    def known(self, devices: Sequence[str]) -> list[KnownDevice]:
        self.asked += devices
        return self._writes.known(self.task, devices, None)

    def put(self, attempt: str, number: int, offset: int, content: bytes) -> None:
        from common.digests import xxh3_64

        self.largest = max(self.largest, len(content))
        view = memoryview(content)
        self._writes.put(self.task, attempt, number, offset, view, xxh3_64(content), None)

    def close(self) -> None:
        pass


class Write:
    """A write of a DataFrame with these columns."""

    def __init__(self, node: Node, columns: Sequence[ResultColumn], **given: str) -> None:
        self.node = node
        options = parse_sink_options({"receiver": "http://127.0.0.1:1", **given})
        found = [SinkColumn(each.name, each.type, dict(each.metadata)) for each in columns]
        fields, tags = planned_columns(options, found)
        self.task = secrets.token_hex(16)
        owner, others = named_owners(options.owners)
        request = WriteRequest(owner=owner, others=others, on_duplicate=options.on_duplicate)
        opened = node.operator.writes.open(self.task, request, None)
        self.calls = NodeCalls(node, self.task)
        self.plan = WritePlan(
            options, self.task, fields, tags, opened.owner, opened.interval, opened.block
        )

    def run(self, batches: Iterable[pa.RecordBatch]) -> list[StagedPart]:
        """One attempt of one task."""
        return write_rows(self.plan, batches, self.calls)  # type: ignore[arg-type]

    def commit(self, parts: Sequence[StagedPart]) -> CentreLoadAnswer:
        """All of the load."""
        self.node.operator.writes.commit(self.task, parts, None)
        while not (answer := self.node.operator.centre.answer(self.task, 5.0)).done:
            pass
        return answer


def rows_of(**given: str) -> tuple[list[ResultColumn], list[pa.RecordBatch]]:
    """Columns and batches of a query: `form` and such; `path` or `catalog`."""
    options = parse_options(given)
    columns = columns_of(options)
    plan = plan_of(options, columns)
    parts = plan_parts(
        list_sources(options),
        plan.selection.span,
        options.partition_bytes,
        plan.picker(),
        read_tail_of,
        merge=options.merge,
    )
    return columns, list(_read(parts, plan))


def _read(parts: Iterable[Any], plan: Any) -> Iterator[pa.RecordBatch]:
    for each in parts:
        yield from read_slices(each, plan)


def as_set(batches: Iterable[pa.RecordBatch]) -> list[str]:
    """Rows, in an order of their own; the same for the same rows."""
    rows = (row for batch in batches for row in batch.to_pylist())
    return sorted(repr(sorted(row.items())) for row in rows)


def batch_of(rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> pa.RecordBatch:
    """Rows as Spark hands them over."""
    kinds = {
        "bigint": pa.int64(), "int": pa.int32(), "string": pa.string(), "double": pa.float64(),
        "float": pa.float32(), "boolean": pa.bool_(), "binary": pa.binary(), "date": pa.date32(),
    }  # fmt: skip
    arrays = [
        pa.array([row.get(name) for row in rows], kinds[kind]) for name, kind in types.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


def config_of(node: Node, place: Path) -> str:
    """A configuration that names the directories of a node, as option `catalog`."""
    config = node.config
    directories = ", ".join(f'"{each}"' for each in config.data_dirs)
    place.write_text(f'schema_dir = "{config.schema_dir}"\ndata_dirs = [{directories}]\n')
    return str(place)
