"""How fast the tail reader is, and what memory it takes.

    python scripts/bench/tail_reader.py                     # the default shapes
    python scripts/bench/tail_reader.py --shape 1000x100x2  # devices x series x chunks

Builds each file in a temporary directory and reads it in a fresh process on one core: seconds of
the best of three, and peak memory above the start.
First come thousands of small files, each opened by its path, beside the package `tsfile`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.tsfile import read_status, read_tail
from common.tsfile.tail_digest import tail_digest
from tests.support.tsfile_bytes import build

Figures = dict[str, float]

SMALL_FILES, SMALL_SERIES = 5_000, 5
SHAPES = ["1x1x1", "10x100x1", "10000x10x1", "1000x100x4", "10000x100x1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", action="append", help="devices x series x chunks")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        found["small files"] = run_alone(small_files, folder)
        for shape in arguments.shape or SHAPES:
            devices, series, chunks = map(int, shape.split("x"))
            path = str(Path(folder, "bench.tsfile"))
            run_alone(write, path, devices, series, chunks)
            found[shape] = {"bytes": float(os.path.getsize(path))}
            for job in (statuses, digests, tails, headers, everything):
                found[shape] |= run_alone(job, path)
    if arguments.json:
        print(json.dumps(found))
        return
    for shape, figures in found.items():
        print(shape)
        for what, value in figures.items():
            print(f"  {what:26} {value:14,.6g}")


def run_alone(job: Callable[..., Figures], *arguments: object) -> Figures:
    """What a job found in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as process:
        return process.submit(job, *arguments).result()


def write(path: str, devices: int, series: int, chunks: int) -> Figures:
    points = [(t, t) for t in range(1, chunks + 1)]
    shape = {f"s{s}": points for s in range(series)}
    content = build({f"root.sg.d{d}": shape for d in range(devices)}, chunks=chunks)
    Path(path).write_bytes(content)
    return {}


def small_files(folder: str) -> Figures:
    """One device of five series in each: what an edge closes every few minutes; files a second."""
    from tsfile import TsFileReader

    points = [(t, float(t)) for t in range(100)]
    content = build({"root.sg.d": {f"s{s}": points for s in range(SMALL_SERIES)}}, version=4)
    paths = [os.path.join(folder, f"{n}.tsfile") for n in range(SMALL_FILES)]
    for path in paths:
        Path(path).write_bytes(content)
    jobs: dict[str, Callable[[str], object]] = {
        "complete or not": lambda path: read_status(path).complete,
        "whole structure": lambda path: read_tail(path).complete,
        "and chunk headers": lambda path: read_tail(path, chunk_headers=True).complete,
        "package tsfile": lambda path: TsFileReader(path).get_all_timeseries_schemas(),
    }
    return {
        name: SMALL_FILES / best(lambda job=job: [job(path) for path in paths])
        for name, job in jobs.items()
    }


def statuses(path: str) -> Figures:
    rounds, fd = 20_000, os.open(path, os.O_RDONLY)
    return {
        "read_status, open fd, us": best(lambda: [read_status(fd) for _ in range(rounds)]) * 50,
        "read_status, path, us": best(lambda: [read_status(path) for _ in range(rounds)]) * 50,
    }


def digests(path: str) -> Figures:
    return {"tail_digest, us": best(lambda: [tail_digest(path) for _ in range(1000)]) * 1000}


def tails(path: str) -> Figures:
    return heavy("read_tail", lambda: read_tail(path))


def headers(path: str) -> Figures:
    return heavy("with chunk headers", lambda: read_tail(path, chunk_headers=True))


def everything(path: str) -> Figures:
    tail = read_tail(path)
    return heavy("then all series", lambda: sum(1 for _ in tail.series()))


def heavy(name: str, job: Callable[[], object]) -> Figures:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = best(job)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {f"{name}, s": seconds, f"{name}, MiB": peak / 1024}


def best(job: Callable[[], object], rounds: int = 3) -> float:
    """Seconds of the fastest of some calls."""
    fastest, result = float("inf"), None
    for _ in range(rounds):
        result = None
        begin = time.perf_counter()
        result = job()
        fastest = min(fastest, time.perf_counter() - begin)
    del result
    return fastest


if __name__ == "__main__":
    main()
