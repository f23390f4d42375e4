"""Writes a TsFile of sensors: doubles that wander, with two decimals, a second apart.

    .venv/bin/python scripts/bench/sensor_tsfile.py FILE [--devices 40]
                                        [--encoding PLAIN] [--compressor UNCOMPRESSED]

A device has 25 series of 4,800 points, plain 1 MB; encodings and compressors are those of the
library `tsfile` (GORILLA and LZ4 are what a database makes of doubles by itself).
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from tsfile import (  # type: ignore[import-untyped]
    Compressor,
    Tablet,
    TimeseriesSchema,
    TSDataType,
    TSEncoding,
    TsFileWriter,
)

SERIES, ROWS, BEGIN = 25, 4_800, 1_600_000_000_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("file", type=Path)
    options.add_argument("--encoding", default="PLAIN")
    options.add_argument("--compressor", default="UNCOMPRESSED")
    options.add_argument("--devices", type=int, default=40)
    args = options.parse_args()
    encoding, compressor = TSEncoding[args.encoding], Compressor[args.compressor]
    names = [f"s{number}" for number in range(SERIES)]
    chance = random.Random(1)
    args.file.unlink(missing_ok=True)
    writer = TsFileWriter(str(args.file))
    for number in range(args.devices):
        for name in names:
            schema = TimeseriesSchema(name, TSDataType.DOUBLE, encoding, compressor)
            writer.register_timeseries(f"root.b.d{number}", schema)
    for number in range(args.devices):
        tablet = Tablet(names, [TSDataType.DOUBLE] * SERIES, ROWS)
        tablet.set_table_name(f"root.b.d{number}")
        values = [chance.uniform(0, 100) for _ in names]
        for row in range(ROWS):
            tablet.add_timestamp(row, BEGIN + row * 1000)
            for column in range(SERIES):
                values[column] += chance.gauss(0, 0.3)
                tablet.add_value_by_index(column, row, round(values[column], 2))
        writer.write_tablet(tablet)
    writer.close()


if __name__ == "__main__":
    main()
