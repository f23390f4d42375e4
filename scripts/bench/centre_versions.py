"""A large centre by several checkouts of this project, by turns: what a change brought.

    .venv/bin/python scripts/bench/centre_versions.py CHECKOUT CHECKOUT ... [--runs 3]
                                                      [--files 1000000] [--directory DIR]
                                                      [--json FILE]

The benchmark, `large_centre.py`, is that beside this; the engine is the checkout's. Every second
run goes through the checkouts backwards. Shown are medians, and the ratios to the first checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.large_centre import Figures  # noqa: E402


def run(checkout: Path, files: int, directory: Path | None) -> Figures:
    """The figures of one checkout."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, ROOT / "scripts/bench/large_centre.py", "--files", files]
        command += ["--json", file.name]
        command += [] if directory is None else ["--directory", directory]
        subprocess.run(
            [*map(str, command)],
            check=True,
            env=os.environ | {"TSFERRY_CHECKOUT": str(checkout)},
            stdout=subprocess.DEVNULL,
        )
        found: Figures = json.loads(Path(file.name).read_bytes())["figures"]
        return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("checkouts", nargs="+", type=Path)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--files", type=int, default=1_000_000)
    options.add_argument("--directory", type=Path)
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    checkouts = [each.resolve() for each in given.checkouts]
    figures: dict[Path, list[Figures]] = {each: [] for each in checkouts}
    for number in range(given.runs):
        for each in checkouts if number % 2 == 0 else checkouts[::-1]:
            figures[each].append(run(each, given.files, given.directory))
    medians = {
        each: {name: statistics.median(one[name] for one in several) for name in several[0]}
        for each, several in figures.items()
    }
    first = medians[checkouts[0]]
    for name, value in first.items():
        others = (medians[each][name] for each in checkouts[1:])
        shown = "".join(f"{other:12.2f} ({other / value:5.2f})" for other in others)
        print(f"{name:32} {value:12.2f}{shown}")
    if given.json is not None:
        found = {"files": given.files, "runs": {str(each): figures[each] for each in checkouts}}
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
