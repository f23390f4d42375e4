"""Of operations that belong together, those that the engine takes, and why not the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from receiver.metadata.model import records
from receiver.metadata.model.paths import format_path, parse_stored

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    from receiver.metadata.commit.draft import Draft

__all__ = ["acceptable"]

T = TypeVar("T")


def acceptable(
    draft: Draft, ops: Sequence[records.Op]
) -> tuple[list[records.Op], list[tuple[str, str]]]:
    """The operations that a draft has taken, and (path, reason) of the others.

    A part that is refused is cut in halves until what is to blame stands alone.
    """
    good: list[records.Op] = []
    refused: list[tuple[str, str]] = []
    parts: list[Sequence[records.Op]] = [ops] if ops else []
    while parts:
        part = parts.pop()
        error = draft.attempt(part)
        if error is None:
            good += part
        elif (smaller := _halves(part)) is not None:
            parts += reversed(smaller)
        else:
            refused.append((_path(part[0]), error.message))
    return good, refused


def _halves(part: Sequence[records.Op]) -> tuple[Sequence[records.Op], ...] | None:
    if len(part) > 1:
        return part[: len(part) // 2], part[len(part) // 2 :]
    op = part[0]
    if isinstance(op, records.SeriesCreated) and len(op.names) > 1:
        middle = len(op.names) // 2
        return [_slice(op, 0, middle)], [_slice(op, middle, len(op.names))]
    return None


def _slice(op: records.SeriesCreated, begin: int, end: int) -> records.SeriesCreated:
    def cut(column: Sequence[T] | None) -> Sequence[T] | None:
        return None if column is None else column[begin:end]

    return records.SeriesCreated(
        op.device,
        op.names[begin:end],
        op.types[begin:end],
        op.encodings[begin:end],
        op.compressions[begin:end],
        op.aligned,
        cut(op.aliases),
        cut(op.tags),
        cut(op.attributes),
        cut(op.props),
    )


def _path(op: records.Op) -> str:
    match op:
        case records.SeriesCreated():
            return format_path((*parse_stored(op.device), op.names[0]))
        case records.SeriesDeleted():
            return op.pattern
        case _:
            return str(getattr(op, "path", type(op).__name__))
