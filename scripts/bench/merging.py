"""What it costs that files which overlap are merged: planning and reading, without Spark.

    python scripts/bench/merging.py --files 40 --rows 200000 --repeat 7

Reads a directory with `merge` on and off, in turn: files that lie one behind the other, and files
of which each tenth is late data all over the time of the others. Then plans a catalogue of
`--catalogue` files of ten devices each that do not overlap. Every figure is the median of the runs,
and the spread of them.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

COLUMNS = ("a", "b", "c")


def write(folder: Path, files: int, rows: int, *, late: bool) -> None:
    """Files of one device of a table, named as a database names them."""
    from tsfile import ColumnCategory, ColumnSchema, TableSchema, TSDataType, TsFileTableWriter

    columns = [ColumnSchema("site", TSDataType.STRING, ColumnCategory.TAG)]
    columns += [ColumnSchema(each, TSDataType.DOUBLE, ColumnCategory.FIELD) for each in COLUMNS]
    for number in range(files):
        times = np.arange(rows, dtype=np.int64) + number * rows
        kind = "sequence"
        if late and number % 10 == 9:
            kind, times = "unsequence", np.arange(rows, dtype=np.int64) * files
        random = np.random.default_rng(number)
        frame = pd.DataFrame({"time": times, "site": "one"})
        for each in COLUMNS:
            frame[each] = np.cumsum(random.normal(0, 0.1, rows)).round(3)
        place = folder / kind / "plant" / "0" / "0" / f"{number + 1}-{number + 1}-0-0.tsfile"
        place.parent.mkdir(parents=True, exist_ok=True)
        with TsFileTableWriter(str(place), TableSchema("plant", columns)) as writer:
            writer.write_dataframe(frame)


def read(folder: Path, *, merge: bool) -> int:
    """Plan and read all of it, wide; how many rows there were."""
    from receiver.spark.source.inferring import columns_of, list_sources, plan_of, read_tail_of
    from receiver.spark.source.read_plans.slicing import plan
    from receiver.spark.source.read_plans.source_options import parse_options
    from receiver.spark.source.slice_reader import read_slices

    options = parse_options({"path": str(folder)})
    query = plan_of(options, columns_of(options))
    parts = plan(
        list_sources(options), query.selection.span, options.partition_bytes, query.picker(),
        read_tail_of, merge=merge,
    )  # fmt: skip
    return sum(batch.num_rows for part in parts for batch in read_slices(part, query))


def plan_catalogue(files: int, *, merge: bool) -> int:
    """Plan files that a catalogue knows; how many tasks there are."""
    from receiver.spark.source.read_plans.picking import Picker
    from receiver.spark.source.read_plans.selection import Selection, TimeRange
    from receiver.spark.source.read_plans.slicing import plan
    from receiver.spark.source.read_plans.source_options import parse_options

    picker = Picker(parse_options({"path": "/data"}), Selection())
    return len(plan(_catalogue(files), TimeRange(), 128 << 20, picker, _unread, merge=merge))


def _unread(_: object) -> None:
    raise AssertionError("the catalogue says what is asked for")


@functools.cache
def _catalogue(files: int) -> list:
    from receiver.metadata.model.records import DeviceRange
    from receiver.metadata.state.ranges import DeviceTable
    from receiver.spark.finder import DataFile

    table = DeviceTable()
    found = []
    for number in range(files):
        site, begin = number % 100, number // 100 * 1000
        ranges = [DeviceRange(f"root.s{site}.d{each}", begin, begin + 999) for each in range(10)]
        devices = table.pack(ranges, begin, begin + 999)
        name = f"sequence/root.s{site}/0/0/{number + 1}-{number + 1}-0-0.tsfile"
        found.append(
            DataFile((f"/data/{name}",), name, 1 << 20, f"root.s{site}", number + 1, devices,
                     begin, begin + 999, is_known=True)
        )  # fmt: skip
    return found


def compare(what: str, repeat: int, run: Callable[[bool], int]) -> None:
    """Print medians of runs in turn, after one of each to warm up."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    counts = {merge: run(merge) for merge in seconds}
    for _ in range(repeat):
        for merge, found in seconds.items():
            begin = time.perf_counter()
            run(merge)
            found.append(time.perf_counter() - begin)
    for merge, found in seconds.items():
        print(
            f"{what:<36} merge={merge!s:<5} {statistics.median(found):7.3f} s "
            f"({min(found):.3f} to {max(found):.3f}) {counts[merge]:,}",
            flush=True,
        )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--catalogue", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        apart, across = Path(name) / "apart", Path(name) / "across"
        write(apart, given.files, given.rows, late=False)
        write(across, given.files, given.rows, late=True)
        compare("files apart, rows", given.repeat, lambda merge: read(apart, merge=merge))
        compare("a tenth late, rows", given.repeat, lambda merge: read(across, merge=merge))
    compare(
        f"catalogue of {given.catalogue:,}, tasks", given.repeat,
        lambda merge: plan_catalogue(given.catalogue, merge=merge),
    )  # fmt: skip


if __name__ == "__main__":
    main()
