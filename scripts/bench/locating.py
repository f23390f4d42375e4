"""Tables and tablets of the engine: how fast they are found, and what they cost.

    .venv/bin/python scripts/bench/locating.py [--tables 100] [--tablets 1000] [--json]

Look-ups a second are of one thread, in process, with the state held once for all: by name and
partition, and by time. Beside them a dictionary of the same keys, which is what nobody can beat.
Taking over is what the first start does with files that were loaded before there were tables.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from receiver.load.upkeep.table_upkeep import TableUpkeep
from receiver.metadata.commit import committer
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.state.state import State

LOOKS = 100_000
SENDER = "a" * 32
WIDTH = 1000
"""Of a partition, in the unit of time."""


def loaded(group: str, partition: int) -> records.FileLoaded:
    """The one file of a partition."""
    first = partition * WIDTH
    name = f"sequence/{group}/0/{partition}/1-1-0-0"
    return records.FileLoaded(
        sender=SENDER,
        path=f"{name}.tsfile",
        physical=f"{name}.{'0' * 16}.tsfile",
        size=20_000,
        md5="0" * 32,
        tail="0" * 32,
        version=3,
        devices=[records.DeviceRange(f"{group}.d1", first, first + WIDTH - 1)],
        first=first,
        last=first + WIDTH - 1,
        series=1,
        points=WIDTH,
        task="0" * 32,
        resource=None,
        manifest=None,
    )


def fill(engine: Engine, tables: int, tablets: int) -> None:
    """Load files as a program would that knows of no tables."""
    engine.commit([records.SenderSeen(SENDER, "x", "x")])
    kept, committer.with_tablets = committer.with_tablets, lambda _, ops: ops
    try:
        for table in range(tables):
            group = f"root.g{table}"
            engine.commit([loaded(group, each) for each in range(tablets)])
    finally:
        committer.with_tablets = kept


def a_second(call: Callable[[tuple[str, int]], object], keys: list[tuple[str, int]]) -> float:
    """How often something can be done: the best of three."""
    best = 0.0
    for _ in range(3):
        begin = time.process_time()
        for each in keys:
            call(each)
        best = max(best, len(keys) / (time.process_time() - begin))
    return best


def resident() -> int:
    """Bytes of memory that this process has, what is free given back before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def looks(state: State, tables: int, tablets: int) -> dict[str, float]:
    """Look-ups a second."""
    some = random.Random(1)
    keys = [(f"root.g{some.randrange(tables)}", some.randrange(tablets)) for _ in range(LOOKS)]
    plain = {
        (row.name, each.begin): each
        for row in state.loaded_tables.there()
        for each in state.tablet_table.of_table(row.id)
    }

    def by_partition(key: tuple[str, int]) -> object:
        row = state.loaded_tables.named(key[0])
        return None if row is None else state.tablet_table.holding(row.id, key[1])

    def by_time(key: tuple[str, int]) -> object:
        at = key[1] * WIDTH
        return list(state.file_table.by_partition.meeting(key[0], at, at + 10))

    return {
        "by partition": a_second(by_partition, keys),
        "by time": a_second(by_time, keys),
        "a dictionary": a_second(plain.get, keys),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tables", type=int, default=100)
    options.add_argument("--tablets", type=int, default=1000, help="of each table")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        engine = Engine.open(Path(directory))
        fill(engine, given.tables, given.tablets)
        before = resident()
        begin = time.process_time()
        TableUpkeep(engine).take_over()
        seconds = time.process_time() - begin
        memory = resident() - before
        count = given.tables * given.tablets
        with engine.reading() as state:
            found = looks(state, given.tables, given.tablets)
        engine.close()
    found |= {"bytes a tablet": memory / count, "taking over, s": seconds}
    if given.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{given.tables} tables of {given.tablets} tablets")
    for what, value in found.items():
        print(f"{what:24} {value:14,.1f}")


if __name__ == "__main__":
    main()
