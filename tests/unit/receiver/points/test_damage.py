"""Whatever a file holds, reading it ends in points or in an error that says where and what."""

from __future__ import annotations

import contextlib
import pickle
import random
import struct
from collections import Counter
from pathlib import Path

import pytest

from common.tsfile import read_tail
from receiver.points import ChunkSummary, DamagedData, TsFileReader, UnsupportedData
from tests.support.bitflips import Flipper, Outcome, read_all
from tests.support.mutate import mutants
from tests.support.tsfile_bytes import build, uvarint

D1, D2 = "root.sg.d1", "root.sg.d2"
NUMBERS = {
    D1: {
        "i": [(t, t * t) for t in range(40)],
        "d": [(t, t / 3) for t in range(0, 40, 2)],
        "f": [(t, t / 4) for t in range(40)],
        "b": [(t, t % 3 == 0) for t in range(40)],
    },
    D2: {"n": [(t, -t) for t in range(1000, 1030)]},
}
TYPES = {"f": "FLOAT", "n": "INT32"}
TEXTS = {D1: {"s": [(t, f"text {t}") for t in range(40)]}}


def numbers(version: int = 3, **options) -> bytes:
    return build(NUMBERS, types=TYPES, version=version, aligned=[D1], page_points=15, **options)


def error_of(content: bytes, path: Path) -> DamagedData | UnsupportedData:
    path.write_bytes(content)
    with pytest.raises((DamagedData, UnsupportedData)) as caught:
        read_all(path)
    return caught.value


def replaced(content: bytes, old: bytes, new: bytes) -> bytes:
    assert content.count(old) == 1
    assert len(old) == len(new)
    return content.replace(old, new)


@pytest.mark.parametrize("version", [3, 4])
def test_of_numbers_no_flipped_bit_passes_unseen(tmp_path, version):
    content = numbers(version, chunks=2)
    flipper = Flipper(content, tmp_path / "a.tsfile")
    rng = random.Random(version)
    flips = [flipper.flip(rng.randrange(len(content)), rng.randrange(8)) for _ in range(250)]
    flipper.close()
    assert [flip for flip in flips if flip.outcome is Outcome.SILENT] == []
    counts = Counter(flip.outcome for flip in flips)
    assert counts[Outcome.DETECTED] > 150


def test_of_texts_only_their_own_bytes_can_change_unseen(tmp_path):
    content = build(TEXTS, page_points=15)
    (device,) = read_tail(content).devices
    (chunk,) = next(device.series()).chunks
    flipper = Flipper(content, tmp_path / "a.tsfile")
    rng = random.Random(5)
    flips = [flipper.flip(rng.randrange(len(content)), rng.randrange(8)) for _ in range(150)]
    flipper.close()
    silent = [flip for flip in flips if flip.outcome is Outcome.SILENT]
    end = content.rindex(b"text 39") + 7
    assert all(chunk.offset < flip.offset < end for flip in silent)
    characters = b"text 0123456789"
    assert all(content[flip.offset] in characters for flip in silent)


def test_mutants_end_in_points_or_in_an_error_of_ours(tmp_path):
    seeds = [numbers(3), numbers(4, chunks=2), build(TEXTS), build(NUMBERS, types=TYPES)]
    path = tmp_path / "a.tsfile"
    for content in mutants(seeds, 150, seed=11):
        path.write_bytes(content)
        with contextlib.suppress(DamagedData, UnsupportedData):
            read_all(path)


def test_a_value_in_the_middle_is_named_with_its_page(tmp_path):
    content = replaced(numbers(), struct.pack(">d", 20 / 3), struct.pack(">d", 21 / 3))
    error = error_of(content, tmp_path / "a.tsfile")
    assert isinstance(error, DamagedData)
    assert error.place.device == D1
    assert error.place.measurement == "d"
    assert error.place.page == 1
    assert error.place.offset is not None
    assert "sum is" in error.reason


def test_a_device_of_another_name_before_its_chunks_is_damage(tmp_path):
    content = numbers()
    at = content.index(D2.encode())
    content = content[:at] + b"root.sg.d9" + content[at + 10 :]
    error = error_of(content, tmp_path / "a.tsfile")
    assert error.place.device == D2
    assert "no header of this device" in error.reason


def test_the_rest_of_a_device_is_judged_without_its_bad_chunk(tmp_path):
    content = replaced(numbers(), struct.pack(">d", 20 / 3), struct.pack(">d", 21 / 3))
    path = tmp_path / "a.tsfile"
    path.write_bytes(content)
    with TsFileReader(path) as file:
        found = list(file.summaries(file.device(D1)))
    bad = [each for each in found if not isinstance(each, ChunkSummary)]
    assert [each.place.measurement for each in bad] == ["d"]
    assert {each.measurement for each in found if isinstance(each, ChunkSummary)} == {
        "",
        "b",
        "f",
        "i",
    }


def test_a_page_that_claims_to_be_huge_is_refused_before_memory_is_taken(tmp_path):
    content = build({D1: {"s": [(1, b"x" * 300)]}}, version=3)
    (device,) = read_tail(content).devices
    (chunk,) = next(device.series()).chunks
    page = chunk.offset + 8  # behind the chunk's header
    sizes = content[page : page + 4]
    assert sizes[:2] == sizes[2:]
    path = tmp_path / "a.tsfile"
    claimed = uvarint(2**31 - 1)
    changed = content[:page] + claimed + content[page + len(claimed) :]
    error = error_of(changed, path)
    assert error.place.chunk == chunk.offset
    assert "bytes" in error.reason


def test_a_page_of_more_points_than_the_limit_is_not_supported(tmp_path):
    content = build({D1: {"s": [(t, 1) for t in range(20)]}}, version=3, page_points=10)
    (device,) = read_tail(content).devices
    (chunk,) = next(device.series()).chunks
    at = content.index(b"\x0a" + struct.pack(">q", 0), chunk.offset)  # count, start of page 0
    # the header grows by four bytes: what follows in the file is not reached
    changed = content[:at] + uvarint(2**31 - 1) + content[at + 1 :]
    with pytest.raises((DamagedData, UnsupportedData)):
        _read_chunk(changed, tmp_path / "a.tsfile", read_tail(content))


def _read_chunk(content: bytes, path: Path, tail) -> None:
    path.write_bytes(content)
    with TsFileReader(path, tail=tail) as file:
        for device in tail.devices:
            list(file.read_device(device))


def test_errors_travel_between_processes(tmp_path):
    content = replaced(numbers(), struct.pack(">d", 20 / 3), struct.pack(">d", 21 / 3))
    error = error_of(content, tmp_path / "a.tsfile")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.place, copy.reason) == (str(error), error.place, error.reason)
    assert error.extra["device"] == D1


def test_without_the_check_what_can_be_decoded_is_read(tmp_path):
    path = tmp_path / "a.tsfile"
    path.write_bytes(replaced(numbers(), struct.pack(">d", 20 / 3), struct.pack(">d", 21 / 3)))
    with TsFileReader(path, check=False) as file:
        values = [v for b in file.read_series(D1, "d") for v in b.column("value").to_pylist()]
    assert 7.0 in values
    assert len(values) == 20


def test_a_file_that_shrinks_while_it_is_read_is_damage(tmp_path):
    path = tmp_path / "a.tsfile"
    path.write_bytes(numbers())
    with TsFileReader(path) as file:
        with path.open("r+b") as writable:
            writable.truncate(100)
        with pytest.raises(DamagedData, match="ends at offset"):
            list(file.read_device(D2))
