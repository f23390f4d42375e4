"""Each of the six alterations, with its errors; the index follows, and the past does not change."""

import pytest

from common.errors import NotFoundError
from receiver.metadata.engine import Engine
from tests.support.asking import column, refused, rows, run

PATH = "root.turbine.d1.s1"
ALTER = f"alter timeseries {PATH}"


@pytest.fixture(autouse=True)
def turbine(engine):
    run(
        engine,
        "set storage group to root.turbine",
        f"create timeseries {PATH}(temperature) with datatype=FLOAT, encoding=RLE, "
        "compression=SNAPPY tags(tag1=v1, tag2=v2) attributes(attr1=v1, attr2=v2)",
    )


def shown(engine, at=None):
    (row,) = rows(engine, "show timeseries", at)
    return row["alias"], row["tags"], row["attributes"]


TAGS = {"tag1": "v1", "tag2": "v2"}
ATTRIBUTES = {"attr1": "v1", "attr2": "v2"}
BEFORE = ("temperature", TAGS, ATTRIBUTES)


def found(engine, where, at=None):
    return column(engine, f"show timeseries where {where}", at=at)


def test_rename(engine):
    before = engine.newest_commit
    refused(engine, f"{ALTER} rename tag3 to new", PATH, "tag3")
    for taken in ("tag2", "attr1"):
        refused(engine, f"{ALTER} rename tag1 to {taken}", PATH, taken)
        refused(engine, f"{ALTER} rename attr2 to {taken}", PATH, taken)
    run(engine, f"{ALTER} rename tag1 to new1", f"{ALTER} rename attr2 to new2")
    assert shown(engine) == (
        "temperature",
        {"new1": "v1", "tag2": "v2"},
        {"attr1": "v1", "new2": "v2"},
    )
    assert found(engine, "new1=v1") == [PATH]
    refused(engine, "show timeseries where tag1=v1", "tag1")
    assert shown(engine, before) == BEFORE
    assert found(engine, "tag1=v1", before) == [PATH]


def test_set(engine):
    before = engine.newest_commit
    refused(engine, f"{ALTER} set tag3=v3", PATH, "tag3")
    refused(engine, f"{ALTER} set tag1=w, tag3=v3", PATH, "tag3")
    run(engine, f"{ALTER} set tag1=w1, attr2=w2")
    assert shown(engine) == (
        "temperature",
        {"tag1": "w1", "tag2": "v2"},
        {"attr1": "v1", "attr2": "w2"},
    )
    assert found(engine, "tag1=v1") == []
    assert found(engine, "tag1=w1") == [PATH]
    assert found(engine, "tag1=v1", before) == [PATH]
    assert shown(engine, before) == BEFORE


def test_drop(engine):
    before = engine.newest_commit
    run(engine, f"{ALTER} drop attr1, tag1, not_there")
    assert shown(engine) == ("temperature", {"tag2": "v2"}, {"attr2": "v2"})
    refused(engine, "show timeseries where tag1=v1", "tag1")
    assert found(engine, "tag1=v1", before) == [PATH]
    run(engine, f"{ALTER} drop tag2, attr2")
    assert shown(engine) == ("temperature", {}, {})
    assert column(engine, "show tag keys") == []


def test_add_tags(engine):
    for there in ("tag1", "attr1"):
        refused(engine, f"{ALTER} add tags new=1, {there}=w", PATH, there)
    run(engine, f"{ALTER} add tags tag3=v3, tag4=v4")
    assert shown(engine) == ("temperature", TAGS | {"tag3": "v3", "tag4": "v4"}, ATTRIBUTES)
    assert found(engine, "tag3=v3") == [PATH]


def test_add_attributes(engine):
    for there in ("tag1", "attr1"):
        refused(engine, f"{ALTER} add attributes new=1, {there}=w", PATH, there)
    run(engine, f"{ALTER} add attributes attr3=v3, attr4=v4")
    assert shown(engine) == ("temperature", TAGS, ATTRIBUTES | {"attr3": "v3", "attr4": "v4"})
    refused(engine, "show timeseries where attr3=v3", "attr3")


def test_upsert(engine):
    before = engine.newest_commit
    run(engine, f"{ALTER} upsert tags(tag3=v3, tag2=w2)")
    assert shown(engine) == ("temperature", {"tag1": "v1", "tag2": "w2", "tag3": "v3"}, ATTRIBUTES)
    assert found(engine, "tag3=v3") == [PATH]
    run(engine, f"{ALTER} upsert tags(tag1=w1, tag3=w3) attributes(attr1=x1, attr3=x3)")
    assert shown(engine) == (
        "temperature",
        {"tag1": "w1", "tag2": "w2", "tag3": "w3"},
        {"attr1": "x1", "attr2": "v2", "attr3": "x3"},
    )
    assert found(engine, "tag3=w3") == [PATH]
    assert found(engine, "tag3=v3") == []
    run(engine, f"{ALTER} upsert alias=heat tags(tag1=z)")
    assert shown(engine)[0] == "heat"
    assert column(engine, "show timeseries root.turbine.d1.heat") == [PATH]
    assert shown(engine, before) == BEFORE


@pytest.mark.parametrize(
    "change",
    [
        "rename a to b",
        "set a=b",
        "drop a",
        "add tags a=b",
        "add attributes a=b",
        "upsert tags(a=b)",
        "upsert alias=a",
    ],
)
def test_none_works_on_what_is_no_series(engine, change):
    for path in ("root.turbine.d1.s2", "root.turbine.d1", "root.turbine", "root.other.x"):
        refused(engine, f"alter timeseries {path} {change}", path, kind=NotFoundError)


def test_what_is_refused_is_refused_whole(engine):
    run(engine, "create timeseries root.turbine.d1.s2 with datatype=FLOAT, encoding=RLE")
    refused(engine, f"{ALTER} upsert alias=s2 tags(new=1)", "s2")
    refused(engine, f"{ALTER} upsert alias=fine tags(new={'x' * 800})", PATH)
    assert column(engine, "show timeseries", "alias") == ["temperature", None]
    assert column(engine, "show tag keys") == ["tag1", "tag2"]


def test_tags_come_to_a_series_that_had_none(engine, home):
    run(engine, "create timeseries root.turbine.d2.s1 with datatype=FLOAT, encoding=RLE")
    run(engine, "alter timeseries root.turbine.d2.s1 add tags late=1")
    assert found(engine, "late=1") == ["root.turbine.d2.s1"]
    engine.close()
    with Engine.open(home) as again:
        assert found(again, "late=1") == ["root.turbine.d2.s1"]


def test_all_of_it_is_the_same_after_a_restart_with_and_without_a_checkpoint(engine, home):
    changes = [
        "rename tag1 to new1",
        "set tag2=w2",
        "drop attr1",
        "add tags tag3=v3",
        "add attributes attr3=v3",
        "upsert alias=heat tags(tag4=v4)",
    ]
    past = []
    for number, change in enumerate(changes):
        past.append((engine.newest_commit, shown(engine)))
        run(engine, f"{ALTER} {change}")
        if number == 2:
            run(engine, "create snapshot for schema")
    past.append((engine.newest_commit, shown(engine)))
    engine.close()
    for _ in range(2):
        with Engine.open(home) as again:
            assert [(ts, shown(again, ts)) for ts, _ in past] == past
            assert column(again, "show tag keys") == ["new1", "tag2", "tag3", "tag4"]
            assert found(again, "tag4=v4") == [PATH]
            run(again, "create snapshot for schema")
