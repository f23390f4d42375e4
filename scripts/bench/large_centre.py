"""The centre's engine with very many loaded files of ten devices each.

    .venv/bin/python scripts/bench/large_centre.py [--files 1000000] [--directory DIR] [--json FILE]

Two processes, so that neither memory nor caches of one are in the figures of the other: the first
commits the files, a thousand at once as a task does, and takes a checkpoint; the second starts from
that and is asked what a centre is asked. Bytes a file are those by which the process has grown
(resident, free memory given back to the system before), by the files.

Times of commits and of questions are those of the processor, in the thread that commits or asks:
the disk is not measured here, nor what else runs. `--directory` should be a tmpfs. Questions hold
the engine's lock as long, and commits wait for that; of both the medians are told.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import hashlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

# Where the engine is taken from, if not from beside this: `centre_versions.py`.
sys.path.insert(0, os.environ.get("TSFERRY_CHECKOUT", str(Path(__file__).resolve().parents[2])))

from receiver.load.deciding.known_files.known_content import known_content
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.query.past_files import files_at
from receiver.metadata.state.table_rows import FileRow, FileState

QUIET = EngineOptions(checkpoint_entries=1 << 40, checkpoint_rest=1e9)
"""No checkpoint comes in between by itself."""
SENDERS = 20
DEVICES = 10
"""Of a file."""
SHAPES = 10
"""How many different sets of devices the files of a sender have."""
AT_ONCE = 1000
CHECKPOINTS = 10
"""So many are taken while the files are committed."""
HOUR = 3_600_000
Figures = dict[str, float]


def sender(number: int) -> str:
    """Its identity."""
    return f"{number:032x}"


def loaded(number: int) -> records.FileLoaded:
    """A file of an hour with the devices of its shape, whose times lie close to each other's."""
    site, place = number % SENDERS, number // SENDERS
    stem = f"sequence/root.site{site}/0/{place // 100}/{1581324718762 + number}-{place}-0-0"
    digest = hashlib.md5(stem.encode()).hexdigest()
    first = 1581324718762 + place // SHAPES * HOUR
    return records.FileLoaded(
        sender=sender(site),
        path=f"{stem}.tsfile",
        physical=f"{stem}.{digest[:16]}.tsfile",
        size=1_000_000 + number % 100_000,
        md5=digest,
        tail=hashlib.md5(digest.encode()).hexdigest(),
        version=4,
        devices=[
            records.DeviceRange(
                f"root.site{site}.plant.d{place % SHAPES * DEVICES + each}",
                first + (number * 7 + each * 131) % 5000,
                first + HOUR - (number * 3 + each * 17) % 5000,
            )
            for each in range(DEVICES)
        ],
        first=first,
        last=first + HOUR,
        series=DEVICES * 20,
        points=DEVICES * 20 * 3600,
        task=f"{number // AT_ONCE:032x}",
        resource=records.ResourceMeta(2000 + number % 500, digest[::-1]),
        manifest=records.ManifestMeta(DEVICES * 20, DEVICES * 20 * 3600, digest[8:] + digest[:8]),
        data_dir="/data",
        first_look=1 + number // AT_ONCE,
        closed_look=2 + number // AT_ONCE,
    )


def resident() -> int:
    """Bytes of this process, what is free given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fill(home: Path, files: int) -> Figures:
    """Commit the files, then take a checkpoint."""
    with Engine.open(home, options=QUIET) as engine:
        engine.commit(
            [records.SenderSeen(sender(each), f"s{each}", f"s{each}") for each in range(SENDERS)]
        )
        before, began, spent = resident(), time.perf_counter(), []
        for begin in range(0, files, AT_ONCE):
            ops = [loaded(each) for each in range(begin, min(begin + AT_ONCE, files))]
            used = time.thread_time()
            engine.commit(ops)
            spent.append((time.thread_time() - used) / len(ops) * 1e6)
            if begin // AT_ONCE % (files // AT_ONCE // CHECKPOINTS + 1) == 0:
                engine.checkpoint()
        found = {
            "fill_seconds": time.perf_counter() - began,
            "bytes_filled": (resident() - before) / files,
            "commit_of_1000_us_a_file": statistics.median(spent[-100:]),
        }
        began = time.perf_counter()
        engine.checkpoint()
        found["checkpoint_seconds"] = time.perf_counter() - began
        found["bytes_checkpointed"] = (resident() - before) / files
        began = time.perf_counter()
        engine.commit([loaded(files + 50 * AT_ONCE)])
        engine.checkpoint()
        found["next_checkpoint_seconds"] = time.perf_counter() - began
        found["checkpoint_bytes"] = max(
            each.stat().st_size for each in home.glob("mtree.snapshot-*")
        ) / files  # fmt: skip
    found["bytes_at_most"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / files
    return found


def start(home: Path, files: int) -> Figures:
    """Start from the checkpoint; then ask and commit."""
    before, began, used = resident(), time.perf_counter(), time.process_time()
    with Engine.open(home, options=QUIET) as engine:
        found = {
            "start_seconds": time.perf_counter() - began,
            "start_cpu_seconds": time.process_time() - used,
            "bytes_started": (resident() - before) / files,
        }
        for name, ask in questions(engine, files):
            found[f"{name}_ms"] = median_ms(ask)
        then = engine.newest_commit
        found["commit_of_1000_more_us_a_file"] = load(engine, files + AT_ONCE)
        ones = iter(range(files, files + 500))
        found["commit_of_1_us"] = cpu_us(lambda: engine.commit([loaded(next(ones))]), 300)
        found["retire_of_1000_us_a_file"] = retire(engine, files)
        found["history_ms"] = median_ms(lambda: [*islice(past_of(engine, then), AT_ONCE)], 3)
        found["history_of_all_ms"] = median_ms(
            lambda: [None for row in past_of(engine, then) if not row.md5], 3
        )
        found["history_hold_ms"] = longest_wait_ms(engine, lambda: past_of(engine, then))
    return found


def past_of(engine: Engine, then: int) -> Iterator[FileRow]:
    """The files at a time; versions before pages made a list of them."""
    return iter(files_at(engine, then).visible)


def longest_wait_ms(engine: Engine, ask: Callable[[], object]) -> float:
    """The longest that somebody who wants the lock waits while a question is answered, by time."""
    waits, done = [0.0], threading.Event()

    def wait() -> None:
        while not done.wait(0.001):
            began = time.perf_counter()
            with engine.reading():
                waits.append((time.perf_counter() - began) * 1000)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        for _ in range(3):
            ask()
    finally:
        done.set()
        thread.join()
    return max(waits)


def questions(engine: Engine, files: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is asked at any time, each by its name."""
    step = max(1, files // AT_ONCE)
    known = [loaded(each) for each in range(0, files, step)][:AT_ONCE]
    new = [loaded(each) for each in range(files, files + AT_ONCE)]
    middle = known[len(known) // 2]

    def plan(ops: list[records.FileLoaded]) -> None:
        with engine.reading() as state:
            for op in ops:
                state.file_table.live(op.sender, op.path)
                known_content(
                    state, op.sender, op.path, op.tail, lambda row: True, lambda row: True
                )

    def inventory() -> None:
        with engine.reading() as state:
            assert state.file_table.inventory(middle.sender, middle.path, AT_ONCE)

    def listed() -> None:
        with engine.reading() as state:
            rows = state.file_table.inventory(middle.sender, middle.path, AT_ONCE)
            assert [(row.path, row.physical, row.size, row.md5, row.changed) for row in rows]

    def partition() -> None:
        _, group, virtual, number, _ = middle.path.split("/")
        with engine.reading() as state:
            rows = state.file_table.partition(group, virtual, number)
            assert [(row.rank, row.devices.names(), *row.devices.ranges()) for row in rows]

    def catalogue() -> None:
        with engine.reading() as state:
            assert state.file_table.catalogue(middle.physical, AT_ONCE)

    def status() -> None:
        with engine.reading() as state:
            table = state.file_table
            for uuid in state.senders:
                table.totals(uuid), table.verified(uuid), table.listed.of(uuid)
            table.totals(), table.deleted(), table.lost(), table.quarantined()

    def scan() -> None:
        with engine.reading() as state:
            assert not [row for row in state.files.values() if row.state is FileState.QUARANTINED]

    yield "plan_of_1000_known", lambda: plan(known)
    yield "plan_of_1000_new", lambda: plan(new)
    yield "inventory_of_1000", inventory
    yield "inventory_of_1000_read", listed
    yield "partition_of_100_read", partition
    yield "catalogue_of_1000", catalogue
    yield "status", status
    yield "scan_of_all", scan


def load(engine: Engine, first: int) -> float:
    """Files that are new, a thousand in a commit."""
    spent = []
    for begin in range(first, first + 20 * AT_ONCE, AT_ONCE):
        ops = [loaded(each) for each in range(begin, begin + AT_ONCE)]
        used = time.thread_time()
        engine.commit(ops)
        spent.append((time.thread_time() - used) / AT_ONCE * 1e6)
    return statistics.median(spent)


def retire(engine: Engine, files: int) -> float:
    """Ends of files, a thousand in a commit."""
    spent = []
    for begin in range(0, min(files, 10 * AT_ONCE), AT_ONCE):
        ops = [records.FileRetired(loaded(each).physical) for each in range(begin, begin + AT_ONCE)]
        used = time.thread_time()
        engine.commit(ops)
        spent.append((time.thread_time() - used) / AT_ONCE * 1e6)
    return statistics.median(spent)


def median_ms(ask: Callable[[], object], times: int = 9) -> float:
    """Of some runs, processor time of this thread: it holds the lock for as long, at least."""
    spent = []
    for _ in range(times):
        began = time.thread_time()
        ask()
        spent.append((time.thread_time() - began) * 1000)
    return statistics.median(spent)


def cpu_us(act: Callable[[], object], times: int) -> float:
    """The median of many runs, processor time of this thread."""
    spent = []
    for _ in range(times):
        used = time.thread_time()
        act()
        spent.append((time.thread_time() - used) * 1e6)
    return statistics.median(spent)


def measure(files: int, directory: Path | None) -> Figures:
    """Both processes, one after the other."""
    found: Figures = {}
    with tempfile.TemporaryDirectory(dir=directory) as place:
        for part in ("fill", "start"):
            command = [sys.executable, __file__, "--files", str(files), "--directory", place]
            done = subprocess.run([*command, "--part", part], stdout=subprocess.PIPE, check=True)
            found |= json.loads(done.stdout)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--files", type=int, default=1_000_000)
    options.add_argument("--directory", type=Path)
    options.add_argument("--json", type=Path)
    options.add_argument("--part", choices=("fill", "start"), help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.part:
        part = fill if given.part == "fill" else start
        print(json.dumps(part(given.directory / "schema", given.files)))
        return
    figures = measure(given.files, given.directory)
    for name, value in figures.items():
        print(f"{name:28} {value:12.2f}")
    if given.json is not None:
        machine = {
            "cpus": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
        }
        found = {"machine": machine, "files": given.files, "figures": figures}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
