"""One file over a long wire: tsferry to *loaded*, beside rsync, over the same link.

    sudo .venv/bin/python scripts/bench/long_wire.py [--mib 32] [--delay 0.1] [--loss 0.01]
                                                     [--rate BYTES_PER_S] [--congestion reno]
                                                     [--runs 1] [--json FILE]
                                                     [--compression] [--file FILE]

The link is a pair of TUN devices in two network namespaces that this makes and removes; between
them this process carries each packet: late by half of `--delay` each way, not at all with the
chance `--loss`, no faster than `--rate`. (Dropping packets on a loopback without delay costs TCP
next to nothing.) It needs root, `ip` and /dev/net/tun.

`--compression` has tsferry as it is by itself beside itself without, and with it on all that
shrinks; `--file` is a TsFile to send (`scripts/bench/sensor_tsfile.py` writes some): the one made
here is noise, which nothing compresses.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import random
import selectors
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.transfer_peers import BIN, serving  # noqa: E402
from tests.support.tsfile_bytes import build  # noqa: E402

MIB = 1 << 20
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_EDGE, _CENTRE = "10.213.7.1", "10.213.7.2"
_PORT = 7654
_LARGEST_PACKET = 1 << 16


@dataclass
class Direction:
    """What travels one way.

    Attributes:
        from_fd: TUN device that packets leave by.
        to_fd: TUN device that they come to.
    """

    from_fd: int
    to_fd: int
    on_the_way: deque[tuple[float, bytes]] = field(default_factory=deque)
    busy_until: float = 0.0

    def take(self, now: float, delay: float, loss: float, rate: float) -> None:
        """Take what has come, up to what a router's queue would hold."""
        for _ in range(64):
            try:
                packet = os.read(self.from_fd, _LARGEST_PACKET)
            except BlockingIOError:
                return
            if random.random() < loss:
                continue
            self.busy_until = max(now, self.busy_until) + (len(packet) / rate if rate else 0.0)
            if self.busy_until - now < 0.25:
                self.on_the_way.append((self.busy_until + delay, packet))

    def give(self, now: float) -> float | None:
        """Deliver what is due; when the next is."""
        while self.on_the_way:
            due, packet = self.on_the_way[0]
            if due > now:
                return due
            self.on_the_way.popleft()
            try:
                os.write(self.to_fd, packet)
            except OSError:
                continue  # its queue is full, as a router's may be
        return None


def relay(ends: tuple[int, int], args: argparse.Namespace, stop: threading.Event) -> None:
    """Carry packets both ways until told to stop."""
    ways = [Direction(ends[0], ends[1]), Direction(ends[1], ends[0])]
    with selectors.DefaultSelector() as selector:
        for each in ways:
            selector.register(each.from_fd, selectors.EVENT_READ, each)
        wait = 0.1
        while not stop.is_set():
            for key, _ in selector.select(wait):
                key.data.take(time.monotonic(), args.delay / 2, args.loss, args.rate)
            now = time.monotonic()
            due = [each for each in (way.give(now) for way in ways) if each is not None]
            wait = max(0.0, min(due, default=now + 0.1) - now)


def tun(namespace: str, address: str, peer: str, congestion: str) -> int:
    """A TUN device in a namespace; its descriptor."""
    made: list[int] = []

    def make() -> None:
        # A thread has a namespace of its own to be in; only the device's descriptor leaves it.
        with open(f"/run/netns/{namespace}", "rb") as target:
            if ctypes.CDLL(None, use_errno=True).setns(target.fileno(), 0):
                raise OSError(ctypes.get_errno(), "setns")
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH", b"wire", _IFF_TUN | _IFF_NO_PI))
        made.append(fd)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    inside = ["ip", "netns", "exec", namespace]
    for command in (
        ["sysctl", "-qw", f"net.ipv4.tcp_congestion_control={congestion}"],
        ["ip", "addr", "add", f"{address}/32", "peer", peer, "dev", "wire"],
        ["ip", "link", "set", "wire", "mtu", "1500", "txqueuelen", "5000", "up"],
        ["ip", "link", "set", "lo", "up"],
    ):
        subprocess.run([*inside, *command], check=True)
    return made[0]


@contextmanager
def wire(args: argparse.Namespace) -> Iterator[tuple[list[str], list[str]]]:
    """The link; how to call a program at the edge and one at the centre."""
    names = [f"tsferry-{end}-{os.getpid()}" for end in ("edge", "centre")]
    stop = threading.Event()
    for name in names:
        subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        how = args.congestion
        ends = (tun(names[0], _EDGE, _CENTRE, how), tun(names[1], _CENTRE, _EDGE, how))
        carrier = threading.Thread(target=relay, args=(ends, args, stop))
        carrier.start()
        try:
            edge, centre = (["ip", "netns", "exec", name] for name in names)
            yield edge, centre
        finally:
            stop.set()
            carrier.join()
            for fd in ends:
                os.close(fd)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=True)


def timed(command: Sequence[object]) -> float:
    """Seconds of a client."""
    begin = time.perf_counter()
    done = subprocess.run([str(each) for each in command], capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stderr.decode()[-2000:]}")
    return time.perf_counter() - begin


def tsferry(
    edge: list[str], centre: list[str], source: Path, place: Path, compression: str = "auto"
) -> float:
    """One round of the real sender to the real receiver."""
    for name in ("cs", "cd", "es"):
        (place / name).mkdir()
    (place / "centre.toml").write_text(
        f'schema_dir = "cs"\ndata_dirs = ["cd"]\n[listen]\nallow = ["{_EDGE}/32"]\n'
    )
    (place / "edge.toml").write_text(
        f'schema_dir = "es"\ndata_dirs = ["{source}"]\nclosed_by = "tail"\nquiet_seconds = 0\n'
        f'[[receiver]]\nname = "c"\nurl = "http://{_CENTRE}:{_PORT}"\ninsecure = true\n'
        f'[transfer]\ncompression = "{compression}"\n'
    )
    serve = [BIN / "tsferry-receiver", "-c", place / "centre.toml", "serve", "--host", _CENTRE]
    flags = ["--port", _PORT, "--insecure", "--ready-file", place / "ready"]
    with serving([*centre, *serve, *flags], place / "server.log") as server:
        while not (place / "ready").exists():
            if server.poll() is not None:
                raise SystemExit((place / "server.log").read_text())
            time.sleep(0.05)
        sender = [*edge, BIN / "tsferry-sender", "-c", place / "edge.toml"]
        timed([*sender, "init"])
        return timed([*sender, "sync", "--json"])


def rsync(edge: list[str], centre: list[str], source: Path, place: Path) -> float:
    """To a daemon, whole files, MD5 and flushes as tsferry has them."""
    (place / "to").mkdir()
    config = place / "rsyncd.conf"
    config.write_text(
        f"use chroot = no\nuid = {os.getuid()}\ngid = {os.getgid()}\n"
        f"[to]\npath = {place / 'to'}\nread only = no\n"
    )
    flags = ["--daemon", "--no-detach", f"--address={_CENTRE}", f"--port={_PORT}"]
    with serving([*centre, "rsync", *flags, f"--config={config}"], place / "server.log"):
        time.sleep(1)
        to = f"rsync://{_CENTRE}:{_PORT}/to/"
        client = ["rsync", "-a", "-W", "--checksum-choice=md5", "--fsync"]
        return timed([*edge, *client, f"{source}/", to])


WAYS = {"tsferry": tsferry, "rsync, md5, --fsync": rsync}
COMPRESSED = {
    "tsferry": tsferry,
    "tsferry, compression off": partial(tsferry, compression="off"),
    "tsferry, compression zstd": partial(tsferry, compression="zstd"),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--mib", type=int, default=32)
    options.add_argument("--delay", type=float, default=0.1, help="there and back, seconds")
    options.add_argument("--loss", type=float, default=0.01)
    options.add_argument("--rate", type=float, default=0.0, help="bytes a second; 0 for no limit")
    options.add_argument("--congestion", default="reno", help="control of TCP, at both ends")
    options.add_argument("--runs", type=int, default=1)
    options.add_argument("--json", type=Path)
    options.add_argument("--compression", action="store_true", help="with and without it")
    options.add_argument("--file", type=Path, help="what is sent, in place of --mib of noise")
    args = options.parse_args()
    ways = COMPRESSED if args.compression else WAYS
    found: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(args.runs):
        for name in list(ways) if run % 2 == 0 else list(ways)[::-1]:
            with tempfile.TemporaryDirectory() as base, wire(args) as (edge, centre):
                place, source = Path(base) / "place", Path(base) / "source"
                target = source / "sequence" / "root.b" / "0" / "0"
                target.mkdir(parents=True)
                place.mkdir()
                if args.file is not None:
                    content = args.file.read_bytes()
                else:
                    content = build({"root.b.d1": {"s1": [(1, 1)]}}, pad_to=args.mib * MIB)
                (target / "1-1-0-0.tsfile").write_bytes(content)
                found[name].append(ways[name](edge, centre, source, place))
                print(f"{name}: {found[name][-1]:.1f} s", flush=True)
    ours = found["tsferry"]
    for name, seconds in found.items():
        ratio = statistics.median(b / a for a, b in zip(ours, seconds, strict=True))
        median, size = statistics.median(seconds), round(len(content) / MIB)
        print(f"| {size} MiB | {name} | {median:.1f} s | {ratio:.2f} |")
    if args.json:
        args.json.write_text(
            json.dumps({"settings": vars(args) | {"json": None, "file": None}, "seconds": found})
        )


if __name__ == "__main__":
    main()
