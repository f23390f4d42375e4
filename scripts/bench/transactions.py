"""Short transactions beside plain commits, by turns in one run; what a look at own writes costs.

    python scripts/bench/transactions.py [--seconds 2] [--rounds 5] [--directory DIR] [--json]
    python scripts/bench/transactions.py --alone [--directory DIR] [--json]

* plain: a series is created by one commit, by 1, 8 and 64 threads.
* transaction: begun, the same series created, committed.
* three: three series of one device in a transaction, beside three plain commits.
* fork: in a schema of 1,000,000 series, a transaction creates one and then asks for it.
* with `--alone` nothing of that, but one thread and a log that is not written: microseconds of the
  processor, the lower tenth of 300 chunks of fifty each, by turns.

Devices get a hundred series each, with the same names whatever makes them, and every other round
begins with the transactions. The ratio is that of the round with the median ratio, once of commits
a second and once of processor time, which says something where others use the machine as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from receiver.metadata.engine import Engine
from receiver.metadata.log.frames import LogWriter
from receiver.metadata.model import records
from receiver.metadata.sql.executing import execute
from receiver.txn.txn_manager import TxnManager

SERIES = 1_000_000
WIDTH = 100
CHUNKS, CHUNK = 300, 50


class Rate(NamedTuple):
    """Calls a second of time, and of processor time."""

    clock: float
    processor: float


def rate(work: Callable[[int, int], None], threads: int, seconds: float) -> Rate:
    """How often something is done; each call is told its thread and its number."""
    counts = [0] * threads
    used = time.process_time()
    start = time.perf_counter()
    end = start + seconds

    def run(thread: int) -> None:
        while time.perf_counter() < end:
            work(thread, counts[thread])
            counts[thread] += 1

    workers = [threading.Thread(target=run, args=(each,)) for each in range(threads)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    took, used = time.perf_counter() - start, time.process_time() - used
    return Rate(sum(counts) / took, sum(counts) / used)


def compare(directory: Path, threads: int, seconds: float, rounds: int) -> dict[str, float]:
    """Plain commits, transactions of one series, and of three, by turns."""
    found: list[tuple[Rate, Rate, Rate]] = []
    with Engine.open(directory) as engine:
        engine.set_storage_group("root.bench")
        manager = TxnManager(engine, most=threads)
        for number in range(rounds):

            def plain(thread: int, each: int, number: int = number) -> None:
                engine.create_series(_path(f"p{number}_{thread}", each), "FLOAT")

            def single(thread: int, each: int, number: int = number) -> None:
                with manager.transaction() as txn:
                    txn.database.create_series(_path(f"t{number}_{thread}", each), "FLOAT")

            def three(thread: int, each: int, number: int = number) -> None:
                with manager.transaction() as txn:
                    for one in range(3):
                        path = _path(f"u{number}_{thread}", 3 * each + one)
                        txn.database.create_series(path, "FLOAT")

            if number % 2:
                txn, one = rate(single, threads, seconds), rate(plain, threads, seconds)
            else:
                one, txn = rate(plain, threads, seconds), rate(single, threads, seconds)
            found.append((one, txn, rate(three, threads, seconds)))
    of_processor = sorted(txn.processor / one.processor for one, txn, _ in found)
    found.sort(key=lambda each: each[1].clock / each[0].clock)
    one, txn, many = found[len(found) // 2]
    return {
        "plain": one.clock,
        "transactions": txn.clock,
        "ratio": txn.clock / one.clock,
        "lowest": found[0][1].clock / found[0][0].clock,
        "highest": found[-1][1].clock / found[-1][0].clock,
        "ratio_of_processor": of_processor[len(of_processor) // 2],
        "of_three": many.clock,
        "of_three_against_three_plain": 3 * many.clock / one.clock,
    }


def _path(name: str, number: int) -> str:
    return f"root.bench.{name}_{number // WIDTH}.s{number % WIDTH}"


def alone(directory: Path) -> dict[str, float]:
    """What the processor has to do, where no disk and no other thread is waited for."""

    def forgets(log: LogWriter, _: bytes, commits: int) -> None:
        log.next_lsn += commits

    append, LogWriter.append = LogWriter.append, forgets  # type: ignore[method-assign]
    found: dict[str, list[float]] = {"plain_us": [], "transaction_us": [], "empty_us": []}
    try:
        with Engine.open(directory, background=False) as engine:
            engine.set_storage_group("root.bench")
            manager = TxnManager(engine)
            for chunk in range(CHUNKS):
                begin = time.process_time()
                for each in range(CHUNK):
                    engine.create_series(f"root.bench.p{chunk}.s{each}", "FLOAT")
                plain = time.process_time()
                for each in range(CHUNK):
                    with manager.transaction() as txn:
                        txn.database.create_series(f"root.bench.t{chunk}.s{each}", "FLOAT")
                written = time.process_time()
                for _ in range(CHUNK):
                    with manager.transaction():
                        pass
                times = begin, plain, written, time.process_time()
                for spent, (start, end) in zip(found.values(), pairwise(times), strict=True):
                    spent.append((end - start) / CHUNK * 1e6)
    finally:
        LogWriter.append = append  # type: ignore[method-assign]
    low = {what: sorted(spent)[CHUNKS // 10] for what, spent in found.items()}
    return {**low, "ratio": low["plain_us"] / low["transaction_us"]}


def fork(directory: Path) -> dict[str, float]:
    """The first look at own writes in a large schema, and the second."""
    with Engine.open(directory) as engine:
        engine.set_storage_group("root.bench")
        names = [f"s{each}" for each in range(WIDTH)]
        codes = bytes([3]) * WIDTH, bytes([8]) * WIDTH, bytes([1]) * WIDTH
        for begin in range(0, SERIES // WIDTH, 100):
            engine.commit([
                records.SeriesCreated(f"root.bench.d{device}", names, *codes)
                for device in range(begin, begin + 100)
            ])  # fmt: skip
        spent = []
        with TxnManager(engine).transaction() as txn:
            txn.database.create_series("root.bench.new.s", "FLOAT")
            engine.create_series("root.bench.other.s", "FLOAT")
            for _ in range(2):
                start = time.perf_counter()
                assert len(list(execute(txn.database, "show timeseries root.bench.new.**"))) == 1
                spent.append(time.perf_counter() - start)
        return {"series": SERIES, "first_s": spent[0], "second_s": spent[1]}


def main() -> None:
    """Measure, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        home = Path(name)
        found: dict[str, dict[str, float]] = {}
        if given.alone:
            found["alone"] = alone(home / "alone")
        else:
            for each in (1, 8, 64):
                rates = compare(home / str(each), each, given.seconds, given.rounds)
                found[f"{each} threads"] = rates
            found["fork"] = fork(home / "fork")
    if given.json:
        print(json.dumps(found))
        return
    for what, values in found.items():
        print(what, ", ".join(f"{key} {value:,.3f}" for key, value in values.items()))


if __name__ == "__main__":
    main()
