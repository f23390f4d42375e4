"""Many senders at once with one receiver: who waits for whom, and what the receiver takes for it.

    .venv/bin/python scripts/bench/many_senders.py [--senders 100] [--files 10] [--large 20000]
                                                   [--task 20000] [--seconds 20] [--at DIR]
                                                   [--json FILE]

The receiver is a real process. The senders do whole rounds by the sender's own code over HTTP,
each with an identity, a directory and a storage group of its own; as so many processes have no
place on a small machine, they are threads of a few. Somebody asks all the while, every 20 ms, the
small questions that a receiver always gets. Three parts, one after the other:

* together: all senders begin at once, with `--files` files of 20 KB each;
* in turns: a sender after the other has one new file, for `--seconds`;
* beside: the same while one more sender loads `--large` files, `--task` of them (all, if it is not
  given) in one task, as long as that takes.

A load is the time from the end of a task to its outcome at the sender, a round all of it.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from common import wire  # noqa: E402
from scripts.bench.transfer_peers import BIN, cpu_of, serving  # noqa: E402
from sender.round.round import Round  # noqa: E402
from sender.send.sent_bytes.progress import Meter, RoundProgress  # noqa: E402
from tests.support.edge import Edge  # noqa: E402
from tests.support.tsfile_bytes import build  # noqa: E402

_PROCESSES = 4
_SIZE, _LARGE_SIZE = 20_000, 2_000
_PAUSE_S, _BETWEEN_S = 0.02, 0.1
_TRANSFER: dict[str, Any] = {
    "load_poll": 20.0,
    "read_timeout": 60.0,
    "load_timeout": 600.0,
    "connect_timeout": 30.0,
}


@dataclass
class Spent:
    """What rounds took, in seconds.

    Attributes:
        rounds: whole ones.
        loads: from the end of a task to its outcome.
        errors: of rounds that came to nothing.
    """

    rounds: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def add(self, other: Spent) -> None:
        """Count others too."""
        self.rounds += other.rounds
        self.loads += other.loads
        self.errors += other.errors


class Sender:
    """One of them: an edge with a storage group of its own."""

    def __init__(self, base: Path, number: int, url: str, **settings: Any) -> None:
        self.edge = Edge(base / f"edge-{number}", url, transfer=dict(_TRANSFER), **settings)
        self.edge.sg = f"root.edge{number}"
        self._written = 0

    def write(self, files: int, size: int) -> None:
        """New files, of one device in twenty."""
        for number in range(self._written + 1, self._written + files + 1):
            points = [(number * 1000 + each, each) for each in range(50)]
            content = build({f"{self.edge.sg}.d{number % 20}": {"s1": points}}, pad_to=size)
            self.edge.put(self.edge.path(number), content)
        self._written += files

    def round(self, spent: Spent) -> None:
        """A whole round, to *loaded*."""
        loading: list[float] = []

        def tell(progress: RoundProgress) -> None:
            if progress.step == "load" and not loading:
                loading.append(time.perf_counter())

        remote = self.edge.remote()
        lock = remote.lock()
        try:
            begin = time.perf_counter()
            report = Round(remote, meter=Meter(remote.name, tell)).run()
            end = time.perf_counter()
        finally:
            lock.release()
            remote.close()
        if report.error is not None:
            spent.errors.append(str(report.error))
        else:
            spent.rounds.append(end - begin)
            spent.loads += [end - each for each in loading]


def some_senders(base: Path, numbers: Sequence[int], url: str, files: int, line: Any) -> None:
    """A process with some of the senders: does what it is told, and answers with what it took."""
    senders = [Sender(base, number, url) for number in numbers]
    for each in senders:
        each.write(files, _SIZE)
    line.send(None)
    while (order := line.recv()) is not None:
        spent = Spent()
        if order == "together":
            _side_by_side([_round_of(each, spent) for each in senders])
        else:
            _in_turns(senders, spent, line, time.perf_counter() + order)
        line.send(spent)


def _round_of(sender: Sender, spent: Spent) -> threading.Thread:
    return threading.Thread(target=sender.round, args=(spent,))


def _in_turns(senders: Sequence[Sender], spent: Spent, line: Any, end: float) -> None:
    """A round of one after the other, until then or until it is told that this is enough."""
    for each in itertools.cycle(senders):
        if line.poll(_BETWEEN_S):
            line.recv()
            return
        if time.perf_counter() > end:
            return
        each.write(1, _SIZE)
        each.round(spent)


def _side_by_side(threads: Sequence[threading.Thread]) -> None:
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def one_large_sender(base: Path, url: str, files: int, task: int, line: Any) -> None:
    """A process with the sender of the large load, in tasks of so many files."""
    sender = Sender(base, 0, url, task_max_files=task)
    sender.write(files, _LARGE_SIZE)
    line.send(None)
    line.recv()
    spent = Spent()
    sender.round(spent)
    line.send(spent)


# -- who asks small questions ------------------------------------------------------------------


class Asking:
    """Asks small questions, each by a connection of its own that stays, and looks at the server."""

    def __init__(self, url: str, pid: int, token: str) -> None:
        self._host = urlsplit(url).netloc
        self._pid = pid
        self._token = token
        self._stop = threading.Event()
        self.seconds: dict[str, list[float]] = {}
        self.errors: list[str] = []
        self.most_descriptors = 0

    @contextmanager
    def all_along(self) -> Iterator[None]:
        """Ask while the block lasts."""
        self.seconds = {"check": [], "readyz": [], "status": []}
        self.errors = []
        self.most_descriptors = 0
        self._stop.clear()
        threads = [threading.Thread(target=self._ask, args=(name,)) for name in self.seconds]
        threads.append(threading.Thread(target=self._look))
        for each in threads:
            each.start()
        try:
            yield
        finally:
            self._stop.set()
            for each in threads:
                each.join()

    def _ask(self, name: str) -> None:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        while not self._stop.wait(_PAUSE_S):
            begin = time.perf_counter()
            if name == "check":
                asked = wire.CheckRequest(
                    protocol=wire.PROTOCOL,
                    version="bench",
                    sender="0" * 31 + "1",
                    partition_interval_ms=604_800_000,
                )
                headers = {"Content-Type": "application/json", wire.SENDER_HEADER: asked.sender}
                body = wire.encode(asked)
                connection.request("POST", f"{wire.BASE}/check", body, headers)
            elif name == "status":
                bearer = {"Authorization": f"Bearer {self._token}"}
                connection.request("GET", "/v1/status", headers=bearer)
            else:
                connection.request("GET", "/readyz")
            answer = connection.getresponse()
            content = answer.read()
            self.seconds[name].append(time.perf_counter() - begin)
            if answer.status != 200:
                self.errors.append(f"{name}: {answer.status} {content[:300]!r}")
                return

    def _look(self) -> None:
        while not self._stop.wait(0.1):
            count = len(os.listdir(f"/proc/{self._pid}/fd"))
            self.most_descriptors = max(self.most_descriptors, count)


# -- the parts ---------------------------------------------------------------------------------


def spread(values: Sequence[float]) -> dict[str, float]:
    """Least, median, 99 of 100, greatest; in seconds."""
    if not values:
        return {}
    every = sorted(values)
    return {
        "count": len(every),
        "least": every[0],
        "median": every[len(every) // 2],
        "p99": every[len(every) * 99 // 100],
        "greatest": every[-1],
    }


def peak_mib(pid: int) -> float:
    """The most memory that a process had so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(each.split()[1]) for each in lines if each.startswith("VmHWM")) / 1024


@dataclass
class Bench:
    """A receiver that runs, processes with senders, and who asks."""

    server: Any
    asking: Asking
    lines: list[Any]

    def part(self, name: str, order: float | str, large: Any = None) -> dict[str, Any]:
        """Carry out one part; what it took."""
        spent, alone = Spent(), Spent()
        cpu, begin = cpu_of(self.server.pid), time.perf_counter()
        with self.asking.all_along():
            for line in self.lines:
                line.send(order)
            if large is not None:
                large.send("now")
                alone = large.recv()
                for line in self.lines:
                    line.send("enough")
            for line in self.lines:
                spent.add(line.recv())
        found = {
            "part": name,
            "seconds": time.perf_counter() - begin,
            "cpu": cpu_of(self.server.pid) - cpu,
            "rounds": spread(spent.rounds),
            "loads": spread(spent.loads),
            "large": {"round": spread(alone.rounds), "load": spread(alone.loads)},
            "errors": [*spent.errors, *alone.errors, *self.asking.errors],
            "small": {name: spread(each) for name, each in self.asking.seconds.items()},
            "peak_mib": peak_mib(self.server.pid),
            "descriptors": self.asking.most_descriptors,
        }
        print(table([found], head=False), flush=True)
        for error in found["errors"][:3]:
            print(f"  {error}", flush=True)
        return found


@contextmanager
def running(at: Path, given: argparse.Namespace) -> Iterator[tuple[Bench, Any]]:
    """The receiver, the senders with their files, and the line to the large one."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=at) as base:
        place = Path(base)
        for name in ("cs", "cd"):
            (place / name).mkdir()
        centre, ready = place / "centre.toml", place / "ready"
        centre.write_text('schema_dir = "cs"\ndata_dirs = ["cd"]\n')
        command = [BIN / "tsferry-receiver", "-c", centre, "serve", "--port", 0]
        log = place / "server.log"
        with serving([*command, "--ready-file", ready], log) as server:
            while not ready.exists():
                if server.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.02)
            url = ready.read_text().strip()
            numbers = [range(1 + each, given.senders + 1, _PROCESSES) for each in range(_PROCESSES)]
            works = [(some_senders, (place, each, url, given.files)) for each in numbers]
            works.append((one_large_sender, (place, url, given.large, given.task or given.large)))
            lines, processes = [], []
            for target, args in works:
                mine, theirs = context.Pipe()
                process = context.Process(target=target, args=(*args, theirs), daemon=True)
                process.start()
                lines.append(mine)
                processes.append(process)
            for each in lines:
                each.recv()
            os.sync()
            token = (place / "cs" / "operator.token").read_text().strip()
            *senders, large = lines
            try:
                yield Bench(server, Asking(url, server.pid, token), senders), large
            finally:
                for each in processes:
                    each.terminate()
                    each.join()


def table(parts: Sequence[dict[str, Any]], *, head: bool = True) -> str:
    """Markdown, a row for each part."""
    titles = ("part", "rounds: least / median / greatest", "loads: median / p99 / greatest")
    titles += ("small questions: p50 / p99 / greatest", "the large load", "memory", "descriptors")
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)] if head else []
    for each in parts:
        rounds, loads, large = each["rounds"], each["loads"], each["large"]["load"]
        small = [
            f"{name} {1000 * of['median']:.0f} / {1000 * of['p99']:.0f} / "
            f"{1000 * of['greatest']:.0f} ms"
            for name, of in each["small"].items()
        ]
        cells = (
            each["part"],
            f"{rounds['least']:.2f} / {rounds['median']:.2f} / {rounds['greatest']:.2f} s",
            f"{loads['median']:.2f} / {loads['p99']:.2f} / {loads['greatest']:.2f} s",
            "; ".join(small),
            f"{large['greatest']:.1f} s" if large else "-",
            f"{each['peak_mib']:.0f} MiB",
            str(each["descriptors"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--senders", type=int, default=100)
    options.add_argument("--files", type=int, default=10, help="of each, at first")
    options.add_argument("--large", type=int, default=20_000, help="files of the large load")
    options.add_argument("--task", type=int, help="files of one task of it; all of them")
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--at", type=Path, default=Path(tempfile.gettempdir()))
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    load = os.getloadavg()[0]
    with running(given.at, given) as (bench, large):
        parts = [
            bench.part("together", "together"),
            bench.part("in turns", given.seconds),
            bench.part("beside", 3600.0, large),
        ]
    print(table(parts))
    if given.json:
        settings = {each: getattr(given, each) for each in ("senders", "files", "large")}
        machine = {"cpus": os.cpu_count(), "python": platform.python_version()}
        machine |= {"kernel": platform.release(), "at": str(given.at), "load": load}
        found = {"machine": machine, "settings": settings, "parts": parts}
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
