"""Sources of series: by path, by tag (`where`), by heat; and of the sums of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from receiver.metadata.model.errors import NotATagError
from receiver.metadata.model.paths import MANY, MAX_NODES, ONE, Nodes, Pattern, format_path
from receiver.metadata.model.types import COMPRESSION_TEXTS, ENCODING_TEXTS, TYPE_TEXTS
from receiver.metadata.query import questions as ask
from receiver.metadata.query.ordering import Ahead, by_heat, by_path, take_ahead
from receiver.metadata.query.row_source import LabelsAt, Look, Row, RowSource, TakenRows, text_of
from receiver.metadata.query.searching import (
    RowNumbers,
    ancestors,
    select,
    tag_keys,
    tagged,
    texts_of,
)

if TYPE_CHECKING:
    from receiver.metadata.schema import SeriesRow
    from receiver.metadata.state.state import State

__all__ = ["COUNT_TIMESERIES", "SHOW_TIMESERIES", "run_of", "series_meant"]


def series_meant(look: Look, pattern: Pattern) -> Pattern:
    """A path that is no series means all that is below it; an alias its series."""
    if not pattern.is_path:
        return pattern
    with look as (state, at):
        row = state.schema.series.find(pattern.prefix, at)
        return pattern.below() if row < 0 else Pattern.of(state.schema.tree.nodes(row))


def run_of(pattern: Pattern) -> Pattern:
    """All that is below the nodes before the first wildcard: one run in path order."""
    return pattern if pattern.is_path else Pattern((*pattern.prefix, MANY))


def _take_series(look: Look, asked: ask.ShowTimeseries, position: Any, count: int) -> TakenRows:
    pattern = series_meant(look, asked.pattern)
    if asked.where is None and not asked.by_heat and pattern == run_of(pattern):
        with look as (state, at):
            after: Nodes | None = position
            rows = state.schema.series.match(pattern, at, after, count)
            after = state.schema.tree.nodes(rows[-1]) if rows else after
        return TakenRows(rows, after, len(rows) == count)

    # `root.**.s1` is found everywhere or nowhere: to walk there would take too long.
    def search(last: Any, most: int) -> tuple[list[int], Any]:
        rows = _found(look, asked.where, pattern)
        if asked.by_heat:
            return by_heat(look, rows, run_of(pattern), last, most)
        found = by_path(look, rows, run_of(pattern), "leaf", last, most)
        return found, found[-1] if found else last

    return take_ahead(position, count, search)


def _found(look: Look, where: ask.TagFilter | None, pattern: Pattern) -> RowNumbers:
    if where is None:
        return select(look, pattern, "leaf")
    rows = tagged(look, where, pattern)
    if not len(rows) and where.key not in texts_of(look, tag_keys(look, ask.ALL)):
        raise NotATagError(
            f"where: {where.key[:_SHOWN]!r} is the tag of no series; only tags filter, attributes "
            "do not (show tag keys lists what there is)",
            extra={"key": where.key[:_SHOWN]},
        )
    return rows


def _describe_series(state: State, rows: Sequence[int], at: int | None) -> Sequence[SeriesRow]:
    return state.schema.series.describe_many(rows, at)


def _show_series(row: SeriesRow, labels: LabelsAt) -> Row:
    tags, attributes = labels(row.tags_at)
    return (
        row.path,
        row.alias,
        text_of(row.storage_group),
        TYPE_TEXTS[row.type],
        ENCODING_TEXTS[row.encoding],
        COMPRESSION_TEXTS[row.compression],
        tags,
        attributes,
        row.heat,
        row.created,
    )


_SHOWN: Final = 200
"""Characters of a name that an error repeats."""


# -- counting --------------------------------------------------------------------------------------


def _take_counts(
    look: Look, asked: ask.CountTimeseries, position: Ahead | None, count: int
) -> TakenRows:
    """Pairs of a row and its count as one number; ~count for all together."""
    pattern = series_meant(look, asked.pattern)
    level = asked.level
    if level is None:
        return TakenRows([~_count(look, asked.where, pattern)], None, False)
    if level >= MAX_NODES:
        return TakenRows([], None, False)

    def search(last: Any, most: int) -> tuple[list[int], Any]:
        above = ancestors(look, _found(look, asked.where, pattern), level)
        counts = np.bincount(above)
        rows = np.flatnonzero(counts)
        within = Pattern((*pattern.prefix[: level + 1], *[ONE] * (level + 1 - len(pattern.prefix))))
        found = by_path(look, rows, within, "node", last, most)
        packed = [int(counts[row]) << 32 | row for row in found]
        return packed, found[-1] if found else last

    return take_ahead(position, count, search, "q")


def _count(look: Look, where: ask.TagFilter | None, pattern: Pattern) -> int:
    if where is None and pattern == ask.ALL:
        with look as (state, at):
            if at is None:
                return state.schema.columns.series_count
    return len(_found(look, where, pattern))


def _describe_counts(
    state: State, packed: Sequence[int], _: int | None
) -> Sequence[tuple[Nodes | None, int]]:
    nodes = state.schema.tree.nodes
    return [
        (None, ~each) if each < 0 else (nodes(each & 0xFFFFFFFF), each >> 32) for each in packed
    ]


def _show_count(row: tuple[Nodes | None, int], _: LabelsAt) -> Row:
    nodes, count = row
    return (count,) if nodes is None else (format_path(nodes), count)


# -- their sources ---------------------------------------------------------------------------------

SHOW_TIMESERIES: Final = RowSource(
    (
        "timeseries",
        "alias",
        "storage group",
        "dataType",
        "encoding",
        "compression",
        "tags",
        "attributes",
        "heat",
        "created",
    ),
    _take_series,
    _describe_series,
    _show_series,
)
COUNT_TIMESERIES: Final = RowSource(
    ("column", "count(timeseries)"), _take_counts, _describe_counts, _show_count
)
