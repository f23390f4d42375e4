"""The clock that TTL goes by: nothing is deleted by one that cannot be believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.load.upkeep.clock_watch import RECORD, ClockWatch
from tests.support.node_world import Clock

DAY = 86400.0
NOW = 1_700_000_000.0


class Machine:
    """Two clocks, and the directory that outlives the process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.wall, self.steady = Clock(NOW), Clock(0.0)

    def start(self, newest_commit: float = NOW) -> ClockWatch:
        return ClockWatch(
            self.directory,
            newest_commit=newest_commit,
            jump=DAY,
            clock=self.wall,
            monotonic=self.steady,
        )

    def passes(self, seconds: float) -> None:
        self.wall.now += seconds
        self.steady.now += seconds


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_time_that_passes_for_both_clocks_is_believed(machine: Machine) -> None:
    watch = machine.start()
    for _ in range(5):
        assert watch.judge() is None
        machine.passes(10 * DAY)


@pytest.mark.parametrize("jump", [1.5 * DAY, -1.5 * DAY, 3650 * DAY])
def test_a_jump_suspends_until_the_clock_stands_right_again(machine: Machine, jump: float) -> None:
    watch = machine.start()
    assert watch.judge() is None
    machine.wall.now += jump
    assert "ttl resume" in (watch.judge() or "")
    machine.passes(5 * DAY)
    assert watch.judge() is not None
    machine.wall.now -= jump
    assert watch.judge() is None


def test_a_small_step_is_what_clocks_do(machine: Machine) -> None:
    watch = machine.start()
    machine.wall.now += DAY - 1
    assert watch.judge() is None
    machine.wall.now += DAY - 1
    assert watch.judge() is None


def test_a_suspension_outlives_a_restart_and_commits_made_meanwhile(machine: Machine) -> None:
    watch = machine.start()
    assert watch.judge() is None
    machine.wall.now += 400 * DAY
    assert watch.judge() is not None
    # Commits go on by the wrong clock: they must not make it look right.
    again = machine.start(newest_commit=machine.wall.now)
    assert again.doubt is not None
    assert again.judge() is not None


def test_an_operator_may_confirm_the_clock(machine: Machine) -> None:
    watch = machine.start()
    watch.judge()
    machine.wall.now += 400 * DAY
    assert watch.judge() is not None
    watch.confirm()
    assert watch.doubt is None
    assert watch.judge() is None
    assert machine.start(newest_commit=NOW).judge() is None


@pytest.mark.parametrize("wrong", [400 * DAY, -400 * DAY])
def test_a_first_start_with_an_implausible_clock_believes_the_newest_commit(
    machine: Machine, wrong: float
) -> None:
    machine.wall.now += wrong
    watch = machine.start(newest_commit=NOW)
    assert watch.judge() is not None


def test_commits_after_the_record_was_renewed_count(machine: Machine) -> None:
    watch = machine.start()
    watch.judge()
    machine.passes(0.1 * DAY)  # too little for a new record
    watch.judge()
    machine.wall.now += 0.95 * DAY
    assert machine.start(newest_commit=machine.wall.now - 0.1 * DAY).judge() is None
    (machine.directory / RECORD).write_text(f'{{"v":1,"believed":{NOW},"doubt":null}}')
    assert machine.start(newest_commit=NOW).judge() is not None


def test_the_record_is_not_written_each_time(machine: Machine) -> None:
    watch = machine.start()
    watch.judge()
    first = (machine.directory / RECORD).stat().st_ino
    for _ in range(10):
        machine.passes(60)
        watch.judge()
    assert (machine.directory / RECORD).stat().st_ino == first
    machine.passes(DAY / 4)
    watch.judge()
    assert (machine.directory / RECORD).stat().st_ino != first


def test_a_damaged_record_counts_as_none(machine: Machine) -> None:
    (machine.directory / RECORD).write_bytes(b'{"v":1,"beli')
    machine.wall.now += 400 * DAY
    assert machine.start(newest_commit=machine.wall.now).judge() is None
    (machine.directory / RECORD).write_bytes(b"")
    assert machine.start(newest_commit=NOW).judge() is not None


def test_nothing_is_written_or_told_while_nothing_goes_by_the_clock(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    watch = machine.start()
    assert watch.judge(in_use=False) is None
    machine.wall.now += 400 * DAY
    assert watch.judge(in_use=False) is not None
    assert not (machine.directory / RECORD).exists()
    assert caplog.records == []
    assert watch.judge() is not None
    assert (machine.directory / RECORD).exists()
    assert "TTL is suspended" in caplog.text
