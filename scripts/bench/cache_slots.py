"""What cache nodes bring beside the memory of each worker, in what comes from the store.

    python scripts/bench/cache_slots.py [--files 48] [--workers 4] [--nodes 2] [--repeat 3]

One file a partition, all in SeaweedFS alone, behind a proxy that lets a request wait and has all
answers share a slow line. Processes read all files, several times (*queries*), as workers of Spark
do, each with memory for what it has read:

    any worker          each query deals the files out anew, as Spark does
    rendezvous          each file is always the same worker's; no source in Python can ask that of
                        Spark
    cache nodes         any worker, by way of storage nodes that keep what is read (real processes)

in four plays: one application that asks three times, the same with memory for a quarter of a
worker's share, three applications one after the other (new processes), and one that has a worker
more for the third question. Told are bytes and requests that the store gave, as a multiple of
the files' (1.0: each once), and seconds, medians of `--repeat` runs by turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from receiver.placement.slot_map import rendezvous
from receiver.storage.cache.stored_files import place_of
from receiver.storage.reading.open_stores import OpenStores
from receiver.storage.reading.receiver_reads import TOKEN, ReceiverReads
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress, StoredPlace
from tests.support.centre import COMMAND
from tests.support.node_process import NodeProcess
from tests.support.procs import Children, children, wait_until
from tests.support.s3_proxy import S3Proxy
from tests.support.s3_server import KEY, REGION, SECRET, s3_server
from tests.support.spark_world import NORTH
from tests.support.stored_world import StoredWorld
from tests.support.tsfile_bytes import build, noise

PLAYS = ("one application", "little memory", "three applications", "one worker more")
WAYS = ("any worker", "rendezvous", "cache nodes")
QUERIES = 3


# -- a worker, in a process of its own -----------------------------------------------------------


def work() -> None:
    """Read what each line of the input names; the first one says how much memory there is."""
    stores = OpenStores(json.loads(sys.stdin.readline()))
    print("ready", flush=True)
    for line in sys.stdin:
        for each in json.loads(line):
            given = {**each, "store": StoreAddress(**each["store"])}
            if each["receiver"] is not None:
                given["receiver"] = ReceiverAddress(**each["receiver"])
            with stores.file(StoredPlace(**given)) as file:
                assert len(file.read(0, file.size)) == file.size
        print("done", flush=True)


class Worker:
    """The process of a worker."""

    def __init__(self, memory: int, token: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, __file__, "--work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {TOKEN: token},
        )
        self.tell(memory)

    def tell(self, what: Any) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(what) + "\n")
        self._child.stdin.flush()

    def wait(self) -> None:
        assert self._child.stdout is not None
        if not self._child.stdout.readline():
            raise SystemExit("a worker has ended")

    def end(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()


# -- the bench -----------------------------------------------------------------------------------


class Site:
    """The files, the store with its proxy, a receiver and its nodes."""

    def __init__(self, root: Path, given: argparse.Namespace, stack: ExitStack) -> None:
        self.root, self.given, self.stack = root, given, stack
        server = stack.enter_context(s3_server(root / "s3"))
        self.proxy = stack.enter_context(S3Proxy(server.endpoint))
        self.processes: Children = stack.enter_context(children(root))
        (root / "world").mkdir()
        world = StoredWorld(root / "world")
        options = {"endpoint": server.endpoint, "region": REGION, "path_style": True}
        world.configure("s3://bench/slots", options)
        for number in range(given.files):
            content = build({"root.edge.d1": {"s": [(number, noise(given.mib << 20))]}})
            name = f"{number}-{number}-0-0.tsfile"
            world.load(NORTH, f"sequence/root.edge/0/{number}/{name}", content)
        world.upload()
        address = StoreAddress(
            "s3://bench/slots", self.proxy.endpoint, region=REGION, path_style=True
        )
        with world.engine.reading() as state:
            self.places = [
                place_of(address, world.engine.uuid, state.uploaded_table.rows[each], row.md5)
                for each, row in state.files.items()
            ]
        self.size = sum(each.size for each in self.places)
        world.engine.close()
        self.config = world.config
        with self.config.open("a") as out:
            out.write('[listen]\nhost = "127.0.0.1"\nport = 0\n[limits]\nmin_free_bytes = 0\n')
        self.url = self._serve()
        self.token = self._token("reader")
        self.nodes: list[NodeProcess] = []
        self.urls: list[str] = []
        self.asks = ReceiverReads(ReceiverAddress(self.url), self.token)
        stack.callback(self.asks.close)
        self.proxy.delay, self.proxy.rate = given.delay, given.rate * 1e6

    def _serve(self) -> str:
        ready = self.root / "ready"
        server = self.processes.start(
            [COMMAND, "--config", str(self.config), "serve", "--ready-file", str(ready)]
        )
        server.until(lambda: ready.exists() and ready.read_text().strip(), "listening")
        return ready.read_text().strip()

    def _run(self, *words: str) -> Any:
        done = subprocess.run(
            [COMMAND, "--config", str(self.config), *words, "--json"],
            check=True,
            capture_output=True,
        )
        return json.loads(done.stdout)

    def _token(self, role: str) -> str:
        return str(self._run("token", "create", "--role", role)["token"])

    def begin_nodes(self) -> None:
        """Cache nodes that have kept nothing yet, in the place of those before."""
        for each in self.nodes:
            each.kill()
            shutil.rmtree(each.root / "kept", ignore_errors=True)
        if not self.nodes:
            token = self._token("node")
            store = (
                f'[storage]\nurl = "s3://bench/slots"\nendpoint = "{self.proxy.endpoint}"\n'
                f'region = "{REGION}"\npath_style = true\n'
            )
            for number in range(self.given.nodes):
                root = self.root / f"node{number}"
                more = f'cache_dir = "{root / "kept"}"\ncache_bytes = "1GiB"\n{store}'
                made = NodeProcess(root, self.processes, self.url, token, more=more)
                self.nodes.append(made)
        self.urls = [each.start() for each in self.nodes]
        wait_until(self._has_slots, "the slots have their nodes")

    def _has_slots(self) -> bool:
        """Whether a reader is sent for each file to a node of those that run now."""
        there = [self.asks.where(each.physical).cache for each in self.places]
        return all(each is not None and each.url in self.urls for each in there)

    def play(self, play: str, way: str) -> tuple[float, float, float]:
        """Multiples of bytes and requests that came of the store, and seconds."""
        if way == "cache nodes":
            self.begin_nodes()
        share = self.size // self.given.workers
        memory = max(share // 4, (self.given.mib + 1) << 20)
        memory = memory if play == "little memory" else 128 << 20
        chance = random.Random(7)
        with ExitStack() as stack:
            workers: list[Worker] = []

            def more(count: int) -> None:
                made = [Worker(memory, self.token) for _ in range(count)]
                for each in made:
                    stack.callback(each.end)
                    each.wait()
                workers.extend(made)

            more(self.given.workers)
            self.proxy.given.clear()
            self.proxy.seen.clear()
            seconds = 0.0
            for number in range(QUERIES):
                if number and play == "three applications":
                    for each in workers:
                        each.end()
                    workers.clear()
                    more(self.given.workers)
                if number == QUERIES - 1 and play == "one worker more":
                    more(1)
                begun = time.perf_counter()
                self._ask(workers, way, chance)
                seconds += time.perf_counter() - begun
        gets = sum(each.method == "GET" for each in self.proxy.seen)
        return sum(self.proxy.given.values()) / self.size, gets / len(self.places), seconds

    def _ask(self, workers: Sequence[Worker], way: str, chance: random.Random) -> None:
        dealt: list[list[StoredPlace]] = [[] for _ in workers]
        names = {str(number): 1 for number in range(len(workers))}
        places = [*self.places]
        chance.shuffle(places)
        for at, place in enumerate(places):
            number = int(rendezvous(place.physical, names)) if way == "rendezvous" else at
            dealt[number % len(workers)].append(place)
        for worker, some in zip(workers, dealt, strict=True):
            said = [asdict(each) for each in some]
            if way == "cache nodes":
                said = [{**each, "receiver": {"url": self.url, "ca_cert": None}} for each in said]
            worker.tell(said)
        for worker in workers:
            worker.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    numbers: dict[str, tuple[Callable[[str], Any], Any, str]] = {
        "files": (int, 48, "of as many partitions"),
        "mib": (int, 1, "of each"),
        "workers": (int, 4, "processes that read"),
        "nodes": (int, 2, "cache nodes"),
        "delay": (float, 0.05, "seconds of each request to the store"),
        "rate": (float, 25.0, "MB a second of its line"),
        "repeat": (int, 3, "runs"),
    }
    for name, (kind, default, what) in numbers.items():
        parser.add_argument(f"--{name}", type=kind, default=default, help=what)
    parser.add_argument("--play", nargs="+", choices=PLAYS, default=PLAYS)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work()
        return
    os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        site = Site(Path(name), given, stack)
        print(f"{given.files} files, {site.size / 1e6:.1f} MB; load {os.getloadavg()[0]:.1f}")
        for play in given.play:
            runs: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
            for _ in range(given.repeat):
                for way, found in runs.items():
                    found.append(site.play(play, way))
            for way, found in runs.items():
                size, requests, seconds = (statistics.median(each) for each in zip(*found))  # noqa: B905
                least, most = min(run[2] for run in found), max(run[2] for run in found)
                print(
                    f"{play:20} {way:12} bytes x {size:4.2f}  requests x {requests:4.2f}  "
                    f"{seconds:6.1f} s ({least:.1f} to {most:.1f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
