"""How fast `export` is: points a second of a processor, with the comparison of what it wrote.

    .venv/bin/python scripts/bench/exporting.py [--files 100] [--rows 500] [--runs 7] [--dir DIR]

Each file has four aligned devices of three columns (two of doubles, one of integers), `--rows` rows
a device in one chunk; each twentieth is late data all over the time of the others. They are
loaded into a receiver, which is closed then; its files are exported into a new directory each time.
The figure is the median of the runs, with the lowest and highest; the first, which compiles, does
not count.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from common.tsfile import Compression, DataType, Encoding
from receiver.exporting.export_run import ExportRequest, export_to
from receiver.exporting.wanted_points import WantedPoints
from receiver.metadata.model.paths import parse_pattern
from receiver.points import Column
from receiver.spark.local_catalogue import LocalCatalogue
from receiver.spark.source.read_plans.selection import TimeRange
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.tsfile_writer import TsFileWriter
from tests.support.node_world import Edge, World

FORMS = (
    SeriesForm("speed", DataType.DOUBLE, Encoding.GORILLA, Compression.LZ4),
    SeriesForm("power", DataType.DOUBLE, Encoding.GORILLA, Compression.LZ4),
    SeriesForm("count", DataType.INT64, Encoding.TS_2DIFF, Compression.LZ4),
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--files", type=int, default=100)
    options.add_argument("--rows", type=int, default=500, help="of a device in a file")
    options.add_argument("--runs", type=int, default=7)
    options.add_argument("--dir", type=Path, help="where the files go")
    args = options.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        root = Path(name)
        files = dict(made(n, args.files, args.rows) for n in range(args.files))
        world = World(root / "centre")
        with world.node() as node:
            edge = Edge(node)
            edge.check()
            edge.round(files)
        rates = [exported(world, root / f"export-{run}") for run in range(args.runs + 1)][1:]
    size = statistics.mean(map(len, files.values())) / 1e3
    print(
        f"{len(files)} files of {size:.0f} KB: {statistics.median(rates):.2f} M points/s of a "
        f"processor ({min(rates):.2f} to {max(rates):.2f}, {len(rates)} runs)"
    )


def made(number: int, count: int, rows: int) -> tuple[str, bytes]:
    """A file by its path."""
    chance = np.random.default_rng(number)
    steps = np.arange(rows, dtype=np.int64)
    late = number % 20 == 19
    times = steps * count * 1000 + 1 if late else (steps + number * rows) * 1000
    pieces: list[bytes] = []
    writer = TsFileWriter(lambda piece: pieces.append(bytes(piece)), version=4)
    for device in range(4):
        doubles = [50 + np.cumsum(chance.normal(0, 0.3, rows)).round(2) for _ in range(2)]
        columns = [Column(DataType.DOUBLE, each) for each in doubles]
        columns.append(Column(DataType.INT64, np.cumsum(chance.integers(-9, 10, rows))))
        with writer.aligned_device(("root.b", f"d{device}"), FORMS) as target:
            target.write(times, columns)
    writer.finish()
    kind = "unsequence" if late else "sequence"
    name = f"{1_600_000_000_000 + number}-{number + 1}-0-0.tsfile"
    return f"{kind}/root.b/0/0/{name}", b"".join(pieces)


def exported(world: World, into: Path) -> float:
    """Millions of points a second of a processor."""
    config = world.config
    with LocalCatalogue(config.schema_dir, "all", tuple(map(str, config.data_dirs))) as catalogue:
        span = TimeRange()
        wanted = WantedPoints(parse_pattern("root.**"), span)
        request = ExportRequest(
            engine=catalogue.uuid, commit=catalogue.at(None), pattern=wanted.pattern.text,
            start=span.start, end=span.end, version=4, file_bytes=512 << 20,
            file_points=100_000_000,
        )  # fmt: skip
        begin = time.process_time()
        points = export_to(into, catalogue, wanted, request).points
        return points / (time.process_time() - begin) / 1e6


if __name__ == "__main__":
    main()
