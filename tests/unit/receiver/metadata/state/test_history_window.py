"""The window of history: what is within it is answered, what is before it has its own error."""

import datetime

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.model.timestamps import from_seconds
from tests.support.metadata import has_commit, unjudged_log

HOUR = 3600.0


class World:
    """An engine and its clocks."""

    def __init__(self, home, at=1_700_000_000.0, **options):
        self.home = home
        self.now = at
        self.ticks = 50.0
        self.options = EngineOptions(**options)
        self.open()

    def open(self):
        self.engine = Engine.open(
            self.home,
            options=self.options,
            clock=lambda: self.now,
            boot=lambda: self.ticks,
            monotonic=lambda: self.ticks,
            background=False,
        )

    def reopen(self):
        self.engine.close()
        self.open()

    def wait(self, seconds):
        self.now += seconds
        self.ticks += seconds

    def put(self, value):
        return self.engine.commit([records.KeysWritten([], {"k": value})])

    def get(self, at):
        with self.engine.reading() as state:
            return state.keys.load("k", at)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path / "schema", history=24 * HOUR)
    yield world
    world.engine.close()


def test_a_question_within_the_history_is_answered_and_one_before_it_refused(world):
    first = world.put("one")
    world.wait(20 * HOUR)
    second = world.put("two")
    world.wait(20 * HOUR)
    third = world.put("three")
    world.engine.collect()
    oldest = world.engine.oldest_answerable
    assert first < oldest == from_seconds(world.now - 24 * HOUR) < second
    assert world.engine.at(second) == second
    assert [world.get(each) for each in (oldest, second, third)] == ["one", "two", "three"]
    for wrong in (first, 0, oldest - 1):
        with pytest.raises(HistoryGoneError, match=str(oldest)) as caught:
            world.engine.at(wrong)
        assert caught.value.extra == {"oldest": oldest}


def test_what_history_let_go_of_stays_gone_after_a_restart(world):
    world.put("one")
    world.wait(48 * HOUR)
    world.put("two")
    world.engine.collect()
    oldest = world.engine.oldest_answerable
    world.engine.checkpoint()
    world.reopen()
    assert world.engine.oldest_answerable == oldest
    with pytest.raises(HistoryGoneError):
        world.engine.at(oldest - 1)


def test_without_a_checkpoint_too_it_begins_at_a_start_where_the_clock_has_it(world):
    world.put("one")
    world.wait(48 * HOUR)
    world.put("two")
    world.engine.collect()
    oldest = world.engine.oldest_answerable
    assert oldest > 0
    world.reopen()
    assert world.engine.oldest_answerable == oldest
    with pytest.raises(HistoryGoneError):
        world.engine.at(oldest - 1)
    world.engine.collect()
    with world.engine.reading() as state:
        assert state.keys.versions == 2


def test_where_nobody_judged_the_clock_a_long_pause_counts_as_the_jump(tmp_path):
    begin = 1_700_000_000.0
    moments = [begin + number * 100 * HOUR for number in range(15)]
    writes = [records.KeysWritten([], {"k": "v"})]
    unjudged_log(tmp_path / "schema", [(from_seconds(each), writes) for each in moments])
    world = World(tmp_path / "schema", at=moments[-1], history=10 * HOUR, clock_jump=HOUR)
    oldest = world.engine.oldest_answerable
    assert from_seconds(moments[3]) < oldest <= from_seconds(moments[5]), "ten pauses of an hour"
    world.wait(100 * HOUR)
    world.engine.collect()
    assert world.engine.oldest_answerable == world.engine.newest_commit, "these were judged"
    world.engine.close()


def test_what_a_start_leaves_before_the_history_is_collected(world):
    for value in ("one", "two", "three"):
        world.put(value)
        world.wait(48 * HOUR)
    world.engine.collect()
    world.reopen()
    world.engine.collect()
    assert world.engine.oldest_answerable == world.engine.newest_commit
    with world.engine.reading() as state:
        assert state.keys.versions == 1


def test_it_never_begins_earlier_again(world):
    world.put("one")
    world.wait(48 * HOUR)
    world.put("two")
    world.engine.collect()
    oldest = world.engine.oldest_answerable
    world.now -= 40 * HOUR
    world.engine.collect()
    assert world.engine.oldest_answerable == oldest


@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_that_jumps_ahead_takes_no_history(tmp_path, restarts):
    world = World(tmp_path / "schema", history=24 * HOUR, clock_jump=HOUR)
    first = world.put("one")
    for years in (10, -10, 3000, -3000, 1):
        world.now += years * 365 * 24 * HOUR
        if restarts:
            world.reopen()
        world.put("more")
        world.engine.collect()
        if restarts:
            world.reopen()
            world.engine.collect()
        assert world.engine.oldest_answerable <= first
        assert world.get(first) == "one"
    world.engine.close()


def test_time_that_passes_without_commits_is_believed_as_the_monotonic_clock_saw_it(tmp_path):
    world = World(tmp_path / "schema", history=24 * HOUR, clock_jump=HOUR)
    first = world.put("one")
    world.wait(1)
    second = world.put("two")
    world.engine.collect()
    world.now += 1000 * HOUR
    world.engine.collect()
    assert world.engine.at(first) == first
    world.now -= 1000 * HOUR
    world.wait(25 * HOUR)
    world.engine.collect()
    assert world.engine.oldest_answerable == second
    world.engine.close()


def test_where_commits_are_rare_history_is_as_long_as_it_should_be(tmp_path):
    world = World(tmp_path / "schema", history=1000 * HOUR, clock_jump=HOUR)
    stamps = []
    for number in range(15):
        stamps.append(world.put(str(number)))
        world.wait(100 * HOUR)
    world.reopen()
    world.engine.collect()
    assert stamps[4] < world.engine.oldest_answerable <= stamps[5]
    world.engine.close()


def test_a_number_of_commits_counts_where_it_reaches_further_back(tmp_path):
    world = World(tmp_path / "schema", history=HOUR, history_commits=3)
    stamps = []
    for number in range(6):
        stamps.append(world.put(str(number)))
        world.wait(10 * HOUR)
    world.engine.collect()
    assert world.engine.oldest_answerable == stamps[3]
    assert [world.get(each) for each in stamps[3:]] == ["3", "4", "5"]
    for _ in range(20):
        stamps.append(world.put("x"))
    world.engine.collect()
    oldest = world.engine.oldest_answerable
    assert oldest == from_seconds(world.now - HOUR), "time reaches further"
    world.engine.close()


def test_a_commit_within_the_history_is_known_by_its_timestamp(world):
    first = world.put("one")
    world.wait(48 * HOUR)
    second = world.put("two")
    assert has_commit(world.engine, first)
    assert not has_commit(world.engine, first + 1)
    world.engine.collect()
    world.engine.checkpoint()
    world.reopen()
    assert has_commit(world.engine, second)
    with pytest.raises(HistoryGoneError):
        has_commit(world.engine, first)


def test_a_time_is_its_first_timestamp_and_the_future_is_now(world):
    world.wait(1)
    first = world.put("one")
    moment = datetime.datetime.fromtimestamp(world.now, datetime.UTC)
    assert world.engine.at(moment) == first
    assert world.engine.at(None) == world.engine.newest_commit
    assert world.engine.at(1 << 62) == world.engine.newest_commit
    assert world.engine.at(moment + datetime.timedelta(days=3)) == world.engine.newest_commit


def test_without_history_only_now_is_answered(tmp_path):
    world = World(tmp_path / "schema", history=0.0)
    first = world.put("one")
    world.wait(1)
    second = world.put("two")
    world.engine.collect()
    assert world.engine.oldest_answerable == second
    with pytest.raises(HistoryGoneError):
        world.engine.at(first)
    with world.engine.reading() as state:
        assert state.keys.versions == 1
    world.engine.close()
