"""Checkpoints that come by themselves: many entries, or rest; either is enough."""

import errno
import os
import threading

import pytest

from common import durable
from common.errors import NoSpaceError, ReadOnlyError
from receiver.metadata import checkpointing
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from tests.support.metadata import load, seen

BOUND = 60


class World:
    def __init__(self, home, **options):
        self.home = home
        self.ticks = 1000.0
        self.engine = Engine.open(
            home,
            options=EngineOptions(**options),
            monotonic=lambda: self.ticks,
            background=False,
        )

    def put(self, count=1):
        for number in range(count):
            self.engine.commit([records.KeysWritten([], {"k": str(number)})])

    def step(self):
        return self.engine._upkeep.step()

    def made(self):
        return sorted(each.name for each in self.home.glob("mtree*"))


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(durable.flushing, "_failure", None)
    world = World(tmp_path / "schema", checkpoint_entries=10, checkpoint_rest=3600.0)
    yield world
    world.engine.close()


def test_a_busy_engine_makes_a_checkpoint_without_ever_resting(world):
    world.put(8)
    world.step()
    assert not world.made()
    world.put(1)
    world.step()
    assert world.made() == ["mtree.snapshot-10.tsf"]
    assert world.engine.entries_since_checkpoint == 0


def test_a_few_large_commits_make_a_checkpoint_too(tmp_path):
    world = World(tmp_path / "schema", checkpoint_entries=1000, checkpoint_bytes=100_000)
    with world.engine:
        world.put(3)
        world.step()
        assert not world.made()
        world.engine.commit([records.KeysWritten([], {"k": "v" * 200_000})])
        world.step()
        assert len(world.made()) == 1
        world.put(3)
        world.step()
        assert len(world.made()) == 1, "the new segment is short"


def test_a_large_checkpoint_is_not_written_anew_for_a_little_log(tmp_path):
    options = {"checkpoint_entries": 1000, "checkpoint_bytes": 100_000}

    def write(key, size, keys=1):
        values = {f"{key} {number}": "v" * size for number in range(keys)}
        world.engine.commit([records.KeysWritten([], values)])
        world.step()

    world = World(tmp_path / "schema", **options)
    with world.engine:
        write("large", 1_000_000, keys=4)
        assert len(world.made()) == 1
        write("more", 200_000)
        assert len(world.made()) == 1, "a twentieth of it is new"
    world = World(tmp_path / "schema", **options)
    with world.engine:
        write("after a start", 20_000)
        assert len(world.made()) == 1, "nor behind a start"
        write("enough", 60_000)
        assert len(world.made()) == 2


def test_a_resting_engine_makes_a_checkpoint_of_little(world):
    world.put(2)
    assert world.step() <= 60
    world.ticks += 3500
    world.put(1)
    world.step()
    world.ticks += 3500
    world.step()
    assert not world.made(), "it has not rested"
    world.ticks += 200
    world.step()
    assert world.made() == ["mtree.snapshot-4.tsf"]


def test_an_engine_with_nothing_new_makes_none(world):
    world.put(1)
    world.step()
    for _ in range(5):
        world.ticks += 4000
        world.step()
    assert len(world.made()) == 1
    assert world.step() > 1, "and does not look all the time"


def test_the_thread_makes_one_when_enough_entries_are_there(tmp_path):
    made = threading.Event()
    with Engine.open(tmp_path / "schema", options=EngineOptions(checkpoint_entries=5)) as engine:
        for number in range(20):
            engine.commit([records.KeysWritten([], {"k": str(number)})])
        for _ in range(600):
            if engine.entries_since_checkpoint < 20:
                break
            made.wait(0.1)
        assert engine.entries_since_checkpoint < 20


def test_a_full_disk_keeps_the_old_checkpoint_and_the_next_try_comes_later(world, monkeypatch):
    world.put(10)
    world.step()
    world.put(10)
    before = world.made()
    real = os.pwrite
    with monkeypatch.context() as full:

        def fail(fd, data, at):
            if "tmp" in os.readlink(f"/proc/self/fd/{fd}"):
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(fd, data, at)

        full.setattr(os, "pwrite", fail)
        with pytest.raises(NoSpaceError):
            world.step()
    assert world.made() == before
    assert not list(world.home.glob(".*.tmp"))
    assert world.engine.failed is None
    world.put(1)
    world.step()
    assert len(world.made()) == 2


def test_an_engine_that_failed_takes_no_checkpoint(world):
    world.put(3)
    world.engine._committer.failed = "a disk"
    with pytest.raises(ReadOnlyError, match="a disk"):
        world.engine.checkpoint()
    assert not world.made()


def test_a_fault_while_history_is_collected_stops_commits_and_hides_the_half(world, monkeypatch):
    world.put(3)
    with world.engine.reading() as state:
        monkeypatch.setattr(state.keys, "collect", lambda *rest: 1 // 0)
    world.engine._upkeep._horizon._options = EngineOptions(history=0.0)
    with pytest.raises(ZeroDivisionError):
        world.engine.collect()
    assert "collecting history failed" in world.engine.failed
    with pytest.raises(ReadOnlyError):
        world.put(1)
    with pytest.raises(ReadOnlyError, match="restart"), world.engine.reading():
        pass
    world.engine.close()
    with Engine.open(world.home, background=False) as engine, engine.reading() as state:
        assert state.keys.load("k") == "2"


@pytest.mark.parametrize("fault", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("step", ["collect", "adopt", "be_packed"])
def test_nothing_is_committed_over_a_state_of_which_work_was_cut_off(
    world, monkeypatch, step, fault
):
    world.engine.commit([seen()])
    world.engine.commit([load()])
    with world.engine.reading() as state:
        table = state.keys if step == "collect" else state.file_table

    def cut_off(*_):
        raise fault

    with monkeypatch.context() as once:
        once.setattr(table, step, cut_off)
        world.engine._upkeep._horizon._options = EngineOptions(history=0.0)
        with pytest.raises(fault):
            world.engine.collect() if step == "collect" else world.engine.checkpoint()
    assert world.engine.failed
    with pytest.raises(ReadOnlyError):
        world.engine.commit([records.KeysWritten([], {"k": "half"})])
    world.engine.close()
    with Engine.open(world.home, background=False) as engine, engine.reading() as state:
        assert state.keys.load("k") != "half"


def test_an_engine_that_was_opened_for_reading_takes_none(world):
    world.put(3)
    with Engine.read_only(world.home) as reader, pytest.raises(ReadOnlyError):
        reader.checkpoint()


def test_closing_gives_up_a_checkpoint_that_is_being_written(tmp_path, monkeypatch):
    reached, go = threading.Event(), threading.Event()
    real = checkpointing._until

    def slow(stopped, frozen):
        def waiting():
            reached.set()
            go.wait(BOUND)
            return stopped()

        return real(waiting, frozen)

    monkeypatch.setattr(checkpointing, "_until", slow)
    engine = Engine.open(tmp_path / "schema", options=EngineOptions(checkpoint_entries=1))
    engine.commit([records.KeysWritten([], {"k": "1"})])
    assert reached.wait(BOUND)
    closing = threading.Thread(target=engine.close)
    closing.start()
    while not engine._upkeep._thread.stopping.is_set():
        threading.Event().wait(0.001)
    go.set()
    closing.join(BOUND)
    assert not list((tmp_path / "schema").glob("mtree*"))
    Engine.open(tmp_path / "schema").close()
