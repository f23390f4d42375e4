"""What a receiver tells of its schema to one who asks since a commit."""

from __future__ import annotations

import pytest

from common.errors import UsageError
from common.formats.schemaitems import Dropped, Group, GroupDropped, SeriesItem
from receiver.metadata.engine import Engine
from receiver.metadata.log import frames
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.transfer.schemachanges import SchemaReader
from tests.support.metadata import A, load, path, seen


@pytest.fixture
def engine(tmp_path):
    with Engine.open(tmp_path / "schema") as made:
        made.commit([seen(A), records.StorageGroupSet("root.t")])
        yield made


def created(name="s1", kind=1, device="root.t.d1"):
    return records.SeriesCreated(device, [name], bytes([kind]), b"\0", b"\1")


def since(engine, ts, limit=100):
    page = SchemaReader(engine).page(ts, None, limit)
    assert page.next is None
    assert page.after == ts
    return list(page.items)


def test_nothing_that_happened_tells_nothing(engine):
    ts = engine.commit([created()])
    engine.commit([records.OwnerSet("root.t.d1", A, "by hand")])
    assert since(engine, ts) == []


def test_each_change_is_told_as_what_became_of_it(engine):
    ts = engine.commit([created("s1"), created("s2", device="root.t.d2")])
    engine.commit([records.AliasSet("root.t.d1.s1", "x")])
    engine.commit([records.TagsSet("root.t.d1.s1", {"k": "v"}, {"a": "b"})])
    engine.commit([records.SeriesDeleted("root.t.d2.s2")])
    engine.commit([created("s3"), records.StorageGroupSet("root.u")])
    engine.commit([records.TtlSet("root.u", 5)])
    group, *series = since(engine, ts)
    assert group == Group(path="root.u", ttl=5)
    assert [each.path for each in series] == ["root.t.d1.s1", "root.t.d1.s3", "root.t.d2.s2"]
    by_path = {each.path: each for each in series}
    assert isinstance(by_path["root.t.d2.s2"], Dropped)
    changed = by_path["root.t.d1.s1"]
    assert (changed.alias, changed.tags, changed.attributes) == ("x", {"k": "v"}, {"a": "b"})
    assert by_path["root.t.d1.s3"].alias is None


def test_one_that_was_deleted_and_made_again_replaces(engine):
    ts = engine.commit([created(kind=1)])
    engine.commit([records.SeriesDeleted("root.t.d1.s1")])
    engine.commit([created(kind=3)])
    (item,) = since(engine, ts)
    assert isinstance(item, SeriesItem)
    assert (item.type, item.replaces) == (3, True)


def test_what_came_and_went_meanwhile_is_not_told(engine):
    ts = engine.newest_commit
    engine.commit([created()])
    engine.commit([records.SeriesDeleted("root.**")])
    assert since(engine, ts) == []


def test_a_pattern_that_deleted_is_told_as_what_it_took(engine):
    ts = engine.commit([created("s1"), created("s2", device="root.t.d2")])
    engine.commit([records.SeriesDeleted("root.t.**")])
    assert since(engine, ts) == [Dropped(path="root.t.d1.s1"), Dropped(path="root.t.d2.s2")]


def test_a_storage_group_that_went_is_told(engine):
    ts = engine.newest_commit
    engine.commit([records.StorageGroupDeleted("root.t")])
    assert since(engine, ts) == [GroupDropped(path="root.t")]


def test_of_loaded_files_only_new_series_are_told(engine):
    def file(tag, names):
        op = load(path(f"{tag}-{tag}-0"), tag, devices={"root.t.d1": (1, tag)})
        count = len(names)
        device = records.LoadedDevice(
            "root.t.d1", False, names, b"\1" * count, bytes(count), bytes(count), [tag] * count
        )
        engine.commit([op, records.SeriesLoaded(op.physical, [device])])

    file(5, ["s1", "s2"])
    ts = engine.newest_commit
    file(7, ["s1", "s2"])
    assert since(engine, ts) == []
    file(8, ["s2", "s3"])
    assert [each.path for each in since(engine, ts)] == ["root.t.d1.s3"]


def test_pages_are_all_of_one_commit(engine):
    ts = engine.newest_commit
    engine.commit([created(f"s{number}") for number in range(7)])
    reader = SchemaReader(engine)
    for after in (ts, 0):
        page = reader.page(after, None, 3)
        found, commit = list(page.items), page.commit
        engine.commit([created(f"later{after}")])
        while page.next is not None:
            page = reader.page(after, page.next, 3)
            assert page.commit == commit
            found += page.items
        names = [each.path for each in found if isinstance(each, SeriesItem)]
        assert names[:7] == sorted(names)[:7]
        assert f"root.t.d1.later{after}" not in names


def test_where_history_does_not_reach_back_it_is_the_whole(tmp_path):
    options = EngineOptions(history=0.0)
    with Engine.open(tmp_path / "schema", options=options) as engine:
        ts = engine.commit([records.StorageGroupSet("root.t")])
        engine.commit([created()])
        engine.commit([records.SeriesDeleted("root.t.d1.s1")])
        engine.collect()
        page = SchemaReader(engine).page(ts, None, 10)
        assert page.after == 0
        assert page.items == [Group(path="root.t")]


def test_a_commit_of_the_future_is_not_believed(engine):
    assert SchemaReader(engine).page(engine.newest_commit + 1, None, 10).after == 0


@pytest.mark.parametrize("cursor", ["", "x", "c", "c 1", "c x 1", "w x root", "c 1 -1"])
def test_a_cursor_that_is_none_is_refused(engine, cursor):
    with pytest.raises(UsageError):
        SchemaReader(engine).page(0, cursor, 10)


def test_who_asks_from_the_same_commit_again_costs_only_what_came_since(engine, monkeypatch):
    for number in range(20):
        engine.commit([created(f"old{number}")])
    ts = engine.newest_commit
    read = []

    def spied(after, whole=engine.log_since):
        for commit in whole(after):
            read.append(commit.ts)
            yield commit

    monkeypatch.setattr(engine, "log_since", spied)
    asking = SchemaReader(engine)
    for ops in (
        [created("s1")],
        [records.SeriesDeleted("root.t.d1.old*")],
        [created("old3")],
        [created("t1", device="root.t.d2"), records.AliasSet("root.t.d1.s1", "x")],
        [records.OwnerSet("root.t.d1", A, "by hand")],
        [records.SeriesDeleted("root.**")],
        [created("old3", kind=2)],
        [records.StorageGroupDeleted("root.t"), records.StorageGroupSet("root.t")],
        [records.OwnerSet("root.t.d1", A, "again")],
    ):
        read.clear()
        newest = engine.commit(ops)
        items = asking.page(ts, None, 100).items
        assert read == [newest]
        assert items == SchemaReader(engine).page(ts, None, 100).items


def test_the_log_is_not_read_from_its_begin_for_every_question(engine, monkeypatch):
    for number in range(50):
        engine.commit([created(f"s{number}")])
    list(engine.log_since(0))
    decoded = []
    real = frames.decode_commits
    monkeypatch.setattr(frames, "decode_commits", lambda raw: decoded.append(1) or real(raw))
    ts = engine.newest_commit
    engine.commit([created("new")])
    assert len(list(engine.log_since(ts))) == 1
    assert len(decoded) == 2
