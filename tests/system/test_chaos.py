"""A run of scripts/chaos.py: 5 kills; 200 in the long tier."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import tiers
from tests.support.architecture import ROOT

KILLS, MINUTES = (200, 55) if tiers.is_long() else (5, 8)
COMMAND = f"scripts/chaos.py --kills {KILLS} --minutes {MINUTES} --seed {tiers.seed()}"


@pytest.mark.slow
@pytest.mark.timeout(3600 if tiers.is_long() else 600)
def test_nothing_is_lost_and_nothing_twice_when_either_side_is_killed_at_random_moments():
    done = subprocess.run(
        [sys.executable, *COMMAND.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "once and whole" in done.stdout
