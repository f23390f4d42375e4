"""How long others wait while one commit of very many devices is made, beside a write from Spark.

    .venv/bin/python scripts/bench/large_commit.py [--devices 100000] [--columns 2] [--files 4]
                                                   [--runs 3] [--dir DIR] [--json]

One engine, in this process. A thread commits what a write of many devices from Spark commits: a new
storage group, some files, their devices with their owners and series, a task. Meanwhile three
threads do small things over and over: a commit, a look at a file and a sender as a plan or a
heartbeat takes it, and a question to the schema. Told are the longest that each of them waited, how
long the large commit took, and the same of the commit of all the same devices once more; and, as a
loaded machine does not change these as much, the seconds of a processor of the longest turn in the
line of commits, in which no other is made, and of the longest application, in which nobody reads.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.wire import Result
from receiver.metadata.commit.guards import Guard
from receiver.metadata.engine import Engine
from receiver.metadata.model import records

SENDER = "5e" * 16
_PAUSE_S = 0.002


def load(group: str, devices: int, columns: int, files: int, look: int) -> list[records.Op]:
    """The operations of a write."""
    ops: list[records.Op] = [records.StorageGroupSet(group, if_missing=True)]
    names = [f"{group}.site{each % 100}.d{each}" for each in range(devices)]
    series = tuple(f"s{each}" for each in range(columns))
    codes = bytes([4] * columns), bytes([8] * columns), bytes([7] * columns)
    outcomes = []
    for number in range(files):
        mine = sorted(names[number::files])
        path = f"sequence/{group}/0/0/{look}-{number}-0.tsfile"
        physical = f"sequence/{group}/0/0/{look}-{number}-0.{number:016x}.tsfile"
        ranges = tuple(records.DeviceRange(each, look, look + 1) for each in mine)
        ops.append(_file(path, physical, ranges, look, columns))
        lasts = (look + 1,) * columns
        found = tuple(records.LoadedDevice(each, False, series, *codes, lasts) for each in mine)
        ops.append(records.SeriesLoaded(physical, found))
        outcomes.append(records.FileOutcome(path, Result.LOADED))
    ops.append(records.TaskDone(SENDER, f"{look:032x}", tuple(outcomes)))
    return ops


def _file(
    path: str, physical: str, ranges: tuple[records.DeviceRange, ...], look: int, columns: int
) -> records.FileLoaded:
    return records.FileLoaded(
        sender=SENDER,
        path=path,
        physical=physical,
        size=1 << 20,
        md5=f"{hash(physical) & (1 << 128) - 1:032x}",
        tail=f"{hash(path) & (1 << 128) - 1:032x}",
        version=4,
        devices=ranges,
        first=look,
        last=look + 1,
        series=len(ranges) * columns,
        points=len(ranges) * columns * 2,
        task=f"{look:032x}",
    )


class Others:
    """Small things that are done over and over, and the longest that each took."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stop = threading.Event()
        self._number = 0
        self.longest: dict[str, float] = {}

    @contextmanager
    def all_along(self) -> Iterator[dict[str, float]]:
        """Do them while the block lasts."""
        work = {"commit": self._commit, "look": self._look, "question": self._ask}
        self._stop.clear()
        self.longest = dict.fromkeys(work, 0.0)
        threads = [threading.Thread(target=self._repeat, args=each) for each in work.items()]
        for thread in threads:
            thread.start()
        try:
            yield self.longest
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _repeat(self, name: str, work: Callable[[], object]) -> None:
        while not self._stop.wait(_PAUSE_S):
            begin = time.perf_counter()
            work()
            self.longest[name] = max(self.longest[name], time.perf_counter() - begin)

    def _commit(self) -> None:
        self._number += 1
        path = f"sequence/root.other/0/0/{self._number % 100}-1-0.tsfile"
        self._engine.commit([records.QuarantinePut(SENDER, path, "0", 1, False, "bench")])

    def _look(self) -> None:
        with self._engine.reading() as state:
            state.file_table.held(SENDER, "sequence/root.other/0/0/1-1-0.tsfile")
            state.senders.get(SENDER)

    def _ask(self) -> None:
        with self._engine.reading() as state:
            state.schema.series.find(("root", "other", "d1", "s1"))


class Longest:
    """Seconds of a processor of the longest call of something."""

    def __init__(self, owner: object, name: str) -> None:
        self._call = getattr(owner, name)
        self.seconds = 0.0
        setattr(owner, name, self)

    def __call__(self, *given: object, **more: object) -> object:
        begin = time.thread_time()
        try:
            return self._call(*given, **more)
        finally:
            self.seconds = max(self.seconds, time.thread_time() - begin)


def measure(directory: Path, args: argparse.Namespace) -> dict[str, float]:
    """One engine: the longest waits, in seconds, at the first commit of devices and the second."""
    found: dict[str, float] = {}
    with Engine.open(directory) as engine:
        engine.commit([records.SenderSeen(SENDER, "bench", f"127.0.0.1_{SENDER}")])
        engine.commit([records.StorageGroupSet("root.other")])
        small = records.SeriesCreated("root.other.d1", ("s1",), b"\1", b"\0", b"\1")
        engine.commit([small])
        others = Others(engine)
        turn = Longest(engine._committer, "_round")
        application = Longest(engine._committer, "_publish")
        for look, which in ((1, "new"), (2, "again")):
            ops = load("root.many", args.devices, args.columns, args.files, look)
            guards = [
                Guard("owner", each.name, engine_owner(engine, each.name))
                for op in ops
                if isinstance(op, records.FileLoaded)
                for each in op.devices
            ]
            turn.seconds = application.seconds = 0.0
            with others.all_along() as longest:
                time.sleep(0.2)
                cpu, begin = time.thread_time(), time.perf_counter()
                engine.commit(ops, guards)
                found[f"{which}, itself"] = time.perf_counter() - begin
                found[f"{which}, CPU of it"] = time.thread_time() - cpu
                time.sleep(0.2)
            found[f"{which}, CPU of its turn in the line"] = turn.seconds
            found[f"{which}, CPU while nobody reads"] = application.seconds
            found |= {f"{which}, longest {name}": each for name, each in longest.items()}
    return found


def engine_owner(engine: Engine, device: str) -> int:
    """The commit that the owner of a device is from."""
    with engine.reading() as state:
        return state.changed("owner", device)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--devices", type=int, default=100_000)
    options.add_argument("--columns", type=int, default=2)
    options.add_argument("--files", type=int, default=4)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--dir", type=Path, help="where the engines go")
    options.add_argument("--json", action="store_true")
    args = options.parse_args()
    runs = []
    for _ in range(args.runs):
        with tempfile.TemporaryDirectory(dir=args.dir) as name:
            runs.append(measure(Path(name), args))
    if args.json:
        print(json.dumps({"runs": runs, "load": os.getloadavg()[0]}))
        return
    for what in runs[0]:
        every = [each[what] for each in runs]
        print(f"{what}: {median(every):.3f} s ({min(every):.3f} to {max(every):.3f})")
    print(f"{args.devices} devices, {args.runs} runs, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
