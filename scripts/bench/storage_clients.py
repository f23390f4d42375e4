"""The interface to object stores beside fsspec with s3fs: one request after the other.

    python -m venv /tmp/s3fs && /tmp/s3fs/bin/pip install s3fs
    .venv/bin/python scripts/bench/storage_clients.py --s3fs /tmp/s3fs/bin/python [--runs 5]
                                                      [--small 200] [--write]

The store is SeaweedFS on loopback, started here; s3fs runs in an interpreter of its own, for it
wants another botocore. Ours puts only where the key is free, and has computed MD5 and SHA-256 of
what goes; s3fs just puts. Both send parts of 16 MiB, four at once. `--write` puts the table into
docs/performance.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from common.digests import md5  # noqa: E402
from receiver.storage.stores.store_opening import StoreOptions, open_store  # noqa: E402
from scripts.bench.marked_page import fill  # noqa: E402
from tests.support.s3_server import KEY, REGION, SECRET, s3_server  # noqa: E402

_SMALL, _LARGE, _RANGE = 20_000, 64 << 20, 64 << 10
_numbers = itertools.count(1)


class _Bytes:
    def __init__(self, size: int) -> None:
        self._data, self.size = os.urandom(size), size

    @property
    def md5(self) -> str:
        return md5(self._data).hexdigest()

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


class _Peer:
    """s3fs in its process."""

    def __init__(self, python: str, endpoint: str) -> None:
        program = Path(__file__).with_name("s3fs_peer.py")
        self._child = subprocess.Popen(
            [python, str(program), endpoint, REGION],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def took(self, path: str, size: int, count: int, *, put: bool) -> list[float]:
        """Seconds of each request."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        asked = {"path": path, "size": size, "count": count, "put": put}
        print(json.dumps(asked), file=self._child.stdin, flush=True)
        found: list[float] = json.loads(self._child.stdout.readline())
        return found

    def close(self) -> None:
        """End it."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()


def _each(do: Callable[[int], object], count: int) -> list[float]:
    spent = []
    for number in range(count):
        begin = time.perf_counter()
        do(number)
        spent.append(time.perf_counter() - begin)
    return spent


def measure(python: str, runs: int, small: int, base: Path) -> list[str]:
    """The rows of the table, each of runs by turns."""
    with s3_server(base / "s3") as server:
        options = StoreOptions(endpoint=server.endpoint, region=REGION, path_style=True)
        store, peer = open_store("s3://bench/ours", options), _Peer(python, server.endpoint)
        store.upload("read", _Bytes(_LARGE), {})
        put, large, read = (f"put of {small} x 20 KB", "put of 64 MiB", "64 KiB of 64 MiB")
        found: dict[str, list[tuple[float, float]]] = {put: [], large: [], read: []}

        def ours(work: str, at: str) -> list[float]:
            if work == read:
                return _each(lambda n: store.read("read", n * _RANGE, _RANGE), 100)
            content = _Bytes(_SMALL if work == put else _LARGE)
            count = small if work == put else 1
            return _each(lambda n: store.upload(f"{at}/{n}", content, {}), count)

        def theirs(work: str, at: str) -> list[float]:
            if work == read:
                return peer.took("bench/ours/read", _RANGE, 100, put=False)
            size, count = (_SMALL, small) if work == put else (_LARGE, 1)
            return peer.took(f"bench/s3fs/{at}/", size, count, put=True)

        for turn in range(runs + 1):
            for work, pairs in found.items():
                at = str(next(_numbers))
                ways = [ours, theirs] if turn % 2 else [theirs, ours]
                took = {way: statistics.median(way(work, at)) * 1000 for way in ways}
                if turn:  # the first brings connections up
                    pairs.append((took[ours], took[theirs]))
        peer.close()
        store.close()
    return [_line(work, pairs) for work, pairs in found.items()]


def _line(work: str, pairs: list[tuple[float, float]]) -> str:
    ratios = [mine / other for mine, other in pairs]
    mine, other = (statistics.median(way) for way in zip(*pairs, strict=True))
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"| {work} | {mine:.1f} ms | {other:.1f} ms | {spread} |"


def main() -> None:
    """Measure, tell, and write it into the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--s3fs", required=True, help="an interpreter that has s3fs")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--small", type=int, default=200)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
    with tempfile.TemporaryDirectory() as base:
        rows = measure(given.s3fs, given.runs, given.small, Path(base))
    text = "\n".join(
        [
            "| one request | tsferry | s3fs | ratio |",
            "|---|---|---|---|",
            *rows,
            "",
            f"Medians of {given.runs} runs by turns, {os.cpu_count()} cores; the load of the "
            f"machine was {os.getloadavg()[0]:.1f} at the end.",
        ]
    )
    print(text)
    if given.write:
        fill(ROOT / "docs/performance.md", "storage-clients", text)


if __name__ == "__main__":
    main()
