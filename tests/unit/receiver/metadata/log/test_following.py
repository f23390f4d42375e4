"""An engine whose commits are kept elsewhere: the directory is a cache of the remote log."""

import errno
import os
import shutil

import pytest

from common import crash
from common.errors import LockedError, ReadOnlyError, UnreachableError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import FencedError, UnknownOutcomeError
from tests.support.metadata import B, seen
from tests.support.remote_log import MemoryPlace, MemoryRemote
from tests.support.schema_commits import HISTORY, everything


@pytest.fixture
def home(tmp_path):
    return tmp_path / "schema"


@pytest.fixture
def place():
    return MemoryPlace()


def opened(home, place, **options):
    return Engine.open(
        home, remote=MemoryRemote(place), options=EngineOptions(**options), background=False
    )


def fill(engine, commits=HISTORY):
    for ops in commits:
        engine.commit(ops)
    return everything(engine)


def test_every_commit_is_in_the_remote_log_before_it_is_visible(home, place):
    with opened(home, place) as engine:
        expected = fill(engine)
        assert sum(commits for _, commits, _ in place.log) == 1 + len(HISTORY)
        assert place.uuid == engine.uuid
    with opened(home, place) as engine:
        assert everything(engine) == expected
    assert not list(home.glob("aside-*"))


@pytest.mark.parametrize("checkpoints", [(), (3,), (2, 5, 8)])
def test_a_lost_directory_is_made_anew_from_the_remote_log(home, place, checkpoints):
    with opened(home, place, history=0.0) as engine:
        for number, ops in enumerate(HISTORY):
            engine.commit(ops)
            if number in checkpoints:
                engine.checkpoint()
        expected = everything(engine)
    shutil.rmtree(home)
    for _ in range(2):
        with opened(home, place) as engine:
            assert everything(engine) == expected
    with opened(home, place) as engine:
        engine.commit([seen(label="on")])
        engine.checkpoint()
        expected = everything(engine)
    shutil.rmtree(home)
    with opened(home, place) as engine:
        assert everything(engine) == expected


def test_a_directory_that_is_behind_is_brought_up(home, place, tmp_path):
    with opened(home, place) as engine:
        fill(engine, HISTORY[:3])
    shutil.copytree(home, tmp_path / "old")
    with opened(home, place) as engine:
        expected = fill(engine, HISTORY[3:])
    with opened(tmp_path / "old", place) as engine:
        assert everything(engine) == expected
    assert not list((tmp_path / "old").glob("aside-*"))


def test_a_directory_so_far_behind_that_the_log_was_trimmed_is_made_anew(home, place, tmp_path):
    with opened(home, place) as engine:
        fill(engine, HISTORY[:3])
    shutil.copytree(home, tmp_path / "old")
    with opened(home, place) as engine:
        expected = fill(engine, HISTORY[3:])
        engine.checkpoint()
    with opened(tmp_path / "old", place) as engine:
        assert everything(engine) == expected
    assert (tmp_path / "old" / "aside-1" / "mlog-1.tsf").exists()


def test_a_directory_of_another_engine_is_set_aside(home, place, tmp_path):
    with opened(home, place) as engine:
        expected = fill(engine)
    with Engine.open(tmp_path / "other") as other:
        other.commit([seen(B)])
    with opened(tmp_path / "other", place) as engine:
        assert everything(engine) == expected
    assert (tmp_path / "other" / "aside-1" / "mlog-1.tsf").exists()


def test_a_directory_with_other_commits_is_set_aside(home, place, tmp_path):
    with opened(home, place) as engine:
        fill(engine, HISTORY[:3])
    shutil.copytree(home, tmp_path / "split")
    with Engine.open(tmp_path / "split", background=False) as engine:
        engine.commit([seen(label="elsewhere")])
        engine.commit([seen(label="elsewhere again")])
    with opened(home, place) as engine:
        expected = fill(engine, HISTORY[3:])
    with opened(tmp_path / "split", place) as engine:
        assert everything(engine) == expected
    assert (tmp_path / "split" / "aside-1" / "mlog-1.tsf").exists()


def test_a_damaged_directory_is_set_aside_and_nothing_is_lost(home, place):
    with opened(home, place) as engine:
        expected = fill(engine)
    content = bytearray((home / "mlog-1.tsf").read_bytes())
    content[200] ^= 1
    (home / "mlog-1.tsf").write_bytes(bytes(content))
    with opened(home, place) as engine:
        assert everything(engine) == expected


def test_an_empty_place_takes_over_what_a_directory_holds(home, place):
    """From `embedded` to `etcd`: nothing that was acknowledged is dropped."""
    with Engine.open(home, background=False) as engine:
        expected = fill(engine)
    with opened(home, place) as engine:
        assert everything(engine) == expected
    shutil.rmtree(home)
    with opened(home, place) as engine:
        assert everything(engine) == expected


def test_a_taking_over_that_was_cut_off_is_finished(home, place):
    with Engine.open(home, background=False) as engine:
        expected = fill(engine)
    opened(home, place).close()
    for left in range(len(place.log)):
        place.log = place.log[:left] or place.log[:0]
        with opened(home, place) as engine:
            assert everything(engine) == expected
        assert not list(home.glob("aside-*"))


def test_a_remote_log_that_does_not_answer_refuses_and_heals_by_itself(home, place):
    with opened(home, place) as engine:
        before = fill(engine, HISTORY[:2])
        for _ in range(2):
            place.fault = "away"
            with pytest.raises(UnreachableError):
                engine.commit(HISTORY[2])
        assert everything(engine) == before
        assert engine.failed is None
        expected = fill(engine, HISTORY[2:])
    with opened(home, place) as engine:
        assert everything(engine) == expected


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_lost_answer_is_settled_before_the_next_commit(home, place, fault):
    with opened(home, place) as engine:
        fill(engine, HISTORY[:1])
        place.fault = fault
        with pytest.raises(UnknownOutcomeError):
            engine.commit(HISTORY[1])
        place.away = True
        with pytest.raises(UnreachableError):
            engine.commit([seen(label="later")])
        place.away = False
        engine.commit([seen(label="on")])
        with engine.reading() as state:
            there = state.schema.series.find(("root", "t", "d1", "s1")) >= 0
        assert there is (fault == "after")
        expected = everything(engine)
    with opened(home, place) as engine:
        assert everything(engine) == expected
    shutil.rmtree(home)
    with opened(home, place) as engine:
        assert everything(engine) == expected


def test_a_fenced_engine_takes_no_more_commits(home, place, tmp_path):
    with opened(home, place) as engine:
        before = fill(engine, HISTORY[:2])
        with opened(tmp_path / "second", place) as second:
            assert everything(second) == before
            with pytest.raises(FencedError):
                engine.commit(HISTORY[2])
            with pytest.raises(ReadOnlyError, match="taken over"):
                engine.commit(HISTORY[2])
            assert everything(engine) == before
            after = fill(second, HISTORY[2:])
    with opened(home, place) as engine:
        assert everything(engine) == after


def test_a_checkpoint_lets_the_remote_log_be_trimmed(home, place):
    with opened(home, place) as engine:
        fill(engine)
        lsn = engine.checkpoint()
        assert place.kept.lsn == lsn
        assert set(place.kept.files) == {f"mtree.snapshot-{lsn}.tsf", "tlog-1.tsf"}
        assert [first for first, _, _ in place.log] == [lsn], "the last commit stays, to compare"
        expected = everything(engine)
    with opened(home, place) as engine:
        assert everything(engine) == expected
    assert not list(home.glob("aside-*"))


def test_a_commit_that_cannot_be_written_here_counts_and_is_there_after_the_next_start(
    home, place, monkeypatch
):
    with opened(home, place) as engine:
        fill(engine, HISTORY[:2])
        with monkeypatch.context() as full:

            def fail(fd, data):
                raise OSError(errno.ENOSPC, "No space left on device")

            full.setattr(os, "write", fail)
            with pytest.raises(ReadOnlyError, match="in the remote log"):
                engine.commit([records.KeysWritten([], {"x": "1"})])
        assert engine.failed
    with opened(home, place) as engine, engine.reading() as state:
        assert state.keys.load("x") == "1"


def made_anew(tmp_path, place):
    """A place with a checkpoint and frames behind it; what it stands for; three directories."""
    lost, other, behind = (tmp_path / name for name in ("lost", "other", "behind"))
    with opened(behind, place) as engine:
        fill(engine, HISTORY[:4])
        engine.checkpoint()
    with opened(tmp_path / "first", place) as engine:
        expected = fill(engine, HISTORY[4:])
    with Engine.open(other, background=False) as engine:
        engine.commit([seen(B)])
        engine.checkpoint()
    return expected, {"lost": lost, "other": other, "behind": behind}


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("which", ["lost", "other", "behind"])
def test_a_death_at_any_step_of_following_is_made_good_at_the_next_start(tmp_path, place, which):
    expected, directories = made_anew(tmp_path, place)
    begin = directories[which]
    points, trial = [], tmp_path / "trial"
    if begin.exists():
        shutil.copytree(begin, trial)
    with crash.arm(points.append), opened(trial, place) as engine:
        assert everything(engine) == expected
    for number in range(len(points)):
        home = tmp_path / f"{number}"
        if begin.exists():
            shutil.copytree(begin, home)
        count = iter(range(len(points) + 1))

        def die(_name, number=number, count=count):
            if next(count) == number:
                raise crash.SimulatedCrash

        with crash.arm(die), pytest.raises(crash.SimulatedCrash):
            opened(home, place).close()
        for _ in range(2):
            with opened(home, place) as engine:
                assert everything(engine) == expected, points[number]


def test_a_remote_log_that_is_not_taken_over_is_closed(home, place):
    closed = []

    class Refusing(MemoryRemote):
        def acquire(self, *, wait=None):
            raise UnreachableError("down")

        def close(self):
            closed.append(True)
            super().close()

    with pytest.raises(UnreachableError):
        Engine.open(home, remote=Refusing(place), background=False)
    assert closed
    with opened(home, place):
        closed.clear()
        with pytest.raises(LockedError):  # by its directory, before anybody is asked
            Engine.open(home, remote=Refusing(place), background=False)
    assert closed
