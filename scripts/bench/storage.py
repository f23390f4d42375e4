"""What the copies in an object store cost: beside the store's own client, and beside none.

    .venv/bin/python scripts/bench/storage.py [--parts upload,read,local,round] [--runs 5]
                                              [--small 1000] [--large 4] [--parallel 4]
                                              [--at DIR] [--write]

The store is SeaweedFS on loopback, started here. Each part alternates the two ways in one run, and
tells the median of the ratios:

* upload: files a second of the uploader (each put if its key is free, confirmed, told of by a
  commit) by those of obstore with as many at once, for files of 20 KB and of 64 MiB; above 0.8 is
  what is wanted;
* read: the time until a file that is in the store only is here, whole, compared and flushed, by
  that of a bare request for its bytes; and the first 64 KiB of a large object by a bare ranged one,
  which may take 1.3 times as long;
* local: a file that is here, with a store by the same without, 1.05 at most, at each level: opening
  it, reading it and comparing its MD5, with what pins it and without; reading its points so; and
  all points of many files, as Spark reads them by a catalogue, where a store is configured and
  where none is;
* round: a round of a real sender to a real receiver with the uploader at work, by one without.

`--write` puts the table into docs/performance.md.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import obstore
from obstore.store import S3Store as BareStore

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from common.digests import md5_of_fd  # noqa: E402
from receiver.metadata.state.table_rows import FileRow  # noqa: E402
from receiver.points import TsFileReader  # noqa: E402
from receiver.storage.cache.disk_cache import DiskCache  # noqa: E402
from receiver.storage.cache.file_fetching import FileFetcher  # noqa: E402
from receiver.storage.stores.object_store import ObjectStore  # noqa: E402
from receiver.storage.stores.store_opening import StoreOptions, open_store  # noqa: E402
from scripts.bench.cold_reads import read as read_rows  # noqa: E402
from scripts.bench.marked_page import fill  # noqa: E402
from tests.support.centre import Centre as Receiver  # noqa: E402
from tests.support.edge import Edge  # noqa: E402
from tests.support.procs import children  # noqa: E402
from tests.support.s3_server import KEY, REGION, SECRET, S3Server, s3_server  # noqa: E402
from tests.support.spark_world import NORTH  # noqa: E402
from tests.support.stored_world import StoredWorld  # noqa: E402
from tests.support.tsfile_bytes import build  # noqa: E402
from tests.support.uploading import Centre  # noqa: E402

_SMALL, _LARGE = 20_000, 64 << 20
_FIRST = 64 << 10
_READS = 200
_ROUND_FILES = 100
_ROUNDS = 6
_numbers = itertools.count(1)


class Took(NamedTuple):
    """What a run took.

    Attributes:
        figure: by the clock, in the unit of its row.
        cpu: of this process, seconds; 0 where others do the work.
    """

    figure: float
    cpu: float


class Timer:
    """Clock and processor time since it was made."""

    def __init__(self) -> None:
        self._begin, self._cpu = time.perf_counter(), time.process_time()

    def took(self, figure: Callable[[float], float]) -> Took:
        """What it comes to, by the seconds."""
        cpu, seconds = time.process_time() - self._cpu, time.perf_counter() - self._begin
        return Took(figure(seconds), cpu)


class Row(NamedTuple):
    """One comparison.

    Attributes:
        what: was done.
        unit: of both figures.
        ours: median.
        other: median of the other way.
        ratios: ours by the other's, of each run.
        cpu: the same of the time of the processor, turned as the ratio is; empty where others work.
        wanted: of the ratio.
    """

    what: str
    unit: str
    ours: float
    other: float
    ratios: Sequence[float]
    cpu: Sequence[float]
    wanted: str


class Bench:
    """The store, and directories beside it."""

    def __init__(self, base: Path, server: S3Server, given: argparse.Namespace) -> None:
        self.base = base
        self.server = server
        self.given = given

    def store(self) -> tuple[ObjectStore, BareStore]:
        """The same new prefix, as the receiver opens it and as obstore does."""
        prefix = str(next(_numbers))
        parallel = self.given.parallel
        options = StoreOptions(
            endpoint=self.server.endpoint, region=REGION, path_style=True, parallel=parallel
        )
        bare = BareStore(
            "bench",
            prefix=f"{prefix}-bare",
            endpoint=self.server.endpoint,
            region=REGION,
            access_key_id=KEY,
            secret_access_key=SECRET,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )
        return open_store(f"s3://bench/{prefix}", options), bare

    @contextmanager
    def centre(self) -> Iterator[tuple[Centre, BareStore]]:
        """An engine without files, and its store."""
        with tempfile.TemporaryDirectory(dir=self.base) as place:
            store, bare = self.store()
            made = Centre(Path(place), store)
            made.uploader_of(self.given.parallel)
            try:
                yield made, bare
            finally:
                made.stop()
                store.close()


def compared(
    what: str,
    unit: str,
    wanted: str,
    runs: int,
    ours: Callable[[], Took],
    other: Callable[[], Took],
) -> Row:
    """Alternate two ways, each the first one every other time."""
    found: list[tuple[Took, Took]] = []
    for number in range(runs):
        if number % 2:
            theirs = other()
            found.append((ours(), theirs))
        else:
            found.append((ours(), other()))
    ratios = [mine.figure / theirs.figure for mine, theirs in found]
    cpu = [mine.cpu / theirs.cpu for mine, theirs in found if mine.cpu and theirs.cpu]
    if unit == "MB/s":
        cpu = [1 / each for each in cpu]
    mine, theirs = (
        statistics.median(each.figure for each in way) for way in zip(*found, strict=True)
    )
    row = Row(what, unit, mine, theirs, ratios, cpu, wanted)
    print(line_of(row), flush=True)
    return row


# -- upload --------------------------------------------------------------------------------------


def upload(bench: Bench) -> Iterator[Row]:
    """The uploader beside obstore."""
    given = bench.given
    for size, count, name in (
        (_SMALL, given.small, "20 KB"),
        (_LARGE, given.large, "64 MiB"),
    ):
        with bench.centre() as (centre, bare):
            physicals = [centre.load(number, size=size) for number in range(count)]
            paths = [centre.root / "data" / each for each in physicals]
            yield compared(
                f"upload of {count} x {name}",
                "MB/s",
                ">= 0.8",
                given.runs,
                partial(_by_uploader, bench, centre, count * size),
                partial(_by_obstore, bare, paths, given.parallel, count * size),
            )


def _by_uploader(bench: Bench, centre: Centre, size: int) -> Took:
    """The same engine and files, into another prefix each time: as at a start."""
    with tempfile.TemporaryDirectory(dir=bench.base) as copy:
        store, _ = bench.store()
        centre.stop()
        other = Path(copy)
        for each in ("schema", "data"):
            os.symlink(centre.root / each, other / each)
        made = Centre.__new__(Centre)
        made.__dict__.update(centre.__dict__)
        # The copies of the metadata are thrown away with what was told in it.
        os.unlink(other / "schema")
        _copy_tree(centre.root / "schema", other / "schema")
        (other / "schema" / "storage" / "incarnation.json").unlink(missing_ok=True)
        made.root, made.store = other, store
        made.start()
        made.uploader_of(bench.given.parallel)
        try:
            timer = Timer()
            made.uploader.run_once()
            took = timer.took(lambda seconds: size / seconds / 1e6)
            assert made.uploader.progress().waiting_files == 0
        finally:
            made.stop()
            store.close()
            centre.start()
    return took


def _copy_tree(source: Path, target: Path) -> None:
    for each in source.rglob("*"):
        place = target / each.relative_to(source)
        if each.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(each.read_bytes())


def _by_obstore(bare: BareStore, paths: Sequence[Path], parallel: int, size: int) -> Took:
    prefix = str(next(_numbers))
    large = size // len(paths) >= _LARGE

    def put(path: Path) -> None:
        obstore.put(
            bare,
            f"{prefix}/{path.name}",
            path if large else path.read_bytes(),
            use_multipart=large,
            chunk_size=16 << 20,
            max_concurrency=parallel,
        )

    timer = Timer()
    with ThreadPoolExecutor(1 if large else parallel) as pool:  # parts of one are on their way
        list(pool.map(put, paths))
    return timer.took(lambda seconds: size / seconds / 1e6)


# -- reading -------------------------------------------------------------------------------------


def read(bench: Bench) -> Iterator[Row]:
    """What comes from the store, beside bare requests for it."""
    with bench.centre() as (centre, _):
        large = centre.load(1, size=_LARGE)
        small = [centre.load(number, size=_SMALL) for number in range(2, 2 + _READS)]
        centre.uploader.run_once()
        key, prefix = centre.key(large), "/".join(centre.store.url.split("/")[3:])
        plain = BareStore(
            "bench",
            prefix=prefix,
            endpoint=bench.server.endpoint,
            region=REGION,
            access_key_id=KEY,
            secret_access_key=SECRET,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )
        yield compared(
            "first 64 KiB of 64 MiB",
            "ms",
            "<= 1.3",
            bench.given.runs,
            partial(_each, lambda at: centre.store.read(key, at << 16, _FIRST), 100),
            partial(
                _each,
                lambda at: bytes(obstore.get_range(plain, key, start=at << 16, length=_FIRST)),
                100,
            ),
        )
        rows = _rows(centre, small)
        keys = [centre.key(each) for each in small]
        fetcher = FileFetcher(centre.engine, centre.store, lambda: [centre.tree], DiskCache(None))
        try:
            yield compared(
                "a file of 20 KB, fetched and here",
                "ms",
                "-",
                bench.given.runs,
                partial(_fetched, centre, fetcher, rows),
                partial(
                    _each,
                    lambda at: bytes(obstore.get_range(plain, keys[at], start=0, length=_SMALL)),
                    len(keys),
                ),
            )
        finally:
            fetcher.close()


def _rows(centre: Centre, physicals: Sequence[str]) -> list[FileRow]:
    with centre.engine.reading() as state:
        return [state.files[each] for each in physicals]


def _each(do: Callable[[int], object], count: int) -> Took:
    """Milliseconds of one, the median of so many."""
    spent, timer = [], Timer()
    for number in range(count):
        begin = time.perf_counter()
        do(number)
        spent.append(time.perf_counter() - begin)
    return timer.took(lambda _: statistics.median(spent) * 1000)


def _fetched(centre: Centre, fetcher: FileFetcher, rows: Sequence[FileRow]) -> Took:
    for row in rows:
        (centre.root / "data" / row.physical).unlink(missing_ok=True)

    def fetch(at: int) -> None:
        with fetcher.pinned([rows[at]]):
            pass

    return _each(fetch, len(rows))


def local(bench: Bench) -> Iterator[Row]:
    """What is here, with what pins it and without: files one by one, or those of a step at once."""
    for size, count, step, name in (
        (_SMALL, 500, 1, "a file of 20 KB that is here"),
        (_SMALL, 500, 100, "100 files of 20 KB that are here"),
        (4 << 20, 20, 1, "a file of 4 MiB that is here"),
    ):
        with bench.centre() as (centre, _):
            rows = _rows(centre, [centre.load(number, size=size) for number in range(count)])
            centre.uploader.run_once()
            reading = _Reading(centre, [rows[at : at + step] for at in range(0, count, step)])
            try:
                yield compared(
                    name,
                    "ms",
                    "<= 1.05",
                    bench.given.runs,
                    partial(_each, reading.pinned, count // step),
                    partial(_each, reading.plain, count // step),
                )
            finally:
                reading.fetcher.close()
    yield from _points(bench)
    yield _catalogue(bench)


def _points(bench: Bench) -> Iterator[Row]:
    count = 200
    with bench.centre() as (centre, _):
        loaded = [centre.load(number, content=_measured(number)) for number in range(count)]
        rows = _rows(centre, loaded)
        centre.uploader.run_once()
        reading = _Reading(centre, [[row] for row in rows])
        try:
            yield compared(
                f"all points of a file of {rows[0].size // 1000} KB that is here",
                "ms",
                "<= 1.05",
                bench.given.runs,
                partial(_each, reading.points_pinned, count),
                partial(_each, reading.points, count),
            )
        finally:
            reading.fetcher.close()


def _measured(number: int) -> bytes:
    """20 KB: ten series, 130 points of each."""
    walk = random.Random(number)
    times = [number * 3_600_000 + at * 1500 for at in range(130)]
    return build(
        {"root.a.d1": {f"s{n}": [(at, walk.randrange(1 << 20)) for at in times] for n in range(10)}}
    )


def _catalogue(bench: Bench) -> Row:
    """Files that are in the store and here, read by a configuration with it, and without."""
    count = 100
    with tempfile.TemporaryDirectory(dir=bench.base) as place:
        world = StoredWorld(Path(place))
        more = {"endpoint": bench.server.endpoint, "region": REGION, "path_style": True}
        world.configure(f"s3://bench/{next(_numbers)}", more)
        for number in range(count):
            name = f"sequence/root.a/0/0/{number}-{number}-0-0.tsfile"
            world.load(NORTH, name, _measured(number))
        world.upload(keep=True)
        without = world.root / "without.toml"
        without.write_text('schema_dir = "schema"\ndata_dirs = ["data"]\n')

        def read(config: Path) -> Took:
            timer = Timer()
            assert read_rows(world, catalog=str(config)) == count * 1300
            return timer.took(lambda seconds: seconds * 1e3)

        for each in (without, world.config) * 2:
            read(each)  # what a process loads and compiles once
        return compared(
            f"{count} of these as Spark reads them",
            "ms",
            "<= 1.05",
            bench.given.runs,
            partial(read, world.config),
            partial(read, without),
        )


class _Reading:
    """Files that are here, by steps."""

    def __init__(self, centre: Centre, steps: Sequence[Sequence[FileRow]]) -> None:
        self._tree = centre.tree
        self._steps = steps
        self.fetcher = FileFetcher(
            centre.engine, centre.store, lambda: [centre.tree], DiskCache(None)
        )

    def plain(self, at: int) -> None:
        for row in self._steps[at]:
            fd = self._tree.open_read(row.physical)
            try:
                assert md5_of_fd(fd) == row.md5
            finally:
                os.close(fd)

    def pinned(self, at: int) -> None:
        with self.fetcher.pinned(self._steps[at]):
            self.plain(at)

    def points(self, at: int) -> None:
        for row in self._steps[at]:
            fd = self._tree.open_read(row.physical)
            with TsFileReader(fd) as file:
                for device in file.tail.devices:
                    assert sum(batch.num_rows for batch in file.read_device(device))
            os.close(fd)

    def points_pinned(self, at: int) -> None:
        with self.fetcher.pinned(self._steps[at]):
            self.points(at)


# -- rounds --------------------------------------------------------------------------------------


def rounds(bench: Bench) -> Iterator[Row]:
    """Rounds of the real programs, with the uploader at work and without a store."""
    more = (
        f'[storage]\nurl = "s3://bench/{next(_numbers)}"\nendpoint = "{bench.server.endpoint}"\n'
        f'region = "{REGION}"\npath_style = true\nlag = "1s"\n'
    )
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=bench.base)))
        processes = stack.enter_context(children(base))
        edges = {}
        for name, settings in (("with", more), ("without", "")):
            receiver = Receiver(base / name, processes, settings)
            edges[name] = Edge(base / f"edge-{name}", receiver.start())
        for edge in edges.values():
            _round(edge)  # the first one makes what all later have
        yield compared(
            f"a round of {_ROUND_FILES} x 20 KB",
            "s",
            "1, within noise",
            bench.given.runs * _ROUNDS,
            partial(_round, edges["with"]),
            partial(_round, edges["without"]),
        )


def _round(edge: Edge) -> Took:
    begin = next(_numbers) * _ROUND_FILES
    for number in range(begin, begin + _ROUND_FILES):
        points = [(number * 1000 + each, each) for each in range(50)]
        content = build({f"root.a.d{number % 20}": {"s1": points}}, pad_to=_SMALL)
        edge.put(edge.path(number), content)
    start = time.perf_counter()
    report = edge.round()
    seconds = time.perf_counter() - start
    assert report.sent == _ROUND_FILES, report
    return Took(seconds, 0.0)


# -- all -----------------------------------------------------------------------------------------

_PARTS = {"upload": upload, "read": read, "local": local, "round": rounds}


def line_of(row: Row) -> str:
    """A row of the table."""
    return (
        f"| {row.what} | {row.ours:.2f} {row.unit} | {row.other:.2f} {row.unit} | "
        f"{_spread(row.ratios)} | {_spread(row.cpu)} | {row.wanted} |"
    )


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    """Measure, tell, and write it into the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", default=",".join(_PARTS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--small", type=int, default=1000)
    parser.add_argument("--large", type=int, default=4)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--at", type=Path, default=None)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
    random.seed(1)
    found: list[Row] = []
    for part in given.parts.split(","):  # each with a store of its own, which is soon full
        with (
            tempfile.TemporaryDirectory(dir=given.at) as base,
            s3_server(Path(base) / "s3") as server,
        ):
            found += _PARTS[part](Bench(Path(base), server, given))
    load = os.getloadavg()[0]
    text = "\n".join(
        [
            "| work | tsferry | beside | ratio | of the processor | wanted |",
            "|---|---|---|---|---|---|",
            *map(line_of, found),
            "",
            f"Medians of {given.runs} alternating runs (of rounds: {given.runs * _ROUNDS}), "
            f"{os.cpu_count()} cores; the load of the machine was {load:.1f} at the end.",
        ]
    )
    print(text)
    if given.write:
        fill(ROOT / "docs/performance.md", "storage", text)


if __name__ == "__main__":
    main()
