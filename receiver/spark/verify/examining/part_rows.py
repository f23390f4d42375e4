"""A part worked off in this process, and the row that says what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from receiver.spark.verify.examining.parts import FilePart, PartSpan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from receiver.spark.verify.examining.file_checks import CheckedPart

__all__ = ["ROW", "Settings", "do_part", "row_of", "row_schema", "span_schema", "span_table"]

ROW = "file int, part int, result binary, chunks binary, spans binary"
"""Spark's schema of a row: `result` is a `PartResult` (msgpack), the others are Arrow streams."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the workers work.

    Attributes:
        unit: of the times.
        keep_chunks: make a row for each chunk.
        limit: seconds for a part.
        isolated: each part in a process of its own from the first attempt on.
        memory: bytes that such a process may take.
    """

    unit: str
    keep_chunks: bool
    limit: float
    isolated: bool = False
    memory: int = 4 << 30


def do_part(part: FilePart, settings: Settings) -> CheckedPart:
    """Work off a part in this process."""
    from receiver.spark.verify.examining.file_checks import check_part

    begun = time.monotonic()
    checked = check_part(
        part, unit=settings.unit, keep_chunks=settings.keep_chunks, limit=settings.limit
    )
    checked.result.seconds = time.monotonic() - begun
    return checked


def row_of(checked: CheckedPart) -> pa.RecordBatch:
    """A part's row, as a batch of one."""
    import pyarrow as pa

    result = checked.result
    numbers = [result.file] * len(checked.spans)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([result.file], pa.int32()),
            pa.array([result.part], pa.int32()),
            pa.array([msgspec.msgpack.encode(result)], pa.binary()),
            pa.array([_stream(checked.chunks)], pa.binary()),
            pa.array([_stream(span_table(numbers, checked.spans))], pa.binary()),
        ],
        schema=row_schema(),
    )


def row_schema() -> pa.Schema:
    """`ROW` as Arrow has it."""
    import pyarrow as pa

    return pa.schema(
        {
            "file": pa.int32(),
            "part": pa.int32(),
            "result": pa.binary(),
            "chunks": pa.binary(),
            "spans": pa.binary(),
        }
    )


def span_schema() -> pa.Schema:
    """Of the stream in `spans`: the number of the file, then the members of `PartSpan`."""
    import pyarrow as pa

    numbers = ("first", "last", "rows", "interval", "gap", "gap_begins")
    return pa.schema(
        {"file": pa.int32(), "device": pa.string()} | dict.fromkeys(numbers, pa.int64())
    )


def span_table(files: Sequence[int], spans: Sequence[PartSpan]) -> pa.Table:
    """Spans of files with these numbers, as `span_schema` has them."""
    import pyarrow as pa

    columns: dict[str, Sequence[Any]] = {"file": files}
    for name in PartSpan.__struct_fields__:
        columns[name] = [getattr(each, name) for each in spans]
    return pa.Table.from_pydict(columns, schema=span_schema())


def _stream(table: pa.Table | None) -> bytes | None:
    import pyarrow as pa

    if table is None or not table.num_rows:
        return None
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content
