"""One bit turned over at each of thousands of positions of TsFiles: is it noticed?

    python scripts/bitflips.py                          # the committed real files, 2,000 flips each
    python scripts/bitflips.py --flips 20000 a.tsfile   # one file
    python scripts/bitflips.py --all small.tsfile       # every bit of it

A flip is detected (an error of ours), harmless (the same points come out) or silent (other points
come out, and nothing says so). Prints the counts of each file and where the silent ones are, by
the kind of page they hit. Exit code 0 unless something else than our errors came out.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.tsfile import Compression, DataType, Encoding, read_tail
from receiver.points import DamagedData, UnsupportedData
from scripts.ended_by_signals import end_on_signals
from tests.support.bitflips import Flipper, Outcome
from tests.support.expected_rows import real_files


def kinds_of(path: Path) -> list[tuple[int, str]]:
    """(offset, what begins there), ascending."""
    tail = read_tail(path, chunk_headers=True)
    kinds = [(0, "head"), (tail.meta_offset, "index")]
    for device in tail.devices:
        columns = list(device.series())
        times = device.time_column()
        if times is not None:
            columns.append(times)
        for series in columns:
            for chunk in series.chunks:
                kinds.append(
                    (
                        chunk.offset,
                        f"{DataType(series.data_type).name} {Encoding(chunk.encoding).name} "
                        f"{Compression(chunk.compression).name}",
                    )
                )
    return sorted(kinds)


def kind_at(kinds: list[tuple[int, str]], offset: int) -> str:
    return [kind for begin, kind in kinds if begin <= offset][-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="the committed real files if left out")
    parser.add_argument("--flips", type=int, default=2000, help="of each file")
    parser.add_argument("--all", action="store_true", help="every bit")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    end_on_signals()
    files = options.files or sorted({path for real in real_files() for path in real.paths})
    silent: collections.Counter[str] = collections.Counter()
    totals: collections.Counter[Outcome] = collections.Counter()
    failures = 0
    for path in files:
        content = path.read_bytes()
        bits = range(len(content) * 8)
        chosen = bits
        if not options.all and options.flips < len(bits):
            chosen = sorted(random.Random(options.seed).sample(bits, options.flips))
        kinds = kinds_of(path)
        counts: collections.Counter[Outcome] = collections.Counter()
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                flipper = Flipper(content, Path(folder) / "flipped.tsfile")
            except (DamagedData, UnsupportedData) as error:
                print(f"{path}: cannot be read as it is: {error}")
                continue
            for position in chosen:
                try:
                    flip = flipper.flip(position // 8, position % 8)
                except Exception as error:
                    failures += 1
                    print(f"{path}: byte {position // 8}, bit {position % 8}: {error!r}")
                    continue
                counts[flip.outcome] += 1
                if flip.outcome is Outcome.SILENT:
                    silent[kind_at(kinds, flip.offset)] += 1
            flipper.close()
        totals += counts
        shown = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome)
        print(
            f"{path.parent.name}/{path.name}: {shown} ({time.monotonic() - began:.0f} s)",
            flush=True,
        )
    print("all:", ", ".join(f"{totals[outcome]} {outcome}" for outcome in Outcome))
    for kind, count in silent.most_common():
        print(f"  silent: {count:6} {kind}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
