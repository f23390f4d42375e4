"""Small commits of every kind of the schema, for tests of logs and checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from tests.support import schema_view
from tests.support.metadata import A, load, path, plain, seen

__all__ = ["HISTORY", "everything", "series"]


def everything(engine: Engine) -> dict[str, Any]:
    """All that an engine answers about now, as values that compare."""
    with engine.reading() as state:
        rows = plain(state)
        rows["positions"] = dict(state.schema_positions)
        rows["ownership_changed"] = state.owner_table.changed
    return {"rows": rows, "schema": schema_view.of_engine(engine)}


def series(
    device: str, *names: str, tags: Sequence[dict[str, str]] | None = None, **more: object
) -> records.SeriesCreated:
    """Series of type FLOAT, GORILLA, SNAPPY."""
    count = len(names)
    return records.SeriesCreated(
        device,
        names,
        bytes([3]) * count,
        bytes([8]) * count,
        bytes([1]) * count,
        tags=tags,
        **more,  # type: ignore[arg-type]
    )


HISTORY: list[list[records.Op]] = [
    [seen(), records.StorageGroupSet("root.t")],
    [series("root.t.d1", "s1", "s2", tags=[{"unit": "c"}, {}], aliases=["temp", None])],
    [load(), series("root.t.d2", "s1", tags=[{"unit": "k", "at": "hall, é"}])],
    [records.TagsSet("root.t.d1.s1", {"unit": "f"}, {"maker": "x"})],
    [records.AliasSet("root.t.d1.s2", "other"), records.TtlSet("root.t", 9000)],
    [records.SeriesDeleted("root.t.d2.s1"), records.KeysWritten([], {"a/1": "x", "a/2": "y"})],
    [
        load(path("2-2-0"), 2),
        records.StorageGroupSet("root.u"),
        series("root.u.d", "s", attributes=[{"k": "v"}]),
    ],
    [records.KeysWritten(["a/1"], {"b": "z"}), records.OwnerSet("root.t.d1", A, "moved")],
    [records.StorageGroupDeleted("root.u")],
]
"""Commits, in order; all of them are allowed."""
