"""Rows a second of the Spark data source, long and wide, beside Parquet in the same session.

    python scripts/bench/spark_source.py --files 20 --rows 500000 --master 'local[2]'

Writes files of the table model with the package `tsfile` (5 columns: three DOUBLE, INT64, INT32,
as its writer encodes them), the same rows as Parquet, and aggregates both. Every figure is the
best of `--repeat` runs of `count`, `sum` and `max` over all columns, after one run to warm up.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

COLUMNS = {"a": "double", "b": "double", "c": "double", "d": "bigint", "e": "int"}


def rows_of(file: int, rows: int) -> pd.DataFrame:
    """What a site measures: random walks, a counter, a state."""
    random = np.random.default_rng(file)
    walk = np.cumsum(random.normal(0, 0.1, (3, rows)), axis=1).round(3) + 20
    return pd.DataFrame(
        {
            "time": np.arange(rows, dtype=np.int64) * 1000 + file * rows * 1000,
            "site": f"site{file % 4}",
            "a": walk[0],
            "b": walk[1],
            "c": walk[2],
            "d": np.cumsum(random.integers(0, 100, rows)),
            "e": random.integers(0, 5, rows).astype(np.int32),
        }
    )


def write_both(file: int, rows: int, tsfile: Path, parquet: Path) -> None:
    """The rows of a file, as a TsFile and as Parquet."""
    from tsfile import ColumnCategory, ColumnSchema, TableSchema, TSDataType, TsFileTableWriter

    kinds = {"double": TSDataType.DOUBLE, "bigint": TSDataType.INT64, "int": TSDataType.INT32}
    frame = rows_of(file, rows)
    schema = TableSchema(
        "plant",
        [ColumnSchema("site", TSDataType.STRING, ColumnCategory.TAG)]
        + [ColumnSchema(name, kinds[kind], ColumnCategory.FIELD) for name, kind in COLUMNS.items()],
    )
    with TsFileTableWriter(str(tsfile), schema) as writer:
        writer.write_dataframe(frame)
    frame.to_parquet(parquet, compression="zstd")


def write(folder: Path, files: int, rows: int) -> int:
    """The files; returns the bytes of the TsFiles."""
    tsfiles, parquet = folder / "tsfile", folder / "parquet"
    tsfiles.mkdir()
    parquet.mkdir()
    for file in range(files):
        write_both(file, rows, tsfiles / f"{file}.tsfile", parquet / f"{file}.parquet")
    return sum(each.stat().st_size for each in tsfiles.iterdir())


def best(what: str, rows: int, repeat: int, query) -> None:
    """Print the best of some runs."""
    query()
    seconds = []
    for _ in range(repeat):
        begin = time.perf_counter()
        query()
        seconds.append(time.perf_counter() - begin)
    print(f"{what:<34} {min(seconds):7.2f} s {rows / min(seconds) / 1e6:8.2f} M rows/s", flush=True)


def session(master: str):
    """As a user has it, with Spark's own settings."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from receiver.spark.source import register
    from receiver.spark.verify.java import find_java_home

    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    return spark


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write(folder, given.files, given.rows)
        rows = given.files * given.rows
        print(f"{given.files} files, {size / 1e6:.0f} MB, {rows / 1e6:g} M rows, {given.master}")
        spark = session(given.master)

        def source(**options: object):
            reader = spark.read.format("tsfile").options(table="plant", **options)
            return reader.load(str(folder / "tsfile"))

        wide, long = source(), source(form="long")
        parquet = spark.read.parquet(str(folder / "parquet"))
        sums = [f"sum({each})" for each in COLUMNS]
        best("parquet, 5 columns", rows, given.repeat,
             lambda: parquet.selectExpr("count(*)", "max(time)", *sums).collect())  # fmt: skip
        best("tsfile wide, 5 columns", rows, given.repeat,
             lambda: wide.selectExpr("count(*)", "max(time)", *sums).collect())  # fmt: skip
        one = source(columns="a")
        best("tsfile wide, option columns = a", rows, given.repeat,
             lambda: one.selectExpr("count(*)", "max(time)", "sum(a)").collect())  # fmt: skip
        best("tsfile long (rows are points)", rows * len(COLUMNS), given.repeat,
             lambda: long.selectExpr("count(*)", "max(time)", "sum(value_double)",
                                     "sum(value_long)").collect())  # fmt: skip
        some = source(endTime=rows // 100 * 1000)
        best("tsfile wide, endTime at 1%", rows // 100, given.repeat,
             lambda: some.selectExpr(*sums).collect())  # fmt: skip
        spark.stop()


if __name__ == "__main__":
    main()
