"""What the sender costs where there is nothing to send: starting, idle rounds, large trees.

    .venv/bin/python scripts/bench/idle.py [--files 10 200000] [--runs 5] [--directory DIR]
                                           [--json FILE]

For each number of files a tree of closed files (a TsFile and its resource each, 500 in a
partition) is looked at in turn by

* `first look`: `sync --dry-run`, of which nothing is on the list yet;
* `round`: `sync` where all is on the list and nothing is new, what cron runs all day;
* `status`: of the same;
* `ten new`: `sync --dry-run` where ten files are new, what a round looks at before it sends them;
* `rsync`: `rsync -an` from the tree to a hard-linked copy of it, the peer.

The receiver is a stub on loopback that agrees, so what is measured is the sender alone. The order
alternates from run to run; JSON is written: for each the medians of seconds, CPU seconds and peak
memory (MB, 10^6 bytes), their spread, and the medians of the ratios to rsync within a run, of
seconds and of CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from common.durable import Tree  # noqa: E402
from common.names import FilePath  # noqa: E402
from scripts.bench.as_installed import compile_modules  # noqa: E402
from sender.kept.loaded_list.list_state import (  # noqa: E402
    ListFacts,
    list_digest,
    list_pieces,
    state_pieces,
)
from sender.kept.receiver_file import ReceiverFile  # noqa: E402
from sender.kept.seen_looks.looks import Looks  # noqa: E402
from sender.select.entry import Entry  # noqa: E402
from sender.select.listed_table import LISTED_FILES  # noqa: E402
from sender.select.path_table import PathTable  # noqa: E402
from tests.support.scripted_receiver import ScriptedReceiver  # noqa: E402
from tests.support.tsfile_bytes import build  # noqa: E402

BIN = Path(sys.executable).parent
IN_A_PARTITION = 500
SENDER = [str(BIN / "tsferry-sender"), "--config"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--files", type=int, nargs="+", default=[10, 200_000])
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--directory", type=Path, help="where trees are made, and stay")
    options.add_argument("--json", type=Path, help="written there, not shown")
    given = options.parse_args()
    found = {}
    for files in given.files:
        with place(given.directory, files) as root:
            found[str(files)] = measure(root, files, given.runs)
    told = {"runs": given.runs, "load": round(os.getloadavg()[0], 1), "files": found}
    if given.json is None:
        print(json.dumps(told, indent=2))
    else:
        given.json.write_text(json.dumps(told, indent=2))


@contextmanager
def place(directory: Path | None, files: int) -> Iterator[Path]:
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="tsferry-bench-") as found:
            make(Path(found), files)
            yield Path(found)
        return
    root = directory / str(files)
    if not root.exists():
        make(root, files)
    yield root


def make(root: Path, files: int) -> None:
    """The tree, and its copy: small files, whose bytes nobody reads again."""
    content = build({"root.bench.d": {"s1": [(0, 0)]}})
    for number in range(files):
        directory = root / "data/sequence/root.bench/0" / str(number // IN_A_PARTITION)
        if number % IN_A_PARTITION == 0:
            directory.mkdir(parents=True)
        name = f"{1581324718762 + number}-{number}-0-0.tsfile"
        (directory / name).write_bytes(content)
        (directory / f"{name}.resource").write_bytes(b"")
    subprocess.run(["cp", "-al", root / "data", root / "copy"], check=True)


def measure(root: Path, files: int, runs: int) -> dict[str, object]:
    shutil.rmtree(root / "schema", ignore_errors=True)
    shutil.rmtree(root / "data/sync-sender", ignore_errors=True)
    (root / "data/.tsferry").unlink(missing_ok=True)
    config = root / "sender.toml"
    config.unlink(missing_ok=True)
    with ScriptedReceiver() as receiver:
        receiver.looks = 0
        subprocess.run(
            [*SENDER, config, "init", "--schema-dir", root / "schema", "--data-dir", root / "data",
             "--url", receiver.url],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        work = {
            "first look": [*SENDER, config, "sync", "--dry-run", "--json"],
            "python": [sys.executable, "-c", "pass"],
            "round": [*SENDER, config, "sync", "--json"],
            "status": [*SENDER, config, "status", "--json"],
            "rsync": ["rsync", "-an", f"{root}/data/sequence/", f"{root}/copy/sequence/"],
        }
        figures: dict[str, list[tuple[float, float, float]]] = {what: [] for what in work}
        pretend(root, receiver.port, receiver.engine, listed=False)
        for _ in range(min(runs, 3)):
            figures["first look"].append(timed(work.pop("first look")))
            work["first look"] = [*SENDER, config, "sync", "--dry-run", "--json"]
        del work["first look"]
        pretend(root, receiver.port, receiver.engine, listed=True)
        for _ in (1, 2):  # the first looks of each are not counted
            timed(work["round"])
        for run in range(runs):
            for what in sorted(work, reverse=bool(run % 2)):
                figures[what].append(timed(work[what]))
                receiver.requests.clear()
        figures["ten new"] = []
        with ten_more(root):
            for _ in range(runs):
                figures["ten new"].append(timed([*SENDER, config, "sync", "--dry-run", "--json"]))
    return {what: summary(each, figures["rsync"]) for what, each in figures.items()}


@contextmanager
def ten_more(root: Path) -> Iterator[None]:
    """Ten more files in the last partition."""
    last = max((root / "data/sequence/root.bench/0").iterdir(), key=lambda each: int(each.name))
    like = next(last.glob("*.tsfile")).read_bytes()
    names = [last / f"{1681324718762 + number}-{number}-0-0.tsfile" for number in range(10)]
    for name in names:
        name.write_bytes(like)
        name.with_name(f"{name.name}.resource").write_bytes(b"")
    try:
        yield
    finally:
        for name in names:
            name.unlink()
            name.with_name(f"{name.name}.resource").unlink()


def pretend(root: Path, port: int, engine: str, *, listed: bool) -> None:
    """Make the list what it is once nothing, or all, is loaded."""
    endpoint = f"127.0.0.1_{port}"
    data = root / "data"
    entries = PathTable.of(LISTED_FILES, _entries(data) if listed else ())
    with Tree(data) as tree:
        base = f"sync-sender/{endpoint}"
        tree.make_dirs(base)
        tree.write_atomic(f"{base}/last_local_files.txt", list_pieces(entries))
        facts = ListFacts((list_digest(list_pieces(entries)),), entries)
        tree.write_atomic(f"{base}/local_files.state", state_pieces(facts))
    with Tree(root / "schema" / "sync") as sync:
        ReceiverFile.open(sync, endpoint).update(engine=engine, newest_commit=1)
        looks = Looks.open(sync, endpoint)
        assert looks.problem is None


def _entries(data: Path) -> Iterator[Entry]:
    for partition in (data / "sequence/root.bench/0").iterdir():
        for each in os.scandir(partition):
            if each.name.endswith(".tsfile"):
                path = FilePath.parse(str(Path(each.path).relative_to(data)))
                stat = each.stat()
                yield Entry(
                    path, data, stat.st_size, stat.st_mtime_ns, stat.st_ino,
                    f"{stat.st_ino:032x}", 0, 0,
                )  # fmt: skip


_TIMER = """
import json, os, resource, subprocess, sys, time
begin = time.perf_counter()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
seconds = time.perf_counter() - begin
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([seconds, used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""
"""Starts it from a small process: what a child is said to need at its peak begins with that."""


def timed(command: list[object]) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak memory (MB) of a command."""
    done = subprocess.run(
        [sys.executable, "-c", _TIMER, *map(str, command)],
        stdout=subprocess.PIPE,
        check=True,
    )
    seconds, cpu, kib = json.loads(done.stdout)
    return seconds, cpu, kib * 1024 / 1e6


def summary(
    several: list[tuple[float, float, float]], peer: list[tuple[float, float, float]]
) -> dict[str, object]:
    seconds, cpu, memory = zip(*several, strict=True)
    found: dict[str, object] = {
        "seconds": round(statistics.median(seconds), 3),
        "spread": [round(min(seconds), 3), round(max(seconds), 3)],
        "cpu_seconds": round(statistics.median(cpu), 3),
        "memory_mb": round(statistics.median(memory), 1),
    }
    if len(several) == len(peer) and several is not peer:
        ratios = [one[0] / other[0] for one, other in zip(several, peer, strict=True)]
        found["of_rsync"] = round(statistics.median(ratios), 2)
        ratios = [one[1] / other[1] for one, other in zip(several, peer, strict=True)]
        found["cpu_of_rsync"] = round(statistics.median(ratios), 2)
    return found


if __name__ == "__main__":
    os.chdir(ROOT)
    compile_modules()
    main()
