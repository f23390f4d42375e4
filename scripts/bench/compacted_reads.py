"""A month of small files read before and after they were merged, beside Parquet of the same rows.

    python scripts/bench/compacted_reads.py --files 5000 --devices 10 --rows 60 --repeat 5

Makes a receiver's directories with `--files` files of ten aligned devices, one behind the other,
of which each twentieth is late data that writes over every tenth row of an earlier one; then merges
all of them into files of about `--target` MiB, commits that, and writes the same rows as Parquet
into as many files. In one Spark session the same aggregation over all columns runs in turn over
the loaded files (`compacted = false`), over what they were merged into, and over Parquet; each run
plans anew. Figures are medians, with the least and the most. The answers are compared.

`--alone` does without Spark: plans and reads in this process, part after part, as the driver and
its tasks do, and tells processor seconds, which a busy machine changes little.

What is merged is written from the rows that the script made, by `receiver.writing`: what a merge
costs is measured elsewhere.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.tsfile import Compression, DataType, Encoding, read_tail
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.points.columns import Column
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.tsfile_writer import TsFileWriter

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.spark_source import session

SENDER = "a" * 32
STEP = 1000
"""Milliseconds between rows."""
LATE = 20
FORMS = (
    SeriesForm("a", DataType.DOUBLE, Encoding.GORILLA, Compression.LZ4),
    SeriesForm("b", DataType.DOUBLE, Encoding.GORILLA, Compression.LZ4),
    SeriesForm("c", DataType.INT64, Encoding.TS_2DIFF, Compression.LZ4),
)
SCHEMA = "time bigint, device string, a double, b double, c bigint"

Rows = dict[str, tuple[np.ndarray, list[np.ndarray]]]
"""Of a device times, and a column for each of the forms."""


def written(place: Path, rows: Rows) -> bytes:
    """A file, and its bytes."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("wb") as file:
        writer = TsFileWriter(file.write)
        for device, (times, columns) in rows.items():
            with writer.aligned_device(tuple(device.rsplit(".", 1)), FORMS) as target:
                found = [Column(f.data_type, each) for f, each in zip(FORMS, columns, strict=True)]
                target.write(times, found)
        writer.finish()
    return place.read_bytes()


def facts(content: bytes) -> dict[str, Any]:
    """What a record says of a file."""
    tail = read_tail(content)
    return {
        "size": len(content),
        "md5": hashlib.md5(content).hexdigest(),
        "version": 4,
        "devices": [records.DeviceRange(each.name, each.start, each.end) for each in tail.devices],
        "first": tail.first_time,
        "last": tail.last_time,
        "series": tail.series_count,
        "points": tail.point_count,
    }


class Month:
    """A receiver with its files."""

    def __init__(self, root: Path, files: int, devices: int, rows: int) -> None:
        self.root, self.data = root, root / "data"
        (root / "schema").mkdir()
        self.names = [f"root.wind.d{each}" for each in range(devices)]
        self.rows: Rows = {}
        count = files * rows
        for number, name in enumerate(self.names):
            random = np.random.default_rng(number)
            walk = np.cumsum(random.normal(0, 0.1, (2, count)), axis=1).round(3) + 20
            counter = np.cumsum(random.integers(0, 100, count))
            times = np.arange(count, dtype=np.int64) * STEP
            self.rows[name] = times, [walk[0], walk[1], counter]
        self.bytes = 0
        with Engine.open(root / "schema") as engine:
            engine.commit([records.SenderSeen(uuid=SENDER, label="x", directory=f"x_{SENDER}")])
            ops: list[records.Op] = []
            for number in range(files):
                ops.append(self._load(number, slice(number * rows, (number + 1) * rows)))
                if len(ops) == 500 or number == files - 1:
                    engine.commit(ops)
                    ops = []
            self.inputs = sorted(engine._state.files)

    def _load(self, number: int, span: slice) -> records.FileLoaded:
        kind = "sequence"
        if number % LATE == LATE - 1:  # rows of an earlier file once more, with other values
            kind, before = "unsequence", (number - LATE // 2) * (span.stop - span.start)
            span = slice(before, before + span.stop - span.start, 10)
            for _, columns in self.rows.values():
                columns[0][span] += 1
        part = {
            name: (times[span], [np.ascontiguousarray(each[span]) for each in columns])
            for name, (times, columns) in self.rows.items()
        }
        path = f"{kind}/root.wind/0/0/{number + 1}-{number + 1}-0-0.tsfile"
        physical = path.replace(".tsfile", f".{number:016x}.tsfile")
        content = written(self.data / physical, part)
        self.bytes += len(content)
        return records.FileLoaded(
            sender=SENDER, path=path, physical=physical, tail="0" * 32, task="7a" * 16,
            data_dir=str(self.data), first_look=number + 1, closed_look=number + 1,
            **facts(content),
        )  # fmt: skip

    def stored(self) -> Rows:
        """Without the times of late files' own places: those were never written."""
        rows = len(next(iter(self.rows.values()))[0]) // len(self.inputs)
        number = np.arange(rows * len(self.inputs)) // rows
        keep = number % LATE != LATE - 1
        return {
            name: (times[keep], [each[keep] for each in columns])
            for name, (times, columns) in self.rows.items()
        }

    def compact(self, target: int) -> int:
        """Merge all; how many files it came to."""
        rows = self.stored()
        count = max(1, round(self.bytes / target))
        outputs = []
        for number in range(count):
            part = {
                name: (
                    np.array_split(times, count)[number],
                    [np.array_split(each, count)[number] for each in columns],
                )
                for name, (times, columns) in rows.items()
            }
            physical = f"sequence/root.wind/0/0/merged-1-{number}.tsfile"
            content = written(self.data / physical, part)
            outputs.append(
                records.CompactionOutput(
                    physical=physical, data_dir=str(self.data), **facts(content)
                )
            )
        with Engine.open(self.root / "schema") as engine:
            op = records.FilesCompacted(1, engine.newest_commit, self.inputs, outputs)
            engine.commit([op])
        return count

    def parquet(self, count: int) -> Path:
        """The same rows, in as many files."""
        place = self.root / "parquet"
        place.mkdir()
        rows = self.stored()
        for number in range(count):
            tables = []
            for name, (times, columns) in rows.items():
                arrays = [np.array_split(each, count)[number] for each in (times, *columns)]
                device = pa.array([name]).take(pa.array(np.zeros(len(arrays[0]), np.int8)))
                tables.append(
                    pa.table(
                        {"time": arrays[0], "device": device}
                        | {f.measurement: e for f, e in zip(FORMS, arrays[1:], strict=True)}
                    )
                )
            pq.write_table(pa.concat_tables(tables), place / f"{number}.parquet")
        return place


def asked(frame: Any) -> Any:
    """What each run asks for: all columns of all rows."""
    return frame.selectExpr(
        "count(*)", "max(time)", "count(distinct device)", "round(sum(a), 3)", "round(sum(b), 3)",
        "sum(c)",
    ).collect()  # fmt: skip


def read_alone(schema: Path, compacted: str, *, given: bool) -> tuple[int, float, float]:
    """Rows; processor seconds of the driver, and of all tasks together."""
    from receiver.spark.source.inferring import columns_of, list_sources, plan_of, read_tail_of
    from receiver.spark.source.result_columns import ResultColumn
    from receiver.spark.source.slice_reader import read_slices
    from receiver.spark.source.slicing import plan
    from receiver.spark.source.source_options import parse_options

    begin = time.process_time()
    options = parse_options({"catalog": str(schema), "compacted": compacted})
    columns = [ResultColumn(*each.split(" ")) for each in SCHEMA.split(", ")]
    query = plan_of(options, columns if given else columns_of(options))
    parts = plan(
        list_sources(options), query.selection.span, options.partition_bytes, query.picker(),
        read_tail_of, merge=True,
    )  # fmt: skip
    planned = time.process_time()
    rows = sum(batch.num_rows for part in parts for batch in read_slices(part, query))
    return rows, planned - begin, time.process_time() - planned


def alone(schema: Path, repeat: int) -> None:
    """Print processor seconds, the median of runs in turn."""
    runs = {
        f"{what}{', schema given' * given}": (compacted, given)
        for given in (True, False)
        for what, compacted in (("loaded files", "false"), ("merged files", "auto"))
    }
    found: dict[str, list[tuple[int, float, float]]] = {name: [] for name in runs}
    for turn in range(repeat + 1):
        for name, (compacted, given) in runs.items():
            one = read_alone(schema, compacted, given=given)
            if turn:
                found[name].append(one)
    if len({rows for several in found.values() for rows, _, _ in several}) != 1:
        raise SystemExit(f"the rows are not as many: {found}")
    for name, several in found.items():
        driver, tasks = (statistics.median(each[at] for each in several) for at in (1, 2))
        both = [driver + tasks for _, driver, tasks in several]
        print(
            f"{name:<28} {statistics.median(both):7.2f} s of a processor ({min(both):.2f} to "
            f"{max(both):.2f}): driver {driver:.2f}, tasks {tasks:.2f}",
            flush=True,
        )


def in_turn(runs: dict[str, Callable[[], Any]], repeat: int) -> Iterator[tuple[str, list[float]]]:
    """Seconds of each, one of each to warm up; the answers have to be the same."""
    answers = {name: run() for name, run in runs.items()}
    if len({repr(each) for each in answers.values()}) != 1:
        raise SystemExit(f"the answers are not the same: {answers}")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    yield from seconds.items()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--rows", type=int, default=60, help="of a device, in a file")
    parser.add_argument("--target", type=int, default=64, help="MiB of a merged file, about")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--alone", action="store_true", help="without Spark")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        month = Month(Path(name), given.files, given.devices, given.rows)
        count = month.compact(given.target << 20)
        parquet = month.parquet(count)
        total = sum(len(times) for times, _ in month.stored().values())
        outputs = sum(each.stat().st_size for each in month.data.rglob("merged-*"))
        other = sum(each.stat().st_size for each in parquet.iterdir())
        print(
            f"{given.files} files of {month.bytes / given.files / 1e3:.1f} KB; merged {count} of "
            f"{outputs / 1e6:.1f} MB in all; Parquet {other / 1e6:.1f} MB; {total / 1e6:.2f} M "
            f"rows of 3 columns, {given.master}",
            flush=True,
        )
        if given.alone:
            alone(Path(name) / "schema", given.repeat)
            return
        spark = session(given.master)

        def source(compacted: str, *, schema: bool) -> Any:
            reader = spark.read.format("tsfile").options(
                catalog=f"{name}/schema", compacted=compacted
            )
            return (reader.schema(SCHEMA) if schema else reader).load()

        runs: dict[str, Callable[[], Any]] = {
            "loaded files, schema given": lambda: asked(source("false", schema=True)),
            "merged files, schema given": lambda: asked(source("auto", schema=True)),
            "loaded files": lambda: asked(source("false", schema=False)),
            "merged files": lambda: asked(source("auto", schema=False)),
            "Parquet": lambda: asked(spark.read.parquet(str(parquet))),
        }
        for what, seconds in in_turn(runs, given.repeat):
            median = statistics.median(seconds)
            print(
                f"{what:<28} {median:7.2f} s ({min(seconds):.2f} to {max(seconds):.2f}) "
                f"{total / median / 1e6:8.2f} M rows/s"
            )


if __name__ == "__main__":
    main()
