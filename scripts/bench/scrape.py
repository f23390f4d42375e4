"""A scrape of a centre's metrics: seconds of a processor, bytes, and how long it holds the lock.

python scripts/bench/scrape.py [--edges 10000] [--nodes 1000] [--measured 1000] [--runs 7]

The edges and the storage nodes have all been heard; `--measured` of the edges have measures of
their own (`metrics.edges`). A scrape *behind a commit* reads committed state anew, one *again* has
it from before. The lock is the engine's, which commits wait for: its longest hold of a scrape, and
all of them together, by the clock. Medians, and from the least to the most.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common import wire
from receiver.metadata.model import records
from receiver.metadata.state.state import State
from receiver.metrics.receiver_readings import ReceiverReadings
from receiver.metrics.request_tallies import NodeStanding, RequestTallies
from receiver.node import Node
from tests.support.heard_nodes import SpeakingNode
from tests.support.node_world import World


class TimedLock:
    """Stands in for `Engine.reading`, and knows how long each look held the lock."""

    def __init__(self, node: Node) -> None:
        self._real = node.engine.reading
        self.held: list[float] = []
        node.engine.reading = self  # type: ignore[method-assign]  # a benchmark may

    @contextmanager
    def __call__(self) -> Iterator[State]:
        with self._real() as state:
            begin = time.perf_counter()
            try:
                yield state
            finally:
                self.held.append(time.perf_counter() - begin)


def fill(node: Node, root: Path, edges: int, nodes: int) -> None:
    """So many edges and storage nodes, each of which was heard."""
    uuids = [f"{number + 1:032x}" for number in range(edges)]
    node.engine.commit(
        [
            records.SenderSeen(uuid=each, label=f"edge {each[-6:]}", directory=f"x_{each}")
            for each in uuids
        ]
    )
    for number, uuid in enumerate(uuids):
        beat = wire.Heartbeat(
            version=f"0.{number % 30}.0",
            pending_files=number % 7,
            pending_bytes=number * 1000,
            complete_until=1_788_000_000_000 - number,
        )
        node.checks.heard.beaten(uuid, time.time(), beat)
    for number in range(nodes):
        SpeakingNode(root / f"node{number}", free=1 << 40).say(node.nodes)


def measured(reads: ReceiverReadings, lock: TimedLock) -> tuple[float, int, float, float]:
    """Seconds of a processor, bytes, the longest hold of the lock and all holds in seconds."""
    lock.held.clear()
    begin = time.process_time()
    text = reads.text()
    return time.process_time() - begin, len(text), max(lock.held), sum(lock.held)


def told(name: str, found: list[tuple[float, int, float, float]]) -> str:
    """A line of the table."""
    cpu, size, longest, all_of_it = zip(*found, strict=True)
    spans = (f"{statistics.median(each) * 1000:.0f} ms ({min(each) * 1000:.0f} to "
             f"{max(each) * 1000:.0f})" for each in (cpu, longest, all_of_it))  # fmt: skip
    processor, hold, holds = spans
    return (
        f"{name:<15} {processor} of a processor, {max(size):,} bytes, "
        f"lock held for {hold} at a time, {holds} in all"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--edges", type=int, default=10_000)
    arguments.add_argument("--nodes", type=int, default=1_000)
    arguments.add_argument("--measured", type=int, default=1_000)
    arguments.add_argument("--runs", type=int, default=7)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="scrape") as kept:
        world = World(Path(kept) / "centre", clock=time.time)
        for each in (world.config.schema_dir, *world.config.data_dirs):
            each.mkdir(parents=True)
        with world.node() as node:
            fill(node, Path(kept), given.edges, given.nodes)
            reads = ReceiverReadings(
                node.operator,
                RequestTallies(),
                lambda: NodeStanding(None, 0, "0.1.0"),
                most_edges=given.measured,
            )
            lock = TimedLock(node)
            anew, again = [], []
            for run in range(given.runs):
                node.engine.commit([records.SenderSeen(f"{1:032x}", f"edge {run}", f"x_{1:032x}")])
                anew.append(measured(reads, lock))
                again.append(measured(reads, lock))
    print(f"{given.edges:,} edges, {given.measured:,} with measures, {given.nodes:,} nodes")
    print(told("behind a commit", anew))
    print(told("again", again))


if __name__ == "__main__":
    main()
