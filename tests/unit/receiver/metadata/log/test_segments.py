"""Segments of the log, and a log of the previous version."""

import os
import shutil

import pytest

from common import crash
from common.durable import Tree
from common.errors import DamagedError
from receiver.metadata.engine import Engine
from receiver.metadata.log import frames
from receiver.metadata.log.frames import (
    VERSION,
    LogReader,
    encode_frame,
    encode_log_head,
    encode_payload,
)
from receiver.metadata.log.segments import Segment, behind, segments
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import HistoryGoneError
from tests.support.metadata import B, load, seen
from tests.support.schema_commits import HISTORY, everything, series

SALT = 7


@pytest.fixture
def home(tmp_path):
    return tmp_path / "schema"


@pytest.fixture
def previous(home):
    """A directory as the version before left it: one log of version 1, nothing else."""
    ops = [[records.EngineMade("ee" * 16)], [seen()], [load()]]
    content = encode_log_head(SALT, 1, version=1)
    for number, each in enumerate(ops, 1):
        payload = encode_payload([(number << 18, records.encode_ops(each))])
        content += encode_frame(SALT, number, payload)
    home.mkdir()
    (home / "mlog-1.tsf").write_bytes(content)
    return content


def version(home):
    with (home / "mlog-1.tsf").open("rb") as file:
        return LogReader(file.fileno(), "x").version


def test_a_log_of_the_previous_version_opens_as_it_is(home, previous):
    with Engine.read_only(home) as reader:
        expected = everything(reader)
        assert reader.uuid == "ee" * 16
    assert (home / "mlog-1.tsf").read_bytes() == previous, "reading changes nothing"
    with Engine.open(home, background=False) as engine:
        assert everything(engine) == expected
        engine.commit([records.StorageGroupSet("root.t"), series("root.t.d9", "s")])
        after = everything(engine)
    with Engine.open(home, background=False) as engine:
        assert everything(engine) == after


def test_once_it_is_written_to_the_previous_program_refuses_it_with_the_version(home, previous):
    """That program reads the version at the same place, and stops before anything else."""
    assert version(home) == 1
    Engine.open(home).close()
    assert version(home) == VERSION
    assert (home / "mlog-1.tsf").read_bytes()[40:] == previous[40:], "the frames are as they were"


def test_a_torn_tail_of_the_previous_version_is_cut(home, previous):
    (home / "mlog-1.tsf").write_bytes(previous[:-9])
    with Engine.open(home) as engine, engine.reading() as state:
        assert set(state.senders)
        assert not state.files


def test_a_death_while_the_version_is_raised_is_harmless(home, previous, tmp_path):
    points = []
    trial = tmp_path / "trial"
    shutil.copytree(home, trial)
    with crash.arm(points.append):
        Engine.open(trial).close()
    with Engine.read_only(home) as reader:
        expected = everything(reader)
    for number in range(len(points)):
        copy = tmp_path / f"{number}"
        shutil.copytree(home, copy)
        count = iter(range(len(points)))

        def die(_name, number=number, count=count):
            if next(count) == number:
                raise crash.SimulatedCrash

        with crash.arm(die), pytest.raises(crash.SimulatedCrash):
            Engine.open(copy, background=False).close()
        with Engine.open(copy, background=False) as engine:
            assert everything(engine) == expected


def test_each_checkpoint_begins_a_segment_and_old_ones_go(home):
    with Engine.open(home, options=EngineOptions(history=0.0), background=False) as engine:
        for number, ops in enumerate(HISTORY, 2):
            engine.commit(ops)
            engine.collect()
            assert engine.checkpoint() == number
        with Tree(home) as tree:
            assert [each.first_lsn for each in segments(tree)] == [10, 11]
        assert len(list(home.glob("mtree*"))) == 2


def test_within_the_history_every_segment_stays(home):
    with Engine.open(home, background=False) as engine:
        stamps = []
        for ops in HISTORY:
            stamps.append(engine.commit(ops))
            engine.checkpoint()
        assert [commit.ts for commit in engine.log_since(0)][1:] == stamps
        assert [commit.ts for commit in engine.log_since(stamps[3])] == stamps[4:]
        assert list(engine.log_since(engine.newest_commit)) == []
        made = (records.TableMade, records.TabletMade, records.TableTtlSet)  # by the engine
        assert [
            [op for op in commit.ops if not isinstance(op, made)]
            for commit in engine.log_since(stamps[0])
        ] == [list(records.decode_ops(records.encode_ops(ops))) for ops in HISTORY[1:]]


def test_who_stops_before_the_newest_commit_goes_on_there(home, monkeypatch):
    """As the copies of the tree do, whose log is behind: not from the segment's begin each time."""
    read = []
    decode = frames.decode_commits
    monkeypatch.setattr(frames, "decode_commits", lambda raw: read.append(1) or decode(raw))
    with Engine.open(home, background=False) as engine:
        stamps = [engine.commit([seen(f"{number:032x}")]) for number in range(1, 101)]
        at = 0
        for until in range(10, 91, 10):
            for commit in engine.log_since(stamps[at]):
                if commit.ts > stamps[until]:
                    break
                at += 1
                assert commit.ts == stamps[at]
            assert at == until
        assert len(read) <= 90 + 2 * 9 + 2
        assert [each.ts for each in engine.log_since(stamps[50])] == stamps[51:]


def test_what_the_log_has_let_go_of_is_a_named_error(home):
    with Engine.open(home, options=EngineOptions(history=0.0), background=False) as engine:
        for ops in HISTORY:
            engine.commit(ops)
            engine.checkpoint()
        engine.collect()
        with pytest.raises(HistoryGoneError):
            list(engine.log_since(1))
        assert list(engine.log_since(engine.newest_commit)) == []


def test_a_checkpoint_of_nothing_new_makes_no_segment(home):
    with Engine.open(home, background=False) as engine:
        engine.commit([seen()])
        assert engine.checkpoint() == engine.checkpoint() == 2
        assert engine.entries_since_checkpoint == 0
    with Engine.open(home, background=False) as engine:
        assert engine.checkpoint() == 2
        engine.commit([seen(B)])
        assert engine.entries_since_checkpoint == 1


def test_the_segments_behind_a_commit_begin_with_its_own():
    there = [Segment(first, f"mlog-{first}.tsf") for first in (1, 10, 20)]
    assert behind(there, 0) == there
    assert behind(there, 8) == there
    assert behind(there, 9) == there[1:]
    assert behind(there, 18) == there[1:]
    assert behind(there, 400) == there[2:]


def test_segments_that_do_not_follow_each_other_are_damage(home):
    with Engine.open(home, background=False) as engine:
        engine.commit([seen()])
        engine.checkpoint()
        engine.commit([seen(B)])
    for each in home.glob("mtree*"):
        each.unlink()
    (home / "mlog-3.tsf").rename(home / "mlog-4.tsf")
    with pytest.raises(DamagedError, match="unlike its name"):
        Engine.open(home)
    (home / "mlog-4.tsf").write_bytes(encode_log_head(5, 4))
    with pytest.raises(DamagedError, match=r"ends with LSN 2, the next segment begins with 4"):
        Engine.open(home)


def test_a_look_in_the_middle_of_a_rotation_sees_a_log(home, previous, monkeypatch):
    """The names are read, then the log goes on in the next segment, and the first is removed."""
    listdir = os.listdir
    listings = []

    def rotating(fd):
        listings.append(names := listdir(fd))
        if len(listings) == 1:
            os.rename(home / "mlog-1.tsf", home / "mlog-4.tsf")
        elif len(listings) == 2:
            os.rename(home / "mlog-4.tsf", home / "mlog-9.tsf")
            return [name for name in names if not name.startswith("mlog")]  # between the two
        return names

    monkeypatch.setattr(os, "listdir", rotating)
    with Tree(home) as tree:
        assert segments(tree) == [Segment(9, "mlog-9.tsf")]


@pytest.mark.parametrize(
    "place", ["durable.write_atomic.renamed", "mlog.create.after", "append_file", "_mark"]
)
def test_commits_behind_a_segment_that_was_begun_and_given_up_are_there_at_the_next_start(
    home, monkeypatch, place
):
    """A lack of memory is an error like others for whoever leads: the old segment goes on."""
    with Engine.open(home, background=False) as engine:
        engine.commit([records.StorageGroupSet("root.t"), series("root.t.d1", "s")])

        def fails(name, *_args, **_more):
            if name == place or place in ("append_file", "_mark"):
                raise MemoryError

        with monkeypatch.context() as short:
            if place == "append_file":
                short.setattr(Tree, place, fails)
            elif place == "_mark":
                short.setattr(frames, place, fails)
            else:
                short.setattr(crash, "point", fails)
            with pytest.raises(MemoryError):
                engine.checkpoint()
        engine.commit([series("root.t.d2", "s")])
        expected = everything(engine)
    with Engine.open(home, background=False) as engine:
        assert everything(engine) == expected
