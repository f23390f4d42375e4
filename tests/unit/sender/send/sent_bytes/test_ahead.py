"""Blocks on their way ahead of answers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from common.errors import UnreachableError
from sender.send.sent_bytes.ahead import AHEAD, BlocksAhead


@pytest.fixture
def pool():
    with ThreadPoolExecutor(AHEAD) as pool:
        yield pool


def test_the_next_block_goes_when_the_one_before_is_out_and_before_its_answer(pool, monkeypatch):
    monkeypatch.setattr("sender.send.sent_bytes.ahead._SLOW_S", 60.0)
    out, answer, first = threading.Event(), threading.Event(), threading.Event()
    begun: list[int] = []

    def send(offset, block, told):
        begun.append(offset)
        if offset == 0:
            first.set()
            told.begun.set()
            assert out.wait(60)
            told.out.set()
            assert answer.wait(60)
        return offset + len(block)

    ahead = BlocksAhead(pool, send)
    ahead.put(0, b"abc")
    assert first.wait(60)
    second = threading.Thread(target=ahead.put, args=(3, b"de"))
    second.start()
    second.join(0.2)
    assert (second.is_alive(), begun) == (True, [0])
    out.set()
    second.join(60)
    assert not ahead.full
    ahead.put(5, b"f")
    assert ahead.full
    answer.set()
    assert [ahead.next() for _ in range(AHEAD)] == [(3, 3, 3), (5, 5, 2), (6, 6, 1)]
    assert begun == [0, 3, 5]
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


def test_on_a_slow_line_blocks_do_not_wait_for_each_other(monkeypatch):
    monkeypatch.setattr("sender.send.sent_bytes.ahead._SLOW_S", 0.05)
    go = threading.Event()
    begun: list[int] = []

    def send(offset, block, told):
        begun.append(offset)
        told.begun.set()
        assert go.wait(60)
        return offset + len(block)

    with ThreadPoolExecutor(4) as pool:
        ahead = BlocksAhead(pool, send, most=4)
        for offset in range(4):
            assert not ahead.full
            ahead.put(offset, b"x")
        assert (ahead.slow, ahead.full) == (True, True)
        go.set()
        assert [ahead.next() for _ in range(4)] == [(n + 1, n + 1, 1) for n in range(4)]
    assert sorted(begun) == [0, 1, 2, 3]


def test_a_block_waits_for_the_head_of_the_one_before_it_on_a_slow_line_too(monkeypatch):
    monkeypatch.setattr("sender.send.sent_bytes.ahead._SLOW_S", 0.01)
    head, end, first = threading.Event(), threading.Event(), threading.Event()
    begun: list[int] = []

    def send(offset, block, told):
        begun.append(offset)
        first.set()
        assert head.wait(60)
        told.begun.set()
        assert end.wait(60)
        return offset + len(block)

    with ThreadPoolExecutor(2) as pool:
        ahead = BlocksAhead(pool, send)
        ahead.put(0, b"a")
        assert first.wait(60)
        second = threading.Thread(target=ahead.put, args=(1, b"b"))
        second.start()
        second.join(0.2)
        assert (second.is_alive(), begun) == (True, [0])
        head.set()
        second.join(60)
        assert not second.is_alive()
        end.set()
        ahead.settle()
