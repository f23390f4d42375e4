"""A month of small files read before and after they were merged, beside Parquet of the same rows.

    python scripts/bench/compacted_reads.py --files 5000 --devices 10 --rows 60 --repeat 5

Makes a receiver's directories with `--files` files of ten aligned devices, one behind the other,
of which each twentieth is late data that writes over every tenth row of an earlier one; then merges
all of them into files of about `--target` MiB, commits that, and writes the same rows as Parquet
into as many files. In one Spark session the same aggregation over all columns runs in turn over
the loaded files (`compacted = false`), over what they were merged into, and over Parquet; each run
plans anew. Figures are medians, with the least and the most; the answers are compared. Below them
stands how many times as much as the merged files the others took, run by run of a turn, of time
and of processors (of all processes, which a busy machine changes less): what is
asked is 10 for the loaded files, and 1 for Parquet. `--json` has all seconds. *Nothing read* is
a source in Python that gives as many rows which it has made beforehand: less cannot be had.

`--alone` does without Spark: plans and reads in this process, part after part, as the driver and
its tasks do, and tells processor seconds, which a busy machine changes little.

What is merged is written from the rows that the script made, by `receiver.writing`: what a merge
costs is measured elsewhere.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
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

NOTHING = "nothing read"
SLOW = 10.0
"""Seconds from which on a start of Python does not matter."""
PAIRS = (
    ("loaded files, schema given", "merged files, schema given"),
    ("Parquet, schema given", "merged files, schema given"),
    ("loaded files", "merged files"),
    ("Parquet", "merged files"),
    (NOTHING, "merged files, schema given"),
)
"""Of which contenders it is told how they compare: the second is what it is all about."""

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
    from receiver.spark.source.read_plans.result_columns import ResultColumn
    from receiver.spark.source.read_plans.slicing import plan
    from receiver.spark.source.read_plans.source_options import parse_options
    from receiver.spark.source.slice_reader import read_slices

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


def processor_seconds() -> float:
    """Of this process and all that it has begun, directly or not, those that ended too."""
    parents, spent = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(spent[pid] for pid in ours if pid in spent) / os.sysconf("SC_CLK_TCK")


def in_turn(
    runs: dict[str, Callable[[], Any]], repeat: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds, and seconds of processors, of each; the answers have to be the same.

    Spark ends the processes of Python that have been idle for a minute, as they are behind a run
    that takes as long: so each that is quick runs twice, and the second one is timed.
    """
    answers, slow = {}, set()
    for name, run in runs.items():
        begin = time.perf_counter()
        answers[name] = run()
        if time.perf_counter() - begin > SLOW:
            slow.add(name)
    if len({repr(each) for name, each in answers.items() if name != NOTHING}) != 1:
        raise SystemExit(f"the answers are not the same: {answers}")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    processors: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            if name not in slow:
                run()
            begin, before = time.perf_counter(), processor_seconds()
            run()
            seconds[name].append(time.perf_counter() - begin)
            processors[name].append(processor_seconds() - before)
    return seconds, processors


def compared(
    seconds: dict[str, list[float]], processors: dict[str, list[float]], rows: int
) -> dict[str, Any]:
    """Print what was measured, and give it as JSON has it.

    Args:
        seconds: of each contender, turn by turn.
        processors: seconds of them, likewise.
        rows: that each run read.
    """
    for what, several in seconds.items():
        median = statistics.median(several)
        print(
            f"{what:<28} {median:7.2f} s ({min(several):.2f} to {max(several):.2f}) "
            f"{rows / median / 1e6:8.2f} M rows/s; {statistics.median(processors[what]):6.2f} s of "
            f"processors ({min(processors[what]):.2f} to {max(processors[what]):.2f})",
            flush=True,
        )
    found: dict[str, Any] = {"seconds": seconds, "processors": processors, "ratios": {}}
    for other, base in PAIRS:
        if other not in seconds or base not in seconds:
            continue
        for what, spent in (("seconds", seconds), ("processors", processors)):
            times = [one / two for one, two in zip(spent[other], spent[base], strict=True)]
            ratio = {"median": statistics.median(times), "least": min(times), "most": max(times)}
            found["ratios"].setdefault(f"{other} / {base}", {})[what] = ratio
            print(f"{other} / {base}, {what}: {ratio['median']:.2f} "
                  f"({ratio['least']:.2f} to {ratio['most']:.2f})", flush=True)  # fmt: skip
    return found


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
    parser.add_argument("--without-loaded", action="store_true", help="these take minutes")
    parser.add_argument("--json", type=Path, help="write the figures there")
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
            f"rows of 3 columns, {given.master}, load average {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        if given.alone:
            alone(Path(name) / "schema", given.repeat)
            return
        told = compared(*in_turn(contenders(name, parquet, given, total), given.repeat), total)
    if given.json is not None:
        sizes = {"files": given.files, "rows": total, "merged": count, "bytes": month.bytes,
                 "merged_bytes": outputs, "parquet_bytes": other}  # fmt: skip
        given.json.write_text(json.dumps(told | sizes, indent=1))


def register_nothing(spark: Any, devices: int, rows: int) -> None:
    """A source that reads nothing, and gives so many rows of so many devices."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Nothing(DataSource):
        @classmethod
        def name(cls) -> str:
            return "nothing"

        def reader(self, schema: Any) -> Any:
            return Rows()

    class Rows(DataSourceReader):
        def partitions(self) -> Any:
            return [InputPartition(each) for each in range(devices)]

        def read(self, partition: Any) -> Any:
            import numpy
            import pyarrow

            left = rows // devices + (partition.value < rows % devices)
            values = numpy.arange(65536, dtype=numpy.int64)
            batch = pyarrow.record_batch({
                "time": values, "device": pyarrow.repeat(f"root.wind.d{partition.value}", 65536),
                "a": values.astype(float), "b": values.astype(float), "c": values,
            })  # fmt: skip
            while left > 0:
                yield batch.slice(0, min(left, 65536))
                left -= 65536

    spark.dataSource.register(Nothing)


def contenders(
    root: str, parquet: Path, given: argparse.Namespace, rows: int
) -> dict[str, Callable[[], Any]]:
    """What runs by turns, in one session."""
    spark = session(given.master)
    register_nothing(spark, given.devices, rows)

    def source(compacted: str, *, schema: bool) -> Any:
        reader = spark.read.format("tsfile").options(catalog=f"{root}/schema", compacted=compacted)
        return (reader.schema(SCHEMA) if schema else reader).load()

    runs: dict[str, Callable[[], Any]] = {
        "loaded files, schema given": lambda: asked(source("false", schema=True)),
        "merged files, schema given": lambda: asked(source("auto", schema=True)),
        "Parquet, schema given": lambda: asked(spark.read.schema(SCHEMA).parquet(str(parquet))),
        "loaded files": lambda: asked(source("false", schema=False)),
        "merged files": lambda: asked(source("auto", schema=False)),
        "Parquet": lambda: asked(spark.read.parquet(str(parquet))),
        NOTHING: lambda: asked(spark.read.format("nothing").schema(SCHEMA).load()),
    }
    if given.without_loaded:
        runs = {name: run for name, run in runs.items() if not name.startswith("loaded")}
    return runs


if __name__ == "__main__":
    main()
