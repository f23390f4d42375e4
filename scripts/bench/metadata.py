"""The metadata engine against the disk below it, against sqlite and lmdb, and against its targets.

    python scripts/bench/metadata.py [--quick] [--only memory,tags] [--directory DIR] [--json]

Ratios are of one run on one disk: what stands beside each other was measured by turns. Each part
runs in a process of its own; the parts, in their order, are

* single: durable creates, one series each, by 1, 16 and 64 threads; the same work by sqlite (WAL,
  synchronous=FULL) and by lmdb; one thread that appends 200 bytes and calls fdatasync.
* device: durable creates of a device with its 100 series, by 16 threads.
* memory: what the process grows by, for each series, at 100 and at one sensor to a device.
* start: opening an engine of many series, with tags, from a checkpoint.
* replay: opening it from its log alone, where a record has 100 series, and where it has one.
* checkpoint: the longest wait of a writer while a checkpoint is taken.
* lookup: one series, one key; now and at a time within the ring.
* tags: one series of 100 by its tag: the search, and the whole answer of the statement.
* etcd: reads for a look-up below the ring. Skipped where there is no etcd.

`--quick` takes a twentieth of the series and less time: to see whether all works, not how fast.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

Figures = dict[str, float]

SERIES = 1_000_000


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    series: int
    seconds: float
    rounds: int


@dataclass(frozen=True)
class Row:
    """A line of the table: a figure, and what it must be."""

    part: str
    figure: str
    what: str
    unit: str
    limit: float | None = None
    at_most: bool = False

    def holds(self, value: float) -> bool:
        if self.limit is None:
            return True
        return value <= self.limit if self.at_most else value >= self.limit


def run_part(name: str, directory: Path, scale: Scale) -> Figures:
    """Measure a part, in this process."""
    import metadata_parts as parts

    work: dict[str, Callable[[], Figures]] = {
        "single": lambda: parts.single(directory, scale.seconds, scale.rounds),
        "device": lambda: parts.by_device(directory, scale.seconds, scale.rounds),
        "memory-100": lambda: parts.memory(directory, scale.series, 100),
        "memory-1": lambda: parts.memory(directory, scale.series, 1),
        "start": lambda: parts.start_checkpoint(directory, scale.series, 5),
        "replay-batched": lambda: parts.replay_batched(directory, scale.series, 3),
        "replay-single": lambda: parts.replay_single(directory, scale.series, 3),
        "checkpoint": lambda: parts.checkpoint_pause(directory, scale.series),
        "lookup": lambda: parts.look_up(directory, scale.series),
        "tags": lambda: parts.tag_query(directory, scale.series),
        "etcd": lambda: parts.below_ring(directory),
    }
    return work[name]()


PARTS = [
    "single",
    "device",
    "memory-100",
    "memory-1",
    "start",
    "replay-batched",
    "replay-single",
    "checkpoint",
    "lookup",
    "tags",
    "etcd",
]

ROWS = [
    Row("single", "to_raw_1", "single creates, 1 thread", "x raw"),
    Row("single", "to_raw_16", "single creates, 16 threads", "x raw", 2),
    Row("single", "to_sqlite_16", "the same, against sqlite", "x", 1),
    Row("single", "to_lmdb_16", "the same, against lmdb", "x", 1),
    Row("single", "p99_ms_16", "the same, 99 of 100 within", "ms", 10, at_most=True),
    Row("single", "to_raw_64", "single creates, 64 threads", "x raw", 3),
    Row("single", "to_sqlite_64", "the same, against sqlite", "x", 1),
    Row("single", "to_lmdb_64", "the same, against lmdb", "x", 1),
    Row("single", "p99_ms_64", "the same, 99 of 100 within", "ms", 10, at_most=True),
    Row("device", "series_a_second", "creates by device, 16 threads", "series/s", 400_000),
    Row("memory-100", "bytes_filled", "memory, 100 sensors a device", "bytes/series", 60, True),
    Row("memory-100", "bytes_started", "the same, after a start", "bytes/series", 60, True),
    Row("memory-1", "bytes_filled", "memory, 1 sensor a device", "bytes/series", 250, True),
    Row("memory-1", "bytes_started", "the same, after a start", "bytes/series", 250, True),
    Row("start", "seconds", "start from a checkpoint, with tags", "s", 0.6, True),
    Row("start", "cpu_seconds", "the same, processor time", "s"),
    Row("replay-batched", "seconds", "replay of the log, batched", "s", 1, True),
    Row("replay-batched", "cpu_seconds", "the same, processor time", "s"),
    Row("replay-single", "seconds", "replay of the log, single", "s", 4, True),
    Row("replay-single", "cpu_seconds", "the same, processor time", "s"),
    Row("checkpoint", "longest_ms", "longest wait during a checkpoint", "ms", 50, True),
    Row("lookup", "series_now", "look-up of a series", "/s", 200_000),
    Row("lookup", "series_at_a_time", "the same at a time", "/s", 100_000),
    Row("lookup", "series_ratio", "at a time, against now", "x", 2, True),
    Row("lookup", "keys_now_10", "look-up of a key of 10", "/s", 200_000),
    Row("lookup", "keys_in_ring_10", "the same within the ring, 100 versions", "/s", 100_000),
    Row("lookup", "keys_ratio_10", "in the ring, against now", "x", 2, True),
    Row("lookup", "keys_now_100", "look-up of a key of 100", "/s", 200_000),
    Row("lookup", "keys_in_ring_100", "the same within the ring, 10 versions", "/s", 100_000),
    Row("lookup", "keys_ratio_100", "in the ring, against now", "x", 2, True),
    Row("tags", "search_ms", "tag search, 1 series of 100", "ms", 20, True),
    Row("tags", "search_cpu_ms", "the same, processor time", "ms"),
    Row("tags", "whole_ms", "the same with paths, tags, attributes", "ms", 20, True),
    Row("tags", "whole_cpu_ms", "the same, processor time", "ms"),
    Row("etcd", "reads_over_bound", "reads below the ring, above the bound", "", 0, True),
]


def measure(names: Sequence[str], directory: Path | None, quick: bool) -> dict[str, Figures]:
    """Each part in a process of its own."""
    found: dict[str, Figures] = {}
    for name in names:
        with tempfile.TemporaryDirectory(dir=directory) as place:
            command = [sys.executable, __file__, "--part", name, "--directory", place]
            done = subprocess.run(
                [*command, *(["--quick"] if quick else [])], stdout=subprocess.PIPE, check=False
            )
        if done.returncode:
            print(f"{name}: failed, see above", file=sys.stderr)
            continue
        found[name] = json.loads(done.stdout.splitlines()[-1])
        print(f"{name}: {found[name]}", file=sys.stderr)
    return found


def table(found: dict[str, Figures]) -> str:
    lines = []
    for row in ROWS:
        value = found.get(row.part, {}).get(row.figure)
        if value is None:
            continue
        sign = "<=" if row.at_most else ">="
        target = "" if row.limit is None else f"{sign} {row.limit:,g}"
        verdict = "" if row.limit is None else "ok" if row.holds(value) else "MISSED"
        shown = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
        lines.append(f"{row.what:40} {shown:>12} {row.unit:13} {target:>12}  {verdict}".rstrip())
    return "\n".join(lines)


def chosen(only: str | None) -> list[str]:
    if only is None:
        return PARTS
    words = [word.strip() for word in only.split(",")]
    names = [name for name in PARTS if any(name.startswith(word) for word in words)]
    if not names:
        raise SystemExit(f"--only {only}: expected some of {', '.join(PARTS)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--only", default=None, help="parts, or how they begin, with commas")
    parser.add_argument("--directory", type=Path, default=None, help="where to write")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        scale = Scale(SERIES // 20, 0.4, 1) if options.quick else Scale(SERIES, 2.0, 3)
        print(json.dumps(run_part(options.part, options.directory, scale)))
        return
    found = measure(chosen(options.only), options.directory, options.quick)
    print(json.dumps(found, indent=2) if options.json else table(found))


class _Plain(argparse.RawDescriptionHelpFormatter):
    pass


if __name__ == "__main__":
    main()
