"""How fast the tail reader is, and what memory it takes.

    python scripts/bench/tail_reader.py                     # the default shapes
    python scripts/bench/tail_reader.py --shape 1000x100x2  # devices x series x chunks

Builds each file in a temporary directory, reads it in a fresh process on one core, and prints a
line for each: seconds of the best of three, microseconds a series, peak memory above the start.
First come thousands of small files, each opened by its path, beside the package `tsfile`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.tsfile import read_status, read_tail
from common.tsfile.tail_digest import tail_digest
from tests.support.tsfile_bytes import build

SMALL_FILES, SMALL_SERIES = 5_000, 5
SHAPES = ["1x1x1", "10x100x1", "10000x10x1", "1000x100x4", "10000x100x1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", action="append", help="devices x series x chunks")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run_alone(small_files, folder)
        for shape in arguments.shape or SHAPES:
            devices, series, chunks = map(int, shape.split("x"))
            path = str(Path(folder, "bench.tsfile"))
            run_alone(write, path, devices, series, chunks)
            print(f"{shape}: {os.path.getsize(path):,} bytes", flush=True)
            for job in (statuses, digests, tails, headers, everything):
                run_alone(job, path, devices * series)


def run_alone(job: Callable[..., None], *arguments: object) -> None:
    process = multiprocessing.get_context("spawn").Process(target=job, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{job.__name__} ended with {process.exitcode}")


def write(path: str, devices: int, series: int, chunks: int) -> None:
    points = [(t, t) for t in range(1, chunks + 1)]
    shape = {f"s{s}": points for s in range(series)}
    content = build({f"root.sg.d{d}": shape for d in range(devices)}, chunks=chunks)
    Path(path).write_bytes(content)


def small_files(folder: str) -> None:
    """One device of five series in each: what an edge closes every few minutes."""
    from tsfile import TsFileReader

    points = [(t, float(t)) for t in range(100)]
    content = build({"root.sg.d": {f"s{s}": points for s in range(SMALL_SERIES)}}, version=4)
    paths = [os.path.join(folder, f"{n}.tsfile") for n in range(SMALL_FILES)]
    for path in paths:
        Path(path).write_bytes(content)
    print(f"{SMALL_FILES} files of {SMALL_SERIES} series, {len(content):,} bytes each")
    jobs: dict[str, Callable[[str], object]] = {
        "complete or not": lambda path: read_status(path).complete,
        "whole structure": lambda path: read_tail(path).complete,
        "and chunk headers": lambda path: read_tail(path, chunk_headers=True).complete,
        "package tsfile": lambda path: TsFileReader(path).get_all_timeseries_schemas(),
    }
    for name, job in jobs.items():
        seconds, _ = best(lambda job=job: [job(path) for path in paths])
        print(f"  {name:20} {SMALL_FILES / seconds:10,.0f} files/s", flush=True)


def statuses(path: str, _series: int) -> None:
    rounds, fd = 20_000, os.open(path, os.O_RDONLY)
    seconds, _ = best(lambda: [read_status(fd) for _ in range(rounds)])
    print(f"  read_status, open fd   {seconds / rounds * 1e6:8.1f} us")
    seconds, _ = best(lambda: [read_status(path) for _ in range(rounds)])
    print(f"  read_status, path      {seconds / rounds * 1e6:8.1f} us", flush=True)


def digests(path: str, _series: int) -> None:
    seconds, _ = best(lambda: [tail_digest(path) for _ in range(1000)])
    print(f"  tail_digest            {seconds / 1000 * 1e6:8.1f} us", flush=True)


def tails(path: str, series: int) -> None:
    report("read_tail", series, lambda: read_tail(path))


def headers(path: str, series: int) -> None:
    report("+ chunk headers", series, lambda: read_tail(path, chunk_headers=True))


def everything(path: str, series: int) -> None:
    tail = read_tail(path)
    report("then all series", series, lambda: sum(1 for _ in tail.series()))


def report(name: str, series: int, job: Callable[[], object]) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, _ = best(job)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    each = seconds / series * 1e6
    print(f"  {name:20} {seconds:8.4f} s {each:7.2f} us/series {peak / 1024:7.0f} MiB", flush=True)


def best(job: Callable[[], object], rounds: int = 3) -> tuple[float, object]:
    fastest, result = float("inf"), None
    for _ in range(rounds):
        result = None
        begin = time.perf_counter()
        result = job()
        fastest = min(fastest, time.perf_counter() - begin)
    return fastest, result


if __name__ == "__main__":
    main()
