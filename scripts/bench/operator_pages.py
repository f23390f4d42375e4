"""Pages of operators' lists over many files: time of a page, and how long it holds the lock.

python scripts/bench/operator_pages.py [--rows 1000000] [--pages 100]

The rows are made in memory, in random order, with 50 storage groups, 20 senders and every
thousandth file in quarantine; where their bytes are is not looked up. What a start brings in is
sorted by the start, told apart. Between the pages of the last line 100 new files come.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from types import SimpleNamespace
from typing import Any

from receiver.metadata.state.lock import Reading
from receiver.metadata.state.state import State
from receiver.metadata.state.table_rows import FileRow, FileState, OwnerRow
from receiver.operator.edges.owners import list_owners
from receiver.operator.stored.files import list_files


class TimedReading:
    """Stands for the engine: its lock, and how long each look held it."""

    def __init__(self, state: State) -> None:
        self._reading = Reading(state)
        self._since = 0.0
        self.held: list[float] = []

    def reading(self) -> TimedReading:
        return self

    def __enter__(self) -> State:
        state = self._reading.__enter__()
        self._since = time.perf_counter()
        return state

    def __exit__(self, *error: object) -> None:
        self.held.append(time.perf_counter() - self._since)
        self._reading.__exit__(*error)


def row_of(number: int, state: State) -> FileRow:
    stem = (
        f"sequence/root.sg{number % 50}/0/{number % 40}/{1_600_000_000_000 + number}-{number}-0-0"
    )
    return FileRow(
        created=number + 1,
        changed=number + 1,
        sender=f"{number % 20:032x}",
        path=f"{stem}.tsfile",
        physical=f"{stem}.{number:016x}.tsfile",
        size=100,
        md5="0" * 32,
        tail="0" * 32,
        version=4,
        devices=state.devices.pack([], None, None),
        first=1,
        last=2,
        series=1,
        points=1,
        task="t",
        resource=None,
        manifest=None,
        data_dir="/d",
        state=FileState.LIVE if number % 1000 else FileState.QUARANTINED,
    )


def add(state: State, number: int) -> None:
    row = row_of(number, state)
    state.file_table.restore(row)
    owner = OwnerRow(sender=row.sender, created=1, changed=1)
    state.owner_table.restore(f"root.sg{number % 50}.d{number}", owner)


def measure(name: str, engine: TimedReading, ask: Any, pages: int, between: Any = None) -> None:
    after: str | None = None
    times, longest = [], []
    for _ in range(pages):
        engine.held.clear()
        begin = time.perf_counter()
        page = ask(after)
        times.append(time.perf_counter() - begin)
        longest.append(max(engine.held))
        if between is not None:
            between()
        after = page.next
        if after is None:
            break
    print(
        f"{name:32} page median {statistics.median(times) * 1e3:7.2f} ms; lock at once, median "
        f"{statistics.median(longest) * 1e3:6.3f} ms, longest {max(longest) * 1e3:.2f} ms "
        f"({len(times)} pages)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pages", type=int, default=100)
    given = parser.parse_args()
    state = State()
    order = list(range(given.rows))
    random.Random(1).shuffle(order)
    for number in order:
        add(state, number)
    begin = time.process_time()
    state.file_table.restore_orders((), ())
    state.owner_table.restore_order()
    print(f"sorted at the start in {time.process_time() - begin:.1f} s of CPU")
    engine = TimedReading(state)
    config = SimpleNamespace(limits=SimpleNamespace(max_page_items=1000))
    there: Any = SimpleNamespace(config=config, engine=engine, trees=())

    def files(**chosen: Any) -> Any:
        return lambda after: list_files(there, after=after, **chosen)

    for name, ask in (
        ("files", files()),
        ("files of a sender", files(sender=f"{3:032x}")),
        ("files in quarantine", files(state="quarantined")),
        ("files not verified", files(unverified=True)),
        ("owners", lambda after: list_owners(there, after=after)),
    ):
        measure(name, engine, ask, given.pages)
    fresh = iter(range(given.rows, given.rows * 2))
    measure(
        "files, while 100 more come",
        engine,
        files(),
        10,
        between=lambda: [add(state, next(fresh)) for _ in range(100)],
    )


if __name__ == "__main__":
    main()
