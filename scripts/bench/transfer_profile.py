"""Where the CPU of one transfer goes, at both ends: by library, and by symbol.

    .venv/bin/python scripts/bench/transfer_profile.py [--work NAME] [--at DIR] [--symbols 15]

The transfer is that of transfer.py, once, with Linux' `perf` recording both processes; the sender's
start is in it, the receiver's is not. Seconds are of processors, by samples of the CPU's clock.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench import transfer_peers  # noqa: E402
from scripts.bench.transfer import WORKS  # noqa: E402

_RECORD = ["perf", "record", "-e", "cpu-clock", "-F", "1999", "-g"]


def recorded(work: str, at: Path, ends: dict[str, Path]) -> transfer_peers.Spent:
    """One transfer, with both ends recorded."""
    timed = transfer_peers.timed

    def with_perf(
        command: Sequence[object], server: subprocess.Popen[bytes] | None
    ) -> transfer_peers.Spent:
        assert server is not None
        beside = [*_RECORD, "-o", str(ends["receiver"]), "-p", str(server.pid)]
        with subprocess.Popen(beside, stderr=subprocess.DEVNULL) as perf:
            time.sleep(0.5)
            try:
                return timed([*_RECORD, "-o", ends["sender"], "--", *command], server)
            finally:
                perf.terminate()

    transfer_peers.timed = with_perf
    with tempfile.TemporaryDirectory(dir=at) as base:
        source, place = Path(base) / "source", Path(base) / "place"
        source.mkdir()
        place.mkdir()
        WORKS[work](source)
        return transfer_peers.Tsferry().run(source, place)


def report(data: Path, key: str, lines: int) -> list[str]:
    """The first lines of perf's own report, its remarks left out."""
    command = ["perf", "report", "-i", str(data), "--no-children", "--stdio", "-g", "none"]
    done = subprocess.run(
        [*command, "--sort", key], capture_output=True, text=True, check=True
    ).stdout
    return [each for each in done.splitlines() if each.strip() and each[0] != "#"][:lines]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--work", default="1 x 512 MiB", choices=list(WORKS))
    options.add_argument("--at", type=Path, default=Path("/dev/shm"))
    options.add_argument("--symbols", type=int, default=15)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as kept:
        ends = {name: Path(kept) / name for name in ("sender", "receiver")}
        spent = recorded(given.work, given.at, ends)
        print(f"{spent.seconds:.2f} s, of processors {spent.cpu:.2f} s (slower than unrecorded)")
        for name, data in ends.items():
            print(f"\n{name}:")
            print("\n".join(report(data, "dso", 8)))
            print("\n".join(report(data, "sym", given.symbols)))


if __name__ == "__main__":
    main()
