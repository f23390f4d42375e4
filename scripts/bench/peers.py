"""What the metadata engine is measured against: the disk itself, sqlite and lmdb.

Each store makes one small record durable at a time, from any number of threads, by the fastest
way it has for that: whoever finds a faster one shall put it here.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import lmdb

Work = Callable[[int, int], None]
"""Makes one record durable: (thread, number of the record in it)."""

VALUE = b"\x01\x00\x01" + bytes(61)
"""What a series is, apart from its path: types and times, in the size that a row of ours has."""


def by_threads(work: Work, threads: int, seconds: float) -> dict[str, float]:
    """Records a second of so many threads, with the time that 99 of 100 of them stay under."""
    latencies: list[list[float]] = [[] for _ in range(threads)]
    errors: list[BaseException] = []
    begin = threading.Barrier(threads + 1)
    end = 0.0

    def run(number: int) -> None:
        mine = latencies[number]
        begin.wait()
        before = time.perf_counter()
        try:
            while before < end:
                work(number, len(mine))
                after = time.perf_counter()
                mine.append(after - before)
                before = after
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    start = time.perf_counter()
    end = start + seconds
    begin.wait()
    for worker in workers:
        worker.join()
    spent = time.perf_counter() - start
    if errors:
        raise errors[0]
    every = sorted(each for mine in latencies for each in mine)
    return {
        "rate": len(every) / spent,
        "p50_ms": every[len(every) // 2] * 1000,
        "p99_ms": every[len(every) * 99 // 100] * 1000,
        "max_ms": every[-1] * 1000,
    }


def path_of(thread: int, number: int) -> str:
    """A series of a bench: a hundred to a device."""
    return f"root.bench.g{thread}.d{number // 100}.s{number % 100}"


def raw(directory: Path, seconds: float) -> float:
    """Appends of 200 bytes, each flushed, a second; one thread."""
    fd = os.open(directory / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    block = b"x" * 200
    done, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        os.write(fd, block)
        os.fdatasync(fd)
        done += 1
    os.close(fd)
    return done / spent


def sqlite(directory: Path, threads: int, seconds: float) -> dict[str, float]:
    """One insert, committed with WAL and synchronous=FULL.

    One connection that the threads share behind a lock: connections of their own do no more
    commits a second (there is one writer at a time), and lose time in the busy handler.
    """
    file = directory / f"sqlite-{threads}"
    store = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    store.execute("pragma journal_mode=wal")
    store.execute("pragma synchronous=full")
    store.execute("create table series (path text primary key, row blob) without rowid")
    lock = threading.Lock()

    def work(thread: int, number: int) -> None:
        with lock:
            store.execute("insert into series values (?, ?)", (path_of(thread, number), VALUE))

    try:
        return by_threads(work, threads, seconds)
    finally:
        store.close()


def sqlite_apart(directory: Path, threads: int, seconds: float) -> dict[str, float]:
    """The same with a connection for each thread."""
    file = directory / f"sqlite-apart-{threads}"
    stores = [
        sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=60)
        for _ in range(threads)
    ]
    stores[0].execute("pragma journal_mode=wal")
    for store in stores:
        store.execute("pragma synchronous=full")
    stores[0].execute("create table series (path text primary key, row blob) without rowid")

    def work(thread: int, number: int) -> None:
        insert = "insert into series values (?, ?)"
        stores[thread].execute(insert, (path_of(thread, number), VALUE))

    try:
        return by_threads(work, threads, seconds)
    finally:
        for store in stores:
            store.close()


def lmdb_store(directory: Path, threads: int, seconds: float) -> dict[str, float]:
    """One put, committed with sync, as lmdb comes."""
    store = lmdb.open(str(directory / f"lmdb-{threads}"), map_size=1 << 32, max_spare_txns=threads)

    def work(thread: int, number: int) -> None:
        with store.begin(write=True) as transaction:
            transaction.put(path_of(thread, number).encode(), VALUE)

    try:
        return by_threads(work, threads, seconds)
    finally:
        store.close()
