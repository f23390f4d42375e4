"""Points come in the order of time, of the range and in batches of the size asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from common.tsfile import DataType
from receiver.points import ChunkSummary, DamagedData, TsFileReader, UnsupportedData
from receiver.points.deleted.deletion_files import parse_text
from receiver.points.deleted.deletions import Deletions
from tests.support.tsfile_bytes import SAMPLE, build, flushed

D1 = "root.sg.d1"
ALIGNED = {
    D1: {
        "a": [(t, t * 10) for t in range(100)],
        "b": [(t, f"v{t}") for t in range(0, 100, 3)],
        "c": [(t, t / 2) for t in range(50, 60)],
    }
}


@pytest.fixture
def written(tmp_path):
    def write(content: bytes) -> Path:
        path = tmp_path / "a.tsfile"
        path.write_bytes(content)
        return path

    return write


def rows(path: Path, device: str = D1, names=None, **options) -> list[dict]:
    with TsFileReader(path) as file:
        return [
            row for batch in file.read_device(device, names, **options) for row in batch.to_pylist()
        ]


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(("chunks", "page_points"), [(1, 1000), (1, 7), (4, 1000), (4, 7)])
def test_an_aligned_device_has_a_row_for_each_time(written, version, chunks, page_points):
    content = build(ALIGNED, aligned=[D1], version=version, chunks=chunks, page_points=page_points)
    wanted = [
        {
            "time": t,
            "a": t * 10,
            "b": f"v{t}" if t % 3 == 0 else None,
            "c": t / 2 if 50 <= t < 60 else None,
        }
        for t in range(100)
    ]
    assert rows(written(content)) == wanted


@pytest.mark.parametrize("aligned", [[], [D1]])
def test_a_range_takes_both_its_ends(written, aligned):
    path = written(build(ALIGNED, aligned=aligned, chunks=3, page_points=7))
    for start, end in [(None, 20), (20, None), (33, 33), (20, 61), (-5, -1), (100, 200), (61, 20)]:
        found = [row["time"] for row in rows(path, start=start, end=end)]
        low, high = 0 if start is None else start, 99 if end is None else end
        assert found == [t for t in range(100) if low <= t <= high]


@pytest.mark.parametrize("aligned", [[], [D1]])
def test_rows_without_a_value_in_the_columns_are_left_out(written, aligned):
    path = written(build(ALIGNED, aligned=aligned, page_points=7))
    found = rows(path, names=["c"])
    assert found == [{"time": t, "c": t / 2} for t in range(50, 60)]
    assert [row["time"] for row in rows(path, names=["c", "b"], end=51)] == [
        *range(0, 50, 3),
        50,
        51,
    ]


def test_a_table_keeps_its_rows_without_a_value(written):
    device = ("t", "x")
    content = build({device: {"a": [(1, 1), (2, 2)], "b": [(2, 0.5)]}})
    assert rows(written(content), "t:x", ["b"]) == [
        {"time": 1, "b": None},
        {"time": 2, "b": 0.5},
    ]


def test_batches_have_at_most_the_rows_that_were_asked_for(written):
    path = written(build(ALIGNED, aligned=[D1], chunks=5, page_points=6))
    with TsFileReader(path) as file:
        sizes = [batch.num_rows for batch in file.read_device(D1, batch_rows=30)]
        assert sum(sizes) == 100
        assert max(sizes) <= 30
        assert len(sizes) <= 6
        sizes = [batch.num_rows for batch in file.read_series(D1, "a", batch_rows=3)]
        assert set(sizes) <= {1, 2, 3}
        assert sum(sizes) == 100


def test_types_are_those_of_arrow(written):
    content = build(
        {
            D1: {
                "bool": [(1, True)],
                "date": [(1, 20240229)],
                "time": [(1, 5)],
                "blob": [(1, b"\xff")],
                "text": [(1, "é")],
                "f": [(1, 0.5)],
            }
        },
        types={"date": "DATE", "time": "TIMESTAMP", "f": "FLOAT"},
    )
    path = written(content)
    with TsFileReader(path) as file:
        (batch,) = file.read_device(D1)
    kinds = {field.name: field.type for field in batch.schema}
    assert kinds["bool"] == pa.bool_()
    assert kinds["date"] == pa.date32()
    assert kinds["time"] == pa.int64()
    assert kinds["blob"] == pa.binary()
    assert kinds["text"] == pa.string()
    assert kinds["f"] == pa.float32()
    assert batch.column("date").to_pylist()[0].isoformat() == "2024-02-29"


def test_zeros_keep_their_sign(written):
    points = [(1, -0.0), (2, 0.0), (3, 0.0), (4, -0.0)]
    path = written(build({D1: {"s": points}}, version=3, chunks=2))
    with TsFileReader(path) as file:
        (batch,) = file.read_series(D1, "s")
        assert [str(value) for value in batch.column("value").to_pylist()] == [
            "-0.0",
            "0.0",
            "0.0",
            "-0.0",
        ]
        assert all(isinstance(each, ChunkSummary) for each in file.summaries(file.device(D1)))


@pytest.mark.parametrize("date", [0, 20230229, 20231301, 20230100, -1])
def test_a_date_that_is_none_is_named_with_its_time(written, date):
    path = written(build({D1: {"s": [(7, date)]}}, types={"s": "DATE"}))
    with TsFileReader(path) as file, pytest.raises(UnsupportedData, match=r"at time 7.*is no date"):
        list(file.read_series(D1, "s"))


def test_text_that_is_not_utf8_is_read_as_binary_only(written):
    path = written(build({D1: {"s": [(1, b"ok"), (2, b"\xff\xfe")]}}, types={"s": "TEXT"}))
    with TsFileReader(path) as file, pytest.raises(UnsupportedData, match=r"at time 2.*UTF-8"):
        list(file.read_series(D1, "s"))
    with TsFileReader(path, text="binary") as file:
        (batch,) = file.read_series(D1, "s")
    assert batch.column("value").to_pylist() == [b"ok", b"\xff\xfe"]


def test_a_later_chunk_overrides_an_earlier_one_of_the_same_time(written):
    """As in files of late data, where the chunks of a series may overlap."""
    points = [(t, 1) for t in range(10)] + [(t, 2) for t in range(5, 15)]
    path = written(build({D1: {"s": points}}, chunks=2, page_points=4))
    wanted = {**dict(points[:10]), **dict(points[10:])}
    assert {row["time"]: row["s"] for row in rows(path)} == wanted
    with TsFileReader(path) as file:
        batches = file.read_series(D1, "s", start=3, end=8)
        found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        assert found == [(3, 1), (4, 1), (5, 2), (6, 2), (7, 2), (8, 2)]
        found = list(file.summaries(file.device(D1)))
        assert [each.statistics.count for each in found] == [10, 10]


def test_no_more_chunks_are_merged_than_can_be_open_at_once(written, monkeypatch):
    points = [(t, 1) for t in range(10)] + [(t, 2) for t in range(5, 15)]
    path = written(build({D1: {"s": points}}, chunks=2))
    monkeypatch.setattr("receiver.points.rows._MOST_OVERLAPPING", 1)
    with pytest.raises(UnsupportedData, match="2 chunks that overlap in time, more than 1"):
        rows(path)


@pytest.mark.parametrize("name", ["unsealed", "empty", "legacy", "other"])
def test_what_is_no_complete_file_is_refused_when_it_is_opened(written, name):
    content = {
        "unsealed": build(SAMPLE)[:-3],
        "empty": b"",
        "legacy": b"TsFile000002" + bytes(50) + b"TsFile",
        "other": b"PAR1" * 20,
    }[name]
    kind = UnsupportedData if name == "legacy" else DamagedData
    with pytest.raises(kind):
        TsFileReader(written(content))


def test_an_encrypted_file_is_named_as_such(written):
    properties = {"encryptLevel": "1", "encryptType": "x", "encryptKey": "y"}
    path = written(build(SAMPLE, properties=properties))
    with TsFileReader(path) as file:
        assert file.tail.device_count == 2
        with pytest.raises(UnsupportedData, match="encrypted"):
            list(file.read_series(D1, "s1"))


def test_a_descriptor_stays_open_and_where_it_was(written):
    path = written(build(SAMPLE))
    fd = os.open(path, os.O_RDONLY)
    try:
        with TsFileReader(fd, name="shown") as file:
            assert file.name == "shown"
            assert sum(batch.num_rows for batch in file.read_series(D1, "s1")) == 100
        assert os.lseek(fd, 0, os.SEEK_CUR) == 0
    finally:
        os.close(fd)


def test_a_chunk_says_what_its_pages_are(written):
    path = written(build(ALIGNED, aligned=[D1], chunks=2, page_points=20))
    with TsFileReader(path) as file:
        device = file.device(D1)
        blocks = []
        summaries = file.summaries(
            device, observe=lambda name, block: blocks.append((name, len(block.times)))
        )
        chunk, second = (each for each in summaries if each.measurement == "b")
        assert sum(rows for name, rows in blocks if name == "b") == 100
        assert (chunk.pages, chunk.rows, chunk.statistics.count) == (3, 50, 17)
        assert chunk.data_type == DataType.TEXT
        assert chunk.statistics.last == b"v48"
        content = path.read_bytes()
        assert content[chunk.offset] == 0x41
        assert chunk.end <= second.offset
        with pytest.raises(KeyError):
            file.series(device, "none")


def test_of_chunks_that_overlap_a_deletion_may_end_between_times_and_values(written):
    """A row without its time has no values, as where no chunk overlaps."""
    device = "root.sg.d1"
    flushes = [
        {device: {"a": [(1, 1), (2, 2)], "b": [(1, True), (2, False)]}},
        {device: {"a": [(2, 3), (3, 4)]}},
    ]
    content, offsets = flushed(flushes, closed=True, aligned=[device])
    just_behind = offsets[0][device] + 1  # the header of the times, and of no value
    deletions = Deletions(
        parse_text(f"DELETION,{device}.*,{just_behind},0,9\n".encode(), "m").entries
    )
    with TsFileReader(written(content), deletions=deletions) as reader:
        found = [row for batch in reader.read_device(device) for row in batch.to_pylist()]
        assert found == [{"time": 2, "a": 3, "b": None}, {"time": 3, "a": 4, "b": None}]
        points = [row for batch in reader.read_series(device, "a") for row in batch.to_pylist()]
        assert [row["time"] for row in points] == [2, 3]
