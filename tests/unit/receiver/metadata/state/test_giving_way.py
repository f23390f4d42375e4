"""A long reading lets others read in between; what it reads stands still to its end."""

from __future__ import annotations

import threading

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
