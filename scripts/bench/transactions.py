"""Short transactions beside plain commits, by turns in one run; what a look at own writes costs.

    python scripts/bench/transactions.py [--seconds 2] [--rounds 5] [--directory DIR] [--json]

* plain: a series is created by one commit, by 1, 16 and 64 threads.
* transaction: begun, the same series created, committed.
* three: three series of one device in a transaction, beside three plain commits.
* fork: in a schema of 1,000,000 series, a transaction creates one and then asks for it.

The ratio is that of the round with the median ratio.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.sql.executing import execute
from receiver.txn.txn_manager import TxnManager

SERIES = 1_000_000
WIDTH = 100


def rate(work: Callable[[int, int], None], threads: int, seconds: float) -> float:
    """Calls a second; each is told its thread and its number."""
    counts = [0] * threads
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
    return sum(counts) / (time.perf_counter() - start)


def compare(directory: Path, threads: int, seconds: float, rounds: int) -> dict[str, float]:
    """Plain commits, transactions of one series, and of three, by turns."""
    found = []
    with Engine.open(directory) as engine:
        engine.set_storage_group("root.bench")
        manager = TxnManager(engine, most=threads)
        for number in range(rounds):

            def plain(thread: int, each: int, number: int = number) -> None:
                engine.create_series(f"root.bench.p{number}_{thread}.s{each}", "FLOAT")

            def single(thread: int, each: int, number: int = number) -> None:
                with manager.transaction() as txn:
                    txn.database.create_series(f"root.bench.t{number}_{thread}.s{each}", "FLOAT")

            def three(thread: int, each: int, number: int = number) -> None:
                with manager.transaction() as txn:
                    for one in range(3):
                        path = f"root.bench.u{number}_{thread}.s{each}_{one}"
                        txn.database.create_series(path, "FLOAT")

            found.append([rate(work, threads, seconds) for work in (plain, single, three)])
    found.sort(key=lambda each: each[1] / each[0])
    one, txn, many = found[len(found) // 2]
    return {
        "plain": one,
        "transactions": txn,
        "ratio": txn / one,
        "lowest": found[0][1] / found[0][0],
        "highest": found[-1][1] / found[-1][0],
        "of_three": many,
        "of_three_against_three_plain": 3 * many / one,
    }


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
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        home = Path(name)
        found: dict[str, dict[str, float]] = {
            f"{threads} threads": compare(home / str(threads), threads, given.seconds, given.rounds)
            for threads in (1, 16, 64)
        }
        found["fork"] = fork(home / "fork")
    if given.json:
        print(json.dumps(found))
        return
    for what, values in found.items():
        print(what, ", ".join(f"{key} {value:,.3f}" for key, value in values.items()))


if __name__ == "__main__":
    main()
