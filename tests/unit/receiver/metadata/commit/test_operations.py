"""The operations as a caller uses them, on a real engine: paths as users write them."""

import threading

import pytest

from common.tsfile.layout import Compression, DataType, Encoding
from receiver.metadata.commit.operations import NewSeries, storage_group_at
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.alterations import AddTags, Drop, Rename, SetValues, Upsert
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import (
    AliasTakenError,
    EncodingRefusedError,
    RefusedCommitError,
    SchemaRefusedError,
    SeriesExistsError,
    SeriesMissingError,
    StorageGroupMissingError,
    StorageGroupNestedError,
    TagExistsError,
    TtlRefusedError,
    UnknownTypeError,
)
from receiver.metadata.model.paths import IllegalPathError, parse_pattern
from tests.support.asking import number
from tests.support.committing import groups, seen, series
from tests.support.metadata import has_commit


@pytest.fixture
def engine(tmp_path):
    with Engine.open(tmp_path / "schema", options=EngineOptions(auto_create=False)) as engine:
        engine.set_storage_group("root.sg")
        yield engine


@pytest.fixture
def making(tmp_path):
    with Engine.open(tmp_path / "making", options=EngineOptions(storage_group_level=2)) as engine:
        yield engine


def paths(engine, pattern="root.**"):
    with engine.reading() as state:
        return series(state, pattern)


def row(engine, path):
    with engine.reading() as state:
        found = state.schema.series.find(tuple(path.split(".")))
        return None if found < 0 else state.schema.series.describe(found)


def labels(engine, path):
    found = row(engine, path)
    tags, attributes = engine.tags_of(found.tags_at) if found.tags_at >= 0 else ({}, {})
    return tags, attributes, found.alias


def refuse(engine, error, match, work, *args, **options):
    """What raises leaves nothing: not in the tree, not in the log."""
    with engine.reading() as state:
        before = seen(state)
    with pytest.raises(error, match=match) as caught:
        work(*args, **options)
    with engine.reading() as state:
        assert seen(state) == before
    assert engine.newest_commit == before["newest"]
    return caught.value


def test_a_series_is_made_as_it_was_said(engine):
    ts = engine.create_series(
        'root.sg.d1."s 1"', "float", Encoding.RLE, "LZ4",
        alias="temp", tags={"unit": "C"}, attributes={"x": "y"}, props={"max_point_number": "2"},
    )  # fmt: skip
    found = row(engine, "root.sg.d1.s 1")
    assert found.path == "root.sg.d1.`s 1`"
    assert (found.type, found.encoding, found.compression) == (
        DataType.FLOAT,
        Encoding.RLE,
        Compression.LZ4,
    )
    assert found.created == ts == engine.newest_commit
    assert found.props == {"max_point_number": "2"}
    assert labels(engine, "root.sg.d1.s 1") == ({"unit": "C"}, {"x": "y"}, "temp")


def test_what_is_not_said_is_as_in_a_database(engine):
    engine.create_series("root.sg.d1.a", "DOUBLE")
    engine.create_series("root.sg.d1.b", DataType.TEXT)
    found = row(engine, "root.sg.d1.a")
    assert (found.encoding, found.compression) == (Encoding.GORILLA, Compression.SNAPPY)
    assert row(engine, "root.sg.d1.b").encoding == Encoding.PLAIN


def test_a_device_is_made_in_one_commit(engine):
    series = [NewSeries(f"s{each}", DataType.INT32, tags={"n": str(each)}) for each in range(3)]
    before = engine.newest_commit
    engine.create_device("root.sg.d1", series, aligned=True)
    assert has_commit(engine, engine.newest_commit)
    assert len(paths(engine)) == 3
    assert row(engine, "root.sg.d1.s0").created == row(engine, "root.sg.d1.s2").created > before
    assert row(engine, "root.sg.d1.s0").aligned
    bad = [NewSeries("s9", DataType.INT32), NewSeries("s2", DataType.INT32)]
    refuse(
        engine,
        SeriesExistsError,
        "root.sg.d1.s2",
        engine.create_device,
        "root.sg.d1",
        bad,
        aligned=True,
    )


def test_what_is_refused_is_not_in_the_log_either(engine, tmp_path):
    engine.create_series("root.sg.d1.s1", "INT32")
    log = next((tmp_path / "schema").glob("mlog-*.tsf"))
    before = log.read_bytes()
    ops = [
        records.StorageGroupSet("root.new"),
        records.SeriesCreated("root.new.d1", ["a"], b"\x01", b"\x00", b"\x01", tags=[{"a": "b"}]),
        records.SeriesCreated("root.sg.d1", ["s1"], b"\x01", b"\x00", b"\x01"),
    ]
    tlog = (tmp_path / "schema" / "tlog-1.tsf").read_bytes()
    refuse(engine, SeriesExistsError, "root.sg.d1.s1", engine.commit, ops)
    assert log.read_bytes() == before
    assert (tmp_path / "schema" / "tlog-1.tsf").read_bytes() == tlog


@pytest.mark.parametrize(
    ("args", "error", "match"),
    [
        (("root.sg..s1", "INT32"), IllegalPathError, "empty"),
        (("sg.d1.s1", "INT32"), IllegalPathError, "begins with root"),
        (("root.sg.*", "INT32"), IllegalPathError, "wildcard"),
        (("root.sg.d1.s1", "INT"), UnknownTypeError, "'INT'"),
        (("root.sg.d1.s1", "BOOLEAN", "GORILLA"), EncodingRefusedError, "root.sg.d1.s1"),
        (("root.other.d1.s1", "INT32"), StorageGroupMissingError, "root.other.d1"),
        (("root.s1", "INT32"), StorageGroupMissingError, "root.s1"),
        (("root", "INT32"), SchemaRefusedError, "root"),
    ],
)
def test_a_series_that_cannot_be_is_refused(engine, args, error, match):
    refuse(engine, error, match, engine.create_series, *args)


def test_a_missing_storage_group_is_made_in_the_same_commit(making):
    ts = making.create_series("root.a.b.c.s1", "INT32")
    with making.reading() as state:
        assert groups(state) == ["root.a.b"]
        assert state.schema.groups.rows()[0].created == ts
    making.create_series("root.x.s1", "INT32")
    making.create_series("root.a.b.s1", "INT32")
    with making.reading() as state:
        assert groups(state) == ["root.a.b", "root.x"]
    refuse(making, StorageGroupNestedError, "root.x.y", making.set_storage_group, "root.x.y")
    refuse(making, StorageGroupNestedError, "root.a", making.create_series, "root.a.s1", "INT32")
    refuse(
        making, EncodingRefusedError, "root.q", making.create_series, "root.q.r.s", "BLOB", "RLE"
    )
    refuse(making, StorageGroupMissingError, "root.s1", making.create_series, "root.s1", "INT32")


def test_the_level_of_a_storage_group_counts_below_root():
    device = ("root", "a", "b", "c")
    assert storage_group_at(device, 0) == storage_group_at(device, 1) == ("root", "a")
    assert storage_group_at(device, 3) == storage_group_at(device, 9) == device


def test_storage_groups_are_set_and_deleted_together(engine):
    engine.set_storage_group("root.a", "root.`1`", ("root", "b.c"))
    with engine.reading() as state:
        assert groups(state) == ["root.`1`", "root.a", "root.`b.c`", "root.sg"]
    refuse(
        engine, StorageGroupNestedError, "root.a.b", engine.set_storage_group, "root.z", "root.a.b"
    )
    refuse(
        engine,
        StorageGroupMissingError,
        r"root.q\*",
        engine.delete_storage_group,
        "root.a",
        "root.q*",
    )
    engine.delete_storage_group("root.a*", "root.a", parse_pattern("root.`1`"))
    with engine.reading() as state:
        assert groups(state) == ["root.`b.c`", "root.sg"]
    engine.delete_storage_group("root.**")
    with engine.reading() as state:
        assert groups(state) == []


@pytest.mark.parametrize("ttl", [0, -5, 1 << 63, 1 << 100])
def test_a_ttl_that_is_none_is_refused_by_its_name(engine, ttl):
    refuse(engine, TtlRefusedError, f"root.sg: a TTL of {ttl}", engine.set_ttl, "root.sg", ttl)


def test_a_ttl_is_set_and_taken_away(engine):
    engine.set_ttl("root.sg", 3_600_000)
    with engine.reading() as state:
        assert state.schema.groups.ttl(("root", "sg")) == 3_600_000
    engine.set_ttl("root.sg", None)
    with engine.reading() as state:
        assert state.schema.groups.ttl(("root", "sg")) is None
    refuse(engine, StorageGroupMissingError, "root.x", engine.set_ttl, "root.x", 1)


def test_series_are_deleted_by_pattern_path_and_alias(engine):
    for name in ("s1", "s2", "s3", "s4"):
        engine.create_series(f"root.sg.d1.{name}", "INT32", alias=f"a{name}")
    engine.delete_series("root.sg.d1.as1")
    engine.delete_series("root.sg.*.s2", "root.sg.d1.s2", "root.sg.d1.as3")
    assert paths(engine) == ["root.sg.d1.s4(as4)"]
    refuse(
        engine,
        SeriesMissingError,
        "root.sg.d1.s1",
        engine.delete_series,
        "root.sg.d1.s4",
        "root.sg.d1.s1",
    )
    refuse(engine, RefusedCommitError, "nothing", engine.delete_series)


def test_an_alias_is_set_by_either_name(engine):
    engine.create_series("root.sg.d1.s1", "INT32")
    engine.set_alias("root.sg.d1.s1", "a")
    engine.set_alias("root.sg.d1.a", "b")
    refuse(engine, AliasTakenError, "'s1'", engine.set_alias, "root.sg.d1.b", "s1")
    engine.set_alias("root.sg.d1.b", None)
    assert paths(engine) == ["root.sg.d1.s1"]
    refuse(engine, SeriesMissingError, "root.sg.d1.b", engine.set_alias, "root.sg.d1.b", "x")


def test_an_alteration_is_one_commit_and_none_where_nothing_changes(engine):
    engine.create_series("root.sg.d1.s1", "INT32")
    ts = engine.alter("root.sg.d1.s1", Upsert("a", {"t": "1"}, {"x": "y"}))
    assert labels(engine, "root.sg.d1.s1") == ({"t": "1"}, {"x": "y"}, "a")
    with engine.reading() as state:
        assert state.changed("series", "root.sg.d1.s1") == ts
    assert engine.alter("root.sg.d1.a", Drop(("none",))) == ts == engine.newest_commit
    engine.alter("root.sg.d1.a", Rename("t", "u"))
    engine.alter("root.sg.d1.a", SetValues({"x": "z"}))
    assert labels(engine, "root.sg.d1.s1") == ({"u": "1"}, {"x": "z"}, "a")
    refuse(engine, TagExistsError, "'u'", engine.alter, "root.sg.d1.s1", AddTags({"u": "2"}))
    refuse(engine, SeriesMissingError, "root.sg.d1.q", engine.alter, "root.sg.d1.q", Drop(("u",)))
    engine.alter("root.sg.d1.s1", Drop(("u", "x")))
    assert labels(engine, "root.sg.d1.s1") == ({}, {}, "a")


def test_alterations_at_once_all_come_true(engine):
    engine.create_series("root.sg.d1.s1", "INT32")
    errors = []

    def work(number):
        try:
            for each in range(5):
                engine.alter("root.sg.d1.s1", AddTags({f"{number}.{each}": "x"}))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert len(labels(engine, "root.sg.d1.s1")[0]) == 30
    assert number(engine, "count timeseries where `3.3` = x") == 1


@pytest.mark.parametrize("mark", ["\n", "\x1b", "\x85", "\u2028"])
def test_nobody_writes_control_characters_into_names(engine, mark):
    engine.create_series("root.sg.d1.s1", "INT32")
    for work, *args in (
        (engine.set_storage_group, f"root.`b{mark}`"),
        (engine.create_series, f"root.sg.d1.`s{mark}`", "INT32"),
        (engine.create_series, f"root.sg.`d{mark}`.s", "INT32"),
        (engine.set_alias, "root.sg.d1.s1", f"a{mark}"),
        (engine.alter, "root.sg.d1.s1", Upsert(alias=f"a{mark}")),
    ):
        refuse(engine, IllegalPathError, "control character", work, *args)
    with pytest.raises(IllegalPathError, match="control character"):
        engine.create_series("root.sg.d1.s2", "INT32", alias=f"a{mark}")


@pytest.mark.parametrize("times", [1, 3])
def test_a_storage_group_that_goes_meanwhile_is_made_again(making, monkeypatch, times):
    """Another deletes it each time between the look at the tree and the commit."""
    making.set_storage_group("root.a.b")
    commit, left = making.commit, [True] * times

    def late(ops, guards=()):
        if left and left.pop():
            commit([records.StorageGroupDeleted("root.a.b")])
            if left:  # it is there when the next look comes
                try:
                    return commit(ops, guards)
                finally:
                    commit([records.StorageGroupSet("root.a.b")])
        return commit(ops, guards)

    monkeypatch.setattr(making, "commit", late)
    ts = making.create_series("root.a.b.d.s1", "INT32")
    assert not left
    assert row(making, "root.a.b.d.s1").created == ts == making.newest_commit
    assert row(making, "root.a.b.d.s1").storage_group == ("root", "a", "b")


def test_where_storage_groups_are_not_made_one_that_goes_meanwhile_is_missing(engine, monkeypatch):
    commit = engine.commit

    def late(ops, guards=()):
        monkeypatch.undo()
        commit([records.StorageGroupDeleted("root.sg")])
        return commit(ops, guards)

    monkeypatch.setattr(engine, "commit", late)
    with pytest.raises(StorageGroupMissingError):
        engine.create_series("root.sg.d.s1", "INT32")


def test_when_files_are_uploaded_is_said_of_a_storage_group(engine):
    engine.set_upload("root.sg", -1)
    engine.set_upload("root.sg", 5)
    with engine.reading() as state:
        assert state.upload_times.of("root.sg.below") == 5
        assert state.upload_times.of("root.sgx") is None
    refuse(engine, StorageGroupMissingError, "root.x", engine.set_upload, "root.x", 1)
    refuse(engine, RefusedCommitError, "no time to upload", engine.set_upload, "root.sg", -2)
    engine.set_upload("root.sg", None)
    with engine.reading() as state:
        assert state.upload_times.rows == {}
    engine.set_upload("root.sg", 5)
    engine.drop_storage_groups("root.sg")
    with engine.reading() as state:
        assert state.upload_times.rows == {}
