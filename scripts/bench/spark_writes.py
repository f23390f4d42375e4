"""A write of many devices, as Spark's tasks do it, into a real receiver: seconds of processors.

    .venv/bin/python scripts/bench/spark_writes.py [--devices 5000 20000 100000] [--rows 3]
                                                   [--columns 2] [--tasks 4] [--dir DIR]

No Spark takes part: this process does what the Python of its tasks does, one task after another,
with rows of all devices by time, and then commits. Told are seconds of a processor a device, of the
tasks and of the receiver, and the longest that somebody waits meanwhile who asks the receiver
`/readyz` every 20 ms.
"""

from __future__ import annotations

import argparse
import http.client
import os
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from receiver.spark.sink.sink_calls import WriteCalls  # noqa: E402
from receiver.spark.sink.sink_options import parse_sink_options  # noqa: E402
from receiver.spark.sink.task_rows import write_rows  # noqa: E402
from receiver.spark.sink.write_plan import SinkColumn, WritePlan, planned_columns  # noqa: E402
from scripts.bench.transfer_peers import cpu_of  # noqa: E402
from tests.support.centre import centre  # noqa: E402

_BATCH = 10_000
_PAUSE_S = 0.02


class Asking:
    """Asks a small question all the while."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc
        self._stop = threading.Event()
        self.longest = 0.0

    @contextmanager
    def all_along(self) -> Iterator[None]:
        """Ask while the block lasts."""
        self.longest = 0.0
        self._stop.clear()
        thread = threading.Thread(target=self._ask)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        while not self._stop.wait(_PAUSE_S):
            begin = time.perf_counter()
            connection.request("GET", "/readyz")
            connection.getresponse().read()
            self.longest = max(self.longest, time.perf_counter() - begin)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--devices", type=int, nargs="+", default=[5_000, 20_000, 100_000])
    options.add_argument("--rows", type=int, default=3, help="of a device")
    options.add_argument("--columns", type=int, default=2)
    options.add_argument("--tasks", type=int, default=4, help="that the devices are shared by")
    options.add_argument("--dir", type=Path, help="where all of it goes")
    args = options.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as name, centre(Path(name)) as there:
        url = there.start()
        assert there.server is not None
        token = Path(name) / "token"
        token.write_text(there.call("token", "create", "--role", "writer")["token"])
        given = {"receiver": url, "tokenFile": str(token)}
        asking, pid = Asking(url), there.server.pid
        write(given, "warm", 200, args)
        for devices in args.devices:
            with asking.all_along():
                before = time.process_time(), cpu_of(pid), time.perf_counter()
                mine = write(given, f"n{devices}", devices, args)
                wall, server = time.perf_counter() - before[2], cpu_of(pid) - before[1]
            print(
                f"{devices} devices, {args.rows} rows, {args.columns} columns, {args.tasks} tasks: "
                f"{mine / devices * 1e3:.3f} ms a device in the tasks, "
                f"{server / devices * 1e3:.3f} at the receiver; {wall:.1f} s in all, longest "
                f"answer meanwhile {asking.longest * 1e3:.0f} ms; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


def write(given: dict[str, str], group: str, devices: int, args: argparse.Namespace) -> float:
    """Seconds of this thread's processor for the tasks of one write."""
    options = parse_sink_options(given)
    columns = [SinkColumn("time", "bigint", {}), SinkColumn("device", "string", {})]
    columns += [SinkColumn(f"s{each}", "double", {}) for each in range(args.columns)]
    fields, tags = planned_columns(options, columns)
    plan = WritePlan(options, secrets.token_hex(16), fields, tags)
    calls = WriteCalls(options, plan.task, os.environ)
    opened = calls.open(options.owners, options.on_duplicate)
    plan = WritePlan(options, plan.task, fields, tags, opened.owner, opened.interval, opened.block)
    names = [f"root.{group}.site{each % 100}.d{each}" for each in range(devices)]
    spent, parts = 0.0, []
    for task in range(args.tasks):
        mine = names[task :: args.tasks]
        rows = list(batches(mine, args.rows, args.columns))
        begin = time.thread_time()
        parts += write_rows(plan, rows)
        spent += time.thread_time() - begin
    answer = calls.commit(parts)
    calls.close()
    assert all(each.result == "loaded" for each in answer.files), answer.files[0]
    return spent


def batches(names: list[str], rows: int, columns: int) -> Iterator[pa.RecordBatch]:
    """All devices at one time, then all at the next."""
    devices = pa.array(names * rows)
    times = pa.array(np.repeat(np.arange(rows, dtype=np.int64) * 1000, len(names)))
    values = [pa.array(np.random.default_rng(at).normal(size=len(times))) for at in range(columns)]
    table = pa.table(
        {"time": times, "device": devices, **{f"s{at}": each for at, each in enumerate(values)}}
    )
    yield from table.to_batches(max_chunksize=_BATCH)


if __name__ == "__main__":
    main()
