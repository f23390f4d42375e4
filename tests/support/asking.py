"""Statements put to an engine, and their answers as plain values to compare."""

from __future__ import annotations

from typing import Any

import pytest

from common.errors import TsferryError
from receiver.metadata.engine import Engine
from receiver.metadata.sql.executing import execute


def rows(engine: Engine, sql: str, at: Any = None) -> list[dict[str, Any]]:
    """The whole answer, a dictionary for each row; columns as they are named."""
    result = execute(engine, sql, at=at)
    return [dict(zip(result.columns, row, strict=True)) for row in result]


def column(engine: Engine, sql: str, name: str | None = None, at: Any = None) -> list[Any]:
    """One column of the answer, the first if it is not named."""
    found = rows(engine, sql, at)
    return [next(iter(row.values())) if name is None else row[name] for row in found]


def number(engine: Engine, sql: str, at: Any = None) -> int:
    """The one number that a count answers."""
    (found,) = column(engine, sql, at=at)
    assert isinstance(found, int)
    return found


def run(engine: Engine, *statements: str) -> None:
    """Statements that change something, one after the other."""
    for sql in statements:
        execute(engine, sql)


def refused(
    engine: Engine, sql: str, *words: str, kind: type[TsferryError] = TsferryError
) -> TsferryError:
    """The error of a statement that must be refused: it has these words, and changes nothing."""
    before = engine.newest_commit
    with pytest.raises(kind) as caught:
        list(execute(engine, sql))
    for word in words:
        assert word in caught.value.message, caught.value.message
    assert engine.newest_commit == before, f"{sql}: refused, and yet there is a commit"
    return caught.value
