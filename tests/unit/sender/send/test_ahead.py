"""Blocks on their way ahead of answers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from common.errors import UnreachableError
from sender.send.ahead import AHEAD, BlocksAhead


@pytest.fixture
def pool():
    with ThreadPoolExecutor(AHEAD) as pool:
        yield pool


def test_the_next_block_goes_when_the_one_before_is_out_and_before_its_answer(pool):
    out, answer = threading.Event(), threading.Event()
    begun: list[int] = []

    def send(offset, block, told):
        begun.append(offset)
        if offset == 0:
            assert out.wait(20)
            told()
            assert answer.wait(20)
        return offset + len(block)

    ahead = BlocksAhead(pool, send)
    ahead.put(0, b"abc")
    second = threading.Thread(target=ahead.put, args=(3, b"de"))
    second.start()
    second.join(0.2)
    assert (second.is_alive(), begun) == (True, [0])
    out.set()
    second.join(20)
    assert ahead.full
    answer.set()
    assert [ahead.next(), ahead.next()] == [(3, 3, 3), (5, 5, 2)]
    assert begun == [0, 3]
    assert not ahead


def test_a_request_that_fails_before_its_body_is_out_holds_nobody_up(pool):
    def send(offset, block, told):
        if offset == 0:
            raise UnreachableError("gone")
        return offset + len(block)

    ahead = BlocksAhead(pool, send)
    ahead.put(0, b"abc")
    ahead.put(3, b"de")
    with pytest.raises(UnreachableError):
        ahead.next()
    ahead.settle()
    assert not ahead
