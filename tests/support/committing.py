"""Commits checked and applied to a bare state, without an engine around it."""

from __future__ import annotations

from typing import Any

import pytest

from common.tsfile.layout import Compression, DataType, Encoding
from receiver.metadata.commit.draft import examine
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.model.paths import format_path, parse_pattern
from receiver.metadata.state.state import State
from tests.support.metadata import plain

ALL = parse_pattern("root.**")
SNAPPY = Compression.SNAPPY


def fresh(*groups: str) -> State:
    """A state with storage groups."""
    state = State()
    state.apply(records.Commit(1, [records.EngineMade("ee" * 16)]))
    for group in groups:
        do(state, records.StorageGroupSet(group))
    return state


def do(state: State, *ops: records.Op) -> int:
    """Check and apply a commit as the log would give it back; returns its timestamp."""
    ops = tuple(records.decode_ops(records.encode_ops(ops)))
    examine(state, ops)
    ts = state.newest + 1
    state.apply(records.Commit(ts, ops))
    return ts


def refuse(
    state: State,
    error: type[Exception],
    match: str,
    *ops: records.Op,
) -> Any:
    """A commit that is refused, with an error that names the object, and leaves no trace."""
    before = seen(state)
    with pytest.raises(error, match=match) as caught:
        examine(state, ops)
    assert seen(state) == before
    assert type(caught.value) is error or error is RefusedCommitError
    return caught.value


def create(
    path: str,
    *names: str,
    type: int = DataType.INT32,
    encoding: int = Encoding.RLE,
    compression: int = SNAPPY,
    **more: Any,
) -> records.SeriesCreated:
    """New series of a device; without names the last node of `path` is the one."""
    if not names:
        path, _, name = path.rpartition(".")
        names = (name,)
    count = len(names)
    for key in ("aliases", "tags", "attributes"):
        if key in more and not isinstance(more[key], (list, tuple)):
            more[key] = [more[key]]
    return records.SeriesCreated(
        path, names, bytes([type] * count), bytes([encoding] * count),
        bytes([compression] * count), **more,
    )  # fmt: skip


def series(state: State, pattern: str = "root.**", at: int | None = None) -> list[str]:
    """Paths of series, in order; with their alias where they have one."""
    schema = state.schema
    found = [
        schema.series.describe(row, at) for row in schema.series.match(parse_pattern(pattern), at)
    ]
    return [each.path + (f"({each.alias})" if each.alias else "") for each in found]


def groups(state: State) -> list[str]:
    """Paths of storage groups."""
    return [format_path(row.nodes) for row in state.schema.groups.rows()]


def seen(state: State) -> dict[str, Any]:
    """All that a reader sees, as values that compare."""
    schema = state.schema
    rows = [schema.series.describe(row) for row in schema.series.match(ALL)]
    return plain(state) | {
        "storage groups": schema.groups.rows(),
        "series": rows,
        "tags": {row.path: schema.index.tags(row.row) for row in rows},
        "keys": state.keys.load_with_prefix(""),
        "positions": dict(state.schema_positions),
        "memory": schema.memory.used,
    }
