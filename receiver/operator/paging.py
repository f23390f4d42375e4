"""Pages of long lists: short looks at a sorted index, in between which commits go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State

__all__ = ["CursorPage", "collect", "every_row"]

_SLICE = 1000
"""Rows that are looked at without letting a commit in between."""


class CursorPage(Protocol):
    """Some entries of a list, and where it goes on."""

    @property
    def next(self) -> str | None:
        """The cursor of the next page; None for the last."""


T = TypeVar("T")
P = TypeVar("P", bound=CursorPage)


def every_row(
    engine: Engine,
    page: Callable[[State, str | None, int], list[T]],
    key: Callable[[T], str],
    after: str | None = None,
) -> Iterator[T]:
    """Rows in the order of a sorted index; commits go on while they are taken.

    Args:
        engine: that has them.
        page: rows behind a key, so many at most.
        key: of a row.
        after: the key to begin behind.
    """
    while True:
        with engine.reading() as state:
            rows = page(state, after, _SLICE)
        yield from rows
        if len(rows) < _SLICE:
            return
        after = key(rows[-1])


def collect(
    fetch: Callable[[str | None, int | None], P],
    items: Callable[[P], list[T]],
    limit: int | None = None,
) -> list[T]:
    """All entries of a list that comes in pages, or its first `limit`.

    Args:
        fetch: gives the page behind a cursor, of a length at most (None: as long as may be).
        items: of a page.
        limit: entries that are enough.
    """
    found: list[T] = []
    after: str | None = None
    while limit is None or len(found) < limit:
        page = fetch(after, None if limit is None else limit - len(found))
        found += items(page)
        if page.next is None:
            break
        after = page.next
    return found
