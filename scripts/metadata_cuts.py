"""True power cuts of a metadata engine alone, many times in a row: `scripts/powercuts --metadata`.

An engine's threads create series with tags, alter and delete them, write keys; meanwhile another
takes checkpoints and lets history go. It dies at some step and loses its power, or loses it under
its hands; every other recovery is cut off as well, once or twice. After each cut everything is
looked at (`tests.support.schema_lives`): every acknowledged commit is there, as a whole, with what
the engine answered about the past; nothing else is; the index of tags has what a count gives;
opening it twice gives the same. Commits that were under way may be there or not.

Exit code 0 if all of that holds; 1 if not, and the directory of the engine is kept; 77 where there
can be no such disks.
"""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
import time
import traceback
from pathlib import Path

from tests.support import powercut
from tests.support.schema_lives import Lives

_STEPS = 400
"""Crash points of a life, roughly."""


def run(cuts: int, seed: int, minutes: float) -> int:
    """Cut so often, at most so long; returns the exit code."""
    logging.disable(logging.WARNING)  # of torn tails there are many
    place = Path(tempfile.mkdtemp(prefix="tsferry-powercuts-"))
    print(f"power cuts of a metadata engine with seed {seed} in {place}", flush=True)
    begin = time.monotonic()
    with powercut.disk(place, megabytes=64) as disk:
        lives = Lives(disk, random.Random(seed))
        try:
            shown = 0
            while lives.cuts < cuts:
                if time.monotonic() > begin + 60 * minutes:
                    raise AssertionError("out of time")
                _one(lives)
                if lives.cuts >= shown + 20:
                    shown = lives.cuts
                    print(told(lives, begin), flush=True)
        except BaseException:
            print(f"BROKEN after {lives.cuts} cuts, seed {seed}; all is kept in {place}/kept")
            traceback.print_exc()
            shutil.copytree(lives.home, place / "kept")
            return 1
    print(told(lives, begin))
    print("what was acknowledged is there, as a whole and with its past; nothing else is")
    shutil.rmtree(place)
    return 0


def _one(lives: Lives) -> None:
    rng = lives.rng
    tidy = rng.random() < 0.8
    if rng.random() < 0.5:
        life = lives.begin(crash_at=f"*:{rng.randrange(1, _STEPS)}", tidy=tidy)
        lives.end(life)
    else:
        life = lives.begin(tidy=tidy)
        lives.end(life, after=rng.uniform(0.0, 0.5), linger=rng.choice((0.0, 0.1)))


def told(lives: Lives, begin: float) -> str:
    """What was done, in numbers."""
    recoveries = f"{lives.during_open} of them in a recovery"
    commits = f"{lives.commits} commits, {lives.in_flight} of them never acknowledged"
    seconds = time.monotonic() - begin
    return (
        f"{lives.cuts:4d} cuts, {recoveries}; {commits}; {lives.checkpoints} checkpoints; "
        f"{seconds:.0f} s"
    )
