"""What is needed next is fetched while what is there is worked on."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from concurrent.futures import Executor, Future

__all__ = ["PREFETCHED_BYTES", "fetched_ahead"]

PREFETCHED_BYTES = 32 << 20
"""Bytes: half of the memory that a process reads by, so that what is read now has the other."""
_MOST_THINGS = 16

T = TypeVar("T")
R = TypeVar("R")


def fetched_ahead(
    things: Iterable[T],
    fetch: Callable[[T], R],
    weight: Callable[[T], int],
    pool: Executor,
    *,
    most_things: int = _MOST_THINGS,
    most_bytes: int = PREFETCHED_BYTES,
) -> Generator[tuple[T, Callable[[], R]], None, None]:
    """Each thing, in order, with a call that gives what was fetched of it.

    That call waits, and raises what the fetching raised: an error shows where the thing is needed,
    and spoils no other. When the iterator is closed, nothing more is begun.

    Args:
        things: in the order in which they are needed.
        fetch: fetches one; called in other threads.
        weight: bytes that it holds, about.
        pool: whose threads fetch.
        most_things: under way or waiting at once, beside the one that was given last.
        most_bytes: of them, unless one alone has more.
    """
    coming: deque[tuple[T, int, Future[R]]] = deque()
    rest = iter(things)
    held: list[T] = []  # the next one, while there is no room for it
    size = 0

    def begin() -> None:
        nonlocal size
        while len(coming) < most_things:
            if not held:
                held.extend(islice(rest, 1))
            if not held or (coming and size + weight(held[0]) > most_bytes):
                return
            thing = held.pop()
            size += weight(thing)
            coming.append((thing, weight(thing), pool.submit(fetch, thing)))

    try:
        begin()
        while coming:
            thing, its, future = coming.popleft()
            size -= its
            begin()
            yield thing, future.result
    finally:
        for _, _, future in coming:
            future.cancel()
