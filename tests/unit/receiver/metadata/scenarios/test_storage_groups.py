"""Storage groups: none inside another, and what is made and pruned around them."""

from common.errors import NotFoundError
from receiver.metadata.sql.executing import execute
from tests.support.asking import column, number, refused, rows, run

SERIES = "with datatype=INT32, encoding=RLE"


def groups(engine, path="root.**", at=None):
    return column(engine, f"show storage group {path}", at=at)


def test_none_is_set_above_another(engine):
    run(engine, "set storage group to root.edge1.access")
    refused(engine, "set storage group to root.edge1", "root.edge1", "root.edge1.access")
    assert groups(engine) == ["root.edge1.access"]


def test_none_is_set_below_another(engine):
    run(engine, "set storage group to root.edge2")
    refused(engine, "set storage group to root.edge2.access", "root.edge2.access", "root.edge2")
    refused(engine, "set storage group to root.edge2.a.b.c", "root.edge2.a.b.c")
    assert groups(engine) == ["root.edge2"]


def test_none_is_set_twice(engine):
    run(engine, "set storage group to root.edge1.access")
    refused(engine, "set storage group to root.edge1.access", "root.edge1.access")


def test_root_is_none(engine):
    refused(engine, "set storage group to root", "root")


def test_several_in_one_statement_are_all_there_or_none(engine):
    refused(engine, "set storage group to root.a, root.b, root.a.c", "root.a.c")
    assert groups(engine) == []
    run(engine, "set storage group to root.a, root.b")
    assert groups(engine) == ["root.a", "root.b"]


def test_one_is_set_where_another_was_deleted(engine):
    run(engine, "set storage group to root.a.b", "delete storage group root.a.b")
    run(engine, "set storage group to root.a")
    refused(engine, "set storage group to root.a.b", "root.a.b")
    run(engine, "delete storage group root.a", "set storage group to root.a.b")
    assert groups(engine) == ["root.a.b"]


def test_its_deletion_takes_its_series_and_leaves_its_siblings(engine):
    run(engine, "set storage group to root.laptop.d1, root.laptop.d2")
    run(
        engine,
        *(f"create timeseries root.laptop.{d}.s{n} {SERIES}" for d in ("d1", "d2") for n in (0, 1)),
    )
    run(engine, "delete timeseries root.laptop.d1.s0")
    assert column(engine, "show timeseries root.laptop.d1") == ["root.laptop.d1.s1"]
    before = engine.newest_commit
    run(engine, "delete storage group root.laptop.d1")
    assert groups(engine) == ["root.laptop.d2"]
    assert column(engine, "show timeseries") == ["root.laptop.d2.s0", "root.laptop.d2.s1"]
    assert column(engine, "show child paths root.laptop") == ["root.laptop.d2"]
    assert groups(engine, at=before) == ["root.laptop.d1", "root.laptop.d2"]


def test_its_deletion_prunes_what_is_empty_above(engine):
    run(engine, "set storage group to root.a.b.c.d", "delete storage group root.a.b.c.d")
    assert column(engine, "show child paths root") == []
    run(engine, "set storage group to root.a")


def test_it_stays_when_its_last_series_goes(engine):
    run(engine, "set storage group to root.a.b", f"create timeseries root.a.b.c.d.s1 {SERIES}")
    run(engine, "delete timeseries root.a.b.c.d.s1")
    assert groups(engine) == ["root.a.b"]
    assert column(engine, "show child paths root.a.b") == []


def test_one_that_is_not_there_cannot_be_deleted(engine):
    run(engine, "set storage group to root.a")
    refused(engine, "delete storage group root.b", "root.b", kind=NotFoundError)
    refused(engine, "delete storage group root.a.b", "root.a.b", kind=NotFoundError)


def test_a_series_needs_one(engine):
    refused(engine, f"create timeseries root.a.d1.s1 {SERIES}", "root.a.d1")
    run(engine, "set storage group to root.a.d2")
    refused(engine, f"create timeseries root.a.d1.s1 {SERIES}", "root.a.d1")


def test_it_can_be_a_device_itself(engine):
    run(engine, "set storage group to root.a", f"create timeseries root.a.s1 {SERIES}")
    assert column(engine, "show devices") == ["root.a"]


def test_it_is_made_at_the_configured_level_with_the_series(making):
    execute(making, f"create timeseries root.laptop.d1.s1 {SERIES}")
    assert groups(making) == ["root.laptop"]
    execute(making, f"create timeseries root.laptop.d2.s1 {SERIES}")
    assert groups(making) == ["root.laptop"]


def test_none_is_made_above_another(making):
    run(making, "set storage group to root.a.b")
    refused(making, f"create timeseries root.a.c.s1 {SERIES}", "root.a")
    assert groups(making) == ["root.a.b"]


def test_a_refused_series_makes_none(making):
    refused(
        making,
        "create timeseries root.a.d1.s1 with datatype=TEXT, encoding=GORILLA",
        "root.a.d1.s1",
    )
    assert groups(making) == []


def test_the_same_names_at_several_levels_are_counted_apart(engine):
    paths = ["sg1", "a.sg1", "a.b.sg1", "sg2", "a.sg2", "sg3", "a.b.sg3"]
    run(engine, *(f"set storage group to root.{path}" for path in paths))
    run(engine, f"create timeseries root.sg1.a.b.c {SERIES}")
    expected = {
        "root.**": 7,
        "root.*": 3,
        "root.*.*": 2,
        "root.*.*.*": 2,
        "root.*.sg1": 1,
        "root.**.sg1": 2,
        "root.sg3": 1,
        "root.*.b.*": 2,
    }
    assert {each: number(engine, f"count storage group {each}") for each in expected} == expected


def test_a_numeric_one_is_one_like_any_other(engine):
    run(engine, "set storage group to root.1", f"create timeseries root.1.2.3 {SERIES}")
    assert rows(engine, "show timeseries")[0]["timeseries"] == "root.`1`.`2`.`3`"
    run(engine, "delete timeseries root.1.2.3")
    assert column(engine, "show child paths root.1") == []
    run(engine, "delete storage group root.1")
    assert groups(engine) == []
