"""The parts of `scripts/bench/metadata.py`: each measures one row or two of its table.

A part runs in a process of its own, so that neither memory nor caches of another are in its
figures. It is given a directory and how many series, and gives numbers by name.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import peers

from receiver.metadata.engine import Engine
from receiver.metadata.kv.embedded import EmbeddedKV
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.query.ordering import by_path
from receiver.metadata.query.questions import ALL, TagFilter
from receiver.metadata.query.row_source import Look
from receiver.metadata.query.searching import tagged as tagged_rows
from receiver.metadata.sql.executing import execute

Figures = dict[str, float]

FLOAT, GORILLA, SNAPPY = 3, 8, 1
SENSORS = 100
QUIET = EngineOptions(checkpoint_entries=1 << 40, checkpoint_rest=1e9)
"""No checkpoint comes in between by itself."""


# -- what is written -----------------------------------------------------------------------------


def series(device: str, names: Sequence[str], **more: object) -> records.SeriesCreated:
    """Series of a device, all of one type."""
    count = len(names)
    return records.SeriesCreated(
        device,
        names,
        bytes([FLOAT]) * count,
        bytes([GORILLA]) * count,
        bytes([SNAPPY]) * count,
        **more,  # type: ignore[arg-type]
    )


def device(number: int) -> str:
    """A thousand devices to a storage group, as a site of some size has."""
    return f"root.bench.site{number // 1000}.d{number}"


def devices(total: int, sensors: int) -> Iterator[records.SeriesCreated]:
    """So many series, without tags, a whole device in each operation."""
    names = [f"s{number}" for number in range(sensors)]
    for number in range(total // sensors):
        yield series(device(number), names)


def tagged(total: int) -> Iterator[records.SeriesCreated]:
    """So many series of 100 to a device, each with three tags and an attribute.

    One of 100 has `unit` = `hit`.
    """
    names = [f"s{number}" for number in range(SENSORS)]
    for number in range(total // SENSORS):
        tags = [
            {
                "unit": "hit" if sensor == number % SENSORS else f"u{sensor % 7}",
                "plant": f"plant {number % 50}",
                "kind": f"k{sensor}",
            }
            for sensor in range(SENSORS)
        ]
        attributes = [{"maker": f"m{number % 20}"}] * SENSORS
        yield series(device(number), names, tags=tags, attributes=attributes)


def fill(engine: Engine, ops: Iterator[records.SeriesCreated], at_once: int = 50) -> None:
    """Commit operations, some in each commit."""
    engine.commit([records.StorageGroupSet("root.bench")])
    batch: list[records.Op] = []
    for op in ops:
        batch.append(op)
        if len(batch) == at_once:
            engine.commit(batch)
            batch = []
    if batch:
        engine.commit(batch)


# -- commits -------------------------------------------------------------------------------------


def commits(directory: Path, threads: int, seconds: float) -> Figures:
    """Durable creates, one series each, by so many threads."""
    with Engine.open(directory / f"commits-{threads}", options=QUIET) as engine:
        engine.commit([records.StorageGroupSet("root.bench")])
        names = [[f"s{number}"] for number in range(SENSORS)]

        def work(thread: int, number: int) -> None:
            place = f"root.bench.g{thread}.d{number // SENSORS}"
            engine.commit([series(place, names[number % SENSORS])])

        return peers.by_threads(work, threads, seconds)


def single(directory: Path, seconds: float, rounds: int) -> Figures:
    """Single durable creates against the disk and the peers, by turns; the median counts."""
    found: Figures = {}
    for threads in (1, 16, 64):
        turns: list[Figures] = []
        for turn in range(rounds):
            home = directory / f"{threads}-{turn}"
            home.mkdir()
            before = peers.raw(home, seconds / 2)
            ours = commits(home, threads, seconds)
            base = (before + peers.raw(home, seconds / 2)) / 2
            sqlite = max(
                peers.sqlite(home, threads, seconds / 2)["rate"],
                peers.sqlite_apart(home, threads, seconds / 2)["rate"],
            )
            lmdb = peers.lmdb_store(home, threads, seconds / 2)["rate"]
            turns.append(
                {
                    "rate": ours["rate"],
                    "p99_ms": ours["p99_ms"],
                    "max_ms": ours["max_ms"],
                    "raw": base,
                    "to_raw": ours["rate"] / base,
                    "to_sqlite": ours["rate"] / sqlite,
                    "to_lmdb": ours["rate"] / lmdb,
                }
            )
        median = sorted(turns, key=lambda turn: turn["to_raw"])[rounds // 2]
        found |= {f"{name}_{threads}": value for name, value in median.items()}
    return found


def by_device(directory: Path, seconds: float, rounds: int) -> Figures:
    """Durable creates of a whole device, 100 series each, by 16 threads."""
    names = [f"s{number}" for number in range(SENSORS)]
    rates: list[Figures] = []
    for turn in range(rounds):
        with Engine.open(directory / f"device-{turn}", options=QUIET) as engine:
            engine.commit([records.StorageGroupSet("root.bench")])

            def work(thread: int, number: int, engine: Engine = engine) -> None:
                engine.commit([series(f"root.bench.g{thread}.d{number}", names)])

            rates.append(peers.by_threads(work, 16, seconds))
    median = sorted(rates, key=lambda each: each["rate"])[rounds // 2]
    return {"series_a_second": median["rate"] * SENSORS, "p99_ms": median["p99_ms"]}


# -- size ----------------------------------------------------------------------------------------


def memory(directory: Path, total: int, sensors: int) -> Figures:
    """Bytes a series, of this process: after it was filled, and after a start from a checkpoint."""
    home = directory / f"memory-{sensors}"
    with Engine.open(directory / "warm", options=QUIET) as engine:
        fill(engine, devices(10 * sensors, sensors))
        engine.checkpoint()
    before = _resident()
    with Engine.open(home, options=QUIET) as engine:
        fill(engine, devices(total, sensors), at_once=max(1, 5000 // sensors))
        filled = _resident() - before
        with engine.reading() as state:
            estimate = state.schema.memory.used
        engine.checkpoint()
    del engine
    before = _resident()
    with Engine.open(home, options=QUIET):
        started = _resident() - before
    return {
        "bytes_filled": filled / total,
        "bytes_started": started / total,
        "bytes_estimated": estimate / total,
    }


def _resident() -> int:
    """What the process holds; what it has freed is given back first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


# -- starts --------------------------------------------------------------------------------------


def start_checkpoint(directory: Path, total: int, rounds: int) -> Figures:
    """A start from a checkpoint of so many series with tags, nothing in the log behind it."""
    home = directory / "start"
    with Engine.open(home, options=QUIET) as engine:
        fill(engine, tagged(total))
        engine.checkpoint()
    return _starts(home, total, rounds)


def replay_batched(directory: Path, total: int, rounds: int) -> Figures:
    """A start from the log alone: a device of 100 series in each operation."""
    home = directory / "batched"
    with Engine.open(home, options=QUIET) as engine:
        fill(engine, devices(total, SENSORS))
    return _starts(home, total, rounds)


def replay_single(directory: Path, total: int, rounds: int) -> Figures:
    """A start from the log alone: each series a commit of its own, as 64 threads made them."""
    home = directory / "singles"
    threads = 64
    names = [[f"s{number}"] for number in range(SENSORS)]
    with Engine.open(home, options=QUIET) as engine:
        engine.commit([records.StorageGroupSet("root.bench")])

        def run(begin: int) -> None:
            for number in range(begin, total, threads):
                place = device(number // SENSORS)
                engine.commit([series(place, names[number % SENSORS])])

        workers = [threading.Thread(target=run, args=(begin,)) for begin in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return _starts(home, total, rounds)


def _starts(home: Path, total: int, rounds: int) -> Figures:
    """Wall and processor time of an opening: on a busy machine only the second says anything."""
    walls, used = [], []
    for _ in range(rounds):
        gc.collect()
        begin, before = time.perf_counter(), time.process_time()
        engine = Engine.open(home, options=QUIET)
        walls.append(time.perf_counter() - begin)
        used.append(time.process_time() - before)
        with engine:
            count = next(iter(execute(engine, "count timeseries")))[0]
            assert count == total, f"{count} series of {total}"
    return {"seconds": statistics.median(walls), "cpu_seconds": statistics.median(used)}


# -- a checkpoint, while others write -------------------------------------------------------------


def checkpoint_pause(directory: Path, total: int) -> Figures:
    """The longest wait of four writers while a checkpoint of so many series is taken."""
    with Engine.open(directory / "pause", options=QUIET) as engine:
        fill(engine, tagged(total))
        waits: list[tuple[float, float]] = []
        over = threading.Event()

        def write(thread: int) -> None:
            number = 0
            while not over.is_set():
                begin = time.perf_counter()
                engine.commit([series(f"root.bench.w{thread}", [f"s{number}"])])
                waits.append((begin, time.perf_counter() - begin))
                number += 1

        writers = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
        for writer in writers:
            writer.start()
        time.sleep(2)
        spans = []
        for _ in range(3):
            begin = time.perf_counter()
            engine.checkpoint()
            spans.append((begin, time.perf_counter()))
            time.sleep(1)
        over.set()
        for writer in writers:
            writer.join()
    inside = [
        wait for at, wait in waits if any(begin <= at + wait and at <= end for begin, end in spans)
    ]
    outside = [
        wait for at, wait in waits if all(at + wait < begin or end < at for begin, end in spans)
    ]
    return {
        "longest_ms": max(inside) * 1000,
        "longest_before_and_after_ms": max(outside) * 1000,
        "checkpoint_seconds": statistics.median(end - begin for begin, end in spans),
        "commits_meanwhile": len(inside),
    }


# -- questions -----------------------------------------------------------------------------------


def look_up(directory: Path, total: int) -> Figures:
    """Looking one series up, now and at a time; and one key, now and in the ring."""
    with Engine.open(directory / "look", options=QUIET) as engine:
        fill(engine, devices(total, SENSORS))
        then = engine.newest_commit
        engine.commit([series("root.bench.later", ["s0"])])
        randomly = random.Random(7)
        paths = [
            tuple(f"{device(randomly.randrange(total // SENSORS))}.s{sensor}".split("."))
            for sensor in [randomly.randrange(SENSORS) for _ in range(20_000)]
        ]
        with engine.reading() as state:
            schema = state.schema
            now = _rate(lambda path: schema.series.find(path), paths)
            at = _rate(lambda path: schema.series.find(path, then), paths)
        rings = _key_rates(engine, 10) | _key_rates(engine, 100)
    return {"series_now": now, "series_at_a_time": at, "series_ratio": now / at, **rings}


def _key_rates(engine: Engine, count: int) -> Figures:
    """Of so many keys: a thousand commits, all within the ring, each a version of one of them."""
    keys, home = EmbeddedKV(engine), f"of {count}"
    stamps = [keys.save(f"{home}/{number % count}", f"value {number}") for number in range(1000)]
    newest = [(f"{home}/{number % count}",) for number in range(20_000)]
    later = 1000 - count
    past = [
        (f"{home}/{number % count}", stamps[count + number * 7 % later]) for number in range(20_000)
    ]
    now = _rate(lambda each: keys.load(*each), newest)
    ring = _rate(lambda each: keys.load(*each), past)
    return {
        f"keys_now_{count}": now,
        f"keys_in_ring_{count}": ring,
        f"keys_ratio_{count}": now / ring,
    }


def _rate(look: Callable[[Any], object], asked: Sequence[Any]) -> float:
    """Looks a second of processor time: nothing here waits, and other work must not count."""
    best = math.inf
    for _ in range(7):
        begin = time.thread_time()
        for each in asked:
            look(each)
        best = min(best, time.thread_time() - begin)
    return len(asked) / best


def tag_query(directory: Path, total: int) -> Figures:
    """One series of 100 by its tag: the search alone, then `show timeseries where unit = hit`.

    The search gives rows of the tree in the order of their paths. The statement gives every row
    with its path, its tags and its attributes, which stand in the tlog.
    """
    with Engine.open(directory / "tags", options=QUIET) as engine:
        fill(engine, tagged(total))
        then = engine.newest_commit
        ways: dict[str, Callable[[], Sequence[object]]] = {
            "search": lambda: _search(engine),
            "whole": lambda: _hits(engine, None),
            "at_a_time": lambda: _hits(engine, then),
        }
        found: Figures = {"hits": total // SENSORS}
        for name, ask in ways.items():
            walls, used = [], []
            for _ in range(7):
                begin, before = time.perf_counter(), time.thread_time()
                rows = ask()
                used.append(time.thread_time() - before)
                walls.append(time.perf_counter() - begin)
                assert len(rows) == total // SENSORS, f"{len(rows)} rows"
            found[f"{name}_ms"] = statistics.median(walls) * 1000
            found[f"{name}_cpu_ms"] = statistics.median(used) * 1000
    return found


def _search(engine: Engine) -> Sequence[object]:
    look = Look(engine, engine.newest_commit)
    rows = tagged_rows(look, TagFilter("unit", "hit"), ALL)
    return by_path(look, rows, ALL, "leaf", None, len(rows))


def _hits(engine: Engine, at: int | None) -> Sequence[object]:
    return list(execute(engine, "show timeseries where unit = hit", at=at))


def below_ring(directory: Path) -> Figures:
    """Reads of etcd for a look-up below the ring, with others writing to the cluster as well."""
    from receiver.metadata.etcd.gateway import EtcdClient
    from receiver.metadata.kv.etcd_kv import EtcdKV
    from tests.support.etcd import running_etcd

    with running_etcd(directory / "etcd") as server:
        client = _Counting(EtcdClient(server.settings()))
        keys = EtcdKV(client, "/bench/keys", ring=16)  # type: ignore[arg-type]
        begin = server.revision()
        stamps = []
        for number in range(1000):
            stamps.append(keys.save(f"key/{number % 10}", f"value {number}"))
            if number % 50 == 0:
                server.write_elsewhere(20)
        revisions = server.revision() - begin
        reads, times = [], []
        for number in range(9, len(stamps) - 20, 7):
            client.reads = 0
            asked = time.perf_counter()
            assert keys.load(f"key/{number % 10}", stamps[number]) == f"value {number}"
            times.append(time.perf_counter() - asked)
            reads.append(client.reads)
    bound = math.log2(revisions) + 1
    return {
        "revisions": revisions,
        "bound": bound,
        "most_reads": max(reads),
        "usual_reads": statistics.median(reads),
        "milliseconds": statistics.median(times) * 1000,
        "reads_over_bound": max(0.0, max(reads) - bound),
    }


class _Counting:
    """A client of etcd that counts what it asks."""

    def __init__(self, client: object) -> None:
        self._client = client
        self.reads = 0

    def __getattr__(self, name: str) -> object:
        if name in ("get", "transaction"):
            self.reads += 1
        return getattr(self._client, name)
