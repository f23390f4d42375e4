"""What is needed next is fetched meanwhile: in order, so much at once, errors where they belong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from receiver.storage.reading.prefetching import fetched_ahead
from receiver.storage.stores.object_store import StoreAwayError
from tests.support.web import until


class Fetches:
    """Counts what was begun, and what is begun and not finished."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.fails: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, thing: int) -> int:
        self.begun.append(thing)
        self.gate.wait(60)
        if thing in self.fails:
            raise StoreAwayError(f"away: {thing}")
        return thing * 2


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def test_each_comes_in_order_with_what_was_fetched_of_it(pool: ThreadPoolExecutor) -> None:
    fetches = Fetches()
    found = [(each, get()) for each, get in fetched_ahead(range(50), fetches, lambda _: 1, pool)]
    assert found == [(each, each * 2) for each in range(50)]
    assert sorted(fetches.begun) == list(range(50))
    assert list(fetched_ahead([], fetches, lambda _: 1, pool)) == []


def test_while_one_is_worked_on_the_next_are_fetched_and_no_more_than_allowed(
    pool: ThreadPoolExecutor,
) -> None:
    fetches = Fetches()
    ahead = fetched_ahead(range(50), fetches, lambda _: 1, pool, most_things=4)
    for at in range(5):
        assert next(ahead)[1]() == at * 2
        until(lambda: len(fetches.begun) == at + 5)  # noqa: B023
    ahead.close()


def test_they_hold_no_more_bytes_than_allowed_unless_one_alone_does(
    pool: ThreadPoolExecutor,
) -> None:
    fetches, sizes = Fetches(), [3, 3, 3, 50, 3]
    ahead = fetched_ahead(range(5), fetches, lambda at: sizes[at], pool, most_bytes=9)
    assert next(ahead)[1]() == 0
    until(lambda: sorted(fetches.begun) == [0, 1, 2])
    next(ahead)
    next(ahead)
    until(lambda: sorted(fetches.begun) == [0, 1, 2, 3])
    assert [get() for _, get in ahead] == [6, 8]


def test_an_error_shows_where_its_thing_is_needed_and_spoils_no_other(
    pool: ThreadPoolExecutor,
) -> None:
    fetches = Fetches()
    fetches.fails = {2}
    found: list[object] = []
    for _, get in fetched_ahead(range(4), fetches, lambda _: 1, pool):
        try:
            found.append(get())
        except StoreAwayError as error:
            found.append(error.message)
    assert found == [0, 2, "away: 2", 6]


def test_who_stops_leaves_nothing_to_be_begun() -> None:
    fetches = Fetches()
    fetches.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        ahead = fetched_ahead(range(50), fetches, lambda _: 1, pool)
        next(ahead)
        until(lambda: fetches.begun == [0])
        ahead.close()
        fetches.gate.set()
    assert fetches.begun == [0]
