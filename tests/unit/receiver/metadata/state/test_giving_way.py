"""A long reading lets others read in between; what it reads stands still to its end."""

from __future__ import annotations

import sys
import threading

import pytest

from receiver.metadata.state.lock import Reading


class Between:
    """Stands in for the sleep of who gives way: sees that others could do something."""

    def __init__(self) -> None:
        self.given, self.taken = threading.Event(), threading.Event()

    def __call__(self, seconds: float) -> None:
        self.given.set()
        assert self.taken.wait(60), "nobody could read"


def test_others_read_while_a_long_reading_gives_way_and_a_commit_waits_for_its_end() -> None:
    between = Between()
    seen: list[str] = []
    reading = Reading("state", between)  # type: ignore[arg-type]

    def read() -> None:
        between.given.wait(60)
        with reading:
            seen.append("read")
        writer.start()
        while not writes.locked():  # it is about to ask for the lock
            pass
        between.taken.set()

    writes = threading.Lock()

    def write() -> None:
        writes.acquire()
        with reading.writing():
            seen.append("written")

    reader, writer = threading.Thread(target=read), threading.Thread(target=write)
    reader.start()
    with reading:
        reading.give_way()
        assert reading.is_mine()
        reading.give_way()
        seen.append("done")
    reader.join(60)
    writer.join(60)
    assert seen == ["read", "done", "written"]


def test_a_reading_inside_another_does_not_give_it_away() -> None:
    def never(seconds: float) -> None:
        raise AssertionError("what is around it was not asked")

    reading = Reading("state", never)  # type: ignore[arg-type]
    with reading, reading:
        reading.give_way()
        assert reading.is_mine()


def test_a_reading_that_was_cut_off_while_it_gave_way_holds_nobody_up() -> None:
    def cut_off(seconds: float) -> None:
        raise KeyboardInterrupt

    reading = Reading("state", cut_off)  # type: ignore[arg-type]
    try:
        with reading:
            reading.give_way()
    except KeyboardInterrupt:
        pass
    with reading.writing():
        pass
    assert not reading.is_mine()


def test_a_reading_that_does_not_mind_lets_others_commit_in_between() -> None:
    seen: list[str] = []

    def others(seconds: float) -> None:
        def write() -> None:
            with reading.writing():
                seen.append("written")

        writer = threading.Thread(target=write)
        writer.start()
        writer.join(20)

    reading = Reading("state", others)  # type: ignore[arg-type]
    with reading:
        reading.give_way(stands=False)
        assert reading.is_mine()
        seen.append("done")
    assert seen == ["written", "done"]


class Signal(BaseException):
    """What a handler of a signal raises."""


def heard_in_giving_way(place: int) -> bool:
    """A signal is heard at a place while a reader gives way; false behind the last place."""
    reading = Reading("state", sleep=lambda _seconds: None)  # type: ignore[arg-type]
    left = place

    def shoot(frame, event: str, _called: object) -> None:
        nonlocal left
        if frame.f_code.co_name == "give_way" and event in ("call", "c_return"):
            left -= 1
            if left == 0:
                raise Signal

    try:
        with reading:
            sys.setprofile(shoot)
            try:
                reading.give_way()
            finally:
                sys.setprofile(None)
    except Signal:
        pass
    assert not reading.is_mine()
    done = []

    def commit() -> None:
        with reading.writing():
            done.append(True)

    beside = threading.Thread(target=commit, daemon=True)
    beside.start()
    beside.join(10)
    assert done, f"nobody can commit behind a signal at place {place}"
    return left <= 0


def test_a_signal_while_a_reader_gives_way_holds_up_nobody():
    place = 1
    while heard_in_giving_way(place):
        place += 1
    assert place > 5


def test_a_signal_while_a_reader_waits_for_its_turn_again_holds_up_nobody():
    reading = Reading("state", sleep=lambda _seconds: None)  # type: ignore[arg-type]

    class Waiting:
        """The lock, of which a wait is cut off by a signal."""

        def __init__(self, lock) -> None:
            self._lock, self.heard = lock, False

        def __getattr__(self, name):
            return getattr(self._lock, name)

        def __enter__(self):
            return self._lock.__enter__()

        def __exit__(self, *error):
            return self._lock.__exit__(*error)

        def acquire(self):
            if not self.heard:
                self.heard = True
                raise Signal
            return self._lock.acquire()

    def read() -> None:
        with reading:
            reading._lock = Waiting(reading._lock)  # type: ignore[assignment]
            reading.give_way()

    with pytest.raises(Signal):
        read()
    assert not reading.is_mine()
    with reading.writing():
        pass
    with reading:
        assert reading.is_mine()
