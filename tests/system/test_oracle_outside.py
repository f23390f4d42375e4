"""Random histories of operators, disks, mounts and copies: nothing comes back, nothing is gone."""

from __future__ import annotations

import itertools

import pytest

from tests.support import tiers
from tests.support.oracle import Oracle, killable
from tests.support.oracle_outside import OutsidePlay

STEPS = 120


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "mode"), tiers.sample(itertools.product(range(100), ["replaced", "never"]), 1)
)
def test_whatever_happens_outside_nothing_deleted_comes_back_and_nothing_is_lost_in_silence(
    seed, mode, tmp_path
):
    with killable(tmp_path, keeps=seed % 2 == 0) as host:
        play = OutsidePlay(Oracle(tmp_path, mode, host), host, seed)
        try:
            play.run(STEPS)
            play._whole_round()
        except AssertionError as wrong:
            wrong.add_note("\n".join(map(str, play.events)))
            raise
