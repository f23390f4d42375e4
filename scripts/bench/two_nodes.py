"""What a second storage node brings where the disks are the limit, and what the first one costs.

    sudo .venv/bin/python scripts/bench/two_nodes.py [--limit 8] [--edges 4] [--files 6]
                [--repeat 5] [--ways NAME ...] [--transfer LINES] [--at DIR] [--json FILE]
                [--write]

Each disk is an ext4 on a loop device, and what is written to it is limited by the kernel
(`blkio.throttle.write_bps_device` of the first version of cgroups, at the root, which counts
what is written back too). Receivers, nodes and senders are real processes on loopback, anew in each
run: edges with a storage group each, half of their files in a partition that has a tablet, half in
one that is new. A run is the time from the start of all `sync` to the end of the last; with nodes a
file is loaded once a node has it too (`nodes.before_ack = 1`). The ways go by turns:

    no node         a receiver with one disk
    its disk + 1    a master with one disk, and a node with another
    1 node          a master whose disk is not limited, and a node
    2 nodes         the same with two nodes
    its disk + 2    two nodes, and the master's disk is limited as theirs

What is told: MB loaded a second, of each way the ratio to another one of the same turn, and how
much each disk has written.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.as_installed import compile_modules  # noqa: E402
from scripts.bench.marked_page import fill  # noqa: E402
from tests.support.centre import Centre  # noqa: E402
from tests.support.edge import WEEK_MS, Edge  # noqa: E402
from tests.support.node_process import NodeProcess  # noqa: E402
from tests.support.procs import children, wait_until  # noqa: E402
from tests.support.tsfile_bytes import build, noise  # noqa: E402

_THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
_SENDER = Path(sys.executable).with_name("tsferry-sender")
_SIZE = 10 << 20
_PATIENCE_S = 600.0


class Way(NamedTuple):
    """Who has which disks; the ratio is to another way."""

    nodes: int
    master: bool
    beside: str


WAYS = {
    "no node": Way(0, True, "no node"),
    "its disk + 1": Way(1, True, "no node"),
    "1 node": Way(1, False, "no node"),
    "2 nodes": Way(2, False, "1 node"),
    "its disk + 2": Way(2, True, "its disk + 1"),
}


class Ran(NamedTuple):
    """What a run has come to: bytes a second, and what each disk has written, of what was sent."""

    rate: float
    written: list[float]


class LimitedDisk:
    """A file system on a loop device."""

    def __init__(self, image: Path, at: Path, size: int) -> None:
        with image.open("wb") as made:
            made.truncate(size)
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image))
        self.device = _run("losetup", "--find", "--show", str(image)).strip()
        self.at = at
        at.mkdir()
        try:
            _run("mount", self.device, str(at))
        except BaseException:
            _run("losetup", "--detach", self.device)
            raise
        self._block = Path("/sys/block") / Path(self.device).name
        self._number = (self._block / "dev").read_text().strip()

    def limit(self, rate: float) -> None:
        """Bytes a second that may be written; 0 for any."""
        _THROTTLE.write_text(f"{self._number} {int(rate)}\n")

    def written(self) -> int:
        """Bytes, since the device is there."""
        return int((self._block / "stat").read_text().split()[6]) * 512

    def close(self) -> None:
        self.limit(0)
        _run("umount", str(self.at))
        _run("losetup", "--detach", self.device)


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@contextmanager
def limited_disks(place: Path, size: int) -> Iterator[list[LimitedDisk]]:
    """Three of them."""
    with ExitStack() as stack:
        disks = []
        for number in range(3):
            disk = LimitedDisk(place / f"disk{number}.img", place / f"disk{number}", size)
            stack.callback(disk.close)
            disks.append(disk)
        yield disks


class Sending:
    """An edge whose rounds are processes."""

    def __init__(self, root: Path, number: int, url: str, more: str) -> None:
        self.edge = Edge(root / f"edge{number}", url)
        self.edge.sg = f"root.edge{number}"
        self.number = number
        self.config = root / f"edge{number}" / "bench.toml"
        self.config.write_text(
            f'schema_dir = "{self.edge.schema}"\ndata_dirs = ["{self.edge.data}"]\n'
            f'[[receiver]]\nname = "dc1"\nurl = "{url}"\nnodes = true\n'
            f"[transfer]\nload_timeout = {_PATIENCE_S}\nread_timeout = 120\n{more}"
        )
        self.written = 0

    def write(self, files: int, size: int | None) -> None:
        """Files, half of them in the partition of the first ones; noise, so nothing is packed."""
        for each in range(files):
            self.written += 1
            name = f"{1581324718762 + self.written}-{self.written}-0-0.tsfile"
            partition = each % 2
            path = f"sequence/{self.edge.sg}/0/{partition}/{name}"
            begin = partition * WEEK_MS + self.written * 1000
            series: dict[str, Any] = {"s1": [(begin, 1)]}
            if size is not None:
                series["s2"] = [(begin, noise(size))]
            self.edge.put(path, build({f"{self.edge.sg}.d1": series}))

    def sync(self) -> subprocess.Popen[bytes]:
        """A round, from now on."""
        return subprocess.Popen(
            [str(_SENDER), "-c", str(self.config), "sync"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )


def side_by_side(edges: Sequence[Sending]) -> float:
    """A round of each; seconds until the last one has ended.

    Raises:
        SystemExit: one has failed.
    """
    begun = time.perf_counter()
    rounds = [each.sync() for each in edges]
    for each in rounds:
        said, _ = each.communicate(timeout=_PATIENCE_S)
        if each.returncode != 0:
            raise SystemExit(f"{each.args}: exit code {each.returncode}\n{said.decode()[-2000:]}")
    return time.perf_counter() - begun


def one_run(way: Way, disks: Sequence[LimitedDisk], root: Path, given: argparse.Namespace) -> Ran:
    """All of a way, from new directories on."""
    with ExitStack() as stack:
        processes = stack.enter_context(children(root))
        config = "" if not way.nodes else (
            '[nodes]\nreplicas = 1\nbefore_ack = 1\nuploads_from = "1MiB"\n'
        )  # fmt: skip
        there = Centre(root / "centre", processes, config)
        if way.master:
            there.data = disks[0].at / root.name
            there._write()
        url = there.start()
        if way.nodes:
            token = there.call("token", "create", "--role", "node")["token"]
            for number in range(way.nodes):
                node = NodeProcess(root / f"node{number}", processes, url, token)
                node.config.write_text(
                    node.config.read_text()
                    .replace(str(node.disk), str(disks[1 + number].at / root.name))
                    .replace('scrub_every = "1s"', 'scrub_every = "none"')
                )
                node.start()
        edges = [Sending(root, number, url, given.transfer) for number in range(given.edges)]
        for each in edges:
            each.write(1, None)
        side_by_side(edges)
        if way.nodes:
            wait_until(lambda: _all_run(there, edges), "tablets that run")
        for each in edges:
            each.write(given.files, _SIZE)
        os.sync()
        sent = given.edges * given.files * _SIZE
        before = [each.written() for each in disks]
        for each in disks:
            each.limit(given.limit * 1e6)
        try:
            seconds = side_by_side(edges)
        finally:
            for each in disks:
                each.limit(0)
        written = [(disk.written() - was) / sent for disk, was in zip(disks, before, strict=True)]
    for each in disks:
        _run("rm", "-rf", str(each.at / root.name))
    return Ran(sent / seconds, written)


def _all_run(there: Centre, edges: Sequence[Sending]) -> bool:
    """Whether each edge has a tablet that a node has."""
    every = [tablet for edge in edges for tablet in there.call("tablets", edge.edge.sg)["tablets"]]
    return len(every) >= len(edges) and all(each.get("placed") == "running" for each in every)


def table(found: dict[str, list[Ran]]) -> str:
    """Markdown, a row for each way."""
    titles = ("way", "MB a second", "ratio", "each disk wrote, of what was sent")
    lines = [f"| {' | '.join(titles)} |", "|---|---|---|---|"]
    for name, runs in found.items():
        rates = [each.rate / 1e6 for each in runs]
        spread = f"{statistics.median(rates):.1f} ({min(rates):.1f} to {max(rates):.1f})"
        beside, ratio = WAYS[name].beside, "-"
        if beside != name and beside in found:
            pairs = zip(runs, found[beside], strict=True)
            every = [mine.rate / other.rate for mine, other in pairs]
            middle = statistics.median(every)
            ratio = f"{middle:.2f} ({min(every):.2f} to {max(every):.2f}) x {beside}"
        written = [statistics.median(each) for each in zip(*(run.written for run in runs))]  # noqa: B905
        lines.append(
            f"| {name} | {spread} | {ratio} | {', '.join(f'{each:.2f}' for each in written)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--limit", type=float, default=8.0, help="MB a second of each disk")
    parser.add_argument("--edges", type=int, default=4)
    parser.add_argument("--files", type=int, default=6, help="of each edge, 10 MiB each")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--transfer", default="", help="lines for [transfer] of each edge")
    parser.add_argument("--at", type=Path, default=Path("/dev/shm"), help="for what is no disk")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true", help="into docs/scale.md")
    given = parser.parse_args()
    if not _THROTTLE.exists():
        raise SystemExit(f"{_THROTTLE}: expected the blkio controller of the first version there")
    compile_modules()
    load = os.getloadavg()[0]
    found: dict[str, list[Ran]] = {each: [] for each in given.ways}
    with tempfile.TemporaryDirectory(dir=given.at) as name:
        place = Path(name)
        size = 3 * given.edges * given.files * _SIZE + (256 << 20)
        with limited_disks(place, size) as disks:
            for turn in range(given.repeat):
                for each, runs in found.items():
                    root = place / f"{turn}-{each.replace(' ', '-')}"
                    root.mkdir()
                    runs.append(one_run(WAYS[each], disks, root, given))
                    _run("rm", "-rf", str(root))
                    print(turn, each, runs[-1], flush=True)
    said = (
        f"{table(found)}\n\n{given.edges} edges with {given.files} files of 10 MiB each, "
        f"{given.limit:g} MB a second of each disk; medians of {given.repeat} runs by turns; "
        f"load average {load:.1f} before them, on {os.cpu_count()} cores."
    )
    print(said)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    if given.write:
        fill(ROOT / "docs" / "scale.md", "two-nodes", said)


if __name__ == "__main__":
    main()
