"""Tables of series: what two readings of one file agree in, and where they do not."""

from __future__ import annotations

import struct
import zlib
from array import array

import pytest
import xxhash

from common.tsfile import Corrupt, DataType, read_tail
from common.tsfile import proving as module
from common.tsfile.proof import SeriesTable, inflate
from common.tsfile.proving import series_proofs, series_statistics
from tests.support.tsfile_bytes import SAMPLE, build

FILES = {
    "tree": build(SAMPLE),
    "version 3": build(SAMPLE, version=3),
    "aligned": build(
        {"root.a.d": {"s1": [(1, 1), (2, 2)], "s2": [(2, 0.5)]}}, aligned=["root.a.d"]
    ),
    "table": build({("t", "x", None): {"f": [(1, 1.5)]}, ("t", "y"): {"f": [(9, 2.5)]}}),
    "many chunks": build(SAMPLE, chunks=3, page_points=4),
    "empty series": build(
        {"root.a.d": {"s1": [(1, 1)], "s2": []}}, types={"s2": "INT32"}, aligned=["root.a.d"]
    ),
    "many devices": build(
        {f"root.a.d{d}": {f"s{m}": [(d, m)] for m in range(5)} for d in range(9)}, max_degree=3
    ),
}


def chunk_bytes(content: bytes, offset: int) -> bytes:
    """A chunk, cut out by the layout of its header and by nothing of the code under test."""
    length = content[offset + 1] >> 1
    at, size, shift = offset + 2 + length, 0, 0
    while True:
        byte = content[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return content[offset : at + 3 + size]


def columns_of(device):
    time = device.time_column()
    return ([time] if time is not None else []) + list(device.series())


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_table_says_of_each_series_what_the_file_holds(content):
    tail = read_tail(content)
    rows = list(series_proofs(content, tail))
    wanted = []
    for device in tail.devices:
        for series in columns_of(device):
            digests = b"".join(
                struct.pack(">Q", xxhash.xxh3_64_intdigest(chunk_bytes(content, chunk.offset)))
                for chunk in series.chunks
            )
            digest = xxhash.xxh3_64_intdigest(digests)
            of_series = (device.name, series.measurement, series.count, series.start, series.end)
            wanted.append((*of_series, digest))
    assert sorted(rows) == sorted(wanted)
    assert {row.device: 0 for row in rows} == {device.name: 0 for device in tail.devices}
    assert ("" in {row.measurement for row in rows}) == any(
        each.data_type is DataType.VECTOR for device in tail.devices for each in columns_of(device)
    )


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_table_is_read_back_as_it_was_packed(content):
    table = series_proofs(content, read_tail(content))
    assert SeriesTable.unpack(table.pack()) == table
    assert SeriesTable.decode(table.encode()).root == table.root
    assert table.same_statistics(series_statistics(read_tail(content)))
    assert list(table.differences(table)) == []


@pytest.mark.parametrize("window", [70, 97, 1 << 10])
def test_the_size_of_reads_makes_no_difference(monkeypatch, window):
    contents = [*FILES.values(), build({"root.a.d": {"s": [(1, b"x" * 5000), (2, b"y")]}})]
    expected = [series_proofs(each, read_tail(each)) for each in contents]
    monkeypatch.setattr(module, "_WINDOW", window)
    assert [series_proofs(each, read_tail(each)) for each in contents] == expected


def test_the_bytes_of_a_table_are_these():
    """The format of version 1: whoever changes this changes what is on the wire and on disks."""
    table = SeriesTable(
        ("root.a.d",),
        array("I", [2]),
        ("s1", "é"),
        array("Q", [3, 0]),
        array("q", [-1, 0]),
        array("q", [7, 0]),
        array("Q", [0x0102030405060708, 9]),
    )
    assert table.encode().hex(" ") == (
        "54 53 46 50 01 00 00 00 01 00 00 00 02 "
        "00 00 00 08 00 00 00 02 00 00 00 02 00 00 00 02 "
        "00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 00 "
        "ff ff ff ff ff ff ff ff 00 00 00 00 00 00 00 00 "
        "00 00 00 00 00 00 00 07 00 00 00 00 00 00 00 00 "
        "01 02 03 04 05 06 07 08 00 00 00 00 00 00 00 09 "
        "72 6f 6f 74 2e 61 2e 64 73 31 c3 a9"
    )
    assert table.root == xxhash.xxh3_128_hexdigest(table.encode())
    assert [row.last for row in table] == [7, None]


def test_a_changed_byte_of_a_chunk_is_found_in_its_series():
    content = FILES["many chunks"]
    tail = read_tail(content)
    sent = series_proofs(content, tail)
    for device in tail.devices:
        for series in device.series():
            for chunk in series.chunks:
                at = chunk.offset + len(chunk_bytes(content, chunk.offset)) - 1
                bad = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
                (found,) = sent.differences(series_proofs(bad, read_tail(bad)))
                assert (found.device, found.measurement) == (device.name, series.measurement)
                assert "digest" in found.detail


def test_differences_name_what_is_missing_added_or_other():
    def table(devices):
        content = build(devices)
        return series_proofs(content, read_tail(content))

    sent = table({"root.a.d": {"s1": [(1, 1)], "s2": [(1, 1)]}, "root.a.e": {"s1": [(5, 5)]}})
    found = table({"root.a.d": {"s1": [(1, 1)], "s3": [(1, 1)]}, "root.a.e": {"s1": [(6, 5)]}})
    assert not sent.same_statistics(found)
    assert {(each.device, each.measurement): each.detail for each in sent.differences(found)} == {
        ("root.a.d", "s2"): "was sent, and is not in the file",
        ("root.a.d", "s3"): "is in the file, and was not sent",
        ("root.a.e", "s1"): "sent 1 points from 5 to 5, found 1 points from 6 to 6",
    }


# -- files and tables that lie ---------------------------------------------------------------------


def moved(content: bytes, offset: int, to: int) -> bytes:
    """The file with a chunk offset of its index changed."""
    old, new = struct.pack(">q", offset), struct.pack(">q", to)
    assert content.count(old) == 1
    return content.replace(old, new)


def test_chunks_that_are_none_are_refused():
    content = build({"root.a.d": {"s1": [(1, 1), (2, 2)], "s2": [(1, 1)]}})
    tail = read_tail(content)
    (first,), (second,) = [series.chunks for series in tail.devices[0].series()]
    same = moved(content, second.offset, first.offset)
    with pytest.raises(Corrupt, match=r"no chunk of series 's2'|within another"):
        series_proofs(same, read_tail(same))
    inside = moved(content, second.offset, first.offset + 3)
    with pytest.raises(Corrupt, match="within another"):
        series_proofs(inside, read_tail(inside))
    late = moved(content, second.offset, tail.meta_offset - 1)
    with pytest.raises(Corrupt):
        series_proofs(late, read_tail(late))
    size_at = first.offset + 2 + len("s1")
    long = content[:size_at] + b"\x7f" + content[size_at + 1 :]
    with pytest.raises(Corrupt, match=r"beyond the data section|within another"):
        series_proofs(long, read_tail(long))


def test_two_series_of_one_name_cannot_share_a_chunk():
    devices = {"root.a.d": {"s1": [(1, 1)]}, "root.a.e": {"s1": [(1, 1)]}}
    content = build(devices)
    first, second = (next(d.series()).chunks[0] for d in read_tail(content).devices)
    shared = moved(content, second.offset, first.offset)
    with pytest.raises(Corrupt, match="within another"):
        series_proofs(shared, read_tail(shared))


def test_a_table_cut_or_changed_is_an_error_or_another_table():
    table = series_proofs(FILES["tree"], read_tail(FILES["tree"]))
    data = table.encode()
    for at in range(len(data)):
        with pytest.raises(Corrupt):
            SeriesTable.decode(data[:at])
        for bit in (0x01, 0x80):
            changed = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
            try:
                other = SeriesTable.decode(changed)
            except Corrupt:
                continue
            assert other != table
            assert other.root != table.root
    with pytest.raises(Corrupt, match="too many"):
        SeriesTable.decode(data + b"\0")


def test_what_is_no_packed_table_is_an_error_within_bounds():
    packed = series_proofs(FILES["tree"], read_tail(FILES["tree"])).pack()
    for bad in (b"", b"zlib?", packed[:-1], packed + b"\0", zlib.compress(b"x")):
        with pytest.raises(Corrupt):
            SeriesTable.unpack(bad)
    bomb = zlib.compress(bytes(1 << 20))
    with pytest.raises(Corrupt, match="more than 1000 bytes"):
        inflate(bomb, limit=1000)
