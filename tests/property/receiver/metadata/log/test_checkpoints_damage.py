"""Segments, tlog and checkpoints cut at every byte, and with every byte changed."""

from __future__ import annotations

import os
import shutil

import pytest

from common.durable import Tree
from common.errors import DamagedError
from receiver.metadata.engine import Engine
from receiver.metadata.log.checkpoints import Checkpoint, checkpoints, open_checkpoint
from receiver.metadata.log.segments import segments
from receiver.metadata.log.tlog import TLOG_NAME
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import NewerLogError
from tests.support import tiers
from tests.support.schema_commits import HISTORY, everything


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory with two checkpoints and the log behind the older; (home, states by LSN)."""
    home = tmp_path_factory.mktemp("made") / "schema"
    states = {}
    options = EngineOptions(history=0.0)
    with Engine.open(home, options=options, background=False) as engine:
        for number, ops in enumerate(HISTORY):
            engine.commit(ops)
            if number in (1, 3, 6):
                engine.collect()
                engine.checkpoint()
            states[number + 2] = everything(engine)
    with Tree(home) as tree:
        assert [each.lsn for each in checkpoints(tree)] == [8, 5]
        assert segments(tree)[0].first_lsn > 1, "the log alone is not enough"
    return home, states


@pytest.fixture
def broken(made, tmp_path):
    """A copy of the directory, in which `put(name, content)` replaces files."""
    home = tmp_path / "schema"
    shutil.copytree(made[0], home)

    def put(name, content):
        (home / name).write_bytes(content)

    put.home = home
    return put


def looked_at(home):
    with Engine.read_only(home) as engine:
        return everything(engine)


def attempt(home):
    """(what is there, None) or (None, the message of a named error)"""
    try:
        return looked_at(home), None
    except (DamagedError, NewerLogError) as error:
        return None, error.message


def versions(content, step=1):
    """Everything that one cut or one changed bit makes of a file; in the long tier all of it."""
    for at in tiers.part(range(0, len(content), step)):
        yield f"cut at {at}", content[:at]
    for at in tiers.part(range(0, len(content), step)):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        yield f"flip at {at}", bytes(changed)


@pytest.mark.slow
def test_no_cut_and_no_flip_of_a_checkpoint_passes_for_another(made, broken):
    newest = Checkpoint(8, "mtree.snapshot-8.tsf")
    content = (made[0] / newest.name).read_bytes()
    with Tree(broken.home) as tree:
        for what, damaged in versions(content, 3):
            broken(newest.name, damaged)
            with pytest.raises((DamagedError, NewerLogError)), open_checkpoint(tree, newest):
                raise AssertionError(f"taken for whole: {what}")


def test_whatever_happens_to_the_newest_checkpoint_nothing_is_lost(made, broken):
    name = "mtree.snapshot-8.tsf"
    expected = looked_at(made[0])
    content = (made[0] / name).read_bytes()
    for what, damaged in [*versions(content, 97), ("empty", b""), ("zeros", bytes(len(content)))]:
        broken(name, damaged)
        assert looked_at(broken.home) == expected, what
    os.unlink(broken.home / name)
    assert looked_at(broken.home) == expected


def test_the_next_start_puts_a_damaged_checkpoint_aside_and_says_so(made, broken, caplog):
    expected = looked_at(made[0])
    broken("mtree.snapshot-8.tsf", b"not a checkpoint")
    with Engine.open(broken.home, background=False) as engine:
        assert everything(engine) == expected
        assert "a checkpoint is passed over" in caplog.text
        assert (broken.home / "mtree.snapshot-8.tsf.damaged").read_bytes() == b"not a checkpoint"
        engine.commit(HISTORY[0][:1])
        engine.checkpoint()
    with Tree(broken.home) as tree:
        assert [each.lsn for each in checkpoints(tree)] == [11, 5], "the good one before is kept"


def test_damage_to_both_checkpoints_is_an_error_that_names_them_and_never_an_empty_tree(
    made, broken
):
    for first, second in ((b"", b""), (b"x" * 5000, b"y" * 5000)):
        broken("mtree.snapshot-8.tsf", first)
        broken("mtree.snapshot-5.tsf", second)
        for opening in (Engine.read_only, Engine.open):
            with pytest.raises(DamagedError, match=r"snapshot-8.*snapshot-5.*begins with LSN"):
                opening(broken.home)
    os.unlink(broken.home / "mtree.snapshot-8.tsf")
    os.unlink(broken.home / "mtree.snapshot-5.tsf")
    for opening in (Engine.read_only, Engine.open):
        with pytest.raises(DamagedError, match="begins with LSN"):
            opening(broken.home)


def test_both_checkpoints_damaged_and_the_log_whole_is_replayed_from_its_begin(tmp_path):
    home = tmp_path / "schema"
    with Engine.open(home, background=False) as engine:
        for ops in HISTORY:
            engine.commit(ops)
            engine.checkpoint()
        expected = everything(engine)
    for each in home.glob("mtree*"):
        each.write_bytes(b"gone bad")
    assert looked_at(home) == expected
    with Engine.open(home, background=False) as engine:
        assert everything(engine) == expected


def test_every_cut_of_the_last_segment_gives_a_prefix_of_the_commits(made, broken):
    home, states = made
    with Tree(home) as tree:
        name = segments(tree)[-1].name
    content = (home / name).read_bytes()
    for size in tiers.part(range(len(content))):
        broken(name, content[:size])
        found, message = attempt(broken.home)
        if message:
            assert size < 40, "the head of a segment is there before anything counts"
            assert name in message
        else:
            assert found in [states[lsn] for lsn in (8, 9, 10)], size
    broken(name, content)
    assert looked_at(broken.home) == states[10]


def test_every_flip_in_a_segment_gives_a_named_error_or_the_whole(made, broken):
    home, states = made
    with Tree(home) as tree:
        there = segments(tree)
    for segment in there:
        content = (home / segment.name).read_bytes()
        for what, damaged in versions(content, 3):
            if what.startswith("cut"):
                continue
            broken(segment.name, damaged)
            found, message = attempt(broken.home)
            if message:
                assert segment.name in message
                assert segment == there[-1], "the checkpoint stands for the others"
            else:
                assert found == states[10], what
        broken(segment.name, content)


def test_a_segment_that_is_gone_is_a_named_error(made, broken):
    with Tree(broken.home) as tree:
        there = segments(tree)
    os.unlink(broken.home / there[-1].name)
    with pytest.raises(DamagedError, match=rf"{there[-1].name} is gone"):
        looked_at(broken.home)
    with pytest.raises(DamagedError, match="is gone"):
        Engine.open(broken.home)
    for each in there[:-1]:
        os.unlink(broken.home / each.name)
    for opening in (Engine.read_only, Engine.open):
        with pytest.raises(DamagedError, match=r"mlog-1.tsf is gone"):
            opening(broken.home)


@pytest.mark.slow
def test_every_cut_and_flip_of_the_tlog_gives_the_tags_or_a_named_error(made, broken):
    expected = looked_at(made[0])
    content = (made[0] / TLOG_NAME).read_bytes()
    tried = errors = 0
    for what, damaged in versions(content):
        tried += 1
        broken(TLOG_NAME, damaged)
        found, message = attempt(broken.home)
        if message:
            assert TLOG_NAME in message
            errors += 1
        else:
            assert found == expected, what
    assert errors > tried / 4


def test_a_tlog_that_a_power_cut_took_is_written_again_from_the_log(tmp_path):
    """No checkpoint, so nothing was flushed: the log gives the same bytes at the same places."""
    home = tmp_path / "schema"
    with Engine.open(home, background=False) as engine:
        for ops in HISTORY:
            engine.commit(ops)
        expected = everything(engine)
    content = (home / TLOG_NAME).read_bytes()
    for size in [*range(24, len(content), 11), None]:
        if size is None:
            os.unlink(home / TLOG_NAME)
        else:
            (home / TLOG_NAME).write_bytes(content[:size] + bytes(len(content) - size))
        assert looked_at(home) == expected, size
        with Engine.open(home, background=False) as engine:
            assert everything(engine) == expected
        assert (home / TLOG_NAME).read_bytes() == content
