"""What a machine pays for background tasks that are done: for a million of them, and for none.

    python scripts/bench/background_work.py                   # 1,000,000 tasks, a thousand a commit
    python scripts/bench/background_work.py --tasks 100000
    python scripts/bench/background_work.py --one-commit 10000    # of one group, and nothing else

Adds, takes and ends so many tasks, each of a storage group of its own. Before and behind that the
life of one task (three commits, flushed) is timed, in turns with a plain commit; a page of `show
tasks`; a checkpoint and its bytes; memory of the process.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.durable import Tree
from receiver.background.work_queue import WorkQueue
from receiver.metadata.engine import Engine
from receiver.metadata.log.checkpoints import checkpoints
from receiver.metadata.model import records
from receiver.metadata.sql.executing import execute

_AT_ONCE = 1000
_TURNS = 200


def main() -> None:
    """Measure, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--one-commit", type=int, metavar="N")
    arguments = parser.parse_args()
    if arguments.one_commit:
        several_of_one_group(arguments.one_commit)
        return
    with tempfile.TemporaryDirectory() as folder, Engine.open(Path(folder)) as engine:
        say("none", measured(engine, Path(folder)))
        began = time.perf_counter()
        for low in range(0, arguments.tasks, _AT_ONCE):
            live(engine, low, min(_AT_ONCE, arguments.tasks - low))
        took = time.perf_counter() - began
        print(f"{arguments.tasks} tasks done in {took:.0f} s, {_AT_ONCE} a commit")
        engine.collect()
        say("done", measured(engine, Path(folder)))


def several_of_one_group(count: int) -> None:
    """Tasks for so many partitions of one storage group in one commit, five times."""
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder, Engine.open(Path(folder)) as engine:
            queue = WorkQueue(engine)
            places = [records.WorkPlace("root.plant", str(at)) for at in range(count)]
            added = milliseconds(
                lambda engine=engine, places=places: engine.commit_with(  # type: ignore[misc]
                    lambda ts: [
                        records.WorkAdded(ts + at, "prove", b"", (each,))
                        for at, each in enumerate(places)
                    ]
                )
            )
            time.sleep(0.1)  # their ids are timestamps: the next commit is to come behind them
            row = queue.take("receiver", ["prove"])
            assert row is not None
            renewed = milliseconds(lambda queue=queue, row=row: queue.renew(row))  # type: ignore[misc]
            print(f"{count} in one commit: {added:.0f} ms; a lease is renewed in {renewed:.3f} ms")


def live(engine: Engine, low: int, count: int) -> None:
    """Lives of so many tasks, in three commits."""
    ids: list[int] = []

    def added(ts: int) -> list[records.Op]:
        ids[:] = range(ts, ts + count)
        return [
            records.WorkAdded(
                each, "prove", b"", (records.WorkPlace(f"root.plant{low + at}", "1"),)
            )
            for at, each in enumerate(ids)
        ]

    engine.commit_with(added)
    time.sleep(0.001)  # an id is a timestamp: the next commit is to come behind them
    engine.commit([records.WorkTaken(each, 1, "receiver") for each in ids])
    engine.commit([records.WorkEnded(each, 1, "done") for each in ids])


def measured(engine: Engine, folder: Path) -> dict[str, float]:
    """Milliseconds, bytes and MiB."""
    queue = WorkQueue(engine)

    def life() -> None:
        queue.add("prove", b"", [records.WorkPlace("root.other", "1")])
        row = queue.take("receiver", ["prove"])
        assert row is not None
        queue.end(row, "done")

    list(execute(engine, "show tasks limit 10"))  # the grammar is read once
    lives, plain = [], []
    for _ in range(_TURNS):
        lives.append(milliseconds(life))
        plain.append(milliseconds(lambda: engine.commit([records.KeysWritten((), {"a": "b"})])))
    pages = [milliseconds(lambda: list(execute(engine, "show tasks limit 10"))) for _ in range(9)]
    checkpoints_took = []
    for _ in range(5):
        life()  # one without a commit since the last does nothing
        checkpoints_took.append(milliseconds(lambda: engine.checkpoint()))
    with Tree(folder) as tree:
        newest = folder / checkpoints(tree)[0].name
    return {
        "life of a task": statistics.median(lives),
        "plain commit": statistics.median(plain),
        "show tasks limit 10": statistics.median(pages),
        "checkpoint": statistics.median(checkpoints_took),
        "bytes of it": newest.stat().st_size,
        "MiB of the process": resident(),
    }


def milliseconds(what: Callable[[], object]) -> float:
    """How long something takes."""
    began = time.perf_counter()
    what()
    return (time.perf_counter() - began) * 1000


def resident() -> float:
    """MiB of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(each.split()[1]) / 1024 for each in lines if each.startswith("VmRSS"))


def say(which: str, found: dict[str, float]) -> None:
    """Write it."""
    print(f"{which}: " + ", ".join(f"{name} {value:.3g}" for name, value in found.items()))


if __name__ == "__main__":
    main()
