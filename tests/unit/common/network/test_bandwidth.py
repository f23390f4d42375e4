from __future__ import annotations

import datetime
import threading

import pytest

from common.config import Timetable
from common.errors import StoppedError
from common.network.bandwidth import Bandwidth


class Line:
    """A clock that only sleeping moves."""

    def __init__(self, limit: object, hour: int = 12) -> None:
        self.now = 1000.0
        self.hour = hour
        self.lock = threading.Lock()
        self.bandwidth = Bandwidth(
            Timetable.parse(limit),
            sleep=self.sleep,
            clock=lambda: self.now,
            local_time=lambda: datetime.datetime(2026, 1, 5, self.hour, tzinfo=datetime.UTC),
        )

    def sleep(self, seconds: float) -> bool:
        with self.lock:
            self.now += seconds
        return False


def test_a_limit_holds_over_many_pieces():
    line = Line("1000/s")
    for _ in range(100):
        line.bandwidth.take(100)
    assert line.now - 1000.0 == pytest.approx(10.0, abs=0.3)


def test_an_idle_line_saves_up_no_burst_worth_mentioning():
    line = Line("1000/s")
    line.now += 3600
    line.bandwidth.take(1000)
    assert line.now - 4600.0 == pytest.approx(1.0, abs=0.3)


def test_one_budget_for_all_threads():
    line = Line("1000/s")

    def send() -> None:
        for _ in range(50):
            line.bandwidth.take(20)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # 4,000 bytes at 1,000 a second; sleeps of four threads add up here, so at least that long.
    assert line.now - 1000.0 >= 3.7


def test_without_a_limit_nothing_waits():
    line = Line("none")
    line.bandwidth.take(1 << 40)
    assert line.now == 1000.0
    assert line.bandwidth.block(1 << 22) == 1 << 22


def test_the_limit_follows_the_hour():
    by_day = [{"from": "08:00", "to": "18:00", "limit": "1000/s"}]
    line = Line(by_day, hour=12)
    line.bandwidth.take(1000)
    assert line.now > 1000.5
    line.hour, before = 20, line.now
    line.bandwidth.take(1_000_000)
    assert line.now == before


def test_a_slow_line_gets_small_blocks_so_that_a_break_costs_seconds():
    assert Line("100KiB/s").bandwidth.block(4 << 20) == 512_000
    assert Line("1KiB/s").bandwidth.block(4 << 20) == 1 << 14


def test_a_stop_ends_the_wait():
    bandwidth = Bandwidth(Timetable.parse("1/s"), sleep=lambda _: True, clock=lambda: 0.0)
    with pytest.raises(StoppedError):
        bandwidth.take(1000)
