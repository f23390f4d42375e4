"""Sources of tags: their keys and values, from the index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from receiver.metadata.model.paths import Pattern
from receiver.metadata.query import questions as ask
from receiver.metadata.query.ordering import Ahead, first_by_text, take_ahead
from receiver.metadata.query.row_source import Look, RowSource, TakenRows, same
from receiver.metadata.query.searching import tag_keys, tag_pairs
from receiver.metadata.query.timeseries import series_meant

if TYPE_CHECKING:
    from receiver.metadata.state.state import State

__all__ = ["SHOW_TAG_KEYS", "SHOW_TAG_VALUES"]


def _pattern(look: Look, pattern: Pattern) -> Pattern:
    return pattern if pattern == ask.ALL else series_meant(look, pattern)


def _take_keys(look: Look, asked: ask.ShowTagKeys, position: Ahead | None, count: int) -> TakenRows:
    def search(last: Any, most: int) -> tuple[list[int], Any]:
        numbers = tag_keys(look, _pattern(look, asked.pattern))
        return first_by_text(look, numbers, _names, last, most)

    return take_ahead(position, count, search)


def _names(state: State, numbers: Sequence[int]) -> list[str]:
    return state.schema.tree.names.texts(numbers)


def _describe_keys(state: State, numbers: Sequence[int], _: int | None) -> Sequence[tuple[str]]:
    return [(key,) for key in _names(state, numbers)]


def _take_values(
    look: Look, asked: ask.ShowTagValues, position: Ahead | None, count: int
) -> TakenRows:
    def search(last: Any, most: int) -> tuple[list[int], Any]:
        pairs = tag_pairs(look, _pattern(look, asked.pattern), asked.key)
        return first_by_text(look, pairs, _pairs, last, most)

    return take_ahead(position, count, search)


def _pairs(state: State, pairs: Sequence[int]) -> list[tuple[str, str]]:
    text, index = state.schema.tree.names.text, state.schema.index
    return [(text(index.key[pair]), text(index.value[pair])) for pair in pairs]


def _describe_values(
    state: State, pairs: Sequence[int], _: int | None
) -> Sequence[tuple[str, str]]:
    return _pairs(state, pairs)


SHOW_TAG_KEYS: Final = RowSource(("tag key",), _take_keys, _describe_keys, same)
SHOW_TAG_VALUES: Final = RowSource(("tag key", "tag value"), _take_values, _describe_values, same)
