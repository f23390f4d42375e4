"""A short run of scripts/chaos.py; the long one (200 kills) is a run of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.architecture import ROOT


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_lost_and_nothing_twice_when_either_side_is_killed_at_random_moments():
    done = subprocess.run(
        [sys.executable, "scripts/chaos.py", "--kills", "12", "--seed", "7", "--minutes", "8"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "once and whole" in done.stdout
