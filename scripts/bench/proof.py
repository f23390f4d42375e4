"""What a table of series costs a sender, beside the MD5 that it makes of every file anyway.

    python scripts/bench/proof.py                         # the default shapes
    python scripts/bench/proof.py --shape 1000x100x2x50   # devices x series x chunks x points

Builds each file in a temporary directory and reads it, warm, in this process, on one core: seconds
of the best of three for MD5, for the tail, and for the table (digests of all chunks, encoded and
packed), and the size of the packed table beside that of the file.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.digests import md5_of_fd
from common.tsfile import read_tail
from common.tsfile.proving import series_proofs
from tests.support.tsfile_bytes import build

SHAPES = ["1x1x1x100", "10x10x1x1000", "100x10x4x1000", "1000x100x1x3", "1x5x40x20000"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", action="append", help="devices x series x chunks x points")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for shape in arguments.shape or SHAPES:
            path = Path(folder, "bench.tsfile")
            devices, series, chunks, points = map(int, shape.split("x"))
            path.write_bytes(content(devices, series, chunks, points))
            measure(shape, path)


def content(devices: int, series: int, chunks: int, points: int) -> bytes:
    """A file whose series all differ, as real ones do."""
    shape = {
        f"root.sg.d{device}": {
            f"s{number}": [
                (time, (device * series + number) * 1e6 + time) for time in range(1, points + 1)
            ]
            for number in range(series)
        }
        for device in range(devices)
    }
    return build(shape, chunks=chunks)


def measure(shape: str, path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        tail = read_tail(fd)
        packed = series_proofs(fd, tail).pack()
        md5 = best(lambda: md5_of_fd(fd))
        reading = best(lambda: read_tail(fd))
        table = best(lambda: series_proofs(fd, tail).pack())
    finally:
        os.close(fd)
    print(
        f"{shape}: {size:,} bytes, {tail.series_count:,} series; MD5 {md5 * 1e3:.2f} ms, tail "
        f"{reading * 1e3:.2f} ms, table {table * 1e3:.2f} ms ({table / md5:.2f} of MD5), packed "
        f"{len(packed):,} bytes ({len(packed) / size:.2%} of the file)",
        flush=True,
    )


def best(job: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        job()
        times.append(time.perf_counter() - begin)
    return min(times)


if __name__ == "__main__":
    main()
