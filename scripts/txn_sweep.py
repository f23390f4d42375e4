"""Random histories of transactions, each judged by the cycles in what depends on what.

    python scripts/txn_sweep.py                                5,000 histories, seeds 0 to 4,999
    python scripts/txn_sweep.py --histories 100 --first 9000   others
    python scripts/txn_sweep.py --histories 1 --first 4711     one again, but for its threads

A history is some steps of transactions over lists: blocks of `engine.transaction()`, sessions over
the calls of HTTP of which answers are lost, plain commits, commits of all of them at one moment,
leases that end, and in one of `--restarts` a receiver that is started anew
(`tests/support/txn_sessions.py`). What is wrong is told with its seed, and the others go on; exit
code 1 then.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.ended_by_signals import end_on_signals  # noqa: E402
from tests.support.txn_sessions import SessionCentre, played_history  # noqa: E402

BATCH = 250
"""Histories of one receiver: each leaves its series and keys there."""


class Judged(NamedTuple):
    """Some histories; of one that was wrong there is what was found."""

    histories: int
    met: Counter[str]
    wrong: dict[int, str]


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--histories", type=int, default=5000)
    options.add_argument("--first", type=int, default=0, help="seed of the first")
    options.add_argument("--steps", type=int, default=25, help="of each")
    options.add_argument("--restarts", type=int, default=25, help="in one of so many")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--dir", type=Path, help="for what receivers have on disk")
    args = options.parse_args()
    end_on_signals()
    end, began = args.first + args.histories, time.monotonic()
    parts = [
        (range(seed, min(seed + BATCH, end)), args.steps, args.restarts, args.dir)
        for seed in range(args.first, end, BATCH)
    ]
    met: Counter[str] = Counter()
    histories = 0
    wrong: dict[int, str] = {}
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for done in pool.imap_unordered(judged, parts):
            for seed, why in done.wrong.items():
                print(f"seed {seed}:\n{why}", flush=True)
            met, histories, wrong = met + done.met, histories + done.histories, wrong | done.wrong
            print(f"{histories} histories, {len(wrong)} wrong", file=sys.stderr, flush=True)
    for line in told(met):
        print(line)
    spent = os.times()
    print(
        f"{histories} histories, {len(wrong)} of them wrong, "
        f"{spent.children_user + spent.children_system:.0f} s of processors, "
        f"{time.monotonic() - began:.0f} s by the clock"
    )
    return 1 if wrong else 0


def judged(part: tuple[range, int, int, Path | None]) -> Judged:
    """Play some of them at one receiver."""
    seeds, steps, restarts, directory = part
    wrong: dict[int, str] = {}
    with tempfile.TemporaryDirectory(dir=directory) as name:
        centre = SessionCentre(Path(name))
        try:
            for seed in seeds:
                said = played_history(
                    centre, seed, Random(seed), steps, restarts=seed % restarts == 0
                )
                if said:
                    wrong[seed] = "\n".join(said)
        finally:
            centre.close()
    return Judged(len(seeds), centre.met + Counter(restarts=centre.starts - 1), wrong)


def told(met: Counter[str]) -> Iterator[str]:
    """What the histories were made of."""
    for name, times in sorted(met.items()):
        yield f"{times:9,} {name}"


if __name__ == "__main__":
    sys.exit(main())
