"""How fast files are merged into few: points a second of one core, comparison included.

    .venv/bin/python scripts/bench/compacting.py [--small 5000] [--large 16] [--runs 5] [--dir DIR]
    .venv/bin/python scripts/bench/compacting.py --once --small 0 --large 128 --only late  # 10 GB

Small files have ten series with doubles that wander with two decimals (GORILLA) and integers
(TS_2DIFF), LZ4, a chunk of some hundred points each, 20 KB together; large ones 64 MB in chunks of
100,000 points. Each kind lies one behind the other, as edges close them, and once more with a tenth
of the files as late data all over the time of the others; plain devices, and aligned ones. Their
bytes are compared with their MD5, their points are decoded, merged, written, flushed, decoded again
and compared.

The floor beside it: what numpy takes to sort as many times with their values and to put them into
order, and what pyarrow takes to write them as Parquet (LZ4) and to read them again; neither checks
anything. Seconds are those of the process's CPU, the figure is the median of the runs, in turn,
with the lowest and highest. With `--once` each merge runs once, in a process of its own, whose
memory is told; nothing of the floor is measured.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.tsfile import Compression, DataType, Encoding, read_tail
from receiver.compaction.making.merging import merge_files
from receiver.compaction.worth_merging.merge_asked import MergeAsked
from receiver.metadata.model.ranks import NOW
from receiver.points import Column
from receiver.superseding.asking import FileAsked
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.tsfile_writer import TsFileWriter

SERIES = 10


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--small", type=int, default=5000, help="files of 20 KB")
    options.add_argument("--large", type=int, default=16, help="files of 64 MB")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--target", type=int, default=256 << 20, help="bytes of an output")
    options.add_argument("--memory", type=int, default=512 << 20)
    options.add_argument("--dir", type=Path, help="where the files go")
    options.add_argument("--only", default="", help="cases with this in their names")
    options.add_argument("--once", action="store_true", help="each in a process of its own")
    options.add_argument("--asked", type=Path, help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.asked is not None:
        merge_alone(args.asked)
        return
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        work = Path(name)
        cases: dict[str, Callable[[], int]] = {}
        for aligned in (False, True):
            for late in (False, True):
                for size, count, points in (("small", args.small, 650), ("large", args.large, 0)):
                    what = (
                        f"{count} {size} files, {'aligned' if aligned else 'plain'}"
                        f"{', a tenth late' if late else ''}"
                    )
                    if not count or args.only not in what:
                        continue
                    folder = work / what.replace(" ", "-")
                    folder.mkdir()
                    rows = points or 2_200_000
                    files = [made(folder, n, count, rows, aligned, late) for n in range(count)]
                    asked = MergeAsked(
                        tuple(files), (), "root.b", str(folder), "out", args.target, args.memory
                    )
                    if args.once:
                        print(f"{what:44} {alone(asked, folder)}", flush=True)
                        shutil.rmtree(folder)
                    else:
                        cases[what] = merge(asked)
        if args.once:
            return
        floor = numbers(4_000_000)
        if not args.only:
            cases["numpy: sorted by time"] = lambda: in_order(*floor)
            cases["pyarrow: sorted, Parquet written and read"] = lambda: through_parquet(*floor)
        measure(cases, args.runs)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MB, the making of the files in it")


def measure(cases: dict[str, Callable[[], int]], runs: int) -> None:
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for run in range(runs + 1):  # the first compiles
        for name, case in cases.items():
            begin = time.process_time()
            points = case()
            if run:
                rates[name].append(points / (time.process_time() - begin) / 1e6)
    for name, found in rates.items():
        middle = statistics.median(found)
        print(f"{name:44} {middle:6.2f} M points/s ({min(found):.2f} to {max(found):.2f})")


def numbers(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times with jitter, doubles with two decimals, integers."""
    chance = np.random.default_rng(1)
    times = 1_600_000_000_000 + np.cumsum(chance.integers(950, 1_050, count))
    doubles = np.round(50 + np.cumsum(chance.normal(0, 0.3, count)), 2)
    return times, doubles, np.cumsum(chance.integers(-9, 10, count))


def made(folder: Path, number: int, count: int, rows: int, aligned: bool, late: bool) -> FileAsked:
    """A file of one device; of late data it has times between those of all others."""
    times, doubles, integers = numbers(rows)
    kind, begin = 0, number * rows * 1000
    if late and number % 10 == 9:
        kind, times = 1, times[0] + (times - times[0]) * count + 1
    else:
        times = times + begin
    forms = [
        SeriesForm(f"s{at}", DataType.DOUBLE, Encoding.GORILLA, Compression.LZ4)
        if at % 2
        else SeriesForm(f"s{at}", DataType.INT64, Encoding.TS_2DIFF, Compression.LZ4)
        for at in range(SERIES)
    ]
    columns = [
        Column(form.data_type, doubles if form.data_type == DataType.DOUBLE else integers)
        for form in forms
    ]
    path = folder / f"{number}.tsfile"
    with path.open("wb") as file:
        writer = TsFileWriter(file.write, version=4)
        if aligned:
            with writer.aligned_device(("root.b", "d"), forms) as target:
                target.write(times, columns)
        else:
            with writer.plain_device(("root.b", "d")) as plain:
                for form, column in zip(forms, columns, strict=True):
                    plain.write(form, times, column)
        writer.finish()
    content = path.read_bytes()
    tail = read_tail(content)
    return FileAsked(
        physical=f"sequence/root.b/0/0/{number}.tsfile", path=str(path), sender="edge",
        size=len(content), md5=hashlib.md5(content, usedforsecurity=False).hexdigest(),
        series=tail.series_count, points=tail.point_count, start=tail.first_time,
        end=tail.last_time, name=(kind, number, number, 0, 0), first=1, closed=1, last=NOW,
        loaded=number + 1,
    )  # fmt: skip


def merge(asked: MergeAsked) -> Callable[[], int]:
    def run() -> int:
        return merge_files(asked).points

    return run


def alone(asked: MergeAsked, folder: Path) -> str:
    """A merge in a process of its own: what it took, in words."""
    path = folder / "asked"
    path.write_bytes(msgspec.msgpack.encode(asked))
    command = [sys.executable, __file__, "--asked", str(path)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return (
        f"{found['points'] / found['cpu'] / 1e6:6.2f} M points/s, {found['bytes'] / 1e9:.2f} GB "
        f"into {found['outputs']} outputs, {found['cpu']:.0f} s of CPU, {found['seconds']:.0f} s, "
        f"{found['memory']:.0f} MB at most"
    )


def merge_alone(path: Path) -> None:
    """In that process."""
    asked = msgspec.msgpack.decode(path.read_bytes(), type=MergeAsked)
    began = time.process_time()
    answer = merge_files(asked)
    spent = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {
        "points": answer.points, "bytes": answer.read_bytes, "outputs": len(answer.outputs),
        "cpu": spent, "seconds": answer.seconds, "memory": peak,
    }  # fmt: skip
    print(json.dumps(found))


def in_order(times: np.ndarray, doubles: np.ndarray, integers: np.ndarray) -> int:
    order = np.argsort(times, kind="stable")
    for values in (times, doubles):
        values[order]
    return len(times)


def through_parquet(times: np.ndarray, doubles: np.ndarray, integers: np.ndarray) -> int:
    table = pa.table({"time": times, "value": doubles}).sort_by("time")
    target = io.BytesIO()
    pq.write_table(table, target, compression="lz4")
    found = pq.read_table(io.BytesIO(target.getvalue()))
    return int(found.num_rows)


if __name__ == "__main__":
    main()
