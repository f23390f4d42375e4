"""How fast TsFiles are written: points a second of one core, and the memory that it takes.

    .venv/bin/python scripts/bench/writing.py [--points 20000000] [--runs 5]
    .venv/bin/python scripts/bench/writing.py --java DIR   # the Java library reads what was written

Series of 1,000,000 points, a second apart with jitter: doubles that wander with two decimals
(GORILLA), integers (TS_2DIFF), handed over 65,536 at once as a merge does; each compression; a
plain device, and an aligned one of ten series with a fifth of nulls. Nothing is written to the
disk. The figure is the median of the runs, in turn, with the lowest and highest.

With `--java` each kind of device is written to a file in place of that, and the Java library (its
newest version that we know, see `java_peer.py`) says how many points it finds, page by page and by
its query, and what they add up to.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from java_peer import JavaPeer

from common.tsfile import (
    ColumnCategory,
    Compression,
    DataType,
    Encoding,
    TableColumn,
    TableSchema,
)
from receiver.points import Column
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.tsfile_writer import TsFileWriter

SERIES, BLOCK = 1_000_000, 65_536
COMPRESSIONS = (Compression.UNCOMPRESSED, Compression.LZ4, Compression.SNAPPY, Compression.ZSTD)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--points", type=int, default=20_000_000)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--java", type=Path, help="where its jars and the files go")
    args = options.parse_args()
    if args.java:
        read_by_java(args.java)
        return
    chance = np.random.default_rng(1)
    times = 1_600_000_000_000 + np.cumsum(chance.integers(950, 1_050, SERIES))
    doubles = np.round(50 + np.cumsum(chance.normal(0, 0.3, SERIES)), 2)
    integers = np.cumsum(chance.integers(-9, 10, SERIES))
    cases = {}
    for compression in COMPRESSIONS:
        name = compression.name
        number = Column(DataType.DOUBLE, doubles)
        form = SeriesForm("s", DataType.DOUBLE, Encoding.GORILLA, compression)
        cases[f"plain GORILLA {name}"] = (plain, form, number)
        whole = Column(DataType.INT64, integers)
        form = SeriesForm("s", DataType.INT64, Encoding.TS_2DIFF, compression)
        cases[f"plain TS_2DIFF {name}"] = (plain, form, whole)
    holes = Column(DataType.DOUBLE, doubles, chance.random(SERIES) < 0.8)
    form = SeriesForm("s", DataType.DOUBLE, Encoding.GORILLA, Compression.LZ4)
    cases["aligned GORILLA LZ4"] = (aligned, form, holes)
    small = Column(DataType.DOUBLE, doubles)
    cases["series of 100 points, GORILLA LZ4"] = (many, form, small)
    seconds: dict[str, list[tuple[float, int, int]]] = {name: [] for name in cases}
    for run in range(args.runs + 1):  # the first compiles
        for name, (write, form, column) in cases.items():
            begin = time.process_time()
            points, size = write(form, times, column, args.points)
            if run:
                seconds[name].append((time.process_time() - begin, points, size))
    for name, found in seconds.items():
        rates = sorted(points / taken / 1e6 for taken, points, _ in found)
        _, points, size = found[0]
        print(
            f"{name:36} {statistics.median(rates):7.1f} M points/s"
            f" ({rates[0]:.1f} to {rates[-1]:.1f}), {size / points:.2f} bytes a point"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    held = (times.nbytes + doubles.nbytes + integers.nbytes) >> 20
    print(f"peak memory {peak:.0f} MB, {held} MB of input in it")


def read_by_java(work: Path) -> None:
    """Points and sums as Java finds them, beside those that were written."""
    java = JavaPeer(work)
    chance = np.random.default_rng(2)
    times = 1_600_000_000_000 + np.cumsum(chance.integers(950, 1_050, 50_000))
    for device, encoding in itertools.product(
        ("plain", "aligned", "table"),
        (Encoding.PLAIN, Encoding.GORILLA, Encoding.CHIMP),
    ):
        path = work / f"{device}-{encoding.name}.tsfile"
        points, total = 0, 0.0
        table = TableSchema("t", (_tag(), *(_field(f"s{at}", encoding) for at in range(5))))
        forms = [
            SeriesForm(f"s{at}", DataType.DOUBLE, encoding, at_most)
            for at, at_most in enumerate((*COMPRESSIONS, Compression.GZIP))
        ]
        with path.open("wb") as file:
            writer = TsFileWriter(file.write, tables=[table] if device == "table" else ())
            for number in range(300):
                columns = []
                rows = times[: 50_000 if number == 0 else 20]
                for _ in forms:
                    valid = chance.random(len(rows)) < (1.0 if device == "plain" else 0.7)
                    values = np.round(chance.normal(20, 5, len(rows)), 2)
                    columns.append(Column(DataType.DOUBLE, values, None if valid.all() else valid))
                    points += int(valid.sum())
                    total += float(values[valid].sum())
                if device == "plain":
                    with writer.plain_device(("root.b", f"d{number}")) as target:
                        for form, column in zip(forms, columns, strict=True):
                            target.write(form, rows, column)
                else:
                    name = "t" if device == "table" else "root.b"
                    with writer.aligned_device((name, f"d{number}"), forms) as target:
                        target.write(rows, columns)
            writer.finish()
        for mode in ("pages", "query"):
            found = java.reading(mode, 1, path)
            same = found["points"] == points and abs(found["sum"] - total) < 1e-6 * abs(total)
            print(f"{path.stem:20} {mode}: {found['points']} of {points} points, same sum: {same}")
            if not same:
                raise SystemExit(f"Java adds up to {found['sum']}, not {total}")


def _tag() -> TableColumn:
    return TableColumn(
        "device", DataType.STRING, Encoding.PLAIN, Compression.LZ4, ColumnCategory.TAG
    )


def _field(name: str, encoding: Encoding) -> TableColumn:
    return TableColumn(name, DataType.DOUBLE, encoding, Compression.LZ4, ColumnCategory.FIELD)


def plain(form: SeriesForm, times: np.ndarray, column: Column, points: int) -> tuple[int, int]:
    writer = TsFileWriter(len)
    with writer.plain_device(("root.b", "d")) as device:
        for number in range(max(1, points // SERIES)):
            each = form._replace(measurement=f"s{number}")
            for low in range(0, SERIES, BLOCK):
                part = Column(column.data_type, column.values[low : low + BLOCK])
                device.write(each, times[low : low + BLOCK], part)
    return max(1, points // SERIES) * SERIES, writer.finish()


def aligned(form: SeriesForm, times: np.ndarray, column: Column, points: int) -> tuple[int, int]:
    writer, count = TsFileWriter(len), 0
    forms = [form._replace(measurement=f"s{number}") for number in range(10)]
    for number in range(max(1, points // SERIES // 10)):
        with writer.aligned_device(("root.b", f"d{number}"), forms) as device:
            for low in range(0, SERIES, BLOCK):
                valid = column.valid[low : low + BLOCK]
                part = Column(column.data_type, column.values[low : low + BLOCK], valid)
                device.write(times[low : low + BLOCK], [part] * 10)
                count += 10 * int(valid.sum())
    return count, writer.finish()


def many(form: SeriesForm, times: np.ndarray, column: Column, points: int) -> tuple[int, int]:
    writer, count = TsFileWriter(len), min(points, SERIES) // 100
    with writer.plain_device(("root.b", "d")) as device:
        for number in range(count):
            each, low = form._replace(measurement=f"s{number}"), 100 * number
            part = Column(column.data_type, column.values[low : low + 100])
            device.write(each, times[low : low + 100], part)
    return 100 * count, writer.finish()


if __name__ == "__main__":
    main()
