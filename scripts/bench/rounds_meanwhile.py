"""Rounds of a sender with and without a merge beside them, by turns.

    .venv/bin/python scripts/bench/rounds_meanwhile.py [--turns 7] [--files 2000] [--late 10]
                                                       [--dir DIR]

The receiver is a real process, the sender the project's own in this one. Each turn has a partition
of `--files` files of 20 KB, of which one in `--late` is late data over the others. First rounds are
made with a new file of 20 KB each, for as long as the merge of the turn before took; then `compact`
is asked for, and rounds are made for as long as the process that merges is there: those that lie
in that wholly count. The figure is the median over the turns of the ratio of both medians.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from common.tsfile import Compression, DataType, Encoding  # noqa: E402
from receiver.points import Column  # noqa: E402
from receiver.writing.chunk_pages import SeriesForm  # noqa: E402
from receiver.writing.tsfile_writer import TsFileWriter  # noqa: E402
from tests.support.centre import Centre, centre  # noqa: E402
from tests.support.edge import WEEK_MS, Edge  # noqa: E402

SERIES, ROWS = 10, 300
_BUSY = 4.0
"""Seconds of rounds of the first turn without a merge."""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--turns", type=int, default=7)
    options.add_argument("--files", type=int, default=2000)
    options.add_argument("--late", type=int, default=10, help="one in so many is late data")
    options.add_argument("--dir", type=Path, help="where all of it goes")
    args = options.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as name, centre(Path(name)) as there:
        url = there.start()
        bulk, live = Edge(Path(name) / "bulk", url), Edge(Path(name) / "live", url)
        bulk.sg, live.sg = "root.bulk", "root.live"
        for turn in range(args.turns):
            for number in range(args.files):
                late = args.late and number % args.late == args.late - 1
                bulk.put(*made(bulk, turn, number, late=bool(late)))
            report = bulk.round()
            assert report.sent == args.files, report.as_json()
        rounds(live, lambda: len(list(live.data.rglob("*.tsfile"))) < 20)  # warm
        ratios, lasted = [], _BUSY
        for turn in range(args.turns):
            end = time.perf_counter() + lasted
            without = rounds(live, lambda end=end: time.perf_counter() < end)
            there.call("compact", "root.bulk", str(turn))
            begun = time.perf_counter()
            while not merges(there):
                assert time.perf_counter() - begun < 60, "nothing is merged"
                time.sleep(0.005)
            begun = time.perf_counter()
            beside = rounds(live, lambda: merges(there))
            lasted = time.perf_counter() - begun
            if len(beside) < 2:
                raise SystemExit("the merge is over too soon: more --files")
            ratios.append(statistics.median(beside) / statistics.median(without))
            print(
                f"turn {turn}: {len(without)} rounds without, {ms(without)}; {len(beside)} beside "
                f"a merge of {lasted:.1f} s, {ms(beside)}; ratio {ratios[-1]:.2f}; load "
                f"{os.getloadavg()[0]:.1f}",
                flush=True,
            )
    print(
        f"ratio {statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f}), "
        f"{args.turns} turns"
    )


def made(edge: Edge, partition: int, number: int, *, late: bool) -> tuple[str, bytes]:
    """The path and the bytes of a file; late ones lie over the ten before."""
    kind, span = ("unsequence", 10) if late else ("sequence", 1)
    begin = partition * WEEK_MS + (number - span + 1) * ROWS * 100
    times = begin + np.arange(ROWS, dtype=np.int64) * 100 * span
    chance = np.random.default_rng(number)
    out = io.BytesIO()
    writer = TsFileWriter(out.write, version=3)
    with writer.plain_device((f"{edge.sg}.d1",)) as device:
        for each in range(SERIES):
            form = SeriesForm(f"s{each}", DataType.DOUBLE, Encoding.GORILLA, Compression.LZ4)
            values = np.round(20 + chance.normal(0, 0.1, ROWS).cumsum(), 2)
            device.write(form, times, Column(DataType.DOUBLE, values))
    writer.finish()
    name = f"{1_600_000_000_000 + number}-{number + 1}-0-0.tsfile"
    return f"{kind}/{edge.sg}/0/{partition}/{name}", out.getvalue()


def rounds(live: Edge, goes_on) -> list[float]:
    """Seconds of rounds with a new file each, of those that end while it goes on."""
    found: list[float] = []
    number = len(list(live.data.rglob("*.tsfile")))
    while goes_on():
        number += 1
        live.write(number, size=20_000)
        begin = time.perf_counter()
        report = live.round()
        took = time.perf_counter() - begin
        assert report.sent == 1, report.as_json()
        if goes_on():
            found.append(took)
    return found


def merges(there: Centre) -> bool:
    """Whether a process beside the server merges."""
    assert there.server is not None
    for task in Path(f"/proc/{there.server.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            try:
                if b"merge_worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return True
            except OSError:
                continue
    return False


def ms(found: list[float]) -> str:
    return f"{statistics.median(found) * 1000:.1f} ms" if found else "none"


if __name__ == "__main__":
    main()
