"""A schema without a log, asked in the way in which users ask: by `receiver.metadata.query`."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Final

from receiver.metadata.model.errors import NotATagError
from receiver.metadata.model.paths import Pattern
from receiver.metadata.query import questions as ask
from receiver.metadata.query.answers import Answer
from receiver.metadata.schema import Schema

_NOW: Final = (1 << 63) - 1


class _Engine:
    """As much of an engine as an answer needs."""

    def __init__(self, schema: Schema) -> None:
        self._state = SimpleNamespace(schema=schema, newest=_NOW, owners={})

    def at(self, when: int | None) -> int:
        return _NOW if when is None else when

    def reading(self) -> Any:
        return nullcontext(self._state)

    def check_answerable(self, ts: int) -> None:
        """All of the past is there."""

    def tags_of(self, offset: int) -> tuple[dict[str, str], dict[str, str]]:
        return {"offset": str(offset)}, {}


def rows(
    schema: Schema, query: ask.Query, at: int | None = None, page: int = 1000
) -> list[tuple[Any, ...]]:
    """The whole answer, fetched in pages."""
    answer = Answer(_Engine(schema), query, at=at)
    found: list[tuple[Any, ...]] = []
    while rows := answer.fetch(page):
        assert len(rows) <= page
        found += rows
    return found


def first(schema: Schema, query: ask.Query, at: int | None = None, page: int = 1000) -> list[Any]:
    """The first column of the answer."""
    return [row[0] for row in rows(schema, query, at, page)]


def number(schema: Schema, query: ask.Query, at: int | None = None) -> int:
    """The one number that a count answers."""
    ((found,),) = rows(schema, query, at)
    assert isinstance(found, int)
    return found


def tagged(
    schema: Schema,
    key: str,
    value: str,
    pattern: Pattern = ask.ALL,
    at: int | None = None,
    *,
    contains: bool = False,
) -> list[str]:
    """Paths of the series with a tag; none, where no series has a tag of this key."""
    where = ask.TagFilter(key, value, contains)
    try:
        return first(schema, ask.ShowTimeseries(pattern=pattern, where=where), at)
    except NotATagError:
        return []
