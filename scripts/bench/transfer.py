"""Files to *loaded*, beside what users would take instead, in one run.

    .venv/bin/python scripts/bench/transfer.py [--runs 5] [--at DIR ...] [--work NAME ...]
                                               [--ways NAME ...] [--json FILE]

Each work is carried out by each way (scripts/bench/transfer_peers.py) `--runs` times, below each
directory of `--at` (a disk, a tmpfs); every second run goes through the ways backwards. A ratio is
the seconds of the other way by those of tsferry in the same run, so above 1 tsferry is the faster
one; shown are medians, and the least and the greatest.

The files are TsFiles with a tail to parse, devices to register and points to prove.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.transfer_peers import WAYS, Spent, Way  # noqa: E402
from tests.support.tsfile_bytes import build  # noqa: E402

MIB = 1 << 20
_SMALL = 20_000


def _write(source: Path, number: int, size: int) -> None:
    """One file of so many bytes, of one device in twenty, an hour of its own."""
    device = f"root.b.d{number % 20}"
    points = [(number * 3_600_000 + second * 1000, second) for second in range(50)]
    place = source / "sequence" / "root.b" / "0" / "0"
    place.mkdir(parents=True, exist_ok=True)
    content = build({device: {"s1": points}}, pad_to=size)
    (place / f"{number + 1}-{number}-0-0.tsfile").write_bytes(content)


def _files(count: int, size: int) -> Callable[[Path], None]:
    def make(source: Path) -> None:
        for number in range(count):
            _write(source, number, size)

    return make


WORKS: dict[str, Callable[[Path], None]] = {
    "1 x 512 MiB": _files(1, 512 * MIB),
    "1 x 2 GiB": _files(1, 2048 * MIB - 4096),
    "16 x 64 MiB": _files(16, 64 * MIB),
    "16 x 128 MiB": _files(16, 128 * MIB),
    "5,000 x 20 KB": _files(5_000, _SMALL),
    "10,000 x 20 KB": _files(10_000, _SMALL),
}
_USUAL = ("1 x 512 MiB", "16 x 64 MiB", "5,000 x 20 KB")


def measure(at: Path, work: str, ways: Sequence[Way], runs: int) -> dict[str, list[Spent]]:
    """What each way took, run by run."""
    found: dict[str, list[Spent]] = {way.name: [] for way in ways}
    with tempfile.TemporaryDirectory(dir=at) as base:
        source = Path(base) / "source"
        source.mkdir()
        WORKS[work](source)
        os.sync()
        for run in range(runs):
            for way in ways if run % 2 == 0 else ways[::-1]:
                place = Path(base) / "place"
                place.mkdir()
                found[way.name].append(way.run(source, place))
                shutil.rmtree(place)
                os.sync()
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest."""
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values)}


def summary(found: dict[str, list[Spent]]) -> dict[str, dict[str, dict[str, float]]]:
    """Of each way: seconds, cpu, and its ratios to the first one."""
    ours = next(iter(found.values()))
    return {
        name: {
            "seconds": spread([each.seconds for each in spent]),
            "cpu": spread([each.cpu for each in spent]),
            "ratio": spread([a.seconds / b.seconds for a, b in zip(spent, ours, strict=True)]),
        }
        for name, spent in found.items()
    }


def table(results: Sequence[dict[str, object]]) -> str:
    """Markdown, a row for each way of each work."""
    lines = ["| work | where | way | checks | seconds | CPU | ratio |", "|" + "---|" * 7]
    checks = {way.name: way.checks or "-" for way in WAYS}
    for each in results:
        ways: dict[str, dict[str, dict[str, float]]] = each["ways"]  # type: ignore[assignment]
        for name, spent in ways.items():
            ratio = spent["ratio"]
            lines.append(
                f"| {each['work']} | {each['at']} | {name} | {checks[name]} | "
                f"{spent['seconds']['median']:.2f} | "
                f"{spent['cpu']['median']:.2f} | {ratio['median']:.2f} "
                f"({ratio['least']:.2f} to {ratio['greatest']:.2f}) |"
            )
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--at", type=Path, action="append", help="a directory; the system's")
    options.add_argument("--work", action="append", choices=list(WORKS), help="repeatable")
    options.add_argument("--ways", action="append", choices=[each.name for each in WAYS[1:]])
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    ways = [
        way
        for number, way in enumerate(WAYS)
        if way.usable() and (number == 0 or not given.ways or way.name in given.ways)
    ]
    results: list[dict[str, object]] = []
    for at in given.at or [Path(tempfile.gettempdir())]:
        for work in given.work or _USUAL:
            found = measure(at, work, ways, given.runs)
            results.append({"work": work, "at": str(at), "ways": summary(found)})
            print(table(results[-1:]), flush=True)
    if given.json:
        machine = {"cpus": os.cpu_count(), "python": platform.python_version()}
        machine |= {"kernel": platform.release(), "runs": given.runs}
        given.json.write_text(json.dumps({"machine": machine, "results": results}, indent=1))


if __name__ == "__main__":
    main()
