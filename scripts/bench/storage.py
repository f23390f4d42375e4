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
* local: opening a file that is here, reading it and comparing its MD5, as whoever reads one does,
  with what pins it, by the same without; 1.05 at most;
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
from receiver.storage.disk_cache import DiskCache  # noqa: E402
from receiver.storage.file_fetching import FileFetcher  # noqa: E402
from receiver.storage.object_store import ObjectStore  # noqa: E402
from receiver.storage.store_opening import StoreOptions, open_store  # noqa: E402
from scripts.bench.marked_page import fill  # noqa: E402
from tests.support.centre import Centre as Receiver  # noqa: E402
from tests.support.edge import Edge  # noqa: E402
from tests.support.procs import children  # noqa: E402
from tests.support.s3_server import KEY, REGION, SECRET, S3Server, s3_server  # noqa: E402
from tests.support.tsfile_bytes import build  # noqa: E402
from tests.support.uploading import Centre  # noqa: E402

_SMALL, _LARGE = 20_000, 64 << 20
_FIRST = 64 << 10
_READS = 200
_ROUND_FILES = 100
_ROUNDS = 6
_numbers = itertools.count(1)


class Row(NamedTuple):
    """One comparison.

    Attributes:
        what: was done.
        unit: of both figures.
        ours: median.
        other: median of the other way.
        ratios: ours by the other's, of each run.
        wanted: of the ratio.
    """

    what: str
    unit: str
    ours: float
    other: float
    ratios: Sequence[float]
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
    ours: Callable[[], float],
    other: Callable[[], float],
) -> Row:
    """Alternate two ways, each the first one every other time."""
    found: list[tuple[float, float]] = []
    for number in range(runs):
        if number % 2:
            theirs = other()
            found.append((ours(), theirs))
        else:
            found.append((ours(), other()))
    ratios = [mine / theirs for mine, theirs in found]
    mine, theirs = (statistics.median(each) for each in zip(*found, strict=True))
    row = Row(what, unit, mine, theirs, ratios, wanted)
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


def _by_uploader(bench: Bench, centre: Centre, size: int) -> float:
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
            begin = time.perf_counter()
            made.uploader.run_once()
            seconds = time.perf_counter() - begin
            assert made.uploader.progress().waiting_files == 0
        finally:
            made.stop()
            store.close()
            centre.start()
    return size / seconds / 1e6


def _copy_tree(source: Path, target: Path) -> None:
    for each in source.rglob("*"):
        place = target / each.relative_to(source)
        if each.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(each.read_bytes())


def _by_obstore(bare: BareStore, paths: Sequence[Path], parallel: int, size: int) -> float:
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

    begin = time.perf_counter()
    with ThreadPoolExecutor(1 if large else parallel) as pool:  # parts of one are on their way
        list(pool.map(put, paths))
    return size / (time.perf_counter() - begin) / 1e6


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


def _each(do: Callable[[int], object], count: int) -> float:
    """Milliseconds of one, the median of so many."""
    spent = []
    for number in range(count):
        begin = time.perf_counter()
        do(number)
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent) * 1000


def _fetched(centre: Centre, fetcher: FileFetcher, rows: Sequence[FileRow]) -> float:
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


def _round(edge: Edge) -> float:
    begin = next(_numbers) * _ROUND_FILES
    for number in range(begin, begin + _ROUND_FILES):
        points = [(number * 1000 + each, each) for each in range(50)]
        content = build({f"root.a.d{number % 20}": {"s1": points}}, pad_to=_SMALL)
        edge.put(edge.path(number), content)
    start = time.perf_counter()
    report = edge.round()
    seconds = time.perf_counter() - start
    assert report.sent == _ROUND_FILES, report
    return seconds


# -- all -----------------------------------------------------------------------------------------

_PARTS = {"upload": upload, "read": read, "local": local, "round": rounds}


def line_of(row: Row) -> str:
    """A row of the table."""
    ratio = statistics.median(row.ratios)
    low, high = min(row.ratios), max(row.ratios)
    return (
        f"| {row.what} | {row.ours:.2f} {row.unit} | {row.other:.2f} {row.unit} | "
        f"{ratio:.2f} ({low:.2f} to {high:.2f}) | {row.wanted} |"
    )


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
    with tempfile.TemporaryDirectory(dir=given.at) as base, s3_server(Path(base) / "s3") as server:
        bench = Bench(Path(base), server, given)
        for part in given.parts.split(","):
            found += _PARTS[part](bench)
    load = os.getloadavg()[0]
    text = "\n".join(
        [
            "| work | tsferry | beside | ratio | wanted |",
            "|---|---|---|---|---|",
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
