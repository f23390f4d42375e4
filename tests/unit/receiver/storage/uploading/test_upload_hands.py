"""Threads that bring files: all that came is given once, and an error ends the others soon."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from receiver.storage.uploading.upload_hands import UploadHands


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def test_all_that_came_is_given_once_in_batches(pool: ThreadPoolExecutor) -> None:
    hands = UploadHands[int]()
    numbers = iter(range(1000))
    lock = threading.Lock()

    def bring() -> bool:
        with lock:
            number = next(numbers, None)
        if number is not None:
            hands.add(number)
        return number is not None

    batches = list(hands.batches(pool, 4, bring, most=10, seconds=60))
    assert sorted(each for batch in batches for each in batch) == list(range(1000))
    assert len(batches) <= 101


def test_what_came_is_given_when_the_time_is_over_while_another_is_under_way(
    pool: ThreadPoolExecutor,
) -> None:
    hands = UploadHands[int]()
    go_on = threading.Event()
    numbers = iter((1, 2))

    def bring() -> bool:
        number = next(numbers, None)
        if number is None:
            return not go_on.wait(60)
        hands.add(number)
        return True

    with closing(hands.batches(pool, 1, bring, most=10, seconds=0.05)) as batches:
        given = next(batches)
        while len(given) < 2:  # its thread may come to the second one late
            given += next(batches)
        assert given == [1, 2]
        go_on.set()
        assert not any(batches)


def test_an_error_of_one_ends_all_and_nothing_is_given_behind_it(pool: ThreadPoolExecutor) -> None:
    hands = UploadHands[int]()
    lock = threading.Lock()
    calls = iter(range(10_000))
    halt, halted = hands.halt, threading.Event()

    def halt_all() -> None:
        halt()
        halted.set()

    def bring() -> bool:
        with lock:
            number = next(calls)
        if number == 5:
            raise OSError(5, "Input/output error")
        if number > 5:
            halted.wait(60)
        hands.add(number)
        return True

    hands.halt = halt_all  # type: ignore[method-assign]
    with pytest.raises(OSError, match="Input"):
        assert not list(hands.batches(pool, 4, bring, most=10_000, seconds=60))
    assert next(calls) < 10


def test_who_lets_go_of_them_early_ends_them(pool: ThreadPoolExecutor) -> None:
    hands = UploadHands[int]()

    def bring() -> bool:
        hands.add(1)
        return True  # for ever

    with closing(hands.batches(pool, 4, bring, most=1, seconds=60)) as batches:
        assert next(batches)
    pool.submit(int).result(60)
