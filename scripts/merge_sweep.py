"""Merges of files that are drawn at random, each judged by a dictionary of what was drawn.

    python scripts/merge_sweep.py                            10,000 cases, seeds 0 to 9,999
    python scripts/merge_sweep.py --cases 500 --first 20000  others
    python scripts/merge_sweep.py --cases 1 --first 4711     one again

A case is 1 to 7 files of up to three devices and four series (`tests/support/merge_world.py`), with
limits of the merge that are as small as its files (`tests/support/merge_judge.py`). What is wrong
is told with its seed, and the others go on; exit code 1 then. A seed gives the same case each time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.ended_by_signals import end_on_signals  # noqa: E402
from tests.support.merge_judge import made_of, merged_case  # noqa: E402

STEP = 50
"""Cases that a process does before it tells what they came to."""


class Done(NamedTuple):
    """Some cases; of one that was wrong there is what was raised."""

    cases: int
    kinds: Counter[str]
    points: int
    wrong: dict[int, str]
    seconds: float
    peak: int


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--cases", type=int, default=10_000)
    options.add_argument("--first", type=int, default=0, help="seed of the first case")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--memory", type=int, default=1024, help="MiB that a process may take")
    options.add_argument("--dir", type=Path, help="for the files; a case has less than 1 MB")
    args = options.parse_args()
    end_on_signals()
    end, began = args.first + args.cases, time.monotonic()
    context = multiprocessing.get_context("spawn")
    steps = [range(seed, min(seed + STEP, end)) for seed in range(args.first, end, STEP)]
    kinds: Counter[str] = Counter()
    cases = points = peak = 0
    wrong: dict[int, str] = {}
    seconds = 0.0
    with (
        tempfile.TemporaryDirectory(dir=args.dir) as name,
        context.Pool(args.jobs, bound, (args.memory << 20, name)) as pool,
    ):
        for done in pool.imap_unordered(cases_of, steps):
            for seed, why in done.wrong.items():
                print(f"WRONG: seed {seed}\n{why}", flush=True)
            before, cases = cases, cases + done.cases
            kinds += done.kinds
            points += done.points
            wrong |= done.wrong
            seconds += done.seconds
            peak = max(peak, done.peak)
            if before // 500 != cases // 500:
                print(f"{cases} cases in {time.monotonic() - began:.0f} s", flush=True)
    for line in table(kinds):
        print(line)
    print(
        f"{cases} cases, seeds {args.first} to {end - 1}, {points} points written; "
        f"{len(wrong)} wrong{told(wrong)}; {time.monotonic() - began:.0f} s by the clock, "
        f"{seconds:.0f} s of processors in {args.jobs} processes, the largest of {peak >> 20} MiB"
    )
    return 1 if wrong or cases != args.cases else 0


def bound(memory: int, directory: str) -> None:
    """Give a process so much memory and no more, and its own directory."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    tempfile.tempdir = directory


def cases_of(seeds: range) -> Done:
    """Do some."""
    kinds: Counter[str] = Counter()
    wrong: dict[int, str] = {}
    points, began = 0, time.process_time()
    for seed in seeds:
        directory = Path(tempfile.mkdtemp(prefix=f"{seed}-"))
        try:
            world, answer = merged_case(seed, directory)
            kinds.update(made_of(world, answer))
            points += sum(each.points for each in answer.outputs)
        except Exception:
            wrong[seed] = traceback.format_exc()
        finally:
            shutil.rmtree(directory)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return Done(len(seeds), kinds, points, wrong, time.process_time() - began, peak)


def table(kinds: Counter[str]) -> Iterator[str]:
    """How many cases had what in them."""
    yield from (f"{kinds[kind]:7} with {kind}" for kind in sorted(kinds))


def told(wrong: dict[int, str]) -> str:
    return f" (seeds {', '.join(map(str, sorted(wrong)))})" if wrong else ""


if __name__ == "__main__":
    sys.exit(main())
