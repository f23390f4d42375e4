"""What a foreign schema may change, and what it is told instead."""

from __future__ import annotations

import pytest

from common.formats.schemaitems import Altered, Dropped, Group, GroupDropped, SeriesItem
from receiver.load.schema.authority import Authority
from receiver.load.schema.schema_change import decide_schema
from receiver.load.schema.task_schema import apply_items, steps
from receiver.metadata.commit.draft import Draft
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.paths import parse_pattern
from receiver.scope import Scope
from receiver.transfer.schemachanges import SchemaReader
from tests.support.metadata import A, B, load, path, seen

ALL = parse_pattern("root.**")


@pytest.fixture
def engine(tmp_path):
    with Engine.open(tmp_path / "schema") as made:
        made.commit([seen(A), seen(B)])
        yield made


def series(name, kind=1, **members):
    return SeriesItem(path=name, type=kind, encoding=0, compression=1, **members)


def apply(engine, *items, sender=A, scope=()):
    return apply_items(engine, items, sender, Scope(scope))


def there(engine):
    """path -> item of all that is there."""
    return {each.path: each for each in SchemaReader(engine).every()}


def with_file(engine, device="root.t.d1", sender=A, tag=1, last=9):
    """A file that is loaded, with one series s1 of INT32."""
    op = load(path(f"{tag}-{tag}-0"), tag, sender=sender, devices={device: (1, last)})
    loaded = records.LoadedDevice(device, False, ["s1"], b"\1", b"\0", b"\0", [last])
    ops = [
        op,
        records.StorageGroupSet("root.t", if_missing=True),
        records.SeriesLoaded(op.physical, [loaded]),
    ]
    return engine.commit(ops)


def test_series_aliases_tags_and_attributes_travel(engine):
    item = series("root.t.d1.s1", alias="temperature", tags={"unit": "c"}, attributes={"a": "b"})
    done = apply(engine, Group(path="root.t"), item)
    assert (done.applied, done.failed) == (2, [])
    found = there(engine)["root.t.d1.s1"]
    assert (found.alias, found.tags, found.attributes) == ("temperature", {"unit": "c"}, {"a": "b"})


def test_a_full_resend_changes_nothing(engine):
    items = (Group(path="root.t", ttl=5), series("root.t.d1.s1", alias="x", tags={"k": "v"}))
    apply(engine, *items)
    again = apply(engine, *items)
    assert (again.ops, again.applied, again.failed) == ([], 2, [])


def test_what_is_said_of_anothers_device_is_reported_and_the_rest_applied(engine):
    with_file(engine, "root.t.mine", A, 1)
    with_file(engine, "root.t.theirs", B, 2)
    done = apply(
        engine,
        series("root.t.theirs.s2"),
        series("root.t.mine.s2"),
        series("root.t.nobodys.s2"),
        Dropped(path="root.t.theirs.s1"),
        Altered(path="root.t.theirs.s1", alias="x"),
    )
    assert {where for where, _ in done.failed} == {"root.t.theirs.s2", "root.t.theirs.s1"}
    assert all("belongs to another sender" in why for _, why in done.failed)
    assert done.applied == 2
    found = there(engine)
    assert "root.t.mine.s2" in found
    assert "root.t.nobodys.s2" in found
    assert "root.t.theirs.s2" not in found
    assert "root.t.theirs.s1" in found


def test_a_device_that_changes_hands_meanwhile_is_guarded(engine):
    with engine.reading() as state:
        change = decide_schema(
            Draft(state),
            [Group(path="root.t"), series("root.t.d1.s2")],
            Authority(state, A, Scope(())),
            level=0,
            tag_bytes=700,
            tags_of=engine.tags_of,
        )
    with_file(engine, "root.t.d1", B)
    with pytest.raises(Exception, match="owner"):
        engine.commit(change.ops, change.guards)


def test_a_schema_reaches_no_further_than_its_token(engine):
    done = apply(
        engine,
        Group(path="root.t"),
        Group(path="root.other"),
        series("root.t.d1.s1"),
        series("root.t.d2.s1"),
        scope=["root.t.d1"],
    )
    assert [where for where, _ in done.failed] == ["root.other", "root.t.d2.s1"]
    assert set(there(engine)) == {"root.t", "root.t.d1.s1"}


def test_a_series_of_another_type_stays_and_is_reported(engine):
    apply(engine, Group(path="root.t"), series("root.t.d1.s1", 1))
    done = apply(engine, series("root.t.d1.s1", 3), series("root.t.d1.s2", 3))
    assert done.failed == [("root.t.d1.s1", "it has type INT32 here, FLOAT in the schema")]
    assert there(engine)["root.t.d1.s1"].type == 1
    assert there(engine)["root.t.d1.s2"].type == 3


def test_one_that_was_deleted_and_made_again_with_another_type_takes_its_place(engine):
    apply(engine, Group(path="root.t"), series("root.t.d1.s1", 1, alias="x", tags={"k": "v"}))
    done = apply(engine, series("root.t.d1.s1", 3, alias=None, tags={}, replaces=True))
    assert done.failed == []
    found = there(engine)["root.t.d1.s1"]
    assert (found.type, found.alias, found.tags) == (3, None, {})


def test_a_new_deletion_takes_a_series_and_an_old_one_spares_loaded_data(engine):
    with_file(engine)
    apply(engine, series("root.t.d1.s2"))
    done = apply(
        engine, Dropped(path="root.t.d1.s1", old=True), Dropped(path="root.t.d1.s2", old=True)
    )
    assert [where for where, _ in done.failed] == ["root.t.d1.s1"]
    assert "root.t.d1.s1" in there(engine)
    assert "root.t.d1.s2" not in there(engine)
    assert apply(engine, Dropped(path="root.t.d1.s1")).failed == []
    assert "root.t.d1.s1" not in there(engine)


def test_a_deletion_of_what_is_not_there_is_done_already(engine):
    done = apply(engine, Dropped(path="root.t.d1.s1"), GroupDropped(path="root.t"))
    assert (done.ops, done.applied, done.failed) == ([], 2, [])


def test_storage_groups_and_ttl_are_made_and_never_deleted_or_shortened(engine):
    assert apply(engine, Group(path="root.t", ttl=100)).failed == []
    assert there(engine)["root.t"].ttl == 100
    done = apply(engine, Group(path="root.t", ttl=50))
    assert [where for where, _ in done.failed] == ["root.t"]
    assert "shorter" in done.failed[0][1]
    assert apply(engine, Group(path="root.t", ttl=200)).failed == []
    assert there(engine)["root.t"].ttl == 200
    assert apply(engine, Group(path="root.t", ttl=None)).failed != []
    assert there(engine)["root.t"].ttl == 200
    assert apply(engine, Group(path="root.u")).failed == []
    assert apply(engine, Group(path="root.u", ttl=300)).failed != []
    for gone in (GroupDropped(path="root.t"), Dropped(path="root.t")):
        done = apply(engine, gone)
        assert "not deleted" in done.failed[0][1]
    assert "root.t" in there(engine)


def test_storage_groups_do_not_nest(engine):
    apply(engine, Group(path="root.a.b"))
    done = apply(
        engine,
        Group(path="root.a"),
        Group(path="root.a.b.c"),
        Group(path="root.a.b.c.d", ttl=1),
        Group(path="root.x"),
        Group(path="root.x.y"),
    )
    assert [where for where, _ in done.failed] == ["root.a", "root.a.b.c.d", "root.x.y"]
    assert set(there(engine)) == {"root.a.b", "root.x"}


def test_a_series_without_a_storage_group_gets_one(engine):
    assert apply(engine, series("root.a.b.d.s")).failed == []
    assert "root.a" in there(engine)


def test_aliases_can_change_places(engine):
    apply(
        engine,
        Group(path="root.t"),
        series("root.t.d1.s1", alias="one"),
        series("root.t.d1.s2", alias="two"),
    )
    done = apply(
        engine,
        Altered(path="root.t.d1.s1", alias="two"),
        Altered(path="root.t.d1.s2", alias="one"),
        series("root.t.d1.s3", alias=None),
    )
    assert done.failed == []
    assert [there(engine)[f"root.t.d1.s{n}"].alias for n in (1, 2, 3)] == ["two", "one", None]


def test_an_alias_that_is_taken_is_left_and_the_series_made(engine):
    apply(engine, Group(path="root.t"), series("root.t.d1.s1"))
    done = apply(engine, series("root.t.d1.s2", alias="s1"), series("root.t.d1.s3"))
    assert [where for where, _ in done.failed] == ["root.t.d1.s2"]
    assert there(engine)["root.t.d1.s2"].alias is None
    done = apply(engine, Altered(path="root.t.d1.s3", alias="s1"))
    assert [where for where, _ in done.failed] == ["root.t.d1.s3"]


def test_an_alias_of_its_own_or_of_a_new_name_is_left_and_the_series_made(engine):
    done = apply(
        engine,
        Group(path="root.t"),
        series("root.t.d1.s1", alias="s1"),
        series("root.t.d1.s2", alias="s3"),
        series("root.t.d1.s3", alias="x"),
        series("root.t.d1.s4", alias="x"),
        series("root.t.d1.s5", alias="d2"),
        series("root.t.d1.d2.s1"),
    )
    left = ["root.t.d1.s1", "root.t.d1.s2", "root.t.d1.s4", "root.t.d1.s5"]
    assert [where for where, _ in done.failed] == left
    assert all("is taken in its device" in why for _, why in done.failed)
    found = there(engine)
    assert {f"root.t.d1.s{number}" for number in range(1, 6)} | {"root.t.d1.d2.s1"} <= set(found)
    assert found["root.t.d1.s3"].alias == "x"


@pytest.mark.parametrize("alias", [None, "y"])
def test_a_name_that_an_alias_gives_free_can_be_had_at_once(engine, alias):
    apply(engine, Group(path="root.t"), series("root.t.d1.s1", alias="x"))
    apply(engine, series("root.t.d1.s2", alias="z"))
    done = apply(
        engine,
        Altered(path="root.t.d1.s1", alias=alias),
        Altered(path="root.t.d1.s2", alias=None),
        series("root.t.d1.x"),
        series("root.t.d1.z.s"),
    )
    assert done.failed == []
    found = there(engine)
    assert {"root.t.d1.x", "root.t.d1.z.s"} <= set(found)
    assert found["root.t.d1.s1"].alias == alias


@pytest.mark.parametrize("name", ["alias", "d2"])
def test_what_is_deleted_in_the_same_step_gives_way_whatever_it_was(engine, name):
    apply(engine, Group(path="root.t"), series("root.t.d1.s1", alias="alias"))
    apply(engine, series("root.t.d1.d2.s1"))
    done = apply(
        engine,
        Dropped(path="root.t.d1.s1"),
        Dropped(path="root.t.d1.d2.s1"),
        series(f"root.t.d1.{name}"),
        series("root.t.d1.s1.below"),
    )
    assert done.failed == []
    assert set(there(engine)) == {"root.t", f"root.t.d1.{name}", "root.t.d1.s1.below"}


def test_a_device_that_is_made_again_has_the_time_columns_that_are_told(engine):
    apply(engine, Group(path="root.t"), series("root.t.d1.s1", aligned=True))
    done = apply(engine, Dropped(path="root.t.d1.s1"), series("root.t.d1.s2", aligned=False))
    assert done.failed == []
    assert not there(engine)["root.t.d1.s2"].aligned


def test_what_was_not_said_stays_as_it_is(engine):
    apply(engine, Group(path="root.t"), series("root.t.d1.s1", alias="x", tags={"k": "v"}))
    apply(engine, series("root.t.d1.s1"))
    found = there(engine)["root.t.d1.s1"]
    assert (found.alias, found.tags) == ("x", {"k": "v"})


def test_a_record_that_breaks_a_rule_is_reported_alone(engine):
    done = apply(
        engine,
        Group(path="root.t"),
        series("root.t.d1.ok"),
        SeriesItem(path="root.t.d1.encoding", type=5, encoding=8, compression=1),
        SeriesItem(path="root.t.d1.kind", type=99, encoding=0, compression=1),
        series("root.t.d1.tags", tags={"k": "x" * 1000}),
        series("root.t.d1.labels", tags={"k": "1"}, attributes={"k": "2"}),
        SeriesItem(path="no path", type=1, encoding=0, compression=1),
        series("root.short"),
        Altered(path="root.t.d1.missing", alias="x"),
    )
    assert [where for where, _ in done.failed] == [
        "no path",
        "root.short",
        "root.t.d1.encoding",
        "root.t.d1.kind",
        "root.t.d1.tags",
        "root.t.d1.labels",
        "root.t.d1.missing",
    ]
    found = there(engine)
    assert {"root.t.d1.ok", "root.t.d1.tags", "root.t.d1.labels"} <= set(found)
    assert not {"root.t.d1.encoding", "root.t.d1.kind"} & set(found)
    assert found["root.t.d1.tags"].tags == {}


def test_a_device_below_a_series_is_reported(engine):
    apply(engine, Group(path="root.t"), series("root.t.d1.s1"))
    done = apply(engine, series("root.t.d1.s1.x"), series("root.t.d2.s1"))
    assert [where for where, _ in done.failed] == ["root.t.d1.s1.x"]
    assert "root.t.d2.s1" in there(engine)


def test_new_series_of_an_aligned_device_join_its_time_column(engine):
    apply(engine, Group(path="root.t"), series("root.t.d1.s1", aligned=True))
    assert apply(engine, series("root.t.d1.s2")).failed == []
    assert there(engine)["root.t.d1.s2"].aligned


def test_beyond_the_limit_of_memory_what_fits_is_made_and_the_rest_reported(tmp_path):
    options = EngineOptions(max_memory=4000)
    with Engine.open(tmp_path / "schema", options=options) as engine:
        engine.commit([seen(A)])
        many = [series(f"root.t.d1.s{number}") for number in range(200)]
        done = apply(engine, Group(path="root.t"), *many)
        made = len(there(engine)) - 1
        assert 0 < made < 200
        assert len(done.failed) == 200 - made
        assert "max_memory" in done.failed[0][1]


def test_table_devices_have_their_database_for_a_storage_group(engine):
    item = series("root.`/plant`.sensors.`:west`.temperature")
    assert apply(engine, item, scope=["sensors:**"]).failed == []
    assert set(there(engine)) == {"root.`/plant`", item.path}


@pytest.mark.parametrize("name", ["line\nbreak", "\x1b[2J", "\u2028", "\x00"])
def test_whatever_a_file_may_name_can_be_forwarded(engine, tmp_path, name):
    op = load(path("1-1-0"), 1, sender=A, devices={f"root.t.`{name}`": (1, 2)})
    loaded = records.LoadedDevice(f"root.t.`{name}`", False, [name], b"\1", b"\0", b"\0", [2])
    engine.commit(
        [
            op,
            records.StorageGroupSet("root.t", if_missing=True),
            records.SeriesLoaded(op.physical, [loaded]),
        ]
    )
    text = f"root.t.`{name}`.`{name}`"
    apply(engine, Altered(path=text, alias=f"{name}2", tags={name: name}, attributes={}))
    with Engine.open(tmp_path / "above") as above:
        above.commit([seen(A)])
        done = apply(above, *SchemaReader(engine).every())
        assert done.failed == []
        assert there(above)[text] == there(engine)[text]


def test_many_deletions_are_one_commit_and_stay_deleted(engine, tmp_path):
    count = 4000
    names = [f"root.t.d{number // 100}.s{number}" for number in range(count)]
    for step in steps(series(name, alias=f"{name[-4:]}x", tags={"k": "v"}) for name in names):
        assert apply(engine, *step).failed == []
    before = engine.newest_commit
    gone = [Dropped(path=name) for name in names[:-1]]
    assert {len(step) for step in steps(gone)} == {500, 499}  # as many as of any other things
    again = [series(names[0], 3), series(names[-1])]
    done = apply(engine, *gone, *again)
    assert (done.applied, done.failed) == (count + 1, [])
    with engine.reading() as state:
        assert [
            each.created
            for each in state.schema.series.describe_many(state.schema.series.match(ALL))
        ] == [engine.newest_commit, before]
        memory = state.schema.memory.used
    left = there(engine)
    assert set(left) == {"root.t", names[0], names[-1]}
    engine.close()
    with Engine.open(tmp_path / "schema") as reopened:
        assert there(reopened) == left
        with reopened.reading() as state:
            assert state.schema.memory.used == memory
            assert len(state.schema.series.match(ALL, before)) == count
        apply(reopened, Dropped(path=names[0]), Dropped(path=names[-1]))
        assert set(there(reopened)) == {"root.t"}


def test_a_step_of_long_names_is_short():
    long = [series(f"root.t.d1.{'s' * 60_000}{number}") for number in range(200)]
    assert all(sum(len(each.path) for each in step) < 3 << 20 for step in steps(long))
