"""A seeded mutator for fuzz tests: the same seed gives the same bytes, on every machine."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def mutants(seeds: Sequence[bytes], count: int, seed: int = 0) -> Iterator[bytes]:
    """`count` damaged versions of the seeds, one to four changes each."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            _change(rng, data, seeds)
        yield bytes(data)


def _change(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    length = min(rng.choice((1, 1, 2, 4, 16, 100)), len(data) - at)
    kind = rng.randrange(8)
    if kind == 0:
        del data[at:]
    elif kind == 1:
        del data[at : at + length]
    elif kind == 2:
        data[at:at] = rng.randbytes(rng.choice((1, 4, 64)))
    elif kind == 3:
        data[at : at + length] = bytes(length)
    elif kind == 4:
        data[at : at + 4] = rng.choice(_NUMBERS).to_bytes(4, rng.choice(("big", "little")))
    elif kind == 5 and at < len(data):
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 6:
        data[at:at] = data[at : at + length] * rng.choice((1, 2, 50))
    else:
        other = rng.choice(seeds)
        data[at:] = other[rng.randint(0, len(other)) :]
