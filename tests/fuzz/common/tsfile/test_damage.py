"""Damaged files: a verdict each time, quickly, and little memory."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest

from common.tsfile import Status, Tail, read_status, read_tail
from tests.support.real_tsfiles import real_file, real_names
from tests.support.tsfile_bytes import build

DEVICES = {
    f"root.sg.d{d}": {
        "i": [(t, t) for t in range(d * 10 + 1)],
        "t": [(t, "x" * t) for t in range(1, 5)],
    }
    for d in range(12)
}
TABLES = {("sensors", f"p{d}", None, "x"): {"v": [(t, t / 2) for t in range(9)]} for d in range(5)}
GENERATED = {
    "v3": build(DEVICES, version=3, chunks=2, max_degree=3),
    "v4": build(DEVICES, version=4, chunks=2, max_degree=3),
    "aligned": build(DEVICES, version=4, aligned=list(DEVICES), chunks=2),
    "table": build(TABLES, chunks=2, page_points=3),
}


def content_of(name):
    return GENERATED.get(name) or real_file(name)


def flipped(whole, number, seed):
    chance = random.Random(seed)
    for _ in range(number):
        content = bytearray(whole)
        at = chance.randrange(len(content))
        content[at] = chance.choice([content[at] ^ (1 << chance.randrange(8)), 0, 0x7F, 0xFF])
        yield bytes(content)


def read_all(content):
    """Read as far as it goes; of a complete one decode each series."""
    tail = read_tail(content, chunk_headers=True)
    assert isinstance(tail, Tail)
    if tail.complete:
        for _, series in tail.series():
            assert series.count >= 0
        for device in tail.devices:
            device.time_column()
    else:
        assert not tail.devices
        assert tail.reason
    return tail


@pytest.mark.parametrize("name", [*GENERATED, *real_names()])
def test_no_truncation_raises_or_is_called_complete(name):
    content = content_of(name)
    step = max(1, len(content) // 3000)
    for length in range(0, len(content), step):
        assert not read_all(content[:length]).complete


@pytest.mark.few(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", [*GENERATED, *real_names()])
def test_no_flipped_byte_raises_or_hangs(name):
    slowest = 0.0
    for content in flipped(content_of(name), 1500, name):
        begin = time.process_time()
        assert read_all(content).status is not Status.EMPTY
        slowest = max(slowest, time.process_time() - begin)
    assert slowest < 2


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATED)
def test_no_flipped_byte_takes_memory(name):
    tracemalloc.start()
    try:
        for content in flipped(content_of(name), 150, "memory"):
            read_all(content)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.few(2)
@pytest.mark.parametrize("name", GENERATED)
def test_most_damage_to_the_index_is_seen(name):
    whole, chance = content_of(name), random.Random(name)
    meta_offset, seen, tried = read_tail(whole).meta_offset, 0, 600
    for _ in range(tried):
        content = bytearray(whole)
        content[chance.randrange(meta_offset, len(whole))] ^= 1 << chance.randrange(8)
        seen += not read_tail(bytes(content)).complete
    # what passes is in values that nothing contradicts: statistics of one chunk, names, properties
    assert seen > tried * 0.4


@pytest.mark.few(2)
@pytest.mark.parametrize("name", GENERATED)
def test_files_spliced_of_others_raise_nothing(name):
    whole, chance = content_of(name), random.Random(name)
    for _ in range(300):
        other = content_of(chance.choice(list(GENERATED)))
        cut = chance.randrange(len(whole))
        read_all(whole[:cut] + other[chance.randrange(len(other)) :])
        at = chance.randrange(len(whole) - 40)
        length, target = chance.randrange(1, 40), chance.randrange(len(whole) - 40)
        content = bytearray(whole)
        content[target : target + length] = whole[at : at + length]
        read_all(bytes(content))


def test_a_sparse_file_of_zeros_between_magics_costs_nothing(tmp_path):
    path = tmp_path / "sparse.tsfile"
    with open(path, "wb") as file:
        file.write(b"TsFile\x04")
        file.seek(2**36)
        file.write((2**31 - 1).to_bytes(4, "big") + b"TsFile")
    begin = time.process_time()
    assert read_status(path).status is Status.COMPLETE
    tail = read_tail(path)
    assert (tail.status, tail.devices) == (Status.CORRUPT, ())
    assert "more than the limit" in tail.reason
    assert time.process_time() - begin < 1
