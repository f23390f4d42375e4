"""Blocks that come at the same time: in order, and a failure takes what is behind it along."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from common.errors import BusyError, OffsetError
from receiver.transfer.turns import Turns


class Upload:
    """An upload of letters, a call a block."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.counts = 0
        self.digested = ""

    def take(self, offset: int, text: str, *, before_digest=None, before_count=None) -> int:
        with self.turns.joined(lambda: self.counts, offset, len(text)) as turn:
            if before_digest:
                before_digest()
            with turn.digesting():
                self.digested += text
            if before_count:
                before_count()
            with turn.counting():
                self.counts = turn.end
                return self.counts


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as pool:
        yield pool


class Gate:
    """A call stops here until it is let on."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.open.wait(60)
        if self.error:
            raise self.error


def test_a_block_is_digested_while_the_one_before_it_is_flushed_and_counts_behind_it(pool):
    upload, flush = Upload(), Gate()
    first = pool.submit(upload.take, 0, "abc", before_count=flush)
    assert flush.reached.wait(60)
    digested = Gate()
    second = pool.submit(upload.take, 3, "de", before_count=digested)
    assert digested.reached.wait(60)
    assert (upload.digested, upload.counts) == ("abcde", 0)
    digested.open.set()
    assert wait([second], timeout=0.2).not_done
    flush.open.set()
    assert (first.result(60), second.result(60)) == (3, 5)


def test_a_block_that_came_first_to_its_thread_waits_for_the_one_before_it(pool):
    upload, write = Upload(), Gate()
    first = pool.submit(upload.take, 0, "abc", before_digest=write)
    assert write.reached.wait(60)
    second = pool.submit(upload.take, 3, "de")
    write.open.set()
    assert (first.result(60), second.result(60)) == (3, 5)
    assert upload.digested == "abcde"


@pytest.mark.parametrize("where", ["before_digest", "before_count"])
def test_what_fails_takes_those_behind_it_along(pool, where):
    upload, gate = Upload(), Gate(OSError("no"))
    first = pool.submit(upload.take, 0, "abc", **{where: gate})
    assert gate.reached.wait(60)
    second = pool.submit(upload.take, 3, "de")
    gate.open.set()
    with pytest.raises(OSError, match="no"):
        first.result(60)
    with pytest.raises(OffsetError) as refused:
        second.result(60)
    assert refused.value.extra["offset"] == upload.counts == 0
    assert upload.take(0, "abcde") == 5  # and the next begins where the copy ends


def test_what_fails_leaves_those_before_it_alone(pool):
    upload, flush = Upload(), Gate()
    first = pool.submit(upload.take, 0, "abc", before_count=flush)
    assert flush.reached.wait(60)

    def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        upload.take(3, "de", before_digest=fail)
    with pytest.raises(BusyError):
        upload.take(5, "f")  # behind what failed, and others are there
    flush.open.set()
    assert first.result(60) == 3
    assert upload.take(3, "de") == 5


def test_only_the_next_block_may_join(pool):
    upload, flush = Upload(), Gate()
    with pytest.raises(OffsetError):
        upload.take(3, "de")
    first = pool.submit(upload.take, 0, "abc", before_count=flush)
    assert flush.reached.wait(60)
    for offset in (0, 2, 5):
        with pytest.raises(BusyError):
            upload.take(offset, "xy")
    with pytest.raises(BusyError), upload.turns.alone():
        pass
    flush.open.set()
    first.result(60)
    with upload.turns.alone(), pytest.raises(BusyError):
        upload.take(3, "de")
    assert upload.take(3, "de") == 5


def test_a_first_block_that_failed_takes_the_second_along_though_the_third_heard_of_it_first(pool):
    upload, first, second, third = Upload(), Gate(OSError("full")), Gate(), Gate()
    texts = ((0, "ab", first), (2, "cd", second), (4, "ef", third))
    calls = []
    for offset, text, gate in texts:
        calls.append(pool.submit(upload.take, offset, text, before_digest=gate))
        assert gate.reached.wait(60)
    for gate, call in ((first, calls[0]), (third, calls[2])):
        gate.open.set()
        assert isinstance(call.exception(20), OSError | OffsetError)
    second.open.set()
    assert isinstance(calls[1].exception(5), OffsetError)
