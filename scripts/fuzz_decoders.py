"""A million damaged pages for the decoders of TsFile data.

    python scripts/fuzz_decoders.py                         a million inputs, seed 0
    python scripts/fuzz_decoders.py --inputs 5000 --seed 7
    NUMBA_BOUNDSCHECK=1 python scripts/fuzz_decoders.py     every access to an array is checked too

Pages of all encodings and types are encoded, damaged and decoded (`tests.support.decoder_fuzz`).
Each must give exactly as many values as were asked for, or an error of ours, whatever stands
around it. Exit code 1 if one does not; the same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.decoder_fuzz import attack_all


def main() -> int:
    parser = argparse.ArgumentParser(description="Damaged pages for the decoders.")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many, in all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began, inputs, longest = time.monotonic(), 0, 0.0
    kinds: Counter[str] = Counter()
    try:
        for case, outcomes in attack_all(options.inputs, options.seed):
            inputs += outcomes.inputs
            longest = max(longest, outcomes.longest)
            kinds.update(outcomes.kinds)
            print(f"{case!s:36} {outcomes.inputs:9} inputs, {outcomes.kinds['decoded']:8} decoded")
    except AssertionError as error:
        print(f"BROKEN with seed {options.seed}: {error}")
        return 1
    for kind, count in kinds.most_common():
        print(f"{count:10} {kind}")
    took = time.monotonic() - began
    print(
        f"{inputs} inputs in {took:.0f} s, seed {options.seed}; the longest {longest * 1e3:.1f} ms"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
