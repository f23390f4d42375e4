"""When the clock is followed, when not, and what ends that."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from common import crash
from receiver.metadata.clock.clock_record import RECORD
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.timestamps import to_seconds
from tests.support.wrong_clocks import WrongMachine

HOUR, DAY = 3600.0, 86400.0
MONTH = 30 * DAY


class World:
    """An engine on a machine whose clocks go wrong."""

    def __init__(self, home: Path, error: float = 0.0) -> None:
        self.home = home
        self.machine = WrongMachine(error=error)
        self.open()
        self.put()

    def open(self) -> None:
        self.engine = Engine.open(
            self.home,
            options=EngineOptions(history=7 * DAY, clock_jump=HOUR),
            clock=self.machine.clock,
            background=False,
        )

    def reboots(self, *, off: float, error: float = 0.0, forget: bool = False) -> None:
        self.engine.close()
        if forget:
            (self.home / RECORD).unlink()
        self.machine.reboots(off=off, error=error)
        self.open()

    def put(self) -> int:
        return self.engine.commit([records.KeysWritten([], {"k": "v"})])

    def moment(self, ts: int) -> float:
        """What a commit's time is taken for, from what it truly is now."""
        return self.engine.times.seconds(ts) - self.machine.true

    def comes(self, *senders: str, error: float = 0.0, machine: str = "") -> None:
        for each in senders:
            clock = self.machine.true + error
            self.engine.clock.heard(each * 32, machine or f"box {each}", clock)
        self.engine.collect()

    def knows(self, senders: str) -> None:
        seen = [records.SenderSeen(each * 32, each, f"10.0.0.1_{each * 32}") for each in senders]
        self.engine.commit(seen)

    @property
    def is_followed(self) -> bool:
        self.machine.passes(2)
        return self.engine.clock.doubt() is None


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path / "schema")
    yield made
    made.engine.close()


@pytest.mark.parametrize("jump", [1.1 * HOUR, 730 * DAY, -1.1 * HOUR, -730 * DAY, -1.9e9])
def test_a_jump_is_not_followed_until_the_clock_stands_right_again(world, jump):
    before = world.put()
    world.machine.is_set(jump)
    world.machine.passes(2 * DAY)
    assert not world.is_followed
    held = world.put()
    assert to_seconds(held) == pytest.approx(world.machine.true, abs=1)
    assert world.engine.clock.doubt().ahead == pytest.approx(jump, abs=1)
    assert world.engine.clock.cautious() == pytest.approx(world.machine.true + min(jump, 0), abs=1)
    world.machine.is_set(0.0)
    assert world.is_followed
    assert before < held < world.put()
    assert world.engine.times.pieces == (), "nothing was wrong, so nothing is corrected"


@pytest.mark.parametrize("jump", [0.9 * HOUR, -0.9 * HOUR])
def test_a_small_step_is_followed_and_what_was_before_keeps_its_age(world, jump):
    before = world.put()
    world.machine.passes(10 * HOUR)
    world.machine.is_set(jump)
    assert world.is_followed
    world.engine.collect()
    after = world.put()
    assert after > before
    assert world.moment(after) - world.moment(before) == pytest.approx(10 * HOUR, abs=3)


def test_many_small_steps_do_not_add_up_to_a_jump(world):
    for number in range(1, 4):
        world.machine.is_set(number * 0.4 * HOUR)
        followed = world.is_followed
        world.engine.collect()
    assert not followed


def test_what_the_kernel_calls_synchronised_is_followed(world):
    world.reboots(off=MONTH)
    assert not world.is_followed
    world.machine.synchronises()
    assert world.is_followed


def test_a_machine_that_was_off_needs_no_operator_when_senders_agree(world):
    world.knows("abc")
    world.reboots(off=MONTH)
    assert not world.is_followed
    held = world.put()
    world.comes("a")
    assert not world.is_followed
    world.comes("b", error=20.0)
    assert world.is_followed
    assert world.moment(world.put()) == pytest.approx(0, abs=3)
    assert world.moment(held) == pytest.approx(0, abs=10), "it was committed just now"


def test_the_one_sender_that_is_known_is_enough(world):
    world.knows("a")
    world.reboots(off=MONTH)
    assert not world.is_followed
    world.comes("a")
    assert world.is_followed


@pytest.mark.parametrize(
    ("senders", "error", "machine"),
    [
        ("a", 730 * DAY, ""),  # it is as wrong as we are, and alone
        ("ab", 0.0, ""),  # they say otherwise
        ("ab", 730 * DAY, "one box"),  # with one clock between them
        ("ab", 730 * DAY, "here"),  # on this machine
    ],
)
def test_senders_that_tell_nothing_change_nothing(world, senders, error, machine):
    world.knows("abc")
    world.machine.is_set(730 * DAY)
    assert not world.is_followed
    here = world.machine.boot_id if machine == "here" else machine
    world.comes(*senders, error=error, machine=here)
    assert not world.is_followed


def test_more_must_say_so_than_say_otherwise(world):
    world.knows("abcdef0")
    world.reboots(off=MONTH)
    world.comes("a", "b", "c", error=5 * DAY)
    world.comes("d", "e")
    assert not world.is_followed
    world.comes("f", "0")
    assert world.is_followed


def test_boxes_without_a_battery_do_not_agree_on_1970(world):
    world.reboots(off=HOUR, error=10_000.0 - 1.9e9)
    world.comes("a", "b", "c", error=10_000.0 - 1.9e9)
    assert not world.is_followed


def test_one_sender_alone_makes_nothing_sure_of_what_was_before(world):
    """It has the wrong time as we have it; NTP tells later."""
    world.knows("a")
    world.reboots(off=MONTH, error=-MONTH)  # a clock without battery goes on where it was
    before = world.put()
    world.comes("a", error=-MONTH)
    world.machine.passes(HOUR)
    world.machine.synchronises()
    assert world.is_followed
    world.engine.collect()
    assert world.moment(before) == pytest.approx(-HOUR, abs=10), "and not a month ago"


def test_an_operator_confirms_and_that_is_committed(world, tmp_path):
    world.reboots(off=MONTH)
    assert not world.is_followed
    assert "clock confirm" in world.engine.confirm_clock()
    assert world.is_followed
    assert world.engine.confirm_clock() is None
    with world.engine.reading() as state:
        assert state.clock.row.why == "operator"
        assert state.clock.row.changed == world.engine.newest_commit
    with Engine.read_only(world.home) as reader:
        assert reader.times.pieces == world.engine.times.pieces


def test_a_wrong_clock_that_was_confirmed_is_healed_too(world):
    before = world.put()
    world.machine.passes(HOUR)
    world.machine.is_set(730 * DAY)
    world.engine.confirm_clock()
    wrong = world.put()
    world.machine.passes(10 * DAY)  # longer than the history
    world.put()
    world.engine.collect()
    late = world.put()
    world.machine.passes(HOUR)
    world.machine.synchronises()
    assert world.is_followed
    world.engine.collect()
    world.machine.passes(10.0)
    assert world.moment(world.put()) == pytest.approx(0, abs=5)
    assert world.moment(late) == pytest.approx(-HOUR, abs=20)
    assert before < wrong < late


@pytest.mark.parametrize("error", [0.4 * HOUR, -0.5 * HOUR])
def test_a_start_within_the_jump_is_believed(world, error):
    world.reboots(off=0.5 * HOUR, error=error)
    assert world.is_followed


def test_a_log_that_began_in_1970_is_moved_to_when_it_was(tmp_path):
    world = World(tmp_path / "schema", error=10_000.0 - 1.9e9)
    before = world.put()
    world.reboots(off=HOUR)
    world.machine.synchronises()
    assert world.is_followed
    world.engine.collect()
    assert world.moment(before) > -2 * HOUR
    world.engine.close()


def test_the_same_boot_knows_how_long_the_process_was_away(world):
    world.engine.close()
    world.machine.passes(MONTH)
    world.open()
    assert world.is_followed
    assert world.moment(world.put()) == pytest.approx(0, abs=3)


def test_a_doubt_outlives_restarts_of_process_and_machine(world):
    world.machine.is_set(730 * DAY)
    assert not world.is_followed
    held = world.put()
    world.engine.close()
    world.open()
    assert not world.is_followed
    world.reboots(off=10.0, error=730 * DAY)
    assert not world.is_followed
    assert to_seconds(world.put()) - to_seconds(held) < 60


def test_without_the_record_a_start_goes_by_the_newest_commit(world):
    world.reboots(off=0.5 * HOUR, forget=True)
    assert world.is_followed
    world.reboots(off=2 * HOUR, forget=True)
    assert not world.is_followed


def test_a_correction_is_applied_once_though_the_record_was_not_written(world):
    before = world.put()
    world.machine.passes(10 * HOUR)
    world.machine.is_set(0.9 * HOUR)
    left = (world.home / RECORD).read_bytes()

    def die(name: str) -> None:
        if name == "clock.corrected":
            raise crash.SimulatedCrash

    with pytest.raises(crash.SimulatedCrash), crash.arm(die):
        world.engine.collect()
    world.engine.close()
    (world.home / RECORD).write_bytes(left)  # its end wrote nothing
    world.open()
    world.engine.collect()
    assert world.moment(world.put()) - world.moment(before) == pytest.approx(10 * HOUR, abs=3)


def test_nothing_is_deleted_by_a_new_time_before_its_correction_is_committed(world):
    world.machine.is_set(-50 * 60)
    world.engine.collect()
    world.machine.is_set(0.0)
    assert world.engine.clock.cautious() == pytest.approx(world.machine.true - 50 * 60, abs=1)
    world.engine.collect()
    assert world.engine.clock.cautious() == pytest.approx(world.machine.true, abs=1)


def test_the_record_of_0_1_0_is_read_and_its_doubt_counts(world):
    world.engine.close()
    now = world.machine.true
    (world.home / RECORD).write_text(json.dumps({"v": 1, "believed": now, "doubt": "a jump"}))
    world.machine.is_set(400 * DAY)
    world.open()
    assert not world.is_followed
    assert world.engine.clock.cautious() <= world.machine.true + 1


def test_at_a_time_of_a_corrected_hour_finds_what_was_there_then(world):
    world.reboots(off=MONTH)
    first = world.put()
    world.machine.passes(HOUR)
    second = world.put()
    world.comes("a", "b")
    half_an_hour_ago = datetime.datetime.fromtimestamp(
        world.machine.true - 0.5 * HOUR, datetime.UTC
    )
    assert first <= world.engine.at(half_an_hour_ago) < second


def test_a_clock_that_shows_no_time_is_not_confirmed(world):
    world.machine.is_set(float("nan"))
    assert not world.is_followed
    with pytest.raises(Exception, match="the clock shows"):
        world.engine.confirm_clock()
    assert world.put() > 0
