"""A stream reads each loaded file once, whatever happens to it, and however often it is asked."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from common.errors import ConflictError, GoneError, UsageError
from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError
from receiver.spark.source.inferring import columns_of, plan_of
from receiver.spark.source.read_plans.overlapping import MergeSlice
from receiver.spark.source.read_plans.slicing import Slice
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.streaming import Offset, TsFileStreamReader
from tests.support.spark_world import NORTH, World
from tests.support.tsfile_bytes import build

PATH = "sequence/root.wind/0/0/{0}-{0}-0-0.tsfile"
CONTENT = build({"root.wind.d1": {"s1": [(1, 1)]}})


@pytest.fixture
def world(tmp_path: Path):
    world = World(tmp_path)
    yield world
    world.engine.close()


def load(world: World, number: int) -> str:
    place = world.load(NORTH, PATH.format(number), CONTENT)
    return str(place.relative_to(world.data))


def reader(world: World, **given: str) -> TsFileStreamReader:
    options = parse_options({"catalog": str(world.config), "form": "long", **given})
    return TsFileStreamReader(plan_of(options, columns_of(options)))


class Query:
    """What Spark does with a stream reader, batch by batch."""

    def __init__(self, world: World, **given: str) -> None:
        self.world, self.given = world, given
        self.reader = reader(world, **given)
        self.offset = self.reader.initialOffset()
        self.batches: list[tuple[dict, dict]] = []

    def next(self, limit=None) -> list[str] | None:
        """Files of the next batch; None where there is none."""
        end = self.reader.latestOffset(self.offset, limit or self.reader.getDefaultReadLimit())
        assert json.loads(json.dumps(end)) == end
        if end == self.offset:
            return None
        start, self.offset = self.offset, end
        self.batches.append((start, end))
        return self.files(start, end)

    def files(self, start: dict, end: dict) -> list[str]:
        parts = self.reader.partitions(start, end)
        files = [
            each.file.name for part in parts for each in part.slices if isinstance(each, Slice)
        ]
        merged = [
            each.files for part in parts for each in part.slices if isinstance(each, MergeSlice)
        ]
        return sorted(files + [one.file.name for some in merged for one in some if one.is_fresh])

    def restart(self) -> None:
        """Another process goes on from the checkpoint."""
        self.reader.stop()
        self.reader = pickle.loads(pickle.dumps(reader(self.world, **self.given)))


def test_what_is_loaded_comes_once_and_a_rest_is_no_batch(world: World):
    query = Query(world)
    assert query.next() is None
    a, b = load(world, 1), load(world, 2)
    assert query.next() == sorted([a, b])
    assert query.next() is None
    query.restart()
    assert query.next() is None
    world.engine.commit([records.SenderSeen(uuid="c" * 32, label="c", directory=f"c_{'c' * 32}")])
    assert query.next() is None
    c = load(world, 3)
    assert query.next() == [c]


def test_a_batch_that_is_planned_again_is_the_same_batch(world: World):
    a, b = load(world, 1), load(world, 2)
    query = Query(world)
    assert query.next() == sorted([a, b])
    world.engine.commit([records.FileDeleted(a, "replaced")])
    world.engine.commit([records.FileQuarantined(b, "bad")])
    load(world, 3)
    query.restart()
    assert query.files(*query.batches[0]) == sorted([a, b])


def test_what_was_deleted_before_its_batch_is_not_read(world: World):
    query = Query(world)
    a, b = load(world, 1), load(world, 2)
    world.engine.commit([records.FileDeleted(a, "replaced")])
    assert query.next() == [b]


def test_what_is_in_quarantine_is_put_off_until_it_is_restored(world: World):
    query = Query(world)
    a, b, c = load(world, 1), load(world, 2), load(world, 3)
    world.engine.commit([records.FileQuarantined(a, "bad"), records.FileQuarantined(b, "bad")])
    assert query.next() == [c]
    assert json.loads(query.offset["held"]) == sorted([a, b])
    query.restart()
    assert query.next() is None
    world.engine.commit([records.FileRestored(a)])
    world.engine.commit([records.FileDeleted(b, "replaced")])
    assert query.next() == [a]
    assert query.offset["held"] == "[]"
    assert query.next() is None
    # In quarantine only after it was read: it was read, restored or not.
    world.engine.commit([records.FileQuarantined(c, "bad")])
    assert query.next() is None
    world.engine.commit([records.FileRestored(c)])
    assert query.next() is None


def test_batches_are_cut_between_commits(world: World):
    files = [load(world, number) for number in range(1, 6)]
    query = Query(world, maxFilesPerTrigger="2")
    assert isinstance(query.reader.getDefaultReadLimit(), ReadMaxFiles)
    found = []
    while (batch := query.next()) is not None:
        assert len(batch) <= 2
        found += batch
    assert sorted(found) == sorted(files)
    again = Query(world, maxFilesPerTrigger="2")
    assert again.next(ReadAllAvailable()) == sorted(files)


def test_available_now_stops_where_it_began(world: World):
    a = load(world, 1)
    query = Query(world)
    query.reader.prepareForTriggerAvailableNow()
    b = load(world, 2)
    assert query.next() == [a]
    assert query.next() is None
    query.restart()
    assert query.next() == [b]


def test_a_stream_begins_behind_the_commit_that_is_named(world: World):
    load(world, 1)
    commit = world.engine.newest_commit
    b = load(world, 2)
    assert Query(world, startingCommit=str(commit)).next() == [b]
    latest = Query(world, startingCommit="latest")
    assert latest.next() is None
    c = load(world, 3)
    assert latest.next() == [c]


def test_the_checkpoint_of_another_receiver_or_of_a_lost_future_is_refused(world: World):
    query = Query(world)
    limit = ReadAllAvailable()
    there = Offset.from_dict(query.offset)
    other = Offset("f" * 32, there.commit, there.as_of).to_dict()
    with pytest.raises(ConflictError, match="begin a new query"):
        query.reader.latestOffset(other, limit)
    ahead = Offset(there.engine, 1 << 62, 1 << 62).to_dict()
    with pytest.raises(GoneError, match="restored from an old copy"):
        query.reader.latestOffset(ahead, limit)
    with pytest.raises(UsageError, match="no offset of tsfile"):
        query.reader.latestOffset({"version": 1, "partition": 5}, limit)
    with pytest.raises(UsageError, match="version 2"):
        query.reader.latestOffset({"version": 2}, limit)


def test_a_batch_whose_past_is_gone_is_an_error_unless_told_otherwise(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    load(world, 1)
    query = Query(world)
    query.next()
    b = load(world, 2)
    start, end = query.batches[0]
    engine = query.reader._current()._engine
    monkeypatch.setattr(engine.window, "oldest", engine.newest_commit)
    with pytest.raises(HistoryGoneError, match="failOnDataLoss"):
        query.reader.partitions(start, end)
    lenient = Query(world, failOnDataLoss="false")
    engine = lenient.reader._current()._engine
    monkeypatch.setattr(engine.window, "oldest", engine.newest_commit)
    assert len(lenient.files(start, end)) == 1
    assert b not in lenient.files(start, end)


def test_paths_and_past_times_are_no_stream():
    options = parse_options({"path": "/data", "form": "long"})
    plan = plan_of(options, [])
    with pytest.raises(UsageError, match="a stream follows the commits of a receiver"):
        TsFileStreamReader(plan)
    options = parse_options({"catalog": "/data", "form": "long", "asOf": "5"})
    with pytest.raises(UsageError, match="asOf = '5': expected in batch queries only"):
        TsFileStreamReader(plan_of(options, []))


def _rows(query: Query) -> list[tuple[int, int]] | None:
    """Times and values of the next batch; None where there is none."""
    end = query.reader.latestOffset(query.offset, query.reader.getDefaultReadLimit())
    if end == query.offset:
        return None
    start, query.offset = query.offset, end
    query.batches.append((start, end))
    return _rows_of(query, start, end)


def _rows_of(query: Query, start: dict, end: dict) -> list[tuple[int, int]]:
    found = [
        (row["time"], row["value_long"])
        for part in query.reader.partitions(start, end)
        for batch in query.reader.read(part)
        for row in batch.to_pylist()
    ]
    return sorted(found)


def _put(world: World, path: str, *points: tuple[int, int]) -> str:
    place = world.load(NORTH, path, build({"root.wind.d1": {"s1": list(points)}}))
    return str(place.relative_to(world.data))


def test_a_file_that_overlaps_others_comes_with_what_alters_the_answer(world: World):
    query = Query(world)
    first = _put(world, "sequence/root.wind/0/0/1-1-0-0.tsfile", (1, 1), (2, 1), (3, 1))
    assert _rows(query) == [(1, 1), (2, 1), (3, 1)]
    # An update, a point that is the same, and one between.
    late = _put(world, "unsequence/root.wind/0/0/2-2-0-0.tsfile", (2, 9), (3, 1), (5, 9))
    assert _rows(query) == [(2, 9), (5, 9)]
    # What stands below says nothing but what is not there.
    _put(world, "sequence/root.wind/0/0/0-0-0-0.tsfile", (0, 7), (1, 7), (2, 7))
    assert _rows(query) == [(0, 7)]
    # A compaction says nothing, whether its sources are there still or not.
    world.engine.commit([records.FileRetired(first), records.FileRetired(late)])
    whole = [(1, 1), (2, 9), (3, 1), (5, 9)]
    product = _put(world, "sequence/root.wind/0/0/1-1-0-1.tsfile", *whole)
    world.engine.commit([records.FileSuperseded(first, [product])])
    world.engine.commit([records.FileSuperseded(late, [product])])
    assert _rows(query) == []
    assert _rows(query) is None


def test_a_batch_that_is_read_again_says_the_same(world: World):
    query = Query(world)
    _put(world, "sequence/root.wind/0/0/1-1-0-0.tsfile", (1, 1), (3, 1))
    assert _rows(query) == [(1, 1), (3, 1)]
    _put(world, "unsequence/root.wind/0/0/2-2-0-0.tsfile", (1, 2), (2, 2))
    assert _rows(query) == [(1, 2), (2, 2)]
    _put(world, "unsequence/root.wind/0/0/3-3-0-0.tsfile", (1, 3), (2, 2))
    query.restart()
    assert [_rows_of(query, *each) for each in query.batches] == [
        [(1, 1), (3, 1)],
        [(1, 2), (2, 2)],
    ]
    assert _rows(query) == [(1, 3)]


def test_files_of_one_batch_are_merged_and_without_merge_all_is_told(world: World):
    query, stored = Query(world), Query(world, merge="false")
    _put(world, "sequence/root.wind/0/0/1-1-0-0.tsfile", (1, 1), (2, 1))
    _put(world, "unsequence/root.wind/0/0/2-2-0-0.tsfile", (2, 2), (3, 2))
    assert _rows(query) == [(1, 1), (2, 2), (3, 2)]
    assert _rows(stored) == [(1, 1), (2, 1), (2, 2), (3, 2)]


def test_what_was_merged_for_good_is_no_news_for_who_had_it_and_comes_once_for_others(
    world: World,
):
    merged = "sequence/root.wind/0/0/merged-7-1.tsfile"
    had, late = Query(world), Query(world)
    contents = [build({"root.wind.d1": {"s1": [(time, 1)]}}) for time in (1, 2)]
    inputs = [
        str(world.load(NORTH, PATH.format(number), each).relative_to(world.data))
        for number, each in enumerate(contents, 1)
    ]
    assert had.next() == inputs
    content = build({"root.wind.d1": {"s1": [(1, 1), (2, 1)]}})
    (world.data / merged).write_bytes(content)
    md5 = hashlib.md5(content).hexdigest()
    ranges = [records.DeviceRange("root.wind.d1", 1, 2)]
    made = records.CompactionOutput(
        merged, len(content), md5, 4, ranges, 1, 2, 1, 2, str(world.data)
    )
    world.engine.commit([records.FilesCompacted(7, world.engine.newest_commit, inputs, [made])])
    assert had.next() is None
    world.engine.commit([records.FileRetired(each) for each in inputs])
    world.engine.commit([records.CompactionFinal(7, [records.FinalOutput(merged, md5)])])
    for query in (had, late):
        query.restart()
    assert had.next() is None
    assert late.next() == [merged]
    assert late.next() is None
    more = load(world, 3)
    assert had.next() == late.next() == [more]
