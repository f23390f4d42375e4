"""What was deleted can be made again, as something else, and its past stays its own."""

import pytest

from common.errors import NotFoundError
from receiver.metadata.engine import Engine
from tests.support.asking import column, number, refused, rows, run


@pytest.fixture(autouse=True)
def group(engine):
    run(engine, "set storage group to root.laptop")


def shown(engine, at=None):
    keys = ("timeseries", "dataType", "encoding", "alias", "tags")
    return [tuple(row[key] for key in keys) for row in rows(engine, "show timeseries", at)]


FIRST = "create timeseries root.laptop.d1.s1(a) with datatype=INT32, encoding=RLE tags(k=1)"
SECOND = "create timeseries root.laptop.d1.s1 with datatype=TEXT, encoding=PLAIN tags(k=2)"


def test_a_series_comes_again_with_another_type(engine):
    run(engine, FIRST)
    first = engine.newest_commit
    run(engine, "delete timeseries root.laptop.d1.s1")
    between = engine.newest_commit
    run(engine, SECOND)
    assert shown(engine) == [("root.laptop.d1.s1", "TEXT", "PLAIN", None, {"k": "2"})]
    assert shown(engine, at=between) == []
    assert shown(engine, at=first) == [("root.laptop.d1.s1", "INT32", "RLE", "a", {"k": "1"})]


def test_it_is_the_same_after_a_restart_and_after_a_checkpoint(engine, home):
    run(engine, FIRST)
    first = engine.newest_commit
    run(engine, "delete timeseries root.laptop.d1.s1", SECOND, "create snapshot for schema")
    engine.close()
    with Engine.open(home) as again:
        assert shown(again) == [("root.laptop.d1.s1", "TEXT", "PLAIN", None, {"k": "2"})]
        assert shown(again, at=first) == [("root.laptop.d1.s1", "INT32", "RLE", "a", {"k": "1"})]
        run(again, "delete timeseries root.laptop.**", FIRST)
        assert shown(again) == [("root.laptop.d1.s1", "INT32", "RLE", "a", {"k": "1"})]


def test_a_deleted_series_does_not_come_back(engine, home):
    run(engine, FIRST, "delete timeseries root.laptop.d1.s1")
    engine.close()
    for _ in range(2):
        with Engine.open(home) as again:
            assert shown(again) == []
            assert number(again, "count timeseries") == 0
            assert column(again, "show tag keys") == []
            run(again, "create snapshot for schema")


def test_one_that_is_there_is_not_made_twice(engine):
    run(engine, FIRST)
    refused(engine, SECOND, "root.laptop.d1.s1")
    assert shown(engine)[0][1] == "INT32"


def test_one_that_is_not_there_is_not_deleted(engine):
    run(engine, FIRST)
    for path in ("root.laptop.d1.s2", "root.laptop.d2.s1", "root.laptop", "root.laptop.d1"):
        refused(engine, f"delete timeseries {path}", path, kind=NotFoundError)
    refused(engine, "delete timeseries root.laptop.d2.*", "root.laptop.d2.*", kind=NotFoundError)
    assert number(engine, "count timeseries") == 1


def test_a_path_above_series_is_told_how_to_delete_them(engine):
    run(engine, FIRST)
    refused(engine, "delete timeseries root.laptop.d1", "root.laptop.d1.**", kind=NotFoundError)


def test_a_pattern_deletes_what_matches_and_nothing_else(engine):
    for path in ("d1.s1", "d1.s2", "d2.s1", "d2.a.s1", "e1.s1"):
        run(engine, f"create timeseries root.laptop.{path} with datatype=INT32, encoding=RLE")
    run(engine, "delete timeseries root.laptop.d*.s1")
    assert column(engine, "show timeseries") == [
        "root.laptop.d1.s2",
        "root.laptop.d2.a.s1",
        "root.laptop.e1.s1",
    ]
    run(engine, "delete timeseries root.laptop.**.s1")
    assert column(engine, "show timeseries") == ["root.laptop.d1.s2"]
    assert column(engine, "show child nodes root.laptop") == ["d1"]


def test_a_leaf_becomes_a_device_once_it_is_gone(engine):
    plain = "with datatype=INT32, encoding=RLE"
    run(engine, f"create timeseries root.laptop.a.b.c {plain}")
    refused(engine, f"create timeseries root.laptop.a.b {plain}", "root.laptop.a.b")
    refused(engine, f"create timeseries root.laptop.a.b.c.d {plain}", "root.laptop.a.b.c")
    run(engine, "delete timeseries root.laptop.a.b.c", f"create timeseries root.laptop.a.b {plain}")
    run(
        engine,
        "delete timeseries root.laptop.a.b",
        f"create timeseries root.laptop.a.b.c.d {plain}",
    )
    assert column(engine, "show timeseries") == ["root.laptop.a.b.c.d"]


def test_a_storage_group_comes_again_empty(engine):
    run(engine, FIRST, "set ttl to root.laptop 1000")
    before = engine.newest_commit
    run(engine, "delete storage group root.laptop", "set storage group to root.laptop")
    assert shown(engine) == []
    assert rows(engine, "show ttl on root.laptop") == [
        {"storage group": "root.laptop", "ttl": None}
    ]
    assert len(shown(engine, at=before)) == 1
