"""Random histories of an edge in every mode: after each round readers get the database's answer.

A history that was wrong is told with its seed; `Play(world, seed).run(steps)` plays it again.
"""

from __future__ import annotations

import pytest

from tests.support import tiers
from tests.support.oracle import oracle
from tests.support.oracle_play import RESTORES, Play, WrongAnswer

SEEDS = tiers.sample(range(400), 4)
STEPS = 150


@pytest.mark.parametrize("mode", ["replaced", "all", "never"])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_edge_that_lives_on_is_answered_as_its_database_answers(seed, mode, tmp_path):
    with oracle(tmp_path, mode) as world:
        play = Play(world, seed)
        try:
            play.run(STEPS)
        except WrongAnswer as wrong:
            wrong.add_note("\n".join(map(str, play.events)))
            raise


@pytest.mark.parametrize("mode", ["replaced", "all", "never"])
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_an_edge_that_is_restored_from_copies_is_answered_as_its_database_answers(
    seed, mode, tmp_path
):
    with oracle(tmp_path, mode) as world:
        play = Play(world, seed, weights=RESTORES)
        try:
            play.run(STEPS)
        except WrongAnswer as wrong:
            wrong.add_note("\n".join(map(str, play.events)))
            raise


@pytest.mark.long
@pytest.mark.parametrize("mode", ["replaced", "all", "never"])
@pytest.mark.parametrize("seed", range(3))
def test_a_long_life(seed, mode, tmp_path):
    with oracle(tmp_path, mode) as world:
        Play(world, 1000 + seed).run(3000)
