"""Histories of an edge's database through a centre that forwards: above as in the middle.

The histories are those of `test_oracle_scenes`; the forwarder's rounds come after each look of the
edge, only at the end, or now and then.
"""

from __future__ import annotations

import pytest

from tests.support.oracle_chain import OracleChain, oracle_chain
from tests.system.test_oracle_scenes import SCENES, played

EVERY, LAST, SOME = "each look", "the end", "each third look"


def forwarding(world: OracleChain, how: str) -> None:
    """Let the forwarder follow the edge's rounds as `how` says."""
    whole, looks = world.round, 0

    def and_forward():
        nonlocal looks
        report = whole()
        looks += 1
        if how == EVERY or (how == SOME and not looks % 3):
            world.forward()
        return report

    world.round = and_forward


@pytest.mark.parametrize("how", [EVERY, LAST, SOME])
@pytest.mark.parametrize("name", SCENES)
def test_the_centre_above_gives_what_the_one_in_the_middle_gives(name, how, tmp_path, monkeypatch):
    with oracle_chain(tmp_path) as world:
        forwarding(world, how)
        played(world, SCENES[name], monkeypatch)
        report = world.forward()
        assert (report.held, report.conflicts) == ([], [])
        assert world.read_above() == world.read()
        assert world.forward().quiet, "nothing is handed up twice"
