"""The tables of the tree: their columns, as Parquet, and which rows of an entry count.

Columns and their meaning stand in docs/tree.md. A row says how an entry (kind, path, `create_at`)
was at the commit `changed_at`; one that was written later stands for it. An entry that has ended
never begins again, so of the rows of one those with a `delete_at` count, and among equals the last.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from common.errors import DamagedError

__all__ = [
    "CHUNKS",
    "NODES",
    "ArrowTable",
    "as_parquet",
    "behind",
    "concat",
    "from_parquet",
    "newest_rows",
    "table_of",
]

ArrowTable = Any
"""A table of pyarrow's, which has no types."""

NODES: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("path", pa.string()),
        ("parent", pa.string()),
        ("create_at", pa.int64()),
        ("delete_at", pa.int64()),
        ("changed_at", pa.int64()),
        ("files", pa.int64()),
        ("size", pa.int64()),
        ("storage_group", pa.string()),
        ("partition", pa.int64()),
        ("sender", pa.string()),
        ("source_path", pa.string()),
        ("md5", pa.string()),
        ("first_time", pa.int64()),
        ("last_time", pa.int64()),
        ("devices", pa.int64()),
        ("series", pa.int64()),
        ("points", pa.int64()),
        ("loaded_at", pa.int64()),
        ("object", pa.string()),
        ("ended_by", pa.string()),
    ]
)
"""Of the first tier."""

CHUNKS: Final = pa.schema(
    [
        ("file", pa.string()),
        ("create_at", pa.int64()),
        ("storage_group", pa.string()),
        ("partition", pa.int64()),
        ("device", pa.string()),
        ("measurement", pa.string()),
        ("data_type", pa.string()),
        ("chunk", pa.int32()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("count", pa.int64()),
        ("start_time", pa.int64()),
        ("end_time", pa.int64()),
        ("min_long", pa.int64()),
        ("max_long", pa.int64()),
        ("min_double", pa.float64()),
        ("max_double", pa.float64()),
        ("min_binary", pa.binary()),
        ("max_binary", pa.binary()),
        ("sum", pa.float64()),
    ]
)
"""Of the second tier."""

_ORDER: Final = {
    NODES: ("kind", "path", "create_at", "delete_at", "changed_at"),
    CHUNKS: ("storage_group", "partition", "device", "measurement", "start_time", "file", "chunk"),
}
_ENTRY: Final = ("kind", "path", "create_at")
_AT_ONCE: Final = 1000
_ROW_GROUP: Final = 1 << 14
"""Rows of which Parquet keeps a minimum and a maximum: a reader skips those that cannot match."""


def table_of(schema: Any, rows: Sequence[Sequence[Any]]) -> ArrowTable:
    """A table of rows whose members are in the order of the columns.

    In pieces: while one is made no other thread of the process gets on.
    """
    batches = []
    for at in range(0, len(rows), _AT_ONCE):
        columns = zip(*rows[at : at + _AT_ONCE], strict=True)
        arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
        batches.append(pa.record_batch(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema)


def concat(tables: Sequence[ArrowTable]) -> ArrowTable:
    """One behind another; there is at least one."""
    return pa.concat_tables(tables)


def as_parquet(table: ArrowTable) -> bytes:
    """A table in the order of its kind, as a file."""
    out = io.BytesIO()
    order = [(name, "ascending") for name in _ORDER[table.schema]]
    pq.write_table(table.sort_by(order), out, compression="zstd", row_group_size=_ROW_GROUP)
    return out.getvalue()


def from_parquet(data: bytes, schema: Any, columns: Sequence[str] | None = None) -> ArrowTable:
    """The table that a file is, or some columns of it.

    Raises:
        DamagedError: it is none of this kind.
    """
    try:
        found = pq.read_table(pa.BufferReader(data), columns=columns)
        wanted = schema if columns is None else pa.schema([schema.field(each) for each in columns])
        return found.select(wanted.names).cast(wanted)
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        raise DamagedError(f"a table of the tree cannot be read: {error}") from error


def newest_rows(table: ArrowTable) -> ArrowTable:
    """Of each entry the row that counts, in order."""
    if not table.num_rows:
        return table
    ordered = table.sort_by([(name, "ascending") for name in _ORDER[NODES]]).combine_chunks()
    differs = None
    for name in _ENTRY:
        column = ordered.column(name).combine_chunks()
        found = pc.not_equal(column.slice(0, len(column) - 1), column.slice(1))
        differs = found if differs is None else pc.or_(differs, found)
    last = pa.concat_arrays([differs, pa.array([True])])
    return ordered.filter(last)


def behind(table: ArrowTable, kind: str, path: str) -> Any:
    """Which rows of the first tier come behind all of a path: a mask."""
    kinds, paths = table.column("kind"), table.column("path")
    return pc.or_(pc.greater(kinds, kind), pc.and_(pc.equal(kinds, kind), pc.greater(paths, path)))
