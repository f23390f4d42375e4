"""Random histories of an edge and of a forwarder: the centre above answers as the one below.

A history that was wrong is told with its seed; `ChainPlay(world, seed).run(steps)` plays it again.
"""

from __future__ import annotations

import itertools

import pytest

from tests.support import tiers
from tests.support.oracle_chain import ChainPlay, oracle_chain
from tests.support.oracle_play import WrongAnswer

MODES = ["replaced", "all", "never"]
LIVES = tiers.sample(itertools.product(range(400), MODES), 1, kind=lambda each: each[1])


@pytest.mark.few(1)
@pytest.mark.parametrize(("seed", "mode"), LIVES)
def test_a_centre_above_answers_as_the_one_that_forwards_to_it(seed, mode, tmp_path):
    with oracle_chain(tmp_path, mode, mode) as world:
        play = ChainPlay(world, seed)
        try:
            play.run(150)
        except WrongAnswer as wrong:
            wrong.add_note("\n".join(map(str, play.events)))
            raise
