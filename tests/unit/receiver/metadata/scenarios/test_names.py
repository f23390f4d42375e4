"""Names: numbers, quotes, dots, blanks, other scripts; and what is no path at all."""

import pytest

from common.errors import TsferryError
from receiver.metadata.engine import Engine
from receiver.metadata.model.paths import IllegalPathError
from receiver.metadata.sql.executing import execute
from tests.support.asking import column, number, refused, run

PLAIN = "with datatype=INT32, encoding=RLE"


@pytest.fixture(autouse=True)
def group(engine):
    run(engine, "set storage group to root.laptop")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("s1", "s1"),
        ("1_2", "1_2"),
        ("1", "`1`"),
        ("`1`", "`1`"),
        ("_", "_"),
        ("温度", "温度"),
        ("`1.2.3`", "`1.2.3`"),
        ('"1.2.3"', "`1.2.3`"),
        ('"status.2.3"', "`status.2.3`"),
        ("`a b`", "`a b`"),
        ("`a,b`", "`a,b`"),
        ("`s1`", "s1"),
        ('"abd"', "abd"),
        ("`it's`", "`it's`"),
        ('`say "x"`', '`say "x"`'),
        ('"say ""x"""', '`say "x"`'),
        ("`a``b`", "`a``b`"),
        ("`*`", "`*`"),
        ("`**`", "`**`"),
        ("`s*`", "`s*`"),
        ("`é`", "`é`"),
        ("`-`", "`-`"),
        ("`root`", "root"),
        ("where", "where"),
        ("timeseries", "timeseries"),
        ("limit", "limit"),
        ("at", "at"),
        ("`a\\b`", "`a\\b`"),
        ("`🙂`", "`🙂`"),
    ],
)
def test_a_name_is_shown_in_its_one_form_and_found_by_every_other(engine, home, written, shown):
    run(engine, f"create timeseries root.laptop.d1.{written} {PLAIN} tags(k=v)")
    path = f"root.laptop.d1.{shown}"
    assert column(engine, "show timeseries") == [path]
    assert column(engine, f"show timeseries {path}") == [path]
    assert column(engine, f"show timeseries root.laptop.d1.{written}") == [path]
    assert column(engine, "show timeseries where k=v") == [path]
    refused(engine, f"create timeseries {path} {PLAIN}", path)
    engine.close()
    with Engine.open(home) as again:
        assert column(again, "show timeseries") == [path]
        run(again, f"delete timeseries {path}")
        assert column(again, "show timeseries") == []


def test_names_that_look_alike_are_two(engine):
    for name in ("`a.b`", "`a b`", "a.b", "A", "a1", "`1`", "_1"):
        run(engine, f"create timeseries root.laptop.{name} {PLAIN}")
    assert number(engine, "count timeseries") == 7
    assert column(engine, "show timeseries root.laptop.a.b") == ["root.laptop.a.b"]
    assert column(engine, "show timeseries root.laptop.`a.b`") == ["root.laptop.`a.b`"]


def test_a_star_in_quotes_is_a_star(engine):
    run(
        engine,
        *(f"create timeseries root.laptop.d1.{name} {PLAIN}" for name in ("s1", "`*`", "s2")),
    )
    assert column(engine, "show timeseries root.laptop.d1.`*`") == ["root.laptop.d1.`*`"]
    run(engine, "delete timeseries root.laptop.d1.`*`")
    assert column(engine, "show timeseries") == ["root.laptop.d1.s1", "root.laptop.d1.s2"]


@pytest.mark.parametrize(
    "path",
    [
        "root",
        "root.",
        "root..s1",
        ".root.s1",
        "aa.bb.cc",
        "root1.laptop.d1.s1",
        "root.laptop.d1.s1.",
        "root.laptop.d-1.s1",
        "root.laptop.é.s1",
        "root.laptop.d1.*",
        "root.laptop.**",
        "root.laptop.``",
        'root.laptop."d1"s1',
    ],
)
def test_what_is_no_path_is_refused_with_its_text(engine, path):
    error = refused(engine, f"create timeseries {path} {PLAIN}")
    assert path.split('"')[0] in error.message
    assert number(engine, "count timeseries") == 0


@pytest.mark.parametrize("path", ["root.", "root..x", "x.y", "root.a-b", "root.*", "root.`x"])
def test_what_is_no_path_names_no_storage_group(engine, path):
    refused(engine, f"set storage group to {path}")
    assert column(engine, "show storage group") == ["root.laptop"]


def test_the_error_says_where_the_path_is_wrong(engine):
    error = refused(engine, "show timeseries root.laptop..s1", "root.laptop..s1")
    assert isinstance(error, IllegalPathError) or "column" in error.message


@pytest.mark.parametrize("mark", ["\n", "\t", "\r", "\x00", "\x1b", "\u2028"])
def test_a_name_has_no_control_characters(engine, mark):
    refused(engine, f"set storage group to root.`b{mark}`")
    refused(engine, f"create timeseries root.laptop.`d1{mark}`.s1 {PLAIN}")
    refused(engine, f"create timeseries root.laptop.d1.`s1{mark}` {PLAIN}")
    refused(engine, f"create timeseries root.laptop.d1.s1(`a{mark}`) {PLAIN}")
    assert column(engine, "show timeseries") == []
    assert column(engine, "show storage group") == ["root.laptop"]


LONG = "x" * 60_000


@pytest.mark.parametrize(
    "text",
    [
        f"show timeseries where a{LONG}`b` = 1",
        f"show timeseries where `a`{LONG} = 1",
        f"show timeseries where {LONG} = 1",
        f"show timeseries root.`{LONG * 2}`",
        f"create timeseries root.sg.d.z with datatype={LONG}",
        f"create timeseries root.sg.d.z with datatype=FLOAT, encoding={LONG}",
        f"create timeseries root.sg.d.z with datatype=FLOAT, compression={LONG}",
        f"create timeseries root.sg.d.z with datatype=FLOAT, {LONG}=1, {LONG}=2",
        f"create timeseries root.sg.d.z with datatype=FLOAT tags({LONG}=1, {LONG}=2)",
        f"create timeseries root.sg.d.z with datatype=FLOAT tags({LONG}=1) attributes({LONG}=1)",
        f"create aligned timeseries root.sg.al({LONG} FLOAT, {LONG} FLOAT)",
        f"create timeseries root.sg.d.s.`a {'b ' * 30_000}` with datatype=FLOAT",
        f"alter timeseries root.sg.d.s rename {LONG} to b",
        f"alter timeseries root.sg.d.s set {LONG}=1",
        f"alter timeseries root.sg.d.{LONG} set k=1",
        f"alter timeseries root.sg.d.s upsert tags({LONG}=1) attributes({LONG}=1)",
        f"alter timeseries root.sg.d.s upsert alias=`{LONG}{LONG}`",
        f"delete timeseries root.sg.{LONG}",
        f"delete timeseries root.sg.{LONG}.**",
        f"delete storage group root.{LONG}",
        f"set storage group to root.sg.{LONG}",
        f"set ttl to root.{LONG} 5",
    ],
)
def test_an_error_does_not_repeat_what_nobody_would_read(engine, text):
    execute(engine, "set storage group to root.sg")
    execute(engine, "create timeseries root.sg.d.s with datatype=FLOAT")
    execute(engine, "create timeseries root.sg.d.z.y with datatype=FLOAT")
    with pytest.raises(TsferryError) as caught:
        list(execute(engine, text))
    assert len(caught.value.message) < 1500
    assert len(repr(caught.value.extra)) < 2500


def test_an_alias_is_no_longer_than_a_path_can_be(engine):
    """Or nobody could ask for the series by it."""
    execute(engine, "set storage group to root.sg")
    execute(engine, "create timeseries root.sg.d.s with datatype=FLOAT")
    for text in (
        f"create timeseries root.sg.d.t({LONG}{LONG}) with datatype=FLOAT",
        f"alter timeseries root.sg.d.s upsert alias={LONG}{LONG}",
    ):
        with pytest.raises(IllegalPathError, match="65536"):
            execute(engine, text)
    execute(engine, f"alter timeseries root.sg.d.s upsert alias={LONG}")
    assert [row[0] for row in execute(engine, f"show timeseries root.sg.d.{LONG}")] == [
        "root.sg.d.s"
    ]
