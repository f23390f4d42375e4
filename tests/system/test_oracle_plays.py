"""Random histories of edges in every mode: after each round readers get the database's answer.

A history that was wrong is told with its seed; the same play of the same seed is it again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest

from tests.support import tiers
from tests.support.edge_shapes import ALIGNED, BINARY, PLAIN, TABLE, Shape
from tests.support.oracle import Oracle, killable, oracle
from tests.support.oracle_deaths import DeadlyPlay, Fleet
from tests.support.oracle_play import RESTORES, TOLD_OTHERWISE, Play, WrongAnswer
from tests.support.oracle_transfers import TransferLife

MODES = ["replaced", "all", "never"]
SEEDS = tiers.sample(range(400), 2)
STEPS = 150
OTHER_SHAPES = {"aligned": ALIGNED, "binary deletions": BINARY, "table": TABLE}
DEATHS = tiers.sample(itertools.product(range(60), MODES), 1)
SHAPED = tiers.sample(
    itertools.product(range(60), MODES, OTHER_SHAPES), 1, kind=lambda each: each[2]
)
LONG, LONG_WITH_DEATHS = 3000, 1500
A_STEP = 0.6
"""Seconds that a step of a long life may take on a loaded machine; most take a tenth of it."""
FLEETS = tiers.sample(itertools.product(range(30), MODES), 1)


@contextlib.contextmanager
def told(*plays: Play | TransferLife) -> Iterator[None]:
    """Whatever goes wrong is told with all that happened."""
    try:
        yield
    except (WrongAnswer, AssertionError) as wrong:
        for each in plays:
            wrong.add_note("\n".join(map(str, each.events)))
        raise


@pytest.mark.few(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_an_edge_that_lives_on_is_answered_as_its_database_answers(seed, mode, tmp_path):
    with oracle(tmp_path, mode) as world:
        play = Play(world, seed)
        with told(play):
            play.run(STEPS)


@pytest.mark.few(2)
@pytest.mark.parametrize(("seed", "mode", "shape"), SHAPED)
def test_series_that_share_times_and_tables_are_answered_as_their_database_answers(
    seed, mode, shape, tmp_path
):
    with oracle(tmp_path, mode, OTHER_SHAPES[shape]) as world:
        play = Play(world, seed)
        with told(play):
            play.run(STEPS)


@pytest.mark.parametrize(("seed", "mode"), DEATHS)
def test_neither_deaths_nor_rot_nor_other_boxes_change_what_readers_get(seed, mode, tmp_path):
    with killable(tmp_path) as host:
        play = DeadlyPlay(Oracle(tmp_path, mode, host), host, seed)
        with told(play):
            play.run(STEPS)
            play.settle()


@pytest.mark.parametrize(("seed", "mode"), FLEETS)
def test_edges_at_one_centre_do_not_disturb_each_other(seed, mode, tmp_path):
    with killable(tmp_path) as host:
        one = Oracle(tmp_path / "one", mode, host)
        shapes = Shape("root.f", aligned=True), TABLE, Shape("root.g", form="mods2")
        worlds = [one, Oracle(tmp_path / "one", mode, host, shapes[0], one.edge)]
        worlds += [Oracle(tmp_path / each.group, mode, host, each) for each in shapes[1:]]
        fleet = Fleet(host, worlds, seed)
        with told(*fleet.plays):
            fleet.run(STEPS)
            fleet.settle()


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS[: 2 if tiers.is_long() else 1])
def test_an_edge_that_is_restored_from_copies_is_answered_as_its_database_answers(
    seed, mode, tmp_path
):
    with oracle(tmp_path, mode) as world:
        if seed % 2:  # a list that begins anew is cut
            world.edge.with_settings(task_max_files=2)
        play = Play(world, seed, weights=RESTORES)
        with told(play):
            play.run(STEPS)


@pytest.mark.few(1)
@pytest.mark.parametrize(("seed", "mode"), tiers.sample(itertools.product(range(60), MODES), 2))
def test_deletions_that_are_kept_or_written_anew_hide_what_the_database_hides(seed, mode, tmp_path):
    with oracle(tmp_path, mode) as world:
        play = Play(world, seed, weights=TOLD_OTHERWISE)
        with told(play):
            play.run(STEPS)


@pytest.mark.long
@pytest.mark.timeout(LONG * A_STEP)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_a_long_life(seed, mode, tmp_path):
    with oracle(tmp_path, mode) as world:
        Play(world, 1000 + seed).run(LONG)


@pytest.mark.long
@pytest.mark.timeout(LONG_WITH_DEATHS * A_STEP)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [PLAIN, TABLE])
def test_a_long_life_with_deaths(shape, mode, tmp_path):
    with killable(tmp_path) as host:
        play = DeadlyPlay(Oracle(tmp_path, mode, host, shape), host, 1000)
        with told(play):
            play.run(LONG_WITH_DEATHS)
            play.settle()
