"""Rows that operations change: what two transactions may not both have changed.

Those of the schema stand in the operation; those of tables are what the rules note as written: an
operation on a file concerns its path and its devices as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, get_args

from receiver.metadata.commit.guards import Table
from receiver.metadata.commit.touched import TouchedKey
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.model.paths import parse_pattern, quote_node

__all__ = ["Changed", "schema_rows", "table_rows"]

Changed = tuple[Table, str | tuple[str, ...]]
"""A row as a `Guard` names it."""

_TABLES: Final = frozenset(get_args(Table)) - {"series", "keys", "state"}


def schema_rows(op: records.Op) -> Iterator[Changed]:
    """The series, storage groups and prefixes of keys that an operation changes.

    Raises:
        RefusedCommitError: it deletes by a pattern, which may mean what the transaction never saw.
    """
    match op:
        case records.SeriesCreated():
            for name in op.names:
                yield "series", f"{op.device}.{quote_node(name)}"
        case records.SeriesDeleted():
            if not parse_pattern(op.pattern).is_path:
                raise RefusedCommitError(
                    f"SeriesDeleted: {op.pattern} is a pattern; in a transaction each is named"
                )
            yield "series", op.pattern
        case records.AliasSet() | records.TagsSet():
            yield "series", op.path
        case records.StorageGroupSet():
            if not op.if_missing:
                yield "storage_group", op.path
        case records.StorageGroupDeleted() | records.TtlSet() | records.UploadSet():
            yield "storage_group", op.path
        case records.KeysWritten():
            for prefix in op.removals:
                yield "keys", prefix
        case _:
            pass


def table_rows(written: Iterable[TouchedKey]) -> Iterator[Changed]:
    """The rows of tables among what the rules noted as written."""
    for table, *key in written:
        if table in _TABLES and all(isinstance(each, str) for each in key):
            parts = tuple(map(str, key))
            yield table, parts if len(parts) > 1 else parts[0]  # type: ignore[misc]
