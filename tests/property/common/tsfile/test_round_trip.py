"""Whatever is written is what is read; names are one to one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from common.tsfile import Status, read_status, read_tail
from common.tsfile.device_names import device_name, parse_name, tree_name
from tests.support import tiers
from tests.support.tsfile_bytes import build

TEXT = st.text(min_size=1, max_size=8).filter(lambda text: text.isprintable())
TIMES = st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=12, unique=True).map(sorted)
VALUES = st.sampled_from(
    [
        st.integers(-(2**62), 2**62),
        st.booleans(),
        st.floats(allow_nan=False, allow_infinity=False, width=16),
        st.text(max_size=5),
        st.binary(max_size=5),
    ]
)
NODES = st.lists(TEXT, min_size=1, max_size=4).map(lambda nodes: tree_name(["root", *nodes]))


@st.composite
def series(draw):
    times, values = draw(TIMES), draw(VALUES)
    return [(time, draw(values)) for time in times]


FILES = st.dictionaries(NODES, st.dictionaries(TEXT, series(), min_size=1, max_size=5), max_size=5)


@settings(max_examples=tiers.examples(60))
@given(
    devices=FILES, version=st.sampled_from([3, 4]), chunks=st.integers(1, 3),
    page_points=st.integers(1, 5), degree=st.integers(2, 4), aligned=st.booleans(),
)  # fmt: skip
def test_what_is_written_is_what_is_read(devices, version, chunks, page_points, degree, aligned):
    content = build(
        devices, version=version, chunks=chunks, page_points=page_points, max_degree=degree,
        aligned=list(devices) if aligned else [],
    )  # fmt: skip
    tail = read_tail(content, chunk_headers=True)
    assert tail.status is Status.COMPLETE, tail.reason
    found = {
        (device.name, one.measurement): (one.count, one.start, one.end)
        for device, one in tail.series()
    }
    assert found == {
        (device, name): (len(points), points[0][0], points[-1][0])
        for device, measurements in devices.items()
        for name, points in measurements.items()
    }
    assert tail.point_count == sum(count for count, _, _ in found.values())
    assert tail.first_time == min((start for _, start, _ in found.values()), default=None)
    assert tail.last_time == max((end for _, _, end in found.values()), default=None)


@settings(max_examples=tiers.examples(40))
@given(devices=FILES, version=st.sampled_from([3, 4]), data=st.data())
def test_a_truncated_file_is_unsealed(devices, version, data):
    content = build(devices, version=version)
    length = data.draw(st.integers(1, len(content) - 1))
    expected = Status.UNSEALED
    if content[6:length].endswith(b"TsFile"):
        expected = Status.CORRUPT
    assert read_status(content[:length]).status is expected


@settings(max_examples=tiers.examples(150))
@given(content=st.binary(max_size=300), head=st.sampled_from([b"", b"TsFile\x03", b"TsFile\x04"]))
def test_any_bytes_get_a_verdict(content, head):
    sealed = head + content + len(content).to_bytes(4, "big") + b"TsFile"
    for whole in (content, head + content, sealed):
        assert not read_tail(whole, chunk_headers=True).devices


@given(st.lists(st.text(max_size=6), min_size=1, max_size=5))
def test_a_tree_name_gives_back_its_nodes(nodes):
    name = tree_name(nodes)
    assert parse_name(name) == (False, tuple(nodes))
    assert device_name((name,), table=False) == name


@given(st.text(max_size=6), st.lists(st.none() | st.text(max_size=6), max_size=4))
def test_a_table_name_gives_back_its_tags(table, tags):
    segments = (table, *tags)
    name = device_name(segments, table=True)
    assert parse_name(name) == (True, segments)
