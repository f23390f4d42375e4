"""The commit path against the disk below it, in one run: ratios, not absolute times.

    python scripts/bench/commit_path.py [--seconds 2] [--directory DIR] [--json]

What is measured, all on the file system of DIR (the temporary directory by default):

* raw: one thread, append 200 bytes + fdatasync, one at a time: what the disk gives.
* commit: single durable commits (one quarantine entry each) with 1, 16 and 64 threads; the ratio to
  raw, the latency that 99 of 100 commits stay under, how many commits shared a flush.
* replay: opening a log of 100,000 loaded files, 10 devices each; files a second, bytes a file.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from scripts.bench.peers import raw

SENDER = "5e" * 16
FILES = 100_000
DEVICES = 10


def commits(directory: Path, threads: int, seconds: float) -> dict[str, float]:
    """Single durable commits by so many threads."""
    engine = Engine.open(directory)
    engine.commit([records.SenderSeen(SENDER, "bench", f"127.0.0.1_{SENDER}")])
    latencies: list[list[float]] = [[] for _ in range(threads)]
    start = time.perf_counter()
    end = start + seconds

    def work(number: int) -> None:
        mine = latencies[number]
        path = f"sequence/root.bench/{number}/0/1-1-0.tsfile"
        before = time.perf_counter()
        while before < end:
            op = records.QuarantinePut(SENDER, path, f"{len(mine) % 100}", 1, False, "bench")
            engine.commit([op])
            after = time.perf_counter()
            mine.append(after - before)
            before = after

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    spent = time.perf_counter() - start
    engine.close()
    every = sorted(each for mine in latencies for each in mine)
    return {
        "rate": len(every) / spent,
        "p50_ms": every[len(every) // 2] * 1000,
        "p99_ms": every[len(every) * 99 // 100] * 1000,
        "max_ms": every[-1] * 1000,
    }


def replay(directory: Path) -> dict[str, float]:
    """Opening an engine of many files."""
    home = directory / "replay"
    with Engine.open(home) as engine:
        engine.commit([records.SenderSeen(SENDER, "bench", f"127.0.0.1_{SENDER}")])
        names = [f"root.bench.device{number}" for number in range(DEVICES)]
        step = 1000
        start = time.perf_counter()
        for begin in range(0, FILES, step):
            engine.commit([_load(number, names) for number in range(begin, begin + step)])
        load = time.perf_counter() - start
    size = (home / "mlog-1.tsf").stat().st_size
    gc.collect()
    before = _resident()
    start = time.perf_counter()
    engine = Engine.read_only(home)
    spent = time.perf_counter() - start
    used = _resident() - before
    with engine.reading() as state:
        assert state.file_table.totals().files == FILES
    return {
        "files_a_second": FILES / spent,
        "seconds": spent,
        "log_bytes_a_file": size / FILES,
        "memory_bytes_a_file": used / FILES,
        "loads_a_second": FILES / load,
    }


def _load(number: int, names: list[str]) -> records.FileLoaded:
    first = number * 1000
    stem = f"sequence/root.bench/0/{number // 1000}/{1_700_000_000_000 + number}-{number}-0"
    return records.FileLoaded(
        sender=SENDER,
        path=f"{stem}.tsfile",
        physical=f"{stem}.{number:016x}.tsfile",
        size=1 << 20,
        md5=f"{number:032x}",
        tail=f"{number:032x}",
        version=4,
        devices=[records.DeviceRange(name, first, first + 999) for name in names],
        first=first,
        last=first + 999,
        series=100,
        points=100_000,
        task="7a" * 16,
    )


def _resident() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(directory: Path, threads: int, seconds: float, rounds: int) -> dict[str, float]:
    """Raw and commits by turns, so that a busy machine slows both; the round of median ratio."""
    found = []
    for number in range(rounds):
        base = raw(directory, seconds / 2)
        each = commits(directory / f"{threads}-{number}", threads, seconds)
        base = (base + raw(directory, seconds / 2)) / 2
        found.append(each | {"raw": base, "ratio_to_raw": each["rate"] / base})
    return sorted(found, key=lambda each: each["ratio_to_raw"])[rounds // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="the median counts")
    parser.add_argument("--directory", type=Path, default=None, help="where to write")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name)
        by_threads = {
            threads: measure(directory, threads, options.seconds, options.rounds)
            for threads in (1, 16, 64)
        }
        replayed = replay(directory)
    if options.json:
        print(json.dumps({"threads": by_threads, "replay": replayed}, indent=2))
        return
    print("single durable commits against append + fdatasync, one at a time, in the same minute:")
    for threads, each in by_threads.items():
        print(
            f"  {threads:2} threads  {each['rate']:8,.0f} /s = {each['ratio_to_raw']:5.2f} x raw "
            f"({each['raw']:,.0f} /s)   p50 {each['p50_ms']:.2f} ms   p99 {each['p99_ms']:.2f} ms"
        )
    print(
        f"start with {FILES:,} files: {replayed['seconds']:.2f} s "
        f"({replayed['files_a_second']:,.0f} files/s); a file takes "
        f"{replayed['log_bytes_a_file']:.0f} bytes of log, "
        f"{replayed['memory_bytes_a_file']:.0f} of memory"
    )
    print(f"loading, 1,000 files a commit: {replayed['loads_a_second']:,.0f} files/s")


class _Plain(argparse.RawDescriptionHelpFormatter):
    pass


if __name__ == "__main__":
    main()
