"""Damaged compressed pages and damaged deletions: an error of ours, or something sound."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from common.tsfile import Compression, Device, DeviceTotals
from receiver.points.deleted.deletion_files import DeletionFile, parse_binary, parse_text
from receiver.points.deleted.deletions import Deletions
from receiver.points.errors import DamagedData
from receiver.points.page_data.compression import BadCompression, UnsupportedCompression, decompress
from tests.support.compressors import COMPRESSORS
from tests.support.expected_rows import FOLDER
from tests.support.mutate import mutants

INPUTS = 300
SLOW = 1.0  # seconds
PAGES = [b"21.50 and 21.75 " * 200, bytes(3000), bytes(range(256)) * 9, b"x"]
TOTALS = DeviceTotals(aligned=False, start=None, end=None, rows=0, series_count=0, point_count=0)
DEVICES = [
    Device("root.deletions.d1", ("root.deletions.d1",), False, TOTALS, b"", ()),
    Device("t:n.d1", ("t", "n", "d1"), True, TOTALS, b"", ()),
]


@pytest.mark.parametrize("code", COMPRESSORS, ids=lambda code: code.name)
def test_a_damaged_page_is_refused_or_has_the_size_asked_for(code: Compression) -> None:
    packed = [COMPRESSORS[code](page) for page in PAGES]
    whole = np.frombuffer(packed[0], np.uint8)
    assert len(decompress(code, whole, len(PAGES[0]))) == len(PAGES[0])  # compiled, if not yet
    sizes = sorted({len(page) for page in PAGES})
    for index, damaged in enumerate(mutants(packed, INPUTS, seed=int(code))):
        size = sizes[index % len(sizes)]
        began = time.thread_time()
        with contextlib.suppress(BadCompression, UnsupportedCompression):
            assert len(decompress(code, np.frombuffer(damaged, np.uint8), size)) == size
        assert time.thread_time() - began < SLOW, damaged.hex()


@pytest.mark.parametrize("suffix", [".mods", ".mods2"])
def test_damaged_deletions_are_refused_or_understood(suffix: str) -> None:
    seeds = [path.read_bytes() for path in _real(suffix)]
    parse = parse_text if suffix == ".mods" else parse_binary
    for damaged in mutants(seeds, 2 * INPUTS, seed=1):
        began = time.thread_time()
        found, at = _parsed(parse, damaged)
        assert 0 <= at <= len(damaged)
        for device in DEVICES:
            ranges = found.ranges(device, "a", chunk=100)
            assert ranges == sorted(ranges)
            assert all(low <= high for low, high in ranges)
        assert time.thread_time() - began < SLOW, damaged.hex()


def _real(suffix: str) -> list[Path]:
    return sorted(FOLDER.glob(f"*/*{suffix}"))


def _parsed(parse: Callable[[bytes, str], DeletionFile], content: bytes) -> tuple[Deletions, int]:
    """Deletions, or none and where the damage is."""
    try:
        return Deletions(parse(content, "x").entries), 0
    except DamagedData as error:
        return Deletions(), -1 if error.place.offset is None else error.place.offset
