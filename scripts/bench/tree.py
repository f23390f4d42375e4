"""The tree of files in the store: how long it takes to begin, to read, and to follow.

    .venv/bin/python scripts/bench/tree.py [--files 1000000] [--commits 1000] [--seconds 60]
        [--directory DIR] [--json FILE]

A centre with so many loaded files writes its tree into a directory as its store (`--directory`
should be a tmpfs: the disk is not measured here). Then, each in a process of its own, DuckDB and
pyarrow read all of it, as docs/tree.md says; and the centre makes so many commits a second, of a
file each, one in ten of which takes another away, while the tree follows every `tree_every`.

What it takes from commits is told as their median and their longest time with and without.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import large_centre

from common.durable import Tree
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.incarnation import own_incarnation
from receiver.storage.tree.tree_manifests import newest_tree
from receiver.storage.tree.tree_shipping import TreeShipper
from receiver.storage.tree.unnamed_tables import UnnamedTables

EVERY = 10.0
"""Seconds, as `storage.tree_every` has it."""
NUMBERS = 10_000_000
"""Files that are committed one by one are numbered from here up, for each part elsewhere."""
Figures = dict[str, float]


class Centre:
    """An engine, its store, and what writes the tree."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "bucket").mkdir(exist_ok=True)
        self.engine = Engine.open(home / "schema", options=large_centre.QUIET)
        self.tree = Tree(home / "schema")
        self.store = DirectoryStore(home / "bucket")
        owner = own_incarnation(self.store, self.tree, self.engine.uuid)
        self.shipper = TreeShipper(
            self.engine,
            self.store,
            owner,
            list,
            unnamed=UnnamedTables(self.tree, owner, self.engine.clock.cautious),
            shipped=lambda: self.engine.newest_commit,
        )

    def ship(self) -> None:
        """All that there is."""
        while self.shipper.ship():
            pass

    def close(self) -> None:
        self.engine.close()
        self.tree.close()


class Committing(threading.Thread):
    """Makes commits at a rate, and notes how long each takes."""

    def __init__(self, engine: Engine, begin: int, rate: float) -> None:
        super().__init__()
        self.engine = engine
        self.number = begin
        self.rate = rate
        self.times: list[float] = []
        self.stop = threading.Event()

    def run(self) -> None:
        began, made = time.perf_counter(), 0
        while not self.stop.is_set():
            ahead = made / self.rate - (time.perf_counter() - began)
            if ahead > 0:
                time.sleep(ahead)
            new = large_centre.loaded(self.number)
            ops: list[records.Op] = [new]
            if self.number % 10 == 9:
                ops.append(
                    records.FileDeleted(large_centre.loaded(self.number - 5).physical, "gone")
                )
            used = time.perf_counter()
            self.engine.commit(ops)
            self.times.append(time.perf_counter() - used)
            self.number += 1
            made += 1

    def figures(self, what: str) -> Figures:
        self.stop.set()
        self.join()
        return {
            f"{what}_commits": len(self.times),
            f"{what}_commit_median_ms": statistics.median(self.times) * 1e3,
            f"{what}_commit_p99_ms": sorted(self.times)[len(self.times) * 99 // 100] * 1e3,
            f"{what}_commit_longest_ms": max(self.times) * 1e3,
        }


def alone(home: Path, rate: float, seconds: float) -> Figures:
    """Commits at that rate without a tree."""
    centre = Centre(home)
    commits = Committing(centre.engine, 3 * NUMBERS, rate)
    commits.start()
    time.sleep(seconds)
    found = commits.figures("alone")
    centre.close()
    return found


def begin(home: Path, files: int) -> Figures:
    """Write the tree of all files, while a few commits are made."""
    centre = Centre(home)
    before = large_centre.resident()
    commits = Committing(centre.engine, NUMBERS, 100)
    commits.start()
    began = time.perf_counter()
    cpu = time.thread_time()
    centre.ship()
    found = {
        "begin_seconds": time.perf_counter() - began,
        "begin_cpu_seconds": time.thread_time() - cpu,
        **commits.figures("begin"),
        "begin_grown_mb": (large_centre.resident() - before) / 1e6,
    }
    newest = centre.shipper.newest
    assert newest is not None
    found["tree_bytes_a_file"] = sum(each.size for each in newest.tables) / files
    found["tables"] = len(newest.tables)
    centre.close()
    return found


def follow(home: Path, rate: float, seconds: float) -> Figures:
    """Follow commits at a rate."""
    centre = Centre(home)
    began, used = time.perf_counter(), time.thread_time()
    centre.ship()
    found = {
        "restart_seconds": time.perf_counter() - began,
        "restart_cpu_seconds": time.thread_time() - used,
    }
    commits = Committing(centre.engine, 2 * NUMBERS, rate)
    commits.start()
    start, cpu = time.perf_counter(), time.thread_time()
    end = start + seconds
    behind, passes = [], []
    while time.perf_counter() < end:
        time.sleep(EVERY)
        began = time.perf_counter()
        centre.ship()
        passes.append(time.perf_counter() - began)
        newest = centre.shipper.newest
        assert newest is not None
        behind.append(time.time() - centre.engine.times.seconds(newest.ts) + EVERY)
    spent = time.perf_counter() - start
    found |= commits.figures("follow")
    made = found["follow_commits"]
    found |= {
        "follow_commits_a_second": made / spent,
        "follow_cpu_us_a_commit": (time.thread_time() - cpu) / made * 1e6,
        "follow_pass_median_seconds": statistics.median(passes),
        "follow_pass_longest_seconds": max(passes),
        "behind_longest_seconds": max(behind),
    }
    centre.close()
    return found


def read(home: Path) -> Figures:
    """Read all of the first tier, by DuckDB as it is documented, and by pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tests.support.tree_world import Duck

    bucket = home / "bucket"
    began, used = time.perf_counter(), time.process_time()
    duck = Duck(str(bucket))
    found: Figures = {
        "duckdb_begin_seconds": time.perf_counter() - began,
        "duckdb_begin_cpu_seconds": time.process_time() - used,
    }
    store = DirectoryStore(bucket)
    newest = newest_tree(store, next(bucket.glob("*/tree")).parent.name)
    assert newest is not None
    began, used = time.perf_counter(), time.process_time()
    files = [row for row in duck.at(newest.ts) if row[0] == "file"]
    found["duckdb_files"] = len(files)
    found["duckdb_tree_at_seconds"] = time.perf_counter() - began
    found["duckdb_tree_at_cpu_seconds"] = time.process_time() - used
    began, used = time.perf_counter(), time.process_time()
    pieces = [
        pq.read_table(bucket / each.key) for each in [*newest.checkpoint, *newest.differences]
    ]
    found["arrow_rows"] = pa.concat_tables(pieces).num_rows
    found["arrow_seconds"] = time.perf_counter() - began
    found["arrow_cpu_seconds"] = time.process_time() - used
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--commits", type=float, default=1000.0, help="a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    parts: dict[str, Callable[[Path], Figures]] = {
        "fill": lambda home: large_centre.fill(home / "schema", asked.files),
        "alone": lambda home: alone(home, asked.commits, asked.seconds / 3),
        "begin": lambda home: begin(home, asked.files),
        "read": lambda home: read(home),
        "follow": lambda home: follow(home, asked.commits, asked.seconds),
        "read again": lambda home: read(home),
    }
    if asked.part is not None:
        print(json.dumps(parts[asked.part](asked.directory)))
        return
    figures: dict[str, object] = {
        "files": asked.files,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "date": time.strftime("%Y-%m-%d"),
    }
    with tempfile.TemporaryDirectory(dir=asked.directory) as place:
        for part in parts:
            command = [sys.executable, __file__, "--part", part, "--directory", place]
            command += ["--files", str(asked.files), "--commits", str(asked.commits)]
            command += ["--seconds", str(asked.seconds)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            figures[part] = found
            for name, value in found.items():
                print(f"{part:12}{name:32}{value:14.3f}", flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
