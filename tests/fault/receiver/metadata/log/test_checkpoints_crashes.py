"""A death at any step of a checkpoint, and a directory that opens with everything in it."""

from __future__ import annotations

import shutil

import pytest

from common import crash
from common.errors import DamagedError
from receiver.metadata.engine import Engine
from receiver.metadata.model.engine_options import EngineOptions
from tests.support.metadata import seen
from tests.support.schema_commits import HISTORY, everything

ALL_GOES = EngineOptions(history=0.0)
"""Without history, a checkpoint lets go of all that the one before does not need."""


def opened(home):
    return Engine.open(home, options=ALL_GOES, background=False)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A directory with two checkpoints, more commits behind them, and segments to let go of."""
    home = tmp_path_factory.mktemp("prepared") / "schema"
    with opened(home) as engine:
        for number, ops in enumerate(HISTORY):
            engine.commit(ops)
            if number in (2, 5):
                engine.checkpoint()
        assert len(list(home.glob("mtree.snapshot-*"))) == 2
    return home


def tidy(engine):
    engine.collect()
    engine.checkpoint()


def passages(engine, work):
    """Names of the crash points that some work goes by, in order."""
    names = []
    with crash.arm(names.append):
        work(engine)
    return names


@pytest.fixture(scope="module")
def points(prepared, tmp_path_factory):
    home = tmp_path_factory.mktemp("trial") / "schema"
    shutil.copytree(prepared, home)
    with opened(home) as engine:
        return passages(engine, tidy)


def test_a_checkpoint_goes_by_every_step(points):
    assert {
        "mlog.rotate.before",
        "mlog.rotate.after",
        "checkpoint.frozen",
        "checkpoint.tlog_flushed",
        "checkpoint.written",
        "checkpoint.renamed",
        "checkpoint.verified",
        "checkpoint.removed",
        "mlog.remove.removed",
    } <= set(points)


def test_a_death_at_any_step_of_a_checkpoint_loses_nothing(prepared, points, tmp_path):
    with Engine.read_only(prepared) as engine:
        expected = everything(engine)
    for number, point in enumerate(points):
        home, left = tmp_path / f"{number}" / "schema", tmp_path / f"{number}" / "left"
        shutil.copytree(prepared, home)
        engine = opened(home)
        count = iter(range(len(points)))

        def die(_name, number=number, count=count, home=home, left=left):
            if next(count) == number:
                shutil.copytree(home, left)
                raise crash.SimulatedCrash

        with crash.arm(die), pytest.raises(crash.SimulatedCrash):
            tidy(engine)
        engine.close()
        with Engine.read_only(left) as reader:
            assert everything(reader) == expected, point
        for _ in range(2):  # a recovery that is run twice gives the same
            with opened(left) as again:
                assert everything(again) == expected, point
                assert not list(left.glob(".*.tmp"))
        with opened(left) as again:
            again.commit([seen(label="after")])
            again.checkpoint()
            after = everything(again)
        with opened(left) as again:
            assert everything(again) == after, point


def test_order_of_the_steps_is_that_of_a_power_cut(points):
    """tlog flushed, checkpoint written, renamed, proven; only then does anything go."""
    steps = points[points.index("mlog.rotate.before") :]
    order = [
        steps.index("checkpoint.tlog_flushed"),
        steps.index("checkpoint.written"),
        steps.index("checkpoint.renamed"),
        steps.index("checkpoint.verified"),
        steps.index("checkpoint.removed"),
        steps.index("mlog.remove.removed"),
    ]
    assert order == sorted(order)
    assert "durable.unlink.unlinked" not in steps[: steps.index("checkpoint.verified")]


def test_commits_go_on_while_a_checkpoint_is_written(prepared, tmp_path):
    """A commit made in the midst of writing it is in the log behind the checkpoint."""
    home = tmp_path / "schema"
    shutil.copytree(prepared, home)
    with opened(home) as engine:
        made = []

        def commit(name):
            if name == "checkpoint.written":
                made.append(engine.commit([seen(label="meanwhile")]))

        with crash.arm(commit):
            lsn = engine.checkpoint()
        assert len(made) == 1
        assert engine.entries_since_checkpoint == 1
        expected = everything(engine)
    assert (home / f"mtree.snapshot-{lsn}.tsf").exists()
    with opened(home) as again:
        assert everything(again) == expected


def test_a_checkpoint_that_does_not_read_back_lets_nothing_go(prepared, tmp_path):
    home = tmp_path / "schema"
    shutil.copytree(prepared, home)
    before = sorted(each.name for each in home.glob("m*"))
    with opened(home) as engine:

        def decay(name):
            if name == "checkpoint.renamed":
                [made] = [each for each in home.glob("mtree*") if each.name not in before]
                content = bytearray(made.read_bytes())
                content[len(content) // 2] ^= 4
                made.write_bytes(bytes(content))

        with crash.arm(decay), pytest.raises(DamagedError):
            engine.checkpoint()
        assert set(before) <= {each.name for each in home.glob("m*")}
        assert len(list(home.glob("mtree*"))) == 2, "what was not proven is none of those kept"
        expected = everything(engine)
        engine.commit([seen(label="on")])
    with opened(home) as again:
        assert everything(again)["schema"] == expected["schema"]
        assert again.newest_commit > expected["rows"]["newest"]
