"""Random histories of operators, disks, mounts and copies: nothing comes back, nothing is gone."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.oracle import Oracle, killable
from tests.support.oracle_merged_outside import MergedOutsidePlay
from tests.support.oracle_outside import OutsidePlay

STEPS = 120
HISTORIES = [*itertools.product(range(100), ["replaced", "never"])]


def live(kind: type[OutsidePlay], seed: int, mode: str, root: Path) -> None:
    with killable(root, keeps=seed % 2 == 0) as host:
        play = kind(Oracle(root, mode, host), host, seed)
        try:
            play.run(STEPS)
            play._whole_round()
        except AssertionError as wrong:
            wrong.add_note("\n".join(map(str, play.events)))
            raise


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "mode"), tiers.sample(HISTORIES, 1))
def test_whatever_happens_outside_nothing_deleted_comes_back_and_nothing_is_lost_in_silence(
    seed, mode, tmp_path
):
    live(OutsidePlay, seed, mode, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "mode"), tiers.sample(HISTORIES, 1))
def test_so_it_is_where_files_are_merged_for_good_found_bad_and_called_back(seed, mode, tmp_path):
    live(MergedOutsidePlay, seed, mode, tmp_path)
