"""A run of scripts/powercuts.py: 2 cuts; 100 in the long tier."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import powercut, tiers
from tests.support.architecture import ROOT

CUTS, MINUTES = (100, 55) if tiers.is_long() else (2, 5)
COMMAND = f"scripts/powercuts.py --cuts {CUTS} --minutes {MINUTES} --seed {tiers.seed()}"


@pytest.mark.slow
@pytest.mark.timeout(3600 if tiers.is_long() else 600)
def test_what_was_called_loaded_survives_true_power_cuts_of_either_side():
    if reason := powercut.impossible():
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, *COMMAND.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "once and whole" in done.stdout
