"""Measures what docs/figures.md states, and writes its tables: medians with their spread.

    .venv/bin/python scripts/bench/figures_page.py [--runs 5] [--only NAME ...] [--into DIR]
                                                   [--only-write]

The benchmarks are gone through one after the other, as often as `--runs` says, so what the machine
does in one minute does not fall on one of them alone. Each run leaves its JSON and the load average
that it met in the directory (`build/bench/figures`), beside those of earlier calls; `--only-write`
makes the page from what lies there. Decoding needs a JDK and the jars that it fetches; the servers
beside ours are those that are installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.marked_page import fill  # noqa: E402
from scripts.bench.metadata import ROWS  # noqa: E402

PAGE = ROOT / "docs" / "figures.md"
Runs = Sequence[dict[str, Any]]
"""What each run found, as its script printed it."""

COMMANDS = {
    "round": ["round.py"],
    "commit-path": ["commit_path.py"],
    "metadata": ["metadata.py"],
    "tail-reader": ["tail_reader.py"],
    "decoding": ["decoding.py", "--work", "build/bench/java"],
    "superseding": ["superseding.py"],
    "http-server": ["http_server.py"],
}
_READERS = {
    "ours, proof": "ours, proof",
    "ours, arrow": "ours, Arrow",
    "tsfile, series": "`tsfile`, series",
    "tsfile, arrow": "`tsfile`, tables",
    "tsfile, rows": "`tsfile`, row by row",
    "java, pages": "Java, pages",
    "java, query": "Java, query",
}


def measure(names: Sequence[str], runs: int, into: Path) -> None:
    """Run the benchmarks by turns, and keep what each said."""
    into.mkdir(parents=True, exist_ok=True)
    for run in range(runs):
        for name in names if run % 2 == 0 else names[::-1]:
            script, *args = COMMANDS[name]
            words = [sys.executable, str(ROOT / "scripts" / "bench" / script), *args, "--json"]
            load = os.getloadavg()[0]
            done = subprocess.run(words, stdout=subprocess.PIPE, check=True, cwd=ROOT)
            kept = {"load": load, "found": json.loads(done.stdout)}
            number = len(list(into.glob(f"{name}-*.json"))) + 1
            (into / f"{name}-{number}.json").write_text(json.dumps(kept, indent=1))
            print(f"{name}, run {number}: load {load:.1f} before it", file=sys.stderr, flush=True)


def of_round(runs: Runs) -> list[str]:
    lines = ["| what | seconds |", "|---|---|"]
    return lines + [f"| {what} | {_seen([run[what] for run in runs])} |" for what in runs[0]]


def of_commit_path(runs: Runs) -> list[str]:
    lines = [
        "| threads | commits a second | ratio to raw | p50, ms | p99, ms |",
        "|---|" + "---|" * 4,
    ]
    for threads in runs[0]["threads"]:
        each = [run["threads"][threads] for run in runs]
        cells = [_seen([one[key] for one in each]) for key in ("rate", "ratio_to_raw")]
        cells += [_seen([one[key] for one in each]) for key in ("p50_ms", "p99_ms")]
        lines.append(f"| {threads} | {' | '.join(cells)} |")
    start = [run["replay"] for run in runs]
    log, memory = (
        statistics.median(each[key] for each in start)
        for key in ("log_bytes_a_file", "memory_bytes_a_file")
    )
    return [
        *lines,
        "",
        "Start from the log of 100,000 loaded files of 10 devices each: "
        f"{_seen([each['seconds'] for each in start])} s; {log:,.0f} bytes of log and "
        f"{memory:,.0f} of memory a file.",
    ]


def of_metadata(runs: Runs) -> list[str]:
    lines = ["| what | aim | seen |", "|---|---|---|"]
    for row in ROWS:
        values = [run[row.part][row.figure] for run in runs if row.part in run]
        if not values:
            continue
        bound = "at most" if row.at_most else "at least"
        aim = "-" if row.limit is None else f"{bound} {row.limit:,g} {row.unit}".rstrip()
        mark = "" if row.holds(statistics.median(values)) else "**"
        lines.append(
            f"| {row.what} | {aim} | {mark}{_seen(values)}{mark} {row.unit}".rstrip() + " |"
        )
    return lines


def of_tail_reader(runs: Runs) -> list[str]:
    small = runs[0]["small files"]
    lines = ["| 5,000 files of 5 series, by path | files a second |", "|---|---|"]
    lines += [f"| {what} | {_seen([run['small files'][what] for run in runs])} |" for what in small]
    shapes = [shape for shape in runs[0] if shape != "small files"]
    figures = [what for what in runs[0][shapes[0]] if what != "bytes"]
    lines += [
        "",
        f"| devices x series x chunks | {' | '.join(figures)} |",
        "|---" * (len(figures) + 1) + "|",
    ]
    for shape in shapes:
        cells = [_seen([run[shape][what] for run in runs]) for what in figures]
        lines.append(f"| {shape} | {' | '.join(cells)} |")
    return lines


def of_decoding(runs: Runs) -> list[str]:
    lines = [f"| file | {' | '.join(_READERS.values())} |", "|---" * (len(_READERS) + 1) + "|"]
    for file in runs[0]:
        cells = []
        for reader in _READERS:
            each = [run[file][reader] for run in runs if reader in run[file]]
            cells.append(
                _seen([one["points"] / one["seconds"] / 1e6 for one in each]) if each else "-"
            )
        lines.append(f"| {file} | {' | '.join(cells)} |")
    return lines


def of_superseding(runs: Runs) -> list[str]:
    lines = [
        "| devices x series x points of a file | CPU a file, reading, ms | server, ms | "
        "a million, hours of a core | at most, MiB |",
        "|---|" + "---|" * 4,
    ]
    for shape in runs[0]:
        each = [run[shape] for run in runs]
        cells = [_seen([one[key] * 1e3 for one in each]) for key in ("reading", "server")]
        cells += [
            _seen([one["million"] / 3600 for one in each]),
            _seen([one["peak"] for one in each]),
        ]
        lines.append(f"| {shape.replace('x', ' x ')} | {' | '.join(cells)} |")
    return lines


def of_http_server(runs: Runs) -> list[str]:
    figures = [what for what in next(iter(runs[0].values())) if what.endswith("a second")]
    lines = [f"| server | {' | '.join(figures)} |", "|---" * (len(figures) + 1) + "|"]
    for server in runs[0]:
        cells = [_seen([run[server][what] for run in runs]) for what in figures]
        lines.append(f"| {server} | {' | '.join(cells)} |")
    return lines


MAKERS: dict[str, Callable[[Runs], list[str]]] = {
    "round": of_round,
    "commit-path": of_commit_path,
    "metadata": of_metadata,
    "tail-reader": of_tail_reader,
    "decoding": of_decoding,
    "superseding": of_superseding,
    "http-server": of_http_server,
}


def write(into: Path) -> None:
    """Make the tables for which there are runs."""
    for name, make in MAKERS.items():
        kept = [json.loads(path.read_text()) for path in sorted(into.glob(f"{name}-*.json"))]
        if not kept:
            continue
        loads = [each["load"] for each in kept]
        told = (
            f"Medians of {len(kept)} runs, their spread; load average {_range(loads)} before each."
        )
        fill(PAGE, name, "\n".join([*make([each["found"] for each in kept]), "", told]))


def _seen(values: Sequence[float]) -> str:
    """A median and its spread."""
    least, greatest = min(values), max(values)
    shown = _short(statistics.median(values))
    return shown if _short(least) == _short(greatest) else f"{shown} ({_range(values)})"


def _range(values: Sequence[float]) -> str:
    return f"{_short(min(values))} to {_short(max(values))}"


def _short(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--only", nargs="+", choices=list(COMMANDS), default=list(COMMANDS))
    options.add_argument("--into", type=Path, default=ROOT / "build" / "bench" / "figures")
    options.add_argument("--only-write", action="store_true")
    given = options.parse_args()
    if not given.only_write:
        measure(given.only, given.runs, given.into)
    write(given.into)


if __name__ == "__main__":
    main()
