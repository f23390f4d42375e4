"""True power cuts at random moments: every acknowledged commit is there, as a whole, with its past.

`scripts/powercuts --metadata` does the same for as long as one likes.
"""

from __future__ import annotations

import random

import pytest

from tests.support import powercut, tiers
from tests.support.schema_lives import Lives


@pytest.fixture
def lives(tmp_path, request):
    with powercut.disk(tmp_path, megabytes=32) as disk:
        yield Lives(disk, random.Random(f"{request.node.name} {tiers.seed()}"))


def test_engine_that_dies_at_any_step_and_loses_its_power_has_every_commit_it_told_of(lives):
    while lives.cuts < tiers.examples(8):
        life = lives.begin(steps=30, crash_at=f"*:{lives.rng.randrange(1, 400)}")
        lives.end(life)
    assert lives.commits


def test_engine_whose_power_fails_under_its_hands_has_every_commit_it_told_of(lives):
    while lives.cuts < tiers.examples(8):
        life = lives.begin(steps=60)
        lives.end(life, after=lives.rng.uniform(0.0, 0.3), linger=0.02)
    assert lives.commits
