"""How fast points are decoded: our reader, the package tsfile and the Java library, side by side.

    python scripts/bench/decoding.py                        # all shapes, 2 x 250,000 x 5 points
    python scripts/bench/decoding.py --rows 50000 --kind aligned --encoding GORILLA
    python scripts/bench/decoding.py --large 2 --only-large # peak memory for a file of 2 GiB

Needs a JDK and Maven: the Java library writes the files (doubles, LZ4, pages as it cuts them) and
is one of the readers. Each reader runs in a process of its own, one after another, bound to one
core; the last of several passes counts (compiled code is warm, the file in the page cache). Every
reader adds up all values it read: a reader that leaves something out is found out. CPU seconds
stand beside the wall's, for a machine that others use as well.

The ways of each reader: ours ``proof`` (each page decoded and compared with all that the file says
of it; no batch is built) and ``arrow`` (read_device, record batches); the package's fastest one
(Arrow batches of tables; of tree files series by series over its own index, and row by row, which
is what its documentation shows); Java's blocks page by page (what the database's scan does), and
its public query.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from java_peer import VERSION, JavaPeer

Result = dict[str, float]
"""points, seconds, cpu (seconds), sum; of Python readers also rss (MiB)."""

KINDS = ("plain", "aligned", "table")
ENCODINGS = ("GORILLA", "TS_2DIFF")
FIRST, LAST = -(2**63), 2**63 - 1


def main() -> None:
    options = parsed()
    if not options.every_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = Path(scratch)
        java = JavaPeer(options.work or folder, options.java_version)
        report: dict[str, dict[str, Result]] = {}
        if not options.only_large:
            shape = (options.devices, options.rows, options.columns)
            for kind in options.kind or KINDS:
                for encoding in options.encoding or ENCODINGS:
                    path = folder / f"{kind}-{encoding}.tsfile"
                    java.write(path, kind, encoding, shape, "walk")
                    found = side_by_side(java, path, kind, options.passes)
                    report[f"{kind} {encoding}"] = found
                    if not options.json:
                        show(f"{kind} {encoding}", path, found)
                    path.unlink()
        if options.large:
            report["large"] = large(java, folder, options.large, options.json)
        if options.json:
            print(json.dumps(report, indent=1))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=250_000, help="of a device")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--columns", type=int, default=5)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--encoding", choices=ENCODINGS, action="append")
    parser.add_argument("--passes", type=int, default=5, help="the last one counts")
    parser.add_argument("--large", type=float, default=0.0, help="GiB of a file for peak memory")
    parser.add_argument("--only-large", action="store_true")
    parser.add_argument("--every-core", action="store_true", help="do not bind to one core")
    parser.add_argument("--java-version", default=VERSION)
    parser.add_argument("--work", type=Path, help="keep jars and classes here for the next run")
    parser.add_argument("--folder", type=Path, help="where the files are made")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


# the readers: each adds up all values of a file and returns (points, sum)


def ours_proof(path: str) -> tuple[int, float]:
    from receiver.points import ChunkSummary, TsFileReader

    points, total = 0, 0.0
    with TsFileReader(path) as file:
        for device in file.tail.devices:
            for chunk in file.summaries(device):
                if not isinstance(chunk, ChunkSummary):
                    raise chunk
                if chunk.measurement:
                    points += chunk.statistics.count
                    total += float(chunk.statistics.sum or 0.0)
    return points, total


def ours_arrow(path: str) -> tuple[int, float]:
    from receiver.points import TsFileReader

    points, total = 0, 0.0
    with TsFileReader(path) as file:
        for device in file.tail.devices:
            for batch in file.read_device(device):
                for column in batch.columns[1:]:
                    points += len(column) - column.null_count
                    total += float(column.to_numpy(zero_copy_only=False).sum())
    return points, total


def package_tables(path: str) -> tuple[int, float]:
    from tsfile import TsFileReader

    points, total = 0, 0.0
    file = TsFileReader(path)
    for name, schema in file.get_all_table_schemas().items():
        columns = [column.get_column_name() for column in schema.get_columns()]
        fields = [column for column in columns if column.startswith("s")]
        with file.query_table(name, fields, FIRST, LAST, batch_size=65536) as rows:
            while (batch := rows.read_arrow_batch()) is not None:
                for field in fields:
                    column = batch.column(field)
                    points += len(column) - column.null_count
                    total += float(column.to_numpy().sum())
    file.close()
    return points, total


def package_series(path: str) -> tuple[int, float]:
    from tsfile import TsFileDataFrame

    points, total = 0, 0.0
    frame = TsFileDataFrame(path, show_progress=False, use_index=True)
    for name in frame.list_timeseries():
        values = frame[name][:]
        points += len(values)
        total += float(values.sum())
    frame.close()
    return points, total


def package_rows(path: str) -> tuple[int, float]:
    from tsfile import TsFileReader

    points, total = 0, 0.0
    file = TsFileReader(path)
    for group in file.get_all_timeseries_schemas().values():
        columns = [series.get_timeseries_name() for series in group.get_timeseries_list()]
        device = group.get_device_name()
        with file.query_timeseries(device, columns, FIRST + 1, LAST) as rows:
            while rows.next():
                for i in range(2, 2 + len(columns)):
                    total += rows.get_value_by_index(i)
                    points += 1
    file.close()
    return points, total


Reader = Callable[[str], tuple[int, float]]


def timed(reader: Reader, path: str, passes: int, answer: Connection) -> None:
    """Run in a process of its own; send what the last pass came to."""
    try:
        for _ in range(passes):
            begin, busy = time.perf_counter(), time.process_time()
            points, total = reader(path)
            seconds, cpu = time.perf_counter() - begin, time.process_time() - busy
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found = {"points": points, "seconds": seconds, "cpu": cpu, "sum": total, "rss": peak}
        answer.send(found)
    except BaseException as error:
        answer.send(repr(error))
        raise


def alone(reader: Reader, path: Path, passes: int) -> Result:
    """Time a reader in a fresh process."""
    context = multiprocessing.get_context("spawn")
    answer, question = context.Pipe(duplex=False)
    process = context.Process(target=timed, args=(reader, str(path), passes, question))
    process.start()
    question.close()
    with contextlib.suppress(EOFError):
        found = answer.recv()
        process.join()
        if not isinstance(found, str):
            return dict(found)
        raise RuntimeError(f"{reader.__name__}: {found}")
    process.join()
    raise RuntimeError(f"{reader.__name__} ended with {process.exitcode}")


def side_by_side(java: JavaPeer, path: Path, kind: str, passes: int) -> dict[str, Result]:
    found = {
        "ours, proof": alone(ours_proof, path, passes),
        "ours, arrow": alone(ours_arrow, path, passes),
    }
    if kind == "table":
        found["tsfile, arrow"] = alone(package_tables, path, passes)
    else:
        found["tsfile, series"] = alone(package_series, path, passes)
        found["tsfile, rows"] = alone(package_rows, path, 1)
    for mode in ("pages", "query"):
        found[f"java, {mode}"] = java.reading(mode, passes * 2, path)
    first = found["ours, proof"]
    for name, each in found.items():
        if each["points"] != first["points"] or abs(each["sum"] - first["sum"]) > 1e-6 * abs(
            first["sum"]
        ):
            raise RuntimeError(f"{name} read {each}, ours {first}")
    return found


def show(title: str, path: Path, found: dict[str, Result]) -> None:
    """Print points a second, and how many times another's that of ours is."""
    points = int(found["ours, proof"]["points"])
    print(f"{title}: {points:,} points, {path.stat().st_size:,} bytes")
    print("  reader            M points/s   a CPU second   proof is   arrow is   (by CPU time)")
    for name, each in found.items():
        ratios = (found[ours]["cpu"] for ours in ("ours, proof", "ours, arrow"))
        times = "".join(f"{each['cpu'] / cpu:8.1f} x " for cpu in ratios)
        wall, busy = (points / each[key] / 1e6 for key in ("seconds", "cpu"))
        print(f"  {name:16} {wall:11.2f} {busy:14.2f}  {times}", flush=True)


def large(java: JavaPeer, folder: Path, size: float, quiet: bool) -> dict[str, Result]:
    """Peak memory and speed of our reader on one large file, of ten devices."""
    path = folder / "large.tsfile"
    rows = int(size * 2**30 / 8.02 / 10 / 5)
    java.write(path, "aligned", "PLAIN", (10, rows, 5), "noise")
    found = {"ours, proof": alone(ours_proof, path, 1), "ours, arrow": alone(ours_arrow, path, 1)}
    if not quiet:
        print(f"one file of {path.stat().st_size:,} bytes")
        for name, each in found.items():
            rate = each["points"] / each["seconds"] / 1e6
            print(f"  {name}: {rate:.1f} M points/s, peak {each['rss']:.0f} MiB", flush=True)
    path.unlink()
    return found


if __name__ == "__main__":
    main()
