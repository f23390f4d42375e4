"""Measures transfers beside their peers, and writes docs/performance.md's tables and plots from it.

    sudo .venv/bin/python scripts/bench/performance_page.py [--runs 5] [--into DIR] [--only-write]
                                                             [--servers DIR]

Each benchmark leaves its JSON in the directory (`build/bench`); `--only-write` makes the page from
what lies there. A part of the page stands between `<!-- name -->` and `<!-- / -->`; the rest of it
is written by hand. The long wire needs root (see there) and is left out without; so is the sync
tool without `--servers`, a directory of `scripts/live fetch`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.many_senders import table as table_of_senders  # noqa: E402
from scripts.bench.marked_page import fill  # noqa: E402

PAGE = ROOT / "docs" / "performance.md"
PLOTS = ROOT / "docs" / "plots"
_OF_SYNC_TOOL = {
    "ratio": "to loaded",
    "ratio_started": "to loaded, less JVM start",
    "ratio_cpu": "CPU, both ends",
    "ratio_memory": "memory at its peak, both ends",
}
_WHAT = {
    "first look": "`sync --dry-run`, nothing on the list",
    "ten new": "`sync --dry-run`, ten new files",
    "round": "`sync` without news",
    "status": "`status`",
    "python": "the interpreter's own start",
    "rsync": "`rsync -an`",
}
_BAR, _GAP, _LABEL, _WIDTH = 18, 6, 330, 420


def measure(into: Path, runs: int, servers: Path | None) -> None:
    """Run the benchmarks, one after the other."""
    into.mkdir(parents=True, exist_ok=True)
    commands: dict[str, list[object]] = {
        "transfer": ["transfer.py", "--runs", runs, "--at", "/tmp", "--at", "/dev/shm"],
        "many-senders": ["many_senders.py"],
        "idle": ["idle.py", "--files", 10, 200_000, "--runs", runs],
        "large-centre": ["large_centre.py", "--files", 1_000_000, "--directory", "/dev/shm/centre"],
    }
    if os.getuid() == 0:
        commands["long-wire"] = ["long_wire.py", "--mib", 64]
    if servers:
        commands["sync-tool"] = ["sync_tool.py", servers, "--runs", runs]
    for name, (script, *args) in commands.items():
        words = [ROOT / "scripts" / "bench" / str(script), *args, "--json", into / f"{name}.json"]
        subprocess.run([sys.executable, *map(str, words)], check=True, cwd=ROOT)


def of_transfers(found: dict[str, Any]) -> tuple[str, str]:
    """The table and the plot of transfer.py."""
    lines = ["| work | where | way | seconds | CPU | ratio |", "|" + "---|" * 6]
    bars: list[tuple[str, float]] = []
    for each in found["results"]:
        for way, spent in each["ways"].items():
            ratio = spent["ratio"]
            lines.append(
                f"| {each['work']} | {_where(each['at'])} | {way} | "
                f"{spent['seconds']['median']:.2f} | {spent['cpu']['median']:.2f} | "
                f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['greatest']:.2f}) |"
            )
            if way != "tsferry":
                bars.append((f"{each['work']}, {_where(each['at'])}: {way}", ratio["median"]))
    lines += ["", _medians(found["machine"])]
    return "\n".join(lines), plot("Seconds of the other way by those of tsferry", bars)


def of_long_wire(found: dict[str, Any]) -> tuple[str, str]:
    """The table and the plot of long_wire.py."""
    settings, seconds = found["settings"], found["seconds"]
    ours = seconds["tsferry"]
    lines = ["| way | seconds | ratio |", "|" + "---|" * 3]
    bars = []
    for way, spent in seconds.items():
        ratio = sorted(b / a for a, b in zip(ours, spent, strict=True))[len(ours) // 2]
        lines.append(f"| {way} | {sorted(spent)[len(spent) // 2]:.0f} | {ratio:.1f} |")
        bars.append((way, ratio))
    lines.append("")
    lines.append(
        f"One file of {settings['mib']} MiB; {settings['delay'] * 1000:.0f} ms there and back, "
        f"{settings['loss']:.0%} of the packets lost, {settings['congestion']}."
    )
    return "\n".join(lines), plot("Seconds of the other way by those of tsferry", bars)


def of_sync_tool(found: dict[str, Any]) -> tuple[str, str]:
    """The table and the plot of sync_tool.py."""
    lines = [
        "| way | seconds | less JVM start | CPU | MB | "
        "ratio | less JVM start | of CPU | of memory |",
        "|" + "---|" * 9,
    ]
    bars = []
    for way, spent in found["ways"].items():
        cpu = [spent[f"cpu_{end}"]["median"] for end in ("sender", "receiver")]
        memory = [spent[f"memory_{end}"]["median"] / 1e6 for end in ("sender", "receiver")]
        ratios = [
            f"{each['median']:.1f} ({each['least']:.1f} to {each['greatest']:.1f})"
            for each in (spent[key] for key in _OF_SYNC_TOOL)
        ]
        lines.append(
            f"| {way} | {spent['seconds']['median']:.1f} | {spent['started']['median']:.1f} | "
            f"{cpu[0]:.1f} + {cpu[1]:.1f} | {memory[0]:.0f} + {memory[1]:.0f} | "
            f"{' | '.join(ratios)} |"
        )
        if way != "tsferry":
            bars += [(label, spent[key]["median"]) for key, label in _OF_SYNC_TOOL.items()]
    work = found["work"]
    files = f"{work['files']} files, {work['bytes'] / (1 << 20):.0f} MiB. "
    lines += ["", files + _medians(found["machine"])]
    return "\n".join(lines), plot("The sync tool by tsferry", bars)


def _medians(machine: dict[str, Any]) -> str:
    """Of what a table's figures are the medians."""
    return (
        f"Medians of {machine['runs']} alternating runs, {machine['cpus']} cores, "
        f"Linux {machine['kernel'].partition('-')[0]}, Python {machine['python']}."
    )


def of_many_senders(found: dict[str, Any]) -> tuple[str, None]:
    """The table of many_senders.py."""
    settings, machine = found["settings"], found["machine"]
    lines = [
        table_of_senders(found["parts"]),
        "",
        f"{settings['senders']} senders with {settings['files']} files each at first; a task of "
        f"{settings['large']:,} files beside them; {_where(machine['at'])}, {machine['cpus']} "
        f"cores for both ends, load average {machine['load']:.0f} at the begin.",
    ]
    return "\n".join(lines), None


def of_idle(found: dict[str, Any]) -> tuple[str, None]:
    """The table of idle.py."""
    lines = [
        "| files | what | seconds | CPU, s | MB | seconds, of rsync's | CPU, of rsync's |",
        "|" + "---|" * 7,
    ]
    for files, works in found["files"].items():
        for what, spent in works.items():
            least, greatest = spent["spread"]
            ratios = (spent.get(key, "-") for key in ("of_rsync", "cpu_of_rsync"))
            lines.append(
                f"| {int(files):,} | {_WHAT.get(what, what)} | {spent['seconds']:.2f} "
                f"({least:.2f} to {greatest:.2f}) | {spent['cpu_seconds']:.2f} | "
                f"{spent['memory_mb']:.0f} | {' | '.join(map(str, ratios))} |"
            )
    lines += ["", f"Medians of {found['runs']} runs; load average {found['load']:.0f} at the end."]
    return "\n".join(lines), None


def of_large_centre(found: dict[str, Any]) -> tuple[str, None]:
    """The table of large_centre.py."""
    lines = [f"| {found['files']:,} files | |", "|---|---|"]
    lines += [
        f"| {name.replace('_', ' ')} | {value:,.2f} |" for name, value in found["figures"].items()
    ]
    return "\n".join(lines), None


def plot(title: str, bars: list[tuple[str, float]]) -> str:
    """Bars with their numbers, and a line at 1, as SVG."""
    most = max(1.0, *(value for _, value in bars)) * 1.15
    height = 30 + len(bars) * (_BAR + _GAP)
    one = _LABEL + _WIDTH / most
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LABEL + _WIDTH + 20} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="4" y="16">{escape(title)}</text>',
    ]
    for number, (label, value) in enumerate(bars):
        y = 26 + number * (_BAR + _GAP)
        color = "#2b7a4b" if value >= 1 else "#b5651d"
        width = _WIDTH * value / most
        out.append(
            f'<text x="{_LABEL - 6}" y="{y + 13}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="{_LABEL}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{color}"/>'
            f'<text x="{_LABEL + width + 4:.1f}" y="{y + 13}">{value:.2f}</text>'
        )
    out.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="22" y2="{height}" stroke="#333"/></svg>')
    return "\n".join(out) + "\n"


def write(into: Path) -> None:
    """Make the parts of the page for which there is JSON."""
    PLOTS.mkdir(exist_ok=True)
    makers: dict[str, Callable[[dict[str, Any]], tuple[str, str | None]]] = {
        "transfer": of_transfers,
        "sync-tool": of_sync_tool,
        "long-wire": of_long_wire,
        "many-senders": of_many_senders,
        "idle": of_idle,
        "large-centre": of_large_centre,
    }
    for name, make in makers.items():
        source = into / f"{name}.json"
        if not source.exists():
            continue
        table, drawn = make(json.loads(source.read_text()))
        if drawn is not None:
            (PLOTS / f"{name}.svg").write_text(drawn)
            table += f"\n\n![ratios](plots/{name}.svg)"
        fill(PAGE, name, table)


def _where(at: str) -> str:
    return "tmpfs" if at.startswith("/dev/shm") else "disk"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--into", type=Path, default=ROOT / "build" / "bench")
    options.add_argument("--only-write", action="store_true")
    options.add_argument("--servers", type=Path, help="as `scripts/live fetch` makes it")
    given = options.parse_args()
    if not given.only_write:
        measure(given.into, given.runs, given.servers)
    write(given.into)


if __name__ == "__main__":
    main()
