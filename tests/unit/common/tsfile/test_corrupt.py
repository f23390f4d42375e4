"""Files that lie: each lie is found, named with its place, and nothing of the file is offered."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from common.tsfile import Status, read_tail
from tests.support.tsfile_bytes import MAGIC, SAMPLE, build, uvarint, varint, vstr

V3 = build(SAMPLE, version=3, chunks=2)
V4 = build(SAMPLE, version=4, chunks=2)


def int64(number):
    return struct.pack(">q", number)


def replaced(content, old, new, *, last=False):
    """``content`` with one occurrence of ``old`` replaced by as many bytes."""
    assert len(old) == len(new)
    assert old in content
    at = content.rindex(old) if last else content.index(old)
    return content[:at] + new + content[at + len(old) :]


def tail_of(index, root, *, data=b"\x00" * 20, table="root.sg"):
    """A v4 file of a hand-made index and root node; both may use ``data``'s end as offset."""
    meta_offset = 7 + len(data)
    footer = b"\x01" + vstr(table) + root + b"\x00" + int64(meta_offset) + b"\x00"
    return (
        MAGIC + b"\x04" + data + b"\x02" + index + footer + struct.pack(">i", len(footer)) + MAGIC
    )


def node(entries, end, kind):
    children = b"".join(key + int64(offset) for key, offset in entries)
    return uvarint(len(entries)) + children + int64(end) + bytes([kind])


def device(*segments):
    return uvarint(len(segments)) + b"".join(map(vstr, segments))


def assert_corrupt(content, reason, **options):
    tail = read_tail(content, **options)
    assert (tail.status, tail.devices, tail.series_count) == (Status.CORRUPT, (), 0)
    assert tail.properties == {}
    assert reason in tail.reason


SERIES = b"\x00" + vstr("s") + b"\x0a\x08\x01" + int64(1) + int64(1) + int64(8)  # a BLOB series


def test_the_hand_made_file_is_sound_when_it_does_not_lie():
    base = 28
    root_node = node([(vstr("s"), base)], base + len(SERIES), 3)
    at = base + len(SERIES)
    root = node([(device("root.sg", "d"), at)], at + len(root_node), 1)
    tail = read_tail(tail_of(SERIES + root_node, root))
    assert (tail.status, tail.devices[0].name) == (Status.COMPLETE, "root.sg.d"), tail.reason


def test_a_meta_offset_outside_of_the_file_is_found():
    meta_offset = read_tail(V4).meta_offset
    for wrong in (-1, 0, 6, len(V4), 2**62):
        assert_corrupt(
            replaced(V4, int64(meta_offset), int64(wrong), last=True), "a meta offset of"
        )


def test_a_meta_offset_that_is_not_at_the_separator_is_found():
    meta_offset = read_tail(V4).meta_offset
    wrong = replaced(V4, int64(meta_offset), int64(meta_offset - 1), last=True)
    assert_corrupt(wrong, "instead of the separator")


def test_a_child_that_points_at_its_parents_or_itself_ends_at_once():
    base = 28
    for offset in (base, base + 5, 2**40, -1, 0):
        own = node([(vstr("s"), offset)], offset + 10, 2)
        root = node([(device("root.sg", "d"), base)], base + len(own), 1)
        assert_corrupt(tail_of(own, root), "an index child from")


def test_devices_that_share_one_subtree_are_found_before_work_multiplies():
    base = 28
    leaf = node([(vstr("s"), base)], base + len(SERIES), 3)
    at = base + len(SERIES)
    index = SERIES + leaf * 200
    entries = [(device("root.sg", f"d{n:03}"), at + n * len(leaf)) for n in range(200)]
    assert_corrupt(tail_of(index, node(entries, at + 200 * len(leaf), 1)), "the same bytes twice")


def test_a_node_that_overlaps_its_neighbour_is_found():
    base = 28
    leaf = node([(vstr("s"), base)], base + len(SERIES), 3)
    at = base + len(SERIES)
    entries = [(device("root.sg", "d1"), at), (device("root.sg", "d2"), at + len(leaf) - 1)]
    root = node(entries, at + 2 * len(leaf), 1)
    assert_corrupt(tail_of(SERIES + leaf + leaf, root), "reaches beyond its end")


def test_an_index_of_endless_levels_is_refused():
    base, index, offset = 28, b"", None
    for _ in range(5000):
        entry = [(device("root.sg", "d"), offset)] if offset else []
        offset, previous = base + len(index), base + len(index)
        index += node(entry, previous, 0)
    root = node([(device("root.sg", "d"), offset)], base + len(index), 0)
    assert_corrupt(tail_of(index, root), "more than 32 levels")


@pytest.mark.parametrize("number", [10**6, 2**31, 2**32 - 1])
def test_a_count_of_children_is_not_believed(number):
    tracemalloc.start()
    try:
        assert_corrupt(tail_of(b"\x00" * 40, uvarint(number)), "children, more than there is room")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_node_of_the_wrong_level_is_found():
    base = 28
    leaf = node([(vstr("s"), base)], base + len(SERIES), 1)
    at = base + len(SERIES)
    root = node([(device("root.sg", "d"), at)], at + len(leaf), 1)
    assert_corrupt(tail_of(SERIES + leaf, root), "a node of type 1 at the measurement level")
    wrong = node([(device("root.sg", "d"), at)], at + len(leaf), 3)
    assert_corrupt(tail_of(SERIES + leaf, wrong), "a node of type 3 at the device level")


CHUNK_AT_8 = int64(8)


def series_file(series, **options):
    base = 28
    leaf = node([(vstr("s"), base)], base + len(series), 3)
    at = base + len(series)
    content = tail_of(series + leaf, node([(device("root.sg", "d"), at)], at + len(leaf), 1))
    return read_tail(content, **options)


def one(kind=0, code=10, count=1, start=1, end=1, chunks=CHUNK_AT_8, name="s"):
    return (
        bytes([kind]) + vstr(name) + bytes([code]) + uvarint(len(chunks)) + uvarint(count)
        + int64(start) + int64(end) + chunks
    )  # fmt: skip


def chunk(offset, count, start, end):
    return int64(offset) + uvarint(count) + int64(start) + int64(end)


@pytest.mark.parametrize(
    ("series", "reason"),
    [
        (one(start=2, end=1), "starts at time 2 and ends at 1"),
        (one(kind=2), "unknown kind 0x02"),
        (one(chunks=b""), "list of another length"),
        (one(chunks=int64(8) * 2), "list of another length"),
        (one(chunks=int64(7)), "chunk outside the data section"),
        (one(chunks=int64(27)), "chunk outside the data section"),
        (one(chunks=int64(-1)), "chunk outside the data section"),
        (one(kind=1, chunks=chunk(8, 1, 1, 1) + chunk(27, 1, 2, 2), count=2, end=2), "outside"),
        (one(kind=1, chunks=chunk(8, 1, 1, 1) + chunk(9, 1, 2, 2), count=3, end=2), "has 3 points"),
        (one(kind=1, chunks=chunk(8, 1, 1, 1) + chunk(9, 1, 2, 2), count=2, end=3), "in time"),
        (
            one(kind=1, chunks=chunk(8, 1, 1, 1) + chunk(9, 1, 2, 2), count=2, start=0, end=2),
            "time",
        ),
        (one(kind=1, chunks=chunk(8, 1, 3, 1) + chunk(9, 1, 2, 2), count=2, end=2), "before it"),
        (one(kind=1, chunks=b"", count=0), "differ in time"),
        (one(kind=1, chunks=chunk(8, 1, 1, 1)[:-1]), "reaches beyond its list"),
        (one(code=12) + one(code=13), "unknown data type 13"),
        (one(code=7), "unknown data type 7"),
        (one(name="other"), "begins with another series"),
        (one() + one(), "'s' for the second time"),
        (one(name=None), "begins with another series"),
        (one() + b"\x00" + varint(-1) + bytes(30), "without a name"),
        (one() + b"\x00\x04\xff\xfe" + bytes(40), "not UTF-8"),
        (one() + b"\x00" + uvarint(2**31) + bytes(40), "ends in the middle of an entry"),
        (one()[:-1], "reaches beyond its run"),
        (one(code=5)[:-8] + struct.pack(">i", 2**31 - 1) + int64(8), "a statistics value of"),
        (one(code=5)[:-8] + struct.pack(">i", -5) + int64(8), "a statistics value of -5"),
        (one() + b"\x00" + b"\xff" * 8 + bytes(40), "more than five bytes"),
    ],
)
def test_a_series_that_contradicts_itself_is_found(series, reason):
    tail = series_file(series)
    assert (tail.status, tail.devices) == (Status.CORRUPT, ())
    assert reason in tail.reason
    assert "offset" in tail.reason


def test_without_structure_only_what_can_be_read_matters():
    lying = one(kind=1, chunks=chunk(8, 1, 1, 1), count=3, end=2)
    assert series_file(lying).status is Status.CORRUPT
    tail = series_file(lying, structure=False)
    assert (tail.status, tail.point_count) == (Status.COMPLETE, 3)


def test_a_device_that_occurs_twice_or_in_the_wrong_table_is_found():
    twice = replaced(V4, device("root.sg", "d2"), device("root.sg", "d1"), last=True)
    assert_corrupt(twice, "for the second time")
    other = V4.replace(b"\x01" + vstr("root.sg"), b"\x01" + vstr("root.sh"))
    assert_corrupt(other, "in the table 'root.sh'")


def test_properties_that_are_not_what_is_announced_are_found():
    content = build(SAMPLE, properties={"k": "v"})
    assert_corrupt(replaced(content, b"\x02\x02k\x02v", b"\x06\x02k\x02v"), "1 properties where 6")
    assert_corrupt(replaced(content, b"\x02\x02k\x02v", b"\x02\x02k\x04v"), "more bytes than")


@pytest.mark.parametrize("version", [3, 4])
def test_a_chunk_header_that_is_not_the_series_is_found_only_when_asked_for(version):
    content = build({"root.sg.d1": {"abc": [(1, 1)]}}, version=version)
    header = b"\x05" + vstr("abc")
    cases = {
        b"\x07" + vstr("abc"): "begins with 0x07",
        b"\x05" + vstr("abd"): "is of series 'abd'",
    }
    for wrong, reason in cases.items():
        changed = replaced(content, header, wrong)
        assert read_tail(changed).complete
        assert_corrupt(changed, reason, chunk_headers=True)
    at = content.index(header) + len(header)
    assert_corrupt(
        content[:at] + b"\x7f" + content[at + 1 :], "more than there are", chunk_headers=True
    )
    assert_corrupt(
        content[: at + 1] + b"\x03" + content[at + 2 :], "is of series 'abc', type 3",
        chunk_headers=True,
    )  # fmt: skip


def test_an_index_larger_than_the_limit_is_refused_with_the_limit():
    many = build({f"root.sg.d{n}": {"s": [(1, 1)], "t": [(1, 1)]} for n in range(50)})
    assert_corrupt(many, "an index of", max_index_bytes=5000)
    assert_corrupt(many, "metadata of", max_index_bytes=10)
    assert read_tail(many, max_index_bytes=10_000).complete
