"""What it costs to prove that retired files are superseded.

    python scripts/bench/superseding.py                              # 2,000 files of about 20 KB
    python scripts/bench/superseding.py --files 5000 --shape 5x10x35 # devices x series x points
    python scripts/bench/superseding.py --files 100000 --partitions 100 --shape 1x5x470

Makes partitions of small files that were compacted a hundred at a time, retires them, and has the
prover go over them in one sweep, with the process that it reads with and with all commits. Says how
long a file takes, from the first question to the last commit, what a million would take at that
rate, and what memory the process and this one came to. Before and beside the sweep a commit and a
look at a partition are timed, ten a second. A second look, with nothing new, says what it costs to
find nothing due. Partitions have the same contents, each its own files.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.digests import md5
from common.durable import Tree
from common.tsfile import read_tail
from receiver.background.work_queue import WorkQueue
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.state.tables.file_tables.retired import PartitionKey
from receiver.superseding.prover import Prover
from tests.support.tsfile_bytes import build

SENDER = "aa" * 16
TOGETHER = 100
"""Files that one compaction made one of."""
SHAPES = ["1x5x470", "5x10x35"]
_FIRST = PartitionKey("root.sg", "0", "0")
_ALONE = 3.0
"""Seconds for which is timed what is not beside a sweep."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--partitions", type=int, default=1, help="that they are spread over")
    parser.add_argument("--shape", action="append", help="devices x series x points")
    parser.add_argument("--memory", type=int, default=1 << 30, help="of the process that reads")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = {}
    for shape in arguments.shape or SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            found[shape] = measure(
                Path(folder), arguments.files, arguments.partitions, shape, arguments.memory
            )
        if not arguments.json:
            print(f"{shape}: {told(found[shape], arguments.files)}", flush=True)
    if arguments.json:
        print(json.dumps(found))


def measure(folder: Path, files: int, partitions: int, shape: str, memory: int) -> dict[str, float]:
    """Seconds, and MiB at most."""
    with Engine.open(folder / "schema") as engine, Tree(folder / "data", create=True) as tree:
        counts = tuple(map(int, shape.split("x")))
        size = fill(engine, folder / "data", files, partitions, counts)
        prover = Prover(
            engine,
            WorkQueue(engine),
            lambda: [tree],
            is_busy=bool,
            is_pressed=bool,
            memory=memory,
            every=1.0,
        )
        warm_up(prover)
        with asked_beside(engine) as alone:
            time.sleep(_ALONE)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        filled = kib_of_this_process("VmRSS")
        before = child_seconds(prover)
        with asked_beside(engine) as beside:
            began, used = time.perf_counter(), time.process_time()
            proved = prover.run_once()
            took, used = time.perf_counter() - began, time.process_time() - used
        read = child_seconds(prover) - before
        began = time.perf_counter()
        prover.run_once()
        again = time.perf_counter() - began
        prover.close()
        assert proved == files - partitions, proved
    return {
        "bytes": size / files,
        "took": took,
        "reading": read / files,
        "server": used / files,
        "million": (read + used) / files * 1e6,
        "nothing_due": again,
        "peak": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10,
        "server_before": filled >> 10,
        "server_peak": kib_of_this_process("VmHWM") >> 10,
        "alone": statistics.median(alone),
        "beside": statistics.median(beside),
        "beside_worst": max(beside),
    }


def kib_of_this_process(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{what}:")).split()[1])


@contextmanager
def asked_beside(engine: Engine) -> Iterator[list[float]]:
    """Seconds that a commit and a look at a partition take, together, until the block ends."""
    found: list[float] = []
    end = threading.Event()

    def ask() -> None:
        while not end.is_set():
            began = time.perf_counter()
            engine.commit([records.SenderSeen(SENDER, "", f"x_{SENDER}")])
            with engine.reading() as state:
                state.file_table.partition(*_FIRST)
            found.append(time.perf_counter() - began)
            end.wait(0.1)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield found
    finally:
        end.set()
        thread.join()


def told(found: dict[str, float], files: int) -> str:
    return (
        f"{files} files of {found['bytes'] / 1000:.1f} KB in {found['took']:.1f} s, "
        f"{found['took'] / files * 1e3:.2f} ms a file; CPU {found['reading'] * 1e3:.2f} ms a file, "
        f"and {found['server'] * 1e3:.2f} of the server; a million take "
        f"{found['million'] / 3600:.1f} h of a core; nothing due: "
        f"{found['nothing_due'] * 1e3:.1f} ms; at most {found['peak']} MiB, of the server "
        f"{found['server_peak']} (before {found['server_before']}); a commit and a look "
        f"{found['beside'] * 1e3:.1f} ms beside it (at most {found['beside_worst'] * 1e3:.1f}), "
        f"{found['alone'] * 1e3:.1f} alone"
    )


def child_seconds(prover: Prover) -> float:
    """CPU seconds of the process that reads."""
    child = prover._process._child
    assert child is not None
    fields = Path(f"/proc/{child[0].pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def warm_up(prover: Prover) -> None:
    """Have the process import what it needs, which it does once."""
    from receiver.superseding.asking import PartitionAsked

    prover._process.ask(PartitionAsked([], [], 1), bool)


def fill(engine: Engine, data: Path, files: int, partitions: int, shape: tuple[int, ...]) -> int:
    """Load files and what they were compacted into, but for the last point of each last one."""
    devices, series, points = shape
    engine.commit([records.SenderSeen(SENDER, "", f"x_{SENDER}")])
    places = [f"sequence/root.sg/0/{number}" for number in range(partitions)]
    for each in places:
        (data / each).mkdir(parents=True, exist_ok=True)
    size, there = 0, files // partitions
    assert there * partitions == files, "partitions have as many files each"
    for low in range(0, there, TOGETHER):
        count = min(TOGETHER, there - low)
        contents = [
            make(devices, series, number * points, points) for number in range(low, low + count)
        ]
        size += sum(map(len, contents)) * partitions
        lacking = low + count == there
        product = make(devices, series, low * points, count * points - lacking)
        for place in places:
            retired = [
                load(data, f"{place}/{number + 1}-{number + 1}-0-0", content, 1)
                for number, content in enumerate(contents, low)
            ]
            above = load(data, f"{place}/{low + 1}-{low + 1}-1-0", product, 3)
            engine.commit(retired)
            engine.commit([above, *(records.FileRetired(each.physical, 2) for each in retired)])
    return size


def make(devices: int, series: int, first: int, points: int) -> bytes:
    shape = {
        f"root.sg.d{device}": {
            f"s{number}": [(time, time / 7 + number) for time in range(first, first + points)]
            for number in range(series)
        }
        for device in range(devices)
    }
    return build(shape)


def load(data: Path, stem: str, content: bytes, look: int) -> records.FileLoaded:
    tail = read_tail(content)
    physical = f"{stem}.{look:016x}.tsfile"
    (data / physical).write_bytes(content)
    return records.FileLoaded(
        sender=SENDER,
        path=f"{stem}.tsfile",
        physical=physical,
        size=len(content),
        md5=md5(content).hexdigest(),
        tail=md5(content[-100:]).hexdigest(),
        version=4,
        devices=[records.DeviceRange(each.name, each.start, each.end) for each in tail.devices],
        first=min(each.start for each in tail.devices),
        last=max(each.end for each in tail.devices),
        series=tail.series_count,
        points=tail.point_count,
        task="7a" * 16,
        first_look=look,
        closed_look=look,
    )


if __name__ == "__main__":
    main()
