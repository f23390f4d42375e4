"""Random histories of a centre with a store: scripts/storage_drill.py, many in the long tier."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import tiers
from tests.support.architecture import ROOT


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("more", [(), ("--s3",)])
def test_whatever_happens_to_a_centre_with_a_store_each_file_is_whole_or_named(more):
    seed = ["--seed", str(tiers.seed())]
    lives = ["--lives", "12", "--minutes", "40"]
    done = subprocess.run(
        [sys.executable, "scripts/storage_drill.py", *seed, *lives, *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seeds that did not hold: none" in done.stdout
