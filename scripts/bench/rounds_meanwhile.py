"""Rounds of a sender with and without a merge beside them, by turns.

    .venv/bin/python scripts/bench/rounds_meanwhile.py [--turns 20] [--seconds 1.5] [--files 8000]
                                                       [--late 10] [--dir DIR]

The receiver is a real process, the sender the project's own in this one; each round has a new file
of 20 KB. Beside them partitions of `--files` files of 20 KB are merged, of which one in `--late` is
late data over the others. In each turn rounds are made for `--seconds` while the process that
merges stands still (SIGSTOP), and for as long while it runs, in alternating order: what else the
machine does is the same for both. The figure is the median over the turns of the ratio of both
medians; told is also how much of a processor the merge had while it ran.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
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


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--turns", type=int, default=20)
    options.add_argument("--seconds", type=float, default=1.5, help="of each half of a turn")
    options.add_argument("--files", type=int, default=8000)
    options.add_argument("--late", type=int, default=10, help="one in so many is late data")
    options.add_argument("--dir", type=Path, help="where all of it goes")
    args = options.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as name, centre(Path(name)) as there:
        url = there.start()
        bulk, live = Edge(Path(name) / "bulk", url), Edge(Path(name) / "live", url)
        bulk.sg, live.sg = "root.bulk", "root.live"
        for _ in range(20):
            one_round(live)  # warm
        ratios: list[float] = []
        partition = 0
        while len(ratios) < args.turns:
            for number in range(args.files):
                late = args.late and number % args.late == args.late - 1
                bulk.put(*made(bulk, partition, number, late=bool(late)))
            report = bulk.round()
            assert report.sent == args.files, report.as_json()
            pid = begun(there, partition)
            partition += 1
            before = len(ratios)
            while len(ratios) < args.turns and (turn := halves(live, pid, args.seconds, ratios)):
                ratios.append(turn)
            if len(ratios) == before:
                raise SystemExit("the merge is over too soon: more --files, or fewer --seconds")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            while is_there(pid) and len(ratios) < args.turns:
                time.sleep(0.1)
    print(
        f"ratio {statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f}), "
        f"{args.turns} turns"
    )


def begun(there: Centre, partition: int) -> int:
    """Ask for the merge of a partition; the process that does it."""
    there.call("compact", "root.bulk", str(partition))
    end = time.perf_counter() + 60
    while (pid := merger(there)) is None:
        assert time.perf_counter() < end, "nothing is merged"
        time.sleep(0.005)
    return pid


def halves(live: Edge, pid: int, seconds: float, ratios: list[float]) -> float | None:
    """One turn: the ratio of both medians; None where the merge came to its end in it."""
    found: dict[bool, list[float]] = {}
    spent = 0.0
    for merges in (True, False) if len(ratios) % 2 else (False, True):
        before, end = cpu_seconds(pid), time.perf_counter() + seconds
        found[merges] = []
        while time.perf_counter() < end and is_there(pid):
            # Each time anew: the receiver itself has it stand still and go on while files wait.
            os.kill(pid, signal.SIGCONT if merges else signal.SIGSTOP)
            found[merges].append(one_round(live))
        if not is_there(pid):
            return None
        if merges:
            spent = (cpu_seconds(pid) - before) / seconds
    beside, without = found[True], found[False]
    if min(len(beside), len(without)) < 2:
        raise SystemExit("a round takes too long: more --seconds")
    ratio = statistics.median(beside) / statistics.median(without)
    print(
        f"turn {len(ratios)}: {len(without)} rounds without, {ms(without)}; {len(beside)} beside a "
        f"merge, which had {spent:.2f} of a processor, {ms(beside)}; ratio {ratio:.2f}; load "
        f"{os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return ratio


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


def one_round(live: Edge) -> float:
    """Seconds of a round with a new file."""
    live.write(len(list(live.data.rglob("*.tsfile"))) + 1, size=20_000)
    begin = time.perf_counter()
    report = live.round()
    took = time.perf_counter() - begin
    assert report.sent == 1, report.as_json()
    return took


def merger(there: Centre) -> int | None:
    """The process beside the server that merges."""
    assert there.server is not None
    for task in Path(f"/proc/{there.server.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            with contextlib.suppress(OSError):
                if b"merge_worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
    return None


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists()


def cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ms(found: list[float]) -> str:
    return f"{statistics.median(found) * 1000:.1f} ms" if found else "none"


if __name__ == "__main__":
    main()
