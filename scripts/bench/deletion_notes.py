"""What it costs that a centre remembers for good what its operator deleted.

    python scripts/bench/deletion_notes.py [--notes 1000000] [--entries 10000] [--repeat 5]

Notes are put into the state of an engine as the log would; then is told, for none and for all of
them: memory (resident, of the process), and seconds of the processor: of a plan of so many files of
which none was deleted (the look at each, without the network), of one whose files all were, of the
copy that a checkpoint takes while commits wait, of writing and of reading it; and its size. Medians
of `--repeat` runs by turns, with the least and the most.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from common.digests import md5
from receiver.load.deciding.told_deletions.operators_deletions import deleted_by_operator
from receiver.metadata.log.freeze import FrozenState, freeze, thaw
from receiver.metadata.model import records
from receiver.metadata.state.state import State

SENDERS = [f"{number:032x}" for number in range(100)]


def path_of(number: int) -> str:
    stamp = 1_581_324_718_762 + number
    return f"sequence/root.turbine{number % 50}/0/{number % 1000}/{stamp}-{number}-0-0.tsfile"


def digests(number: int, kind: bytes) -> tuple[str, str]:
    both = [md5(kind + part + number.to_bytes(8, "big")).hexdigest() for part in (b"m", b"t")]
    return both[0], both[1]


def resident() -> int:
    gc.collect()
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


def filled(state: State, notes: int) -> tuple[float, float]:
    """Seconds of all, and of the slowest one."""
    slowest = whole = 0.0
    apply = state.let_go.operations()[records.LetGoNoted]
    for number in range(notes):
        content, tail = digests(number, b"deleted")
        sender = SENDERS[number % len(SENDERS)]
        op = records.LetGoNoted(sender, path_of(number), content, number + 1, tail)
        began = time.process_time()
        apply(op, number + 1)
        took = time.process_time() - began
        whole, slowest = whole + took, max(slowest, took)
    return whole, slowest


def planned(
    state: State, entries: int, kind: bytes, step: int, where: str = "turbine"
) -> Callable[[], object]:
    asked = [
        (path_of(n * step).replace("turbine", where), *digests(n * step, kind))
        for n in range(entries)
    ]

    def run() -> int:
        return sum(
            deleted_by_operator(state, SENDERS[0], path, tail=tail, size=1000, md5=content) > 0
            for path, content, tail in asked
        )

    return run


def timed(runs: dict[str, Callable[[], object]], repeat: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            began = time.process_time()
            run()
            found[name].append(time.process_time() - began)
    return found


def frozen(state: State) -> FrozenState:
    return freeze(state, lsn=1, commits=array("Q"), tags_end=0, segment=1, oldest=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--notes", type=int, default=1_000_000)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    empty, state = State(), State()
    before = resident()
    whole, slowest = filled(state, given.notes)
    size = resident() - before
    step = max(1, given.notes // given.entries)
    sections = {name: memoryview(bytes(content)) for name, content in frozen(state).sections()}
    runs: dict[str, Callable[[], object]] = {
        "plan, no notes": planned(empty, given.entries, b"other", step, "other"),
        "plan, none deleted": planned(state, given.entries, b"other", step, "other"),
        "plan, all deleted": planned(state, given.entries, b"deleted", step),
        "copy for a checkpoint": lambda: frozen(state),
        "checkpoint made": lambda: sum(len(content) for _, content in frozen(state).sections()),
        "checkpoint read": lambda: thaw(sections),
    }
    print(f"{given.notes} notes: {size / 1e6:.0f} MB resident, {size / given.notes:.0f} bytes each")
    print(f"taken in: {whole / given.notes * 1e6:.1f} us each, the slowest {slowest * 1e3:.0f} ms")
    print(f"in a checkpoint: {sum(map(len, sections.values())) / given.notes:.0f} bytes each")
    for name, times in timed(runs, given.repeat).items():
        middle = statistics.median(times)
        print(f"{name}: {middle:.3f} s ({min(times):.3f} to {max(times):.3f})")


if __name__ == "__main__":
    main()
