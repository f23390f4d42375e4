"""Verifying every point of loaded files, beside Spark aggregating the same rows from Parquet.

    python scripts/bench/verify.py --files 20 --rows 500000 --master 'local[2]'

Files are written by the package `tsfile` (table model; three DOUBLE, an INT64 and an INT32 column,
encoded and compressed as its writer does) and loaded into a receiver's directories; the same rows
go to Parquet (zstd), a file for a file. Each contender runs in a process of its own, so with a JVM
of its own:

    verify    what `tsferry-verify` does between starting Spark and its output: MD5, structure,
              digest of the manifest, every page decoded and compared, schema, overlaps
    parquet   spark.read.parquet, then count, min, max and sum of each column

*Cold* is the first run of a session, with Python workers still to be started; *warm* are `--runs`
further ones, by turns, and what is said of them are medians and their spread. Kernels are compiled
before that, which happens once on a machine. CPU is what the process, its JVM and its workers took:
it tells more than seconds do on a machine that has other things to do.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.spark_source import COLUMNS, write_both

SENDER = "a" * 32


def write(folder: Path, files: int, rows: int) -> int:
    """Write and load the files; returns the bytes of the TsFiles."""
    (folder / "parquet").mkdir()
    paths = []
    for file in range(files):
        path = folder / "data" / "sequence" / "bench" / "0" / "0" / f"{file}-{file}-0-0.tsfile"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_both(file, rows, path, folder / "parquet" / f"{file}.parquet")
        paths.append(path)
    load(folder, paths)
    return sum(each.stat().st_size for each in paths)


def load(folder: Path, paths: list[Path]) -> None:
    """Make the catalogue that loading the files would have made."""
    from common.tsfile import read_tail
    from common.tsfile.proving import series_proofs
    from receiver.load.schema.registering import read_series
    from receiver.metadata.engine import Engine
    from receiver.metadata.model import records

    (folder / "schema").mkdir()
    (folder / "receiver.toml").write_text('schema_dir = "schema"\ndata_dirs = ["data"]\n')
    with Engine.open(folder / "schema") as engine:
        engine.commit(
            [
                records.SenderSeen(uuid=SENDER, label="edge", directory=f"x_{SENDER}"),
                records.StorageGroupSet("root.`/bench`", if_missing=True),
            ]
        )
        for path in paths:
            content = path.read_bytes()
            tail = read_tail(content)
            physical = str(path.relative_to(folder / "data"))
            loaded = records.FileLoaded(
                sender=SENDER, path=physical, physical=physical, size=len(content),
                md5=hashlib.md5(content).hexdigest(), tail="0" * 32, version=tail.version or 0,
                devices=[
                    records.DeviceRange(each.name_in("bench"), each.start, each.end)
                    for each in tail.devices
                ],
                first=tail.first_time, last=tail.last_time, series=tail.series_count,
                points=tail.point_count, task="0" * 32, resource=None,
                manifest=records.ManifestMeta(
                    tail.series_count, tail.point_count, series_proofs(content, tail).root
                ),
            )  # fmt: skip
            series = read_series(content, tail, "bench")
            engine.commit([loaded, records.SeriesLoaded(physical, series)])


def verify(folder: str, master: str, points: int, calls: Connection) -> None:
    """The contender of this project."""
    from common.config import load as load_config
    from receiver.config import ENV_PREFIX, ReceiverConfig
    from receiver.spark.verify.committed import CommittedFiles
    from receiver.spark.verify.examining.part_rows import Settings
    from receiver.spark.verify.file_scope import FileScope
    from receiver.spark.verify.job_progress import JobProgress
    from receiver.spark.verify.session import start
    from receiver.spark.verify.verifying import Run, verify_catalogue

    config = load_config(
        ReceiverConfig,
        file=Path(folder, "receiver.toml"),
        env_prefix=ENV_PREFIX,
        environ={},
        flags={},
    ).value
    spark = start(master, name="bench")

    def once() -> None:
        begun, settings = time.time(), Settings("ms", keep_chunks=False, limit=600.0)
        with CommittedFiles(config, FileScope()) as catalogue:
            run = Run(spark, settings, JobProgress(), "", begun, time.monotonic())
            outcome, job = verify_catalogue(run, catalogue)
            with job:
                bad = [each for each in outcome.findings() if each.severity != "note"]
                decoded = sum(each.points for each in outcome.files)
                assert not bad, bad
                assert decoded == points, (decoded, points)

    serve(once, calls)
    spark.stop()


def parquet(folder: str, master: str, points: int, calls: Connection) -> None:
    """What is to be beaten, with the JVM's own settings: `session.start` spares its compiler.

    Args:
        folder: with the data.
        master: of Spark.
        points: that are there; it counts rows.
        calls: to be served.
    """
    from receiver.spark.verify.java import find_java_home

    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()

    def once() -> None:
        columns = ["time", *COLUMNS]
        sums = [f"{what}({each})" for each in columns for what in ("count", "min", "max", "sum")]
        spark.read.parquet(str(Path(folder, "parquet"))).selectExpr(*sums).collect()

    serve(once, calls)
    spark.stop()


def serve(once: Callable[[], None], calls: Connection) -> None:
    """Run once at each call, until there are no more; answers (seconds, CPU)."""
    while calls.recv():
        begin, before = time.perf_counter(), cpu_seconds()
        once()
        calls.send((time.perf_counter() - begin, cpu_seconds() - before))


def cpu_seconds() -> float:
    """CPU of this process, the JVM and all Python workers, those that have ended included."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    total, pending = 0, [os.getpid()]
    while pending:
        pid = pending.pop()
        total += ticks.get(pid, 0)
        pending += children.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


def compile_kernels(path: str) -> None:
    """Decode one file, so that what is compiled is in the cache."""
    begin = time.perf_counter()
    from receiver.spark.verify.examining.file_checks import check_part
    from receiver.spark.verify.examining.parts import Expected, split

    check_part(split(0, Expected(path), 0)[0])
    print(f"kernels imported or compiled in {time.perf_counter() - begin:.1f} s", flush=True)


def alone(job: Callable[..., None], *arguments: object) -> None:
    """Run in a fresh process."""
    process = multiprocessing.get_context("spawn").Process(target=job, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{job.__name__} ended with {process.exitcode}")


class Contender:
    """One of the two, in a process of its own that goes on between its runs."""

    def __init__(self, job: Callable[..., None], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = job.__name__
        self._calls, theirs = context.Pipe()
        self._process = context.Process(target=job, args=(*arguments, theirs))
        self._process.start()
        theirs.close()

    def run(self) -> tuple[float, float]:
        """One more run: seconds, and of CPU."""
        try:
            self._calls.send(True)
            spent: tuple[float, float] = self._calls.recv()
        except (EOFError, OSError):
            self._process.join()
            sys.exit(f"{self.name} ended with {self._process.exitcode}")
        return spent

    def end(self) -> None:
        """No more runs."""
        self._calls.send(False)
        self._process.join()


def compare(contenders: Sequence[Contender], runs: int) -> dict[str, list[tuple[float, float]]]:
    """The runs of each, by turns, the first of each one cold."""
    spent: dict[str, list[tuple[float, float]]] = {each.name: [] for each in contenders}
    for number in range(runs + 1):
        for each in contenders if number % 2 else contenders[::-1]:
            spent[each.name].append(each.run())
    return spent


def report(spent: dict[str, list[tuple[float, float]]], rows: float) -> dict[str, object]:
    """Print medians with their spread; the same for machines."""
    told: dict[str, object] = {"runs": spent}
    for name, runs in spent.items():
        wall, cpu = (sorted(each[at] for each in runs[1:]) for at in (0, 1))
        print(f"{name:<8} cold {runs[0][0]:5.2f} s, CPU {runs[0][1]:5.2f} s; "
              f"warm {spread(wall)} s, {rows / statistics.median(wall) / 1e6:.2f} M rows/s, "
              f"CPU {spread(cpu)} s")  # fmt: skip
    for at, what in enumerate(("seconds", "CPU")):
        pairs = zip(spent["parquet"], spent["verify"], strict=True)
        cold, *warm = (theirs[at] / ours[at] for theirs, ours in pairs)
        told[what] = {"cold": cold, "warm": statistics.median(warm)}
        print(f"{what}: Parquet takes {cold:.2f} times as much cold, {spread(warm)} warm")
    return told


def spread(values: Sequence[float]) -> str:
    """The median, and between what."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=5, help="of each, warm, by turns")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--keep", type=Path, help="write the data here, or use what is here")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        if not (folder / "receiver.toml").exists():
            folder.mkdir(parents=True, exist_ok=True)
            alone(write, folder, given.files, given.rows)
        files = sorted((folder / "data").rglob("*.tsfile"))
        size = sum(each.stat().st_size for each in files)
        stored = sum(each.stat().st_size for each in (folder / "parquet").iterdir())
        points = given.files * given.rows * len(COLUMNS)
        print(f"{len(files)} files of {given.rows} rows x {len(COLUMNS)} columns, {given.master}: "
              f"TsFile {size / 1e6:.0f} MB, Parquet {stored / 1e6:.0f} MB", flush=True)  # fmt: skip
        alone(compile_kernels, str(files[0]))
        contenders = [
            Contender(job, str(folder), given.master, points) for job in (parquet, verify)
        ]
        told = report(compare(contenders, given.runs), points / len(COLUMNS))
        for each in contenders:
            each.end()
    if given.json is not None:
        given.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
