"""What one master bears: many storage nodes with many tablets, and many edges, simulated.

    .venv/bin/python scripts/bench/scale.py [--nodes 1000] [--tablets 10000] [--edges 100000]
                                            [--runs 5] [--write] [--json FILE]

The master is real: an engine on a disk, a receiver over it, its node manager. Nodes and edges are
messages, as JSON, handed to the code behind the calls with the time handed in; sockets are left
out, their cost is `http_server.py`'s. A tablet has three copies, so three nodes report it; rows of
tablets and senders are put in as a checkpoint would. A commit is that of a task of one file. Each
run has a process of its own; the median stands against its limit, and one that is past it makes the
exit code 1.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import queue
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec
from marked_page import fill

from common.decoders import from_json
from common.wire import Heartbeat
from receiver.config import ReceiverConfig
from receiver.heartbeats.node_manager import NodeManager
from receiver.heartbeats.node_wire import (
    PAGE_TABLETS,
    NodeHeartbeat,
    NodeHeartbeatAnswer,
    NodeRegistration,
    NodeStart,
    ReportedTablet,
    TabletReport,
)
from receiver.metadata.model import records
from receiver.metadata.state.tables.place_tables.tablets import TabletRow
from receiver.node import Node
from receiver.operator.places.remote_nodes import node_totals
from receiver.principal import Principal

ROOT = Path(__file__).resolve().parents[2]
COPIES = 3
THREADS = 16
"""As `listen.threads`."""
COMMITS = 2000
LOOKS = 100_000
INTERVAL = 5.0
EDGE_INTERVAL = 60.0
EACH_COMMIT = 6.0
"""Milliseconds: 100,000 edges with a task in ten minutes each are 167 commits a second."""
MARK = "b" * 16
"""Stands in the pages that are made once for the first half of each id."""


class Figure(msgspec.Struct, frozen=True):
    """What was measured, and what it may be at most."""

    what: str
    value: float
    unit: str
    limit: float

    @property
    def is_within(self) -> bool:
        return self.value <= self.limit


def resident() -> float:
    """MiB of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def uuid_of(number: int) -> str:
    return f"{number:032x}"


def edge_of(number: int) -> str:
    """A uuid that begins with sixteen zeros would be the centre's own."""
    return f"e{number:031x}"


class Simulated:
    """The nodes: what each would say, made of a few templates."""

    def __init__(self, nodes: int, tablets: int) -> None:
        self.nodes = nodes
        self.tablets = tablets
        self._pages = [self._page(begin) for begin in range(0, tablets, PAGE_TABLETS)]

    def group(self, node: int) -> str:
        """The first half of the ids of a node: as many share it as a tablet has copies."""
        return f"{node // COPIES + 1:016x}"

    def ids(self, group: str) -> Iterator[str]:
        return (f"{group}{number:016x}" for number in range(self.tablets))

    def start(self, node: int) -> NodeStart:
        return NodeStart(uuid=uuid_of(node + 1), instance=1, boot=uuid_of(node + 1))

    def quiet(self, node: int) -> bytes:
        return msgspec.json.encode(NodeHeartbeat(start=self.start(node)))

    def registration(self, node: int) -> bytes:
        made = NodeRegistration(
            url=f"https://node{node}.example.com:8765",
            host=f"host{node}",
            call_key="k" * 64,
            before=tuple(uuid_of(each) for each in range(1, 65)),
        )
        return msgspec.json.encode(NodeHeartbeat(start=self.start(node), registration=made))

    def pages(self, node: int) -> Iterator[bytes]:
        start, group = self.start(node).uuid.encode(), self.group(node).encode()
        for page in self._pages:
            yield page.replace(b"a" * 32, start).replace(MARK.encode(), group)

    def changes(self, node: int, sequence: int, several: int) -> bytes:
        rows = [
            ReportedTablet(id=each, files=sequence, size=1 << 30, digest="f" * 32)
            for each, _ in zip(self.ids(self.group(node)), range(several), strict=False)
        ]
        report = TabletReport(
            is_incremental=True, base=sequence - 1, sequence=sequence, tablets=tuple(rows)
        )
        return msgspec.json.encode(NodeHeartbeat(start=self.start(node), report=report))

    def _page(self, begin: int) -> bytes:
        rows = [
            ReportedTablet(
                id=f"{MARK}{number:016x}",
                generation=3,
                version=470812834952642560,
                files=24,
                size=3 << 30,
                digest="d" * 32,
            )
            for number in range(begin, min(begin + PAGE_TABLETS, self.tablets))
        ]
        report = TabletReport(
            is_incremental=False,
            sequence=1,
            number=1,
            page=begin // PAGE_TABLETS,
            is_last=begin + PAGE_TABLETS >= self.tablets,
            tablets=tuple(rows),
        )
        start = NodeStart(uuid="a" * 32, instance=1, boot="a" * 32)
        return msgspec.json.encode(NodeHeartbeat(start=start, report=report))


def say(manager: NodeManager, body: bytes) -> NodeHeartbeatAnswer:
    """What is behind the call: decode, judge, encode."""
    answer = manager.heartbeat(from_json(body, NodeHeartbeat))
    msgspec.json.encode(answer)
    return answer


def each_takes(calls: int, call: Callable[[int], object]) -> float:
    """Microseconds of processor time of one call."""
    begin = time.process_time()
    for number in range(calls):
        call(number)
    return (time.process_time() - begin) * 1e6 / calls


# -- nodes ---------------------------------------------------------------------------------------


def put_tablets(node: Node, simulated: Simulated) -> int:
    """The rows of all tablets, as a checkpoint would put them in; returns how many."""
    with node.engine.reading() as state:
        groups = -(-simulated.nodes // COPIES)
        for number in range(groups):
            group = f"{number + 1:016x}"
            table = uuid_of(number + 1)
            for begin, each in enumerate(simulated.ids(group)):
                state.tablet_table.restore(
                    TabletRow(
                        id=each, table=table, begin=begin, end=begin + 1, created=1, changed=1
                    )
                )
        return groups * simulated.tablets


def reconcile(manager: NodeManager, simulated: Simulated) -> tuple[float, float, list[float]]:
    """All full reports after a restart, by as many threads as a server has.

    Returns:
        seconds; seconds of processor time; how long a quiet heartbeat took meanwhile, each time.
    """
    waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    for node in [*range(1, simulated.nodes), *[None] * THREADS]:
        waiting.put(node)
    report(manager, simulated, 0)
    ended = threading.Event()
    took: list[float] = []

    def work() -> None:
        while (node := waiting.get()) is not None:
            report(manager, simulated, node)

    def probe() -> None:
        quiet = simulated.quiet(0)
        while not ended.wait(0.02):
            begin = time.perf_counter()
            say(manager, quiet)
            took.append(time.perf_counter() - begin)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    prober = threading.Thread(target=probe)
    begin, cpu = time.perf_counter(), time.process_time()
    prober.start()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    ended.set()
    prober.join()
    return seconds, cpu, took


def report(manager: NodeManager, simulated: Simulated, node: int) -> None:
    """A node's way after a restart of the master."""
    assert say(manager, simulated.quiet(node)).needs_reregister
    assert say(manager, simulated.registration(node)).needs_full_report
    for page in simulated.pages(node):
        answer = say(manager, page)
    assert answer.acknowledged == 1, answer


def of_nodes(node: Node, simulated: Simulated) -> list[Figure]:
    now = [0.0]
    tablets = simulated.nodes * simulated.tablets

    def manager() -> NodeManager:
        return NodeManager(node.engine, timeout=30.0, monotonic=lambda: now[0])

    found = []
    first = manager()
    begin = time.perf_counter()
    for each in range(simulated.nodes):
        say(first, simulated.registration(each))
    commits = (time.perf_counter() - begin) * 1000 / simulated.nodes
    found.append(Figure("a first registration, with its commit, ms", commits, "ms", 50.0))

    before = resident()
    rows = put_tablets(node, simulated)
    of_rows = resident() - before
    found.append(Figure(f"{rows:,} rows of tablets in the engine", of_rows, "MiB", 2048.0))
    found.append(
        Figure("a look-up of a tablet among these, processor time", look_up(node), "us", 5.0)
    )

    master = manager()  # it knows nobody, as after a restart
    before = resident()
    seconds, cpu, took = reconcile(master, simulated)
    memory = resident() - before
    found += [
        Figure(f"all full reports after a restart, {tablets:,} tablets", seconds, "s", 60.0),
        Figure("- processor time of these", cpu, "s", 60.0),
        Figure("- the longest answer meanwhile", max(took), "s", 1.0),
        Figure("- the middle one", statistics.median(took), "s", 1.0),
        Figure("- memory of what is reported", memory, "MiB", 1024.0),
    ]
    quiet = [simulated.quiet(each) for each in range(simulated.nodes)]
    cost = each_takes(20_000, lambda number: say(master, quiet[number % simulated.nodes]))
    share = cost * simulated.nodes / INTERVAL / 1e4
    found += [
        Figure("a quiet heartbeat, processor time", cost, "us", 500.0),
        Figure(f"- of all nodes, each {INTERVAL:.0f} s: of a core", share, "%", 20.0),
    ]
    sequence = [1] * simulated.nodes
    said = []
    for number in range(4 * simulated.nodes):
        each = number % simulated.nodes
        sequence[each] += 1
        said.append(simulated.changes(each, sequence[each], 10))
    cost = each_takes(len(said), lambda number: say(master, said[number]))
    found.append(Figure("a heartbeat with ten changes, processor time", cost, "us", 2000.0))

    held = node.operator
    object.__setattr__(held, "nodes", master)
    now[0] = 31.0
    begin, cpu = time.perf_counter(), time.process_time()
    totals = node_totals(held)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    found.append(Figure("status of all nodes", seconds, "s", 5.0))
    found.append(Figure("- processor time of it", cpu, "s", 1.0))
    assert (totals.down, totals.tablets) == (simulated.nodes, tablets), totals
    assert totals.unknown == 0, "each tablet that is reported has its row"
    return found


def look_up(node: Node) -> float:
    """Which tablet has a partition of a table: microseconds, at random among all."""
    some = random.Random(1)
    with node.engine.reading() as state:
        table = state.tablet_table
        rows = some.choices(list(table.rows.values()), k=LOOKS)
        keys = [(row.table, some.randrange(row.begin, row.end)) for row in rows]
        begin = time.process_time()
        for ident, partition in keys:
            table.holding(ident, partition)
        return (time.process_time() - begin) * 1e6 / LOOKS


# -- edges ---------------------------------------------------------------------------------------


def of_edges(node: Node, edges: int) -> list[Figure]:
    for low in range(0, edges, 5000):
        node.engine.commit(
            [
                records.SenderSeen(edge_of(each), f"edge {each}", f"edge-{each}")
                for each in range(low, min(low + 5000, edges))
            ]
        )
    who = [
        Principal("sender", edge_of(each), (), f"{each:08x}", "10.0.0.1") for each in range(edges)
    ]
    said = msgspec.json.encode(
        Heartbeat(version="0.1.0", label="edge", pending_files=3, pending_bytes=1 << 20)
    )

    def beat(number: int) -> None:
        each = number % edges
        answer = node.checks.heartbeat(who[each], edge_of(each), from_json(said, Heartbeat))
        msgspec.json.encode(answer)

    before = resident()
    cost = each_takes(edges, beat)
    memory = resident() - before
    alone, together = (commits_take(node, threads) for threads in (1, THREADS))
    return [
        Figure("a commit of a task, the log on the disk", alone, "ms", 100.0),
        Figure(f"- of {THREADS} at a time: each", together, "ms", EACH_COMMIT),
        Figure(f"heartbeats of {edges:,} edges, memory", memory, "MiB", 256.0),
        Figure("a heartbeat of an edge, processor time", cost, "us", 500.0),
        Figure(
            f"- of all edges, each {EDGE_INTERVAL:.0f} s: of a core",
            cost * edges / EDGE_INTERVAL / 1e4,
            "%",
            50.0,
        ),
    ]


def commits_take(node: Node, threads: int) -> float:
    """Milliseconds of the clock a commit, of so many threads at once."""
    count = COMMITS // threads

    def work(thread: int) -> None:
        for each in range(count):
            task = f"{threads:08x}{thread:012x}{each:012x}"
            done = records.FileOutcome(f"sequence/root.a/0/0/{each}-1-0-0.tsfile", "refused")
            node.engine.commit([records.TaskDone(edge_of(thread), task, [done])])

    workers = [threading.Thread(target=work, args=(each,)) for each in range(threads)]
    begin = time.perf_counter()
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    return (time.perf_counter() - begin) * 1000 / (count * threads)


def table(runs: list[list[Figure]], nodes: int, tablets: int, edges: int) -> str:
    lines = [
        f"{nodes:,} nodes with {tablets:,} tablets each, {edges:,} edges:",
        "",
        "| what | measured | limit |",
        "|---|---|---|",
    ]
    for each, several in zip(medians(runs), zip(*runs, strict=True), strict=True):
        low, high = min(one.value for one in several), max(one.value for one in several)
        lines.append(
            f"| {each.what.removesuffix(', ms')} | {each.value:.3g} ({low:.3g} to {high:.3g}) "
            f"{each.unit} | {each.limit:g} {each.unit} |"
        )
    count = "One run" if len(runs) == 1 else f"Medians of {len(runs)} runs"
    lines += [
        "",
        f"{count}; load average {os.getloadavg()[0]:.1f} behind it, on {os.cpu_count()} cores.",
    ]
    return "\n".join(lines)


def medians(runs: list[list[Figure]]) -> list[Figure]:
    return [
        msgspec.structs.replace(each[0], value=statistics.median(one.value for one in each))
        for each in zip(*runs, strict=True)
    ]


def in_a_process(words: list[str]) -> list[Figure]:
    """One run: what the one before has left in memory is none of it."""
    with tempfile.NamedTemporaryFile(suffix=".json") as told:
        command = [sys.executable, __file__, *words, "--runs", "1", "--json", told.name]
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        if done.returncode not in (0, 1):
            raise SystemExit(f"a run ended with exit code {done.returncode}")
        return msgspec.json.decode(Path(told.name).read_bytes(), type=list[Figure])


def one_run(nodes: int, tablets: int, edges: int) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="tsferry-scale.") as root:
        config = ReceiverConfig(schema_dir=Path(root, "schema"), data_dirs=(Path(root, "data"),))
        with Node.open(config) as node:
            return [*of_edges(node, edges), *of_nodes(node, Simulated(nodes, tablets))]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--nodes", type=int, default=1000)
    options.add_argument("--tablets", type=int, default=10_000, help="of each node")
    options.add_argument("--edges", type=int, default=100_000)
    options.add_argument("--runs", type=int, default=5, help="each in a process of its own")
    options.add_argument("--write", action="store_true", help="the table of docs/scale.md")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    sizes = {"nodes": given.nodes, "tablets": given.tablets, "edges": given.edges}
    if given.runs > 1:
        words = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
        runs = [in_a_process(words) for _ in range(given.runs)]
    else:
        runs = [one_run(**sizes)]
    found = medians(runs)
    text = table(runs, **sizes)
    print(text)
    if given.write:
        fill(ROOT / "docs" / "scale.md", "scale", text)
    if given.json:
        given.json.write_text(json.dumps([msgspec.to_builtins(each) for each in found], indent=1))
    late = [each.what for each in found if not each.is_within]
    for each in late:
        print(f"past its limit: {each}")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
