"""The tlog: tags and attributes at their places."""

import pytest

from common.durable import Tree
from common.errors import DamagedError
from receiver.metadata.engine import Engine
from receiver.metadata.log.tlog import FIRST_OFFSET, TLOG_NAME, Tlog
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import NewerLogError, TagsTooLargeError
from receiver.metadata.model.tag_layout import layout
from tests.support.metadata import seen
from tests.support.schema_commits import series

OPS = [
    seen(),
    series("root.t.d1", "a", "b", "c", tags=[{"k": "v"}, {}, {}], attributes=[{}, {}, {"x": "y"}]),
    series("root.t.d2", "a"),
    records.TagsSet("root.t.d1.a", {}, {}),
]


@pytest.fixture
def tree(tmp_path):
    with Tree(tmp_path / "schema", create=True) as tree:
        Tlog.make(tree)
        yield tree


def test_a_commit_is_laid_out_in_the_order_of_its_operations():
    laid = layout(OPS, FIRST_OFFSET)
    first, third, last = laid.offsets[1][0], laid.offsets[1][2], laid.offsets[3][0]
    assert laid.offsets == [None, [first, -1, third], None, [last]]
    assert first == FIRST_OFFSET < third < last < FIRST_OFFSET + len(laid.content)
    assert layout(OPS, FIRST_OFFSET) == laid, "the same operations give the same bytes"
    assert layout([OPS[0], OPS[2]], FIRST_OFFSET) is None


def test_what_was_written_is_read_back(tree):
    laid = layout(OPS, FIRST_OFFSET)
    with Tlog.open(tree) as tlog:
        tlog.write(laid.content)
        tlog.advance(len(laid.content))
        assert tlog.read(laid.offsets[1][0]) == ({"k": "v"}, {})
        assert tlog.read(laid.offsets[1][2]) == ({}, {"x": "y"})
        assert tlog.read(laid.offsets[3][0]) == ({}, {})
        assert tlog.read(-1) == ({}, {})


def test_a_large_entry_is_read_whole(tree):
    tags = {f"key {number}": "é" * 300 for number in range(20)}
    laid = layout([records.TagsSet("root.t.d.s", tags, {})], FIRST_OFFSET)
    with Tlog.open(tree) as tlog:
        tlog.write(laid.content)
        assert tlog.read(FIRST_OFFSET) == (tags, {})


@pytest.mark.parametrize("offset", [0, 5, FIRST_OFFSET + 1, 10_000])
def test_an_offset_without_an_entry_is_a_named_error(tree, offset):
    with Tlog.open(tree) as tlog:
        tlog.write(layout(OPS, FIRST_OFFSET).content)
        with pytest.raises(DamagedError, match=f"{TLOG_NAME} has no sound entry at offset"):
            tlog.read(offset)


def test_an_entry_in_a_wrong_place_is_not_taken(tree):
    with Tlog.open(tree) as tlog:
        tlog.write(layout(OPS, FIRST_OFFSET + 1).content)
        with pytest.raises(DamagedError):
            tlog.read(FIRST_OFFSET)


def test_a_failed_batch_leaves_its_place_to_the_next(tree):
    with Tlog.open(tree) as tlog:
        tlog.write(layout(OPS, tlog.end).content)
        other = layout([records.TagsSet("root.t.d.s", {"other": "1"}, {})], tlog.end)
        tlog.write(other.content)
        tlog.advance(len(other.content))
        assert tlog.read(FIRST_OFFSET) == ({"other": "1"}, {})
        assert tlog.cut() > 0
        assert tlog.size == tlog.end


def test_a_newer_version_is_refused_with_its_number(tree):
    file = tree.path / TLOG_NAME
    content = bytearray(file.read_bytes())
    content[8] = 9
    file.write_bytes(bytes(content))
    with pytest.raises(NewerLogError, match="has version 9"):
        Tlog.open(tree)


def test_too_many_tags_are_refused_before_anything_is_logged(tmp_path):
    home = tmp_path / "engine"
    with Engine.open(home, options=EngineOptions(tag_bytes=40), background=False) as engine:
        engine.commit([records.StorageGroupSet("root.t"), series("root.t.d", "s", "t")])
        before = engine.newest_commit, (home / "mlog-1.tsf").stat().st_size
        for op in (
            records.TagsSet("root.t.d.s", {"k": "v" * 40}, {}),
            series("root.t.e", "one", "two", tags=[{}, {"k": "v" * 40}]),
        ):
            with pytest.raises(TagsTooLargeError, match=r"root\.t\.[de].(s|two) take 4\d bytes"):
                engine.commit([op])
        assert (engine.newest_commit, (home / "mlog-1.tsf").stat().st_size) == before
        assert (home / TLOG_NAME).stat().st_size == FIRST_OFFSET
        engine.commit([records.TagsSet("root.t.d.s", {"k": "v" * 20}, {})])


def test_tags_and_attributes_are_those_of_the_commit_that_a_row_is_seen_at(tmp_path):
    with Engine.open(tmp_path / "engine", background=False) as engine:
        engine.commit([records.StorageGroupSet("root.t"), series("root.t.d", "s")])
        stamps = [
            engine.commit([records.TagsSet("root.t.d.s", {"v": str(number)}, {"a": "b"})])
            for number in range(5)
        ]
        engine.checkpoint()
        for number, ts in enumerate(stamps):
            with engine.reading() as state:
                row = state.schema.series.describe(
                    state.schema.series.find(("root", "t", "d", "s"), ts), ts
                )
            assert engine.tags_of(row.tags_at) == ({"v": str(number)}, {"a": "b"})
