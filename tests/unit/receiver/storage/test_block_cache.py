"""Blocks in memory: each is fetched once, pinned while it is read, and there is room for all."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.storage.reading.block_cache import (
    BlockCache,
    BlockName,
    BlockWanted,
    CacheFullError,
)
from receiver.storage.stores.object_store import StoreAwayError


class Store:
    """Gives each block its number, ten times; counts and waits."""

    def __init__(self) -> None:
        self.loaded: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails = 0

    def load(self, names: Sequence[BlockName]) -> list[bytes]:
        self.gate.wait(60)
        if self.fails:
            self.fails -= 1
            raise StoreAwayError("away")
        self.loaded += [each.number for each in names]
        return [bytes([each.number]) * 10 for each in names]


def wanted(*numbers: int, size: int = 10) -> list[BlockWanted]:
    return [BlockWanted(BlockName("x", each), size) for each in numbers]


def read(cache: BlockCache, store: Store, *numbers: int, reader: int = 1) -> None:
    with cache.pinned(wanted(*numbers), store.load, reader) as blocks:
        assert blocks == [bytes([each]) * 10 for each in numbers]
        assert cache.used <= cache.capacity


@given(
    st.lists(st.tuples(st.integers(1, 3), st.lists(st.integers(0, 20), max_size=4, unique=True)))
)
def test_whatever_is_read_it_never_takes_more_than_it_has(
    reads: list[tuple[int, list[int]]],
) -> None:
    cache, store = BlockCache(40), Store()
    for reader, numbers in reads:
        read(cache, store, *numbers, reader=reader)
        cache.bring(wanted(*(each + 1 for each in numbers)), store.load)
        assert cache.used <= 40


def test_fifty_readers_of_one_block_make_one_request() -> None:
    cache, store = BlockCache(100), Store()
    store.gate.clear()
    with ThreadPoolExecutor(50) as pool:
        done = [pool.submit(read, cache, store, 1, 2, reader=each) for each in range(1, 51)]
        while cache.hits < 98:
            pass
        store.gate.set()
        for each in done:
            each.result()
    assert store.loaded == [1, 2]


def test_a_fetch_that_failed_fails_its_reader_alone_and_who_waited_fetches_anew() -> None:
    cache, store = BlockCache(100), Store()
    store.gate.clear()
    store.fails = 1
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(read, cache, store, 1)
        two = pool.submit(read, cache, store, 1, reader=2)
        while cache.hits + cache.misses < 2:
            pass
        store.gate.set()
        errors = [each.exception() for each in (one, two)]
    assert sorted(type(each).__name__ for each in errors) == ["NoneType", "StoreAwayError"]
    assert cache.used == 10
    read(cache, store, 1)
    assert store.loaded == [1]


def test_what_is_pinned_stays_and_who_needs_its_room_waits_or_is_refused() -> None:
    cache, store = BlockCache(30, patience=0.02), Store()
    with cache.pinned(wanted(1, 2), store.load, 1):
        with pytest.raises(CacheFullError), cache.pinned(wanted(3, 4), store.load, 2):
            pass
        read(cache, store, 3, reader=2)
        read(cache, store, 4, reader=2)
        assert cache.has(BlockName("x", 1))
        assert cache.has(BlockName("x", 2))
    with pytest.raises(CacheFullError), cache.pinned(wanted(5, 6, 7, 8), store.load, 2):
        pass


def test_who_waits_goes_on_when_another_is_done() -> None:
    cache, store = BlockCache(20), Store()
    with ThreadPoolExecutor(1) as pool:
        with cache.pinned(wanted(1, 2), store.load, 1):
            other = pool.submit(read, cache, store, 3, 4, reader=2)
            assert not other.done()
        other.result(60)


def test_what_two_readers_came_for_outlasts_the_scan_of_one() -> None:
    cache, store = BlockCache(60), Store()
    read(cache, store, 1)
    read(cache, store, 1, reader=2)
    for number in range(10, 30):
        read(cache, store, number, reader=3)
    assert cache.has(BlockName("x", 1))
    assert not cache.has(BlockName("x", 10))


def test_what_was_fetched_ahead_waits_for_its_reader_and_takes_nobody_elses_room() -> None:
    cache, store = BlockCache(50), Store()
    assert cache.bring(wanted(1, 2), store.load)
    for number in range(10, 20):
        read(cache, store, number)
    with cache.pinned(wanted(20, 21, 22), store.load, 1):
        assert not cache.bring(wanted(3), store.load)
    read(cache, store, 1, 2)
    assert store.loaded.count(1) == store.loaded.count(2) == 1


def test_a_reader_in_need_takes_the_room_of_what_was_fetched_ahead() -> None:
    cache, store = BlockCache(30), Store()
    assert cache.bring(wanted(1, 2, 3), store.load)
    read(cache, store, 7, 8, 9)
    assert not cache.has(BlockName("x", 1))


def test_a_failure_to_fetch_ahead_leaves_nothing_behind() -> None:
    cache, store = BlockCache(50), Store()
    store.fails = 1
    with pytest.raises(StoreAwayError):
        cache.bring(wanted(1), store.load)
    assert cache.used == 0
    read(cache, store, 1)
