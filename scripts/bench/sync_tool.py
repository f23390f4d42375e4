"""The sync tool of IoTDB 0.12.0, real servers at both ends, beside tsferry, on the same files.

    .venv/bin/python scripts/bench/sync_tool.py SERVERS [--runs 5] [--files 300] [--at DIR]
                                                        [--json FILE]

SERVERS is what `scripts/live fetch` makes. A server writes the files, about 1 MB each, and goes on
running; then its sync tool and a round of the sender bring them by turns to a fresh receiver, every
second time in the other order. The clock runs from the start of the client's process until the
receiver has loaded all files. CPU and memory are those of the processes of each end in that time,
memory being the most that was resident. Both servers have a heap of 512 MB at most, the tool's
client that of Java, as its script starts it.

The tool checks a SHA-256 of each file, flushes nothing and proves no points.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.transfer import spread  # noqa: E402
from scripts.bench.transfer_peers import Tsferry, cpu_of, wait_for_children  # noqa: E402
from tests.live.server import Server  # noqa: E402

VERSION = "0.12.0"
CLIENT = "org.apache.iotdb.db.sync.sender.transfer.SyncClient"
OURS, TOOL = "tsferry", f"sync tool of IoTDB {VERSION}"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PATIENCE_S = 180.0
_SAMPLE_S = 0.02
_CALM_CPU_S = 0.05
"""Processor time in a second below which a server just started counts as settled."""


@dataclass(frozen=True)
class Took:
    """What one transfer took; each pair is (at the sender, at the receiver).

    Attributes:
        seconds: by the clock.
        start: of these, until the client's first own word: the start of its JVM.
        cpu: processor seconds.
        memory: bytes, the most that was resident.
    """

    seconds: float
    start: float
    cpu: tuple[float, float]
    memory: tuple[int, int]


def _family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _family(int(child))


def _resident(pid: int) -> int:
    """Bytes of a process and all below it; what they share counts for each."""
    pages = 0
    try:
        for each in _family(pid):
            pages += int(Path(f"/proc/{each}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass  # one ended meanwhile: the next sample tells
    return pages * _PAGE


@contextmanager
def watching(*pids: int) -> Iterator[list[int]]:
    """The most that each of these processes has resident while the block runs."""
    most = [0 for _ in pids]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_SAMPLE_S):
            most[:] = [max(a, _resident(pid)) for a, pid in zip(most, pids, strict=True)]

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()


class Words:
    """A log that is read as it grows, for the moments of some words."""

    def __init__(self, log: Path, *wanted: bytes) -> None:
        self._file = open(log, "rb")  # noqa: SIM115 - read until it is closed
        self._last = b""
        self._wanted = wanted
        self.at: dict[bytes, float] = {}

    def look(self) -> bool:
        """Whether all were said by now."""
        text, now = self._last + self._file.read(), time.perf_counter()
        for each in self._wanted:
            if each in text:
                self.at.setdefault(each, now)
        if b" ERROR " in text:
            raise SystemExit(f"{self._file.name}: {text.decode(errors='replace')}")
        self._last = text[-200:]
        return len(self.at) == len(self._wanted)

    def close(self) -> None:
        self._file.close()


def by_tool(edge: Server, place: Path, files: int) -> Took:
    """One round of the sync tool."""
    centre = Server(edge.unpacked, place / "centre")
    with centre.running({**centre.kind.quiet, "is_sync_enable": "true"}):
        _settle(centre.pids[0])
        (edge.conf / "iotdb-sync-client.properties").write_text(
            f"server_ip=127.0.0.1\nserver_port={centre.sync_port}\nsync_period_in_second=3600\n"
        )
        log = place / "client.log"
        log.touch()
        read, sent = b"Start to read sync config file", b"Sync process has finished."
        loaded = b"Sync loading process for "
        client, server = Words(log, read, sent), Words(centre.log(), loaded)
        try:
            before, begin = cpu_of(centre.pids[0]), time.perf_counter()
            with _client(edge, log) as process, watching(process.pid, centre.pids[0]) as memory:
                # Both are looked at: each notes the moment of its own words.
                while not all([client.look(), server.look()]):
                    if process.poll() is not None or time.perf_counter() - begin > _PATIENCE_S:
                        raise SystemExit(f"the sync tool has not ended: {log.read_text()[-2000:]}")
                    time.sleep(_SAMPLE_S)
                cpu = cpu_of(process.pid), cpu_of(centre.pids[0]) - before
        finally:
            client.close()
            server.close()
        _check(centre.files, files)
    end = max(client.at[sent], server.at[loaded])
    for each in (edge.files / "sync-sender", edge.data / "system" / "sync"):
        shutil.rmtree(each)
    return Took(end - begin, client.at[read] - begin, cpu, (memory[0], memory[1]))


@contextmanager
def _client(edge: Server, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with open(log, "wb") as out:
        process = subprocess.Popen(
            edge.command(CLIENT), cwd=edge.run, stdout=out, stderr=out, stdin=subprocess.DEVNULL
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _settle(pid: int) -> None:
    """Until a server has little to do, ten seconds at most."""
    for _ in range(10):
        before = cpu_of(pid)
        time.sleep(1)
        if cpu_of(pid) - before < _CALM_CPU_S:
            return


def by_tsferry(edge: Server, place: Path, files: int) -> Took:
    """One round of the sender."""
    with Tsferry().pair(edge.files, place) as (sender, server):
        _settle(server.pid)
        command = [*map(str, sender), "sync", "--json"]
        before, begin = cpu_of(server.pid), time.perf_counter()
        with open(place / "client.log", "wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        with watching(process.pid, server.pid) as memory:
            _, status, used = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"exit code {process.returncode}: {out.name}")
        wait_for_children(server.pid)
        cpu = used.ru_utime + used.ru_stime, cpu_of(server.pid) - before
    _check(place / "cd", files)
    return Took(seconds, 0.0, cpu, (max(memory[0], used.ru_maxrss * 1024), memory[1]))


def _check(loaded: Path, files: int) -> None:
    there = [
        each
        for kind in ("sequence", "unsequence")
        for base in (loaded / kind, *loaded.glob(f"*/{kind}"))
        for each in base.rglob("*.tsfile")
    ]
    if len(there) != files:
        raise SystemExit(f"{loaded}: {len(there)} files, not {files}")


WAYS: dict[str, Callable[[Server, Path, int], Took]] = {OURS: by_tsferry, TOOL: by_tool}


def measure(unpacked: Path, base: Path, files: int, runs: int) -> tuple[dict[str, list[Took]], int]:
    """What each way took, run by run; and how many bytes the files have."""
    found: dict[str, list[Took]] = {name: [] for name in WAYS}
    edge = Server(unpacked, base / "edge")
    with edge.running({**edge.kind.quiet, "wal_buffer_size": str(16 << 20)}):
        python, script = unpacked / "client" / "bin" / "python", "sync_tool_writer.py"
        writer = [python, Path(__file__).with_name(script), str(edge.port), str(files)]
        subprocess.run([str(each) for each in writer], check=True, timeout=_PATIENCE_S)
        _check(edge.files, files)
        size = sum(each.stat().st_size for each in edge.files.rglob("*.tsfile"))
        for run in range(runs):
            for name in list(WAYS)[:: 1 if run % 2 == 0 else -1]:
                place = base / "place"
                place.mkdir()
                os.sync()
                found[name].append(WAYS[name](edge, place, files))
                print(f"{run}: {name}: {found[name][-1]}", flush=True)
                shutil.rmtree(place)
    return found, size


def summary(found: dict[str, list[Took]]) -> dict[str, dict[str, dict[str, float]]]:
    """Medians and spreads; ratios are to tsferry in the same run, its own start included."""
    ours = [each.seconds for each in found[OURS]]
    busy = [sum(each.cpu) for each in found[OURS]]
    peak = [sum(each.memory) for each in found[OURS]]

    def of(took: Sequence[Took]) -> dict[str, dict[str, float]]:
        started = [each.seconds - each.start for each in took]
        cpu = [sum(each.cpu) for each in took]
        memory = [sum(each.memory) for each in took]
        return {
            "seconds": spread([each.seconds for each in took]),
            "started": spread(started),
            "cpu_sender": spread([each.cpu[0] for each in took]),
            "cpu_receiver": spread([each.cpu[1] for each in took]),
            "memory_sender": spread([each.memory[0] for each in took]),
            "memory_receiver": spread([each.memory[1] for each in took]),
            "ratio": spread([a.seconds / b for a, b in zip(took, ours, strict=True)]),
            "ratio_started": spread([a / b for a, b in zip(started, ours, strict=True)]),
            "ratio_cpu": spread([a / b for a, b in zip(cpu, busy, strict=True)]),
            "ratio_memory": spread([a / b for a, b in zip(memory, peak, strict=True)]),
        }

    return {name: of(took) for name, took in found.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("servers", type=Path, help="as `scripts/live fetch` makes it")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--files", type=int, default=300)
    options.add_argument("--at", type=Path, help="a directory; the system's")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.at) as base:
        unpacked = given.servers.absolute() / VERSION
        found, size = measure(unpacked, Path(base), given.files, given.runs)
    machine = {"cpus": os.cpu_count(), "python": platform.python_version()}
    machine |= {"kernel": platform.release(), "runs": given.runs}
    work = {"files": given.files, "bytes": size}
    result = {"machine": machine, "work": work, "ways": summary(found)}
    print(json.dumps(result, indent=1))
    if given.json:
        given.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
