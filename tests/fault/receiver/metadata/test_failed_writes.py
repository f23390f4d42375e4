"""A log that cannot be written: nothing is published, and only a full disk heals."""

import errno
import os
import threading

import pytest

from common import crash, durable
from common.errors import FailedSyncError, NoSpaceError, ReadOnlyError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.state.state import State
from tests.support.metadata import A, B, load, log_file, path, plain, seen


@pytest.fixture
def home(tmp_path):
    return tmp_path / "schema"


@pytest.fixture
def engine(home, monkeypatch):
    # A failed sync is remembered by the process.
    monkeypatch.setattr(durable.flushing, "_failure", None)
    engine = Engine.open(home, background=False)
    engine.commit([seen()])
    yield engine
    engine.close()


def view(engine):
    with engine.reading() as state:
        return plain(state)


def break_sync(monkeypatch, code):
    def fdatasync(fd):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fdatasync", fdatasync)


def test_a_failed_sync_publishes_nothing_and_the_engine_takes_no_more(home, engine, monkeypatch):
    before = view(engine)
    with monkeypatch.context() as broken:
        break_sync(broken, errno.EIO)
        with pytest.raises(FailedSyncError, match=r"mlog-1\.tsf"):
            engine.commit([load()])
    assert view(engine) == before
    assert "mlog-1.tsf" in engine.failed
    monkeypatch.setattr(durable.flushing, "_failure", None)
    with pytest.raises(ReadOnlyError, match="takes no commits"):
        engine.commit([load()])
    assert view(engine) == before


def test_after_a_failed_sync_the_next_start_has_all_of_the_commit_or_nothing(
    home, engine, monkeypatch
):
    before = view(engine)
    with monkeypatch.context() as broken:
        break_sync(broken, errno.EIO)
        with pytest.raises(FailedSyncError):
            engine.commit([load(), seen(B)])
    engine.close()
    monkeypatch.setattr(durable.flushing, "_failure", None)
    with Engine.open(home) as again:
        found = view(again)
        assert found == before or (B in found["senders"] and len(found["files"]) == 1)


def test_every_caller_of_a_failed_batch_is_told(engine, monkeypatch):
    errors, start = [], threading.Barrier(9)
    break_sync(monkeypatch, errno.EIO)

    def call(number):
        start.wait(60)
        try:
            engine.commit([records.QuarantinePut(A, path(), str(number), 1, False, "x")])
        except (FailedSyncError, ReadOnlyError) as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    start.wait(60)
    for thread in threads:
        thread.join(60)
    assert len(errors) == 8
    assert len(set(map(id, errors))) == 8, "an exception is raised in one thread"


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_a_full_disk_refuses_and_heals_by_itself(home, engine, monkeypatch, call):
    before, size = view(engine), log_file(home).stat().st_size
    real = getattr(os, call)
    log = engine._committer._appender.log._file.fileno()
    with monkeypatch.context() as full:

        def fail(fd, *rest):
            if fd != log:
                return real(fd, *rest)
            if call == "write":
                real(fd, bytes(rest[0][:10]))  # part of it got there
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(os, call, fail)
        for _ in range(2):
            with pytest.raises(NoSpaceError):
                engine.commit([load()])
    assert view(engine) == before
    assert engine.failed is None
    assert log_file(home).stat().st_size == size
    engine.commit([load()])
    after = view(engine)
    engine.close()
    with Engine.open(home) as again:
        assert view(again) == after


def test_an_io_error_on_write_turns_the_engine_read_only(home, engine, monkeypatch):
    before = view(engine)
    with monkeypatch.context() as broken:

        def write(fd, data):
            raise OSError(errno.EIO, "Input/output error")

        broken.setattr(os, "write", write)
        with pytest.raises(Exception, match=r"mlog-1\.tsf"):
            engine.commit([load()])
    assert engine.failed
    with pytest.raises(ReadOnlyError):
        engine.commit([load()])
    assert view(engine) == before


def test_a_sync_that_failed_elsewhere_in_the_process_stops_commits(engine, monkeypatch):
    monkeypatch.setattr(durable.flushing, "_failure", "data/x: Input/output error")
    with pytest.raises(ReadOnlyError, match="failed sync"):
        engine.commit([load()])
    assert engine.failed


def test_half_a_commit_in_memory_is_shown_to_nobody(home, engine, monkeypatch):
    """A fault of ours while a durable commit is applied: no reader gets the half state."""

    def broken(op, ts):
        raise RuntimeError("a fault")

    monkeypatch.setitem(engine._state._operations, records.FileLoaded, (broken,))
    with pytest.raises(FailedSyncError, match="a fault"):
        engine.commit([seen(B), load()])
    with pytest.raises(ReadOnlyError, match="restart"), engine.reading():
        pass
    assert engine.failed
    monkeypatch.undo()
    monkeypatch.setattr(durable.flushing, "_failure", None)
    engine.close()
    with Engine.open(home) as again:
        assert B in view(again)["senders"], "it was durable, so it counts"


@pytest.mark.parametrize(
    ("point", "there"),
    [
        ("mlog.commit.before", False),
        ("durable.append.before", False),
        ("mlog.commit.durable", True),
        ("mlog.commit.published", True),
    ],
)
def test_a_crash_around_the_write_loses_all_of_the_commit_or_nothing(home, engine, point, there):
    def die(name):
        if name == point:
            raise crash.SimulatedCrash(name)

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        engine.commit([load(), seen(B)])
    engine.close()
    with Engine.open(home) as again:
        found = view(again)
        assert (B in found["senders"]) is there
        assert (len(found["files"]) == 1) is there


def test_a_crash_while_the_log_is_made_leaves_no_engine_or_a_whole_one(tmp_path):
    points = []
    with crash.arm(points.append):
        Engine.open(tmp_path / "trial").close()
    for number, point in enumerate(points):
        home = tmp_path / f"{number}"
        count = iter(range(len(points)))

        def die(_name, number=number, count=count):
            if next(count) == number:
                raise crash.SimulatedCrash

        with crash.arm(die), pytest.raises(crash.SimulatedCrash):
            Engine.open(home).close()
        with Engine.open(home) as engine:
            engine.commit([seen()])
            assert view(engine)["uuid"], point


def test_a_crash_while_a_torn_tail_is_cut_is_harmless(home, engine):
    before = view(engine)
    engine.close()
    content = log_file(home).read_bytes()
    for point in ("mlog.open.flushed", "mlog.cut.before", "mlog.cut.after"):
        log_file(home).write_bytes(content + b"torn")

        def die(name, point=point):
            if name == point:
                raise crash.SimulatedCrash

        with crash.arm(die), pytest.raises(crash.SimulatedCrash):
            Engine.open(home)
        with Engine.open(home) as again:
            assert view(again) == before


def test_killed_between_write_and_flush_counts_only_once_it_is_flushed(home, engine, monkeypatch):
    """What a killed process left in the kernel's memory is flushed before anybody sees it."""
    engine.close()
    order = []
    real_fsync, real_apply = os.fsync, State.apply

    def fsync(fd):
        order.append(os.readlink(f"/proc/self/fd/{fd}"))
        real_fsync(fd)

    def apply(self, *rest):
        order.append("apply")
        real_apply(self, *rest)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(State, "apply", apply)
    Engine.open(home).close()
    assert str(log_file(home)) in order[: order.index("apply")]
