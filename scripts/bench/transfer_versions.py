"""One transfer by several checkouts of this project, by turns: what a change brought.

    .venv/bin/python scripts/bench/transfer_versions.py CHECKOUT CHECKOUT ... [--runs 5]
                                                        [--at DIR] [--work NAME] [--json FILE]

Each checkout has its own `.venv`. Its own programs at both ends carry out the same work on the same
files; every second run goes through the checkouts backwards. Shown is each run as it ends, then all
of them in order of size, and the medians of the ratios, run by run, to the first checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.as_installed import compile_modules  # noqa: E402
from scripts.bench.transfer import WORKS, spread  # noqa: E402

_ONE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from scripts.bench.transfer_peers import Tsferry
spent = Tsferry().run(Path(sys.argv[2]), Path(sys.argv[3]))
print(spent.seconds, spent.cpu)
"""


def run(checkout: Path, source: Path, place: Path) -> tuple[float, float]:
    """Seconds by the clock and of processors, of one transfer."""
    python = checkout / ".venv" / "bin" / "python"
    words = [python, "-c", _ONE, checkout, source, place]
    done = subprocess.run(
        [*map(str, words)], check=True, stdout=subprocess.PIPE, text=True, cwd=checkout
    )
    seconds, cpu = map(float, done.stdout.split())
    return seconds, cpu


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("checkouts", nargs="+", type=Path)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--at", default="/dev/shm")
    options.add_argument("--work", default="5,000 x 20 KB", choices=list(WORKS))
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    checkouts = [each.resolve() for each in given.checkouts]
    for each in checkouts:
        compile_modules(each)
    spent: dict[Path, list[tuple[float, float]]] = {each: [] for each in checkouts}
    with tempfile.TemporaryDirectory(dir=given.at) as base:
        source, place = Path(base) / "source", Path(base) / "place"
        source.mkdir()
        WORKS[given.work](source)
        for number in range(given.runs):
            for each in checkouts if number % 2 == 0 else checkouts[::-1]:
                place.mkdir()
                spent[each].append(run(each, source, place))
                shutil.rmtree(place)
                seconds, cpu = spent[each][-1]
                load = os.getloadavg()[0]
                print(f"{each}: {seconds:.2f} s, CPU {cpu:.2f} s, load {load:.1f}", flush=True)
    first = [*zip(*spent[checkouts[0]], strict=True)]
    ratios: dict[str, dict[str, dict[str, float]]] = {}
    for each, runs in spent.items():
        found = ratios[str(each)] = {}
        for at, values in enumerate(zip(*runs, strict=True)):
            what = ("seconds", "CPU")[at]
            found[what] = spread([a / b for a, b in zip(values, first[at], strict=True)])
            shown = " ".join(f"{value:.2f}" for value in sorted(values))
            least, greatest = found[what]["least"], found[what]["greatest"]
            ratio = f"{found[what]['median']:.2f} ({least:.2f} to {greatest:.2f})"
            print(f"{each} {what}: {shown}; ratio {ratio}")
    if given.json:
        all_runs = {str(each): runs for each, runs in spent.items()}
        given.json.write_text(json.dumps({"runs": all_runs, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
