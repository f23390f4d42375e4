"""A file that lies in an index or a header takes no point away and no more memory than it should.

What is read of it in parts (a range of times, a task's slice) is checked like what is read whole.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
from pathlib import Path

import pytest

from common.tsfile import Encoding, read_tail
from receiver.points import ChunkSummary, DamagedData, TsFileReader, UnsupportedData
from receiver.points import batches as batches_module
from receiver.points import rows as rows_module
from receiver.points import whole_chunks as proving_module
from tests.support import tsfile_bytes
from tests.support.encoders import dictionary
from tests.support.tsfile_bytes import build, uvarint, vstr

D1, D2 = "root.sg.d1", "root.sg.d2"
SLICES = [(None, 9), (10, 17), (18, 25), (26, None)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.tsfile"


def sliced(path: Path, spans=SLICES, **options) -> list[dict]:
    """All rows of all devices, span by span."""
    with TsFileReader(path, **options) as file:
        return [
            row
            for device in file.tail.devices
            for start, end in spans
            for batch in file.read_device(device, start=start, end=end)
            for row in batch.to_pylist()
        ]


def found_in(path: Path) -> list:
    with TsFileReader(path) as file:
        return [each for device in file.tail.devices for each in file.summaries(device)]


def errors_of(path: Path) -> list[str]:
    return [each.reason for each in found_in(path) if not isinstance(each, ChunkSummary)]


@pytest.mark.parametrize("version", [3, 4])
def test_no_flipped_bit_takes_rows_away_from_a_file_that_is_read_in_parts(path, version):
    numbers = {
        D1: {"i": [(t, t * t) for t in range(40)], "j": [(t, -t) for t in range(0, 40, 2)]},
        D2: {"n": [(t, t) for t in range(40)]},
    }
    content = build(
        numbers, types={"i": "INT32"}, version=version, aligned=[D1], chunks=3, page_points=5
    )
    path.write_bytes(content)
    good = sliced(path)
    assert len(good) == 80
    rng, silent = random.Random(version), []
    with path.open("r+b", buffering=0) as file:
        for _ in range(120):
            at, bit = rng.randrange(len(content)), rng.randrange(8)
            os.pwrite(file.fileno(), bytes([content[at] ^ 1 << bit]), at)
            with contextlib.suppress(DamagedData, UnsupportedData):
                if sliced(path) != good:
                    silent.append((at, bit))
            os.pwrite(file.fileno(), content[at : at + 1], at)
    assert silent == []


@pytest.mark.parametrize("aligned", [[], [D1]])
def test_an_index_that_lies_about_where_a_chunk_ends_loses_no_row(path, aligned):
    content = bytearray(
        build({D1: {"a": [(t, -t) for t in range(400)]}}, aligned=aligned, chunks=4, page_points=10)
    )
    at = content.rindex(struct.pack(">qq", 100, 199)) + 15
    if aligned:  # of the times; those of values stand behind
        at = content.rindex(struct.pack(">qq", 100, 199), 0, at - 16) + 15
    content[at] ^= 0x40  # 135
    path.write_bytes(content)
    with pytest.raises(DamagedData, match="end is 199, not 135"):
        sliced(path, [(None, 149), (150, None)])


@pytest.mark.parametrize("aligned", [[], [D1]])
def test_a_page_header_that_lies_about_its_start_hides_no_page_behind_it(path, aligned):
    content = bytearray(
        build({D1: {"a": [(t, t) for t in range(100)]}}, aligned=aligned, page_points=10)
    )
    content[content.index(struct.pack(">qq", 10, 19))] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(DamagedData, match="a page from time"):
        sliced(path, [(30, 50)])


@pytest.mark.parametrize("body", [b"", b"\0"])  # no page, an empty one
def test_values_that_are_not_there_are_missed_in_a_range_too(path, monkeypatch, body):
    whole = tsfile_bytes._File._chunk

    def chunk(self, column, part):
        if column.name != "a":
            return whole(self, column, part)
        head = bytes([0x45]) + vstr("a")
        return head + uvarint(len(body)) + bytes([column.code, 0, 0]) + body

    monkeypatch.setattr(tsfile_bytes._File, "_chunk", chunk)
    points = [(t, t) for t in range(10)]
    path.write_bytes(build({D1: {"a": points, "b": points}}, aligned=[D1]))
    with pytest.raises(DamagedData, match="count is 0, not 10"):
        sliced(path, [(3, 5)])


def test_texts_are_compared_with_the_index_in_a_range_too(path):
    content = build({D1: {"a": [(t, f"text {t}") for t in range(10)]}})
    path.write_bytes(content.replace(b"text 0", b"test 0", 1))
    with pytest.raises(DamagedData, match="first is"):
        sliced(path, [(3, 5)])


@pytest.mark.parametrize("flag", [0, tsfile_bytes.TIME_FLAG])
def test_a_run_of_pages_without_points_ends_at_the_first(path, monkeypatch, flag):
    whole = tsfile_bytes._File._chunk

    def chunk(self, column, part):
        if column.flag != flag:
            return whole(self, column, part)
        body = bytes(1_000_000)
        return (
            bytes([1 | flag]) + vstr(column.name) + uvarint(len(body))
            + bytes([column.code, 0, 4 if flag else 0]) + body
        )  # fmt: skip

    monkeypatch.setattr(tsfile_bytes._File, "_chunk", chunk)
    path.write_bytes(build({D1: {"a": [(1, 2)]}}, aligned=[D1] if flag else []))
    with pytest.raises(DamagedData, match="a page without points") as caught:
        sliced(path)
    assert caught.value.place.page == 0


def test_a_chunk_that_the_index_has_twice_is_not_counted_twice(path):
    points = [(t, t) for t in range(100)]
    content = bytearray(build({D1: {"a": points}}, chunks=2))
    (series,) = read_tail(bytes(content)).devices[0].series()
    one, other = (struct.pack(">q", chunk.offset) for chunk in series.chunks)
    first, last, whole = (
        tsfile_bytes.statistics(2, part) for part in (points[:50], points[50:], points)
    )
    at = content.rindex(other + last)
    content[at : at + len(other + last)] = one + first
    at = content.rindex(whole)
    twice = struct.pack(">qq4qd", 0, 49, 0, 49, 0, 49, 2.0 * sum(range(50)))
    content[at : at + len(whole)] = uvarint(100) + twice
    path.write_bytes(content)
    assert read_tail(path).complete
    with pytest.raises(DamagedData, match="a chunk that the index has twice"):
        sliced(path)
    assert errors_of(path) == ["a chunk that the index has twice"]


@pytest.mark.parametrize("version", [3, 4])
def test_a_chunk_of_another_device_is_found_by_the_header_before_it(path, version):
    points = {"s": [(t, t) for t in range(20)]}
    content = bytearray(build({D1: points, D2: points}, version=version, chunks=2))
    one, other = (next(device.series()).chunks for device in read_tail(bytes(content)).devices)
    at = content.rindex(struct.pack(">q", one[1].offset))
    content[at : at + 8] = struct.pack(">q", other[1].offset)
    path.write_bytes(content)
    assert errors_of(path) == ["no header of this device before its chunk"]


def test_a_chunk_within_another_is_none(path):
    def content_with(blob: bytes) -> bytes:
        return build({D1: {"b": [(1, blob)], "s": [(1, 7)]}})

    content = content_with(b"x" * 200)
    b, s = (series.chunks[0].offset for series in read_tail(content).devices[0].series())
    hidden = content[s : read_tail(content).meta_offset]
    blob = hidden + b"x" * (200 - len(hidden))
    content = content_with(blob)
    assert b < content.index(blob) < s
    at = content.rindex(struct.pack(">q", s))
    moved = struct.pack(">q", content.index(blob))
    path.write_bytes(content[:at] + moved + content[at + 8 :])
    assert errors_of(path) == ["a chunk that begins within another"]


def test_two_devices_of_one_name_are_no_sound_index(path, monkeypatch):
    segments = {D1: ("root.sg", "d1"), D2: ("root.sg.d1",)}
    monkeypatch.setattr(tsfile_bytes, "_segments", segments.__getitem__)
    path.write_bytes(build({D1: {"a": [(1, 10)]}, D2: {"a": [(2, 20)]}}))
    with pytest.raises(DamagedData, match="a second device of the name"):
        TsFileReader(path)


def test_large_values_are_decoded_few_at_a_time(path, monkeypatch):
    points = [(t, bytes([t]) * 1000) for t in range(64)]
    device = {D1: {"b": points, "n": [(t, t) for t in range(64)]}}
    path.write_bytes(build(device, aligned=[D1], page_points=2))
    whole = sliced(path, [(None, None)])
    blocks: dict[str, list[int]] = {}
    monkeypatch.setattr(proving_module, "DECODED_AT_ONCE", 10_000)
    monkeypatch.setattr(rows_module, "DECODED_AT_ONCE", 10_000)
    with TsFileReader(path) as file:
        found = list(
            file.summaries(
                file.device(D1),
                observe=lambda name, block: blocks.setdefault(name, []).append(len(block.times)),
            )
        )
    assert all(isinstance(each, ChunkSummary) for each in found)
    assert max(blocks["b"]) <= 10
    assert blocks["n"] == [64]
    assert sum(blocks["b"]) == 64
    assert sliced(path, [(None, None)]) == whole
    assert sliced(path, [(None, 20), (21, None)]) == whole


@pytest.mark.parametrize("aligned", [[], [D1]])
def test_pages_that_can_become_very_large_are_decoded_one_by_one(path, monkeypatch, aligned):
    monkeypatch.setattr(tsfile_bytes, "PLAIN", int(Encoding.DICTIONARY))
    monkeypatch.setattr(
        tsfile_bytes,
        "_values",
        lambda _, values: dictionary.binaries([str(v).encode() for v in values]),
    )
    texts = [(t, f"text {t % 3}") for t in range(60)]
    path.write_bytes(build({D1: {"s": texts}}, aligned=aligned, page_points=10))
    with TsFileReader(path) as file:
        device = file.device(D1)
        series = file.series(device, "s")
        (chunk,) = file.chunks(device, series)
        assert [block.pages for block in file.blocks(device, series, chunk)] == [1] * 6
        rows = [row for batch in file.read_device(device) for row in batch.to_pylist()]
    assert [(row["time"], row["s"]) for row in rows] == texts


@pytest.mark.parametrize("aligned", [[], [D1]])
def test_rows_that_would_not_fit_into_memory_are_an_error_of_ours(path, monkeypatch, aligned):
    points = [(t, t) for t in range(100)]
    columns = {f"s{number}": points for number in range(4)}
    path.write_bytes(build({D1: columns}, aligned=aligned))
    assert len(sliced(path, [(None, None)])) == 100
    for module in (rows_module, batches_module):
        monkeypatch.setattr(module, "_MOST_BYTES", 2000)
    with pytest.raises(UnsupportedData, match="take fewer") as caught:
        sliced(path, [(None, None)])
    assert caught.value.place.device == D1
