"""The schema log of an edge, read by a sender: the first time, and in a round that has nothing new.

    python scripts/bench/schema_logs.py [--series 1000000] [--runs 5]

`mlog.bin` of one database, the same series in ten regions, and a database that is asked (its
answers are made here, so this is the sender's part of the time). Memory is the peak of the process.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from common.durable import Tree  # noqa: E402
from common.wire import SchemaPosition  # noqa: E402
from sender.schema.notes import SchemaNotes  # noqa: E402
from sender.schema.server_log import ServerLog  # noqa: E402
from sender.schema.text_log import TextLog  # noqa: E402
from tests.support import binary_mlog as made  # noqa: E402

FORMS = ("mlog.bin", "ten regions", "a database")
REGIONS = 10


class Answers:
    """A database that has so many series."""

    url = "http://127.0.0.1"

    def __init__(self, series: int) -> None:
        self._series = series

    def rows(self, statement: str) -> Iterator[dict[str, Any]]:
        """Of short answers."""
        if statement == "count timeseries":
            yield {"count(timeseries)": self._series}
        elif statement == "show databases":
            yield {"database": "root.a"}

    def pages(self, statement: str) -> Iterator[dict[str, Any]]:
        """Of long ones."""
        codes = {"datatype": "FLOAT", "encoding": "RLE", "compression": "LZ4"}
        if statement == "show timeseries":
            for number in range(self._series):
                yield {"timeseries": _path("root.a", number), "database": "root.a", **codes}


def _path(group: str, number: int) -> str:
    return f"{group}.device{number // 100}.sensor{number % 100}"


def write(form: str, directory: Path, series: int) -> None:
    """The logs of a form."""
    if form == "mlog.bin":
        with (directory / "mlog.bin").open("wb") as file:
            file.write(made.storage_group("root.a"))
            file.writelines(made.created(_path("root.a", each)) for each in range(series))
    for region in range(REGIONS if form == "ten regions" else 0):
        folder = directory / f"root.db{region}" / str(region)
        folder.mkdir(parents=True)
        with (folder / "mlog.bin").open("wb") as file:
            frames = (made.created(_path(f"root.db{region}", n)) for n in range(series // REGIONS))
            file.writelines(map(made.unchecked, frames))


def reader(form: str, directory: Path, series: int) -> Callable[[], None]:
    """A round's look at the schema."""
    sync = Tree(directory / "sync", create=True)
    applied: list[SchemaPosition] = []
    now = [0.0]

    def look() -> None:
        now[0] += 3600
        notes = SchemaNotes.open(sync, "centre")
        there = applied[-1] if applied else None
        if form == "a database":
            log = ServerLog(Answers(series), notes, 600.0, lambda: now[0])  # type: ignore[arg-type]
            told = log.plan(there, notes, whole=False)
            if told is not None:
                for _ in log.blocks(told, 0, 1 << 22):
                    pass
                applied.append(
                    SchemaPosition(identity=told.identity, offset=told.offset, mark=log.mark(told))
                )
            return
        with TextLog.open(directory, notes) as text:
            assert text is not None
            plan = text.plan(there, notes, whole=False)
            if plan is not None:
                applied.append(
                    SchemaPosition(identity=plan.identity, offset=plan.offset, mark=text.mark(plan))
                )

    return look


def measure(form: str, series: int) -> None:
    """In this process: seconds of the first look, of the next, and megabytes."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write(form, directory, series)
        look = reader(form, directory, series)
        times = []
        for _ in range(2):
            begin = time.perf_counter()
            look()
            times.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(*times, peak)


def main() -> None:
    """Each form in processes of its own, by turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--form", choices=FORMS)
    chosen = parser.parse_args()
    if chosen.form:
        measure(chosen.form, chosen.series)
        return
    found: dict[str, list[list[float]]] = {form: [] for form in FORMS}
    for _ in range(chosen.runs):
        for form in FORMS:
            command = [sys.executable, __file__, "--form", form, "--series", str(chosen.series)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[form].append([float(each) for each in done.stdout.split()])
    for form, runs in found.items():
        first, next_one, peak = (sorted(each) for each in zip(*runs, strict=True))
        print(
            f"{form}: first {statistics.median(first):.2f} s ({first[0]:.2f} to {first[-1]:.2f}), "
            f"next {statistics.median(next_one) * 1000:.1f} ms "
            f"({next_one[0] * 1000:.1f} to {next_one[-1] * 1000:.1f}), {peak[-1]:.0f} MB"
        )


if __name__ == "__main__":
    main()
