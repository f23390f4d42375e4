"""DICTIONARY."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.encoders import plain, rle
from tests.support.encoders.bitstream import varint


def binaries(values: Sequence[bytes]) -> bytes:
    entries = list(dict.fromkeys(values))
    numbers = [entries.index(value) for value in values]
    return varint(len(entries)) + plain.binaries(entries) + rle.integers(numbers, 32)
