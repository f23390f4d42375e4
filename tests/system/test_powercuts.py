"""A short run of scripts/powercuts.py; the long one (100 cuts) is a run of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import powercut
from tests.support.architecture import ROOT


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_was_called_loaded_survives_true_power_cuts_of_either_side():
    if reason := powercut.impossible():
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "scripts/powercuts.py", "--cuts", "7", "--seed", "5", "--minutes", "5"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "once and whole" in done.stdout
