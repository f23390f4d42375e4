"""What it costs to prove that retired files are superseded.

    python scripts/bench/superseding.py                              # 2,000 files of about 20 KB
    python scripts/bench/superseding.py --files 5000 --shape 5x10x35 # devices x series x points

Makes a partition of small files that were compacted a hundred at a time, retires them, and has the
prover go over it, with the process that it reads with and with all commits. Says how long a file
takes, from the first question to the last commit, what a million would take at that rate, and what
memory the process came to. A second look, with nothing new, says what it costs to find nothing due.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.digests import md5
from common.durable import Tree
from common.tsfile import read_tail
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.superseding.prover import Prover
from tests.support.tsfile_bytes import build

SENDER = "aa" * 16
TOGETHER = 100
"""Files that one compaction made one of."""
SHAPES = ["1x5x470", "5x10x35"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--shape", action="append", help="devices x series x points")
    parser.add_argument("--memory", type=int, default=1 << 30, help="of the process that reads")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = {}
    for shape in arguments.shape or SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            found[shape] = measure(Path(folder), arguments.files, shape, arguments.memory)
        if not arguments.json:
            print(f"{shape}: {told(found[shape], arguments.files)}", flush=True)
    if arguments.json:
        print(json.dumps(found))


def measure(folder: Path, files: int, shape: str, memory: int) -> dict[str, float]:
    """Seconds, and MiB at most."""
    with Engine.open(folder / "schema") as engine, Tree(folder / "data", create=True) as tree:
        size = fill(engine, folder / "data", files, tuple(map(int, shape.split("x"))))
        prover = Prover(
            engine, lambda: [tree], is_busy=bool, is_pressed=bool, memory=memory, every=1.0
        )
        warm_up(prover)
        before = child_seconds(prover)
        began, used = time.perf_counter(), time.process_time()
        proved = prover.run_once()
        took, used = time.perf_counter() - began, time.process_time() - used
        read = child_seconds(prover) - before
        began = time.perf_counter()
        prover.run_once()
        again = time.perf_counter() - began
        prover.close()
        assert proved == files - 1, proved
    return {
        "bytes": size / files,
        "took": took,
        "reading": read / files,
        "server": used / files,
        "million": (read + used) / files * 1e6,
        "nothing_due": again,
        "peak": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10,
    }


def told(found: dict[str, float], files: int) -> str:
    return (
        f"{files} files of {found['bytes'] / 1000:.1f} KB in {found['took']:.1f} s, "
        f"{found['took'] / files * 1e3:.2f} ms a file; CPU {found['reading'] * 1e3:.2f} ms a file, "
        f"and {found['server'] * 1e3:.2f} of the server; a million take "
        f"{found['million'] / 3600:.1f} h of a core; nothing due: "
        f"{found['nothing_due'] * 1e3:.1f} ms; at most {found['peak']} MiB"
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


def fill(engine: Engine, data: Path, files: int, shape: tuple[int, ...]) -> int:
    """Load files and what they were compacted into, but for the last point of the last one."""
    devices, series, points = shape
    engine.commit([records.SenderSeen(SENDER, "", f"x_{SENDER}")])
    directory = "sequence/root.sg/0/0"
    (data / directory).mkdir(parents=True)
    size = 0
    for low in range(0, files, TOGETHER):
        count = min(TOGETHER, files - low)
        retired = []
        for number in range(low, low + count):
            content = make(devices, series, number * points, points)
            size += len(content)
            retired.append(load(data, f"{directory}/{number + 1}-{number + 1}-0-0", content, 1))
        lacking = low + count == files
        product = make(devices, series, low * points, count * points - lacking)
        above = load(data, f"{directory}/{low + 1}-{low + 1}-1-0", product, 3)
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
