"""A million damaged TsFiles for the tail reader, and some of them for the reader of points.

    python scripts/fuzz_files.py                             a million for the tail reader, seed 0
    python scripts/fuzz_files.py --inputs 20000 --points 1   each read to its last page

The seeds are the committed files of real writers up to 16 KiB. Each mutant (`tests.support.mutate`)
must become a verdict, or points and errors of ours, within the time limit. Exit code 1 if one does
not; the same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.tsfile import Tail, read_tail
from receiver.points.errors import DamagedData, UnsupportedData
from receiver.points.reader import TsFileReader
from scripts.ended_by_signals import end_on_signals
from tests.support.expected_rows import FOLDER
from tests.support.mutate import mutants

LARGEST_SEED = 16 << 10
LIMIT = 10
"""Seconds of one input."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many, in all")
    parser.add_argument("--points", type=float, default=0.02, help="share that is decoded too")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    end_on_signals()
    paths = sorted(FOLDER.glob("*/*.tsfile"))
    seeds = [path.read_bytes() for path in paths if path.stat().st_size <= LARGEST_SEED]
    chance = random.Random(options.seed)
    kinds: Counter[str] = Counter()
    longest, began = 0.0, time.monotonic()
    signal.signal(signal.SIGALRM, _give_up)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutant.tsfile"
        for number, content in enumerate(mutants(seeds, options.inputs, options.seed)):
            before = time.perf_counter()
            signal.alarm(LIMIT)
            try:
                kinds[_read(content, path if chance.random() < options.points else None)] += 1
            except Exception as error:
                print(f"BROKEN: input {number} of seed {options.seed}: {error!r}")
                return 1
            finally:
                signal.alarm(0)
            longest = max(longest, time.perf_counter() - before)
    for kind, count in kinds.most_common():
        print(f"{count:10} {kind}")
    took = time.monotonic() - began
    print(f"{options.inputs} inputs of {len(seeds)} files in {took:.0f} s, seed {options.seed}; "
          f"the longest {longest * 1e3:.1f} ms")  # fmt: skip
    return 0


def _read(content: bytes, path: Path | None) -> str:
    tail = read_tail(content, chunk_headers=True)
    assert isinstance(tail, Tail)
    if not tail.complete:
        assert tail.reason
        return str(tail.status)
    for _, series in tail.series():
        assert series.count >= 0
    if path is None:
        return "complete"
    path.write_bytes(content)
    errors = 0
    try:
        with TsFileReader(path) as file:
            for device in file.tail.devices:
                for each in file.summaries(device):
                    errors += isinstance(each, DamagedData | UnsupportedData)
    except (DamagedData, UnsupportedData):
        errors += 1
    finally:
        os.unlink(path)
    return "decoded, with errors" if errors else "decoded"


def _give_up(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {LIMIT} s")


if __name__ == "__main__":
    sys.exit(main())
