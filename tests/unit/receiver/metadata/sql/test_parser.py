"""What each statement is understood as, and where an error says that it is wrong."""

import datetime
import time

import pytest

from common.errors import TsferryError
from common.tsfile.layout import Compression, DataType, Encoding
from receiver.metadata.commit.operations import NewSeries
from receiver.metadata.model import alterations as alter
from receiver.metadata.model.errors import (
    SqlError,
    UnknownCompressionError,
    UnknownEncodingError,
    UnknownTypeError,
)
from receiver.metadata.model.paths import IllegalPathError, parse_path, parse_pattern
from receiver.metadata.query import questions as ask
from receiver.metadata.sql import statements as sql
from receiver.metadata.sql.lexing import MAX_STATEMENT, statements
from receiver.metadata.sql.parser import keywords, next_words, parse

PATH = parse_path("root.turbine.d1.s1")
EVERYTHING = (
    "create timeseries root.turbine.d1.s1(temprature) with datatype=FLOAT, encoding=RLE, "
    "compression=SNAPPY tags(tag1=v1, tag2=v2) attributes(attr1=v1, attr2=v2)"
)
PARSED = sql.CreateTimeseries(
    parse_path("root.turbine.d1"),
    NewSeries(
        name="s1",
        type=DataType.FLOAT,
        encoding=Encoding.RLE,
        compression=Compression.SNAPPY,
        alias="temprature",
        tags={"tag1": "v1", "tag2": "v2"},
        attributes={"attr1": "v1", "attr2": "v2"},
    ),
)


def pattern(text):
    return parse_pattern(text)


# -- what changes the schema -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        EVERYTHING,
        EVERYTHING + ";",
        EVERYTHING.replace("compression", "compressor"),
        EVERYTHING.replace(", ", ",").replace("=", " = "),
        "CREATE TIMESERIES root.turbine.d1.s1(temprature) WITH DATATYPE=float, ENCODING=rle, "
        "COMPRESSION=snappy TAGS(tag1=v1, tag2=v2) ATTRIBUTES(attr1=v1, attr2=v2)",
        # the short form of 0.13
        "create timeseries root.turbine.d1.s1(temprature) FLOAT encoding=RLE compression=SNAPPY "
        "tags(tag1=v1, tag2=v2) attributes(attr1=v1, attr2=v2)",
        EVERYTHING.replace("=v1", "='v1'").replace("=v2", '="v2"'),
        "-- a comment\n" + EVERYTHING.replace(" ", "\n/* and ; another */\t"),
        EVERYTHING.replace("root.", "ROOT."),
    ],
)
def test_a_series_is_created_with_all_that_it_can_have(text):
    assert parse(text) == PARSED


def test_what_is_not_said_is_left_to_the_engine():
    assert parse("create timeseries root.a.s1 with datatype=INT32") == sql.CreateTimeseries(
        ("root", "a"), NewSeries(name="s1", type=DataType.INT32)
    )


def test_further_settings_go_to_the_encoder():
    found = parse(
        "create timeseries root.a.s1 with datatype=FLOAT, max_point_number=2, `encoding`=x"
    )
    assert found.series.props == {"max_point_number": "2", "encoding": "x"}
    assert found.series.encoding is None


def test_the_old_name_of_an_encoding_is_known():
    found = parse("create timeseries root.a.s1 with datatype=TEXT, encoding=PLAIN_DICTIONARY")
    assert found.series.encoding is Encoding.DICTIONARY


def test_aligned_series_are_created_together():
    assert parse(
        "create aligned timeseries root.ln.GPS(latitude FLOAT encoding=PLAIN compressor=SNAPPY, "
        "longitude(lon) DOUBLE tags(unit=deg) attributes(a='b'))"
    ) == sql.CreateAligned(
        ("root", "ln", "GPS"),
        (
            NewSeries(
                name="latitude",
                type=DataType.FLOAT,
                encoding=Encoding.PLAIN,
                compression=Compression.SNAPPY,
            ),
            NewSeries(
                name="longitude",
                type=DataType.DOUBLE,
                alias="lon",
                tags={"unit": "deg"},
                attributes={"a": "b"},
            ),
        ),
    )


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("create snapshot for schema", sql.CreateSnapshot()),
        ("BEGIN", sql.BeginTransaction()),
        ("begin transaction;", sql.BeginTransaction()),
        ("commit", sql.CommitTransaction()),
        ("rollback", sql.RollBackTransaction()),
        ("show transactions", sql.ShowTransactions()),
        ("set storage group to root.a", sql.SetStorageGroups((("root", "a"),))),
        ("create storage group root.a", sql.SetStorageGroups((("root", "a"),))),
        (
            "set storage group to root.a, root.b.`c d`",
            sql.SetStorageGroups((("root", "a"), ("root", "b", "c d"))),
        ),
        (
            "delete storage group root.a, root.b.**",
            sql.DeleteStorageGroups((pattern("root.a"), pattern("root.b.**"))),
        ),
        (
            "delete timeseries root.a.s1, root.*.s2",
            sql.DeleteTimeseries((pattern("root.a.s1"), pattern("root.*.s2"))),
        ),
        ("drop timeseries root.a.s1", sql.DeleteTimeseries((pattern("root.a.s1"),))),
        ("set ttl to root.a 3600000", sql.SetTtl(("root", "a"), 3_600_000)),
        ("set ttl to root.a 30d", sql.SetTtl(("root", "a"), 30 * 86_400_000)),
        ("set ttl to root.a 12H", sql.SetTtl(("root", "a"), 12 * 3_600_000)),
        ("unset ttl to root.a", sql.SetTtl(("root", "a"), None)),
        ("set upload to root.a at once", sql.SetUpload(("root", "a"), 0)),
        ("set upload to root.a after 12h", sql.SetUpload(("root", "a"), 12 * 3_600_000)),
        ("set upload to root.never never", sql.SetUpload(("root", "never"), -1)),
        ("unset upload to root.a", sql.SetUpload(("root", "a"), None)),
        ("create table root.a", sql.CreateTable(("root", "a"))),
        (
            "create table root.a with (replicas = 2, partitions at (5, 9, 12))",
            sql.CreateTable(("root", "a"), 2, sql.TablePartitions((5, 9, 12))),
        ),
        (
            "create table root.a with (partitions at (-5, -3, 0))",
            sql.CreateTable(("root", "a"), None, sql.TablePartitions((-5, -3, 0))),
        ),
        (
            "CREATE TABLE root.a WITH (partitions from 0 to '1970-01-29T00:00:00Z' every 28d)",
            sql.CreateTable(
                ("root", "a"), None, sql.TablePartitions((), 0, 28 * 86_400_000, 28 * 86_400_000)
            ),
        ),
        ("alter table root.a set replicas = 3", sql.AlterTable(("root", "a"), 3)),
        ("alter table root.a set replicas = DEFAULT", sql.AlterTable(("root", "a"), None, True)),
        (
            "alter table root.a add partitions from 1970-01-01T00:00:00Z to 700",
            sql.AlterTable(("root", "a"), None, False, sql.TablePartitions((), 0, 700)),
        ),
        ("load '/a/b'", sql.LoadFiles(("/a/b",))),
        (
            "LOAD '/a', \"/b c\" on duplicate KEEP as plant into 'root.sg';",
            sql.LoadFiles(("/a", "/b c"), ("plant",), "root.sg", "keep"),
        ),
    ],
)
def test_statements_that_change(text, statement):
    assert parse(text) == statement
    assert not sql.is_query(statement)


@pytest.mark.parametrize(
    ("text", "alteration"),
    [
        ("rename tag1 to newTag1", alter.Rename("tag1", "newTag1")),
        ("SET newTag1=newV1, attr1=newV1", alter.SetValues({"newTag1": "newV1", "attr1": "newV1"})),
        ("drop tag1, tag2", alter.Drop(("tag1", "tag2"))),
        ("add tags tag3=v3, tag4='v 4'", alter.AddTags({"tag3": "v3", "tag4": "v 4"})),
        ("add tags(tag3=v3, tag4='v 4')", alter.AddTags({"tag3": "v3", "tag4": "v 4"})),
        ("add attributes (a=1)", alter.AddAttributes({"a": "1"})),
        (
            "add attributes attr3=3.5, attr4=-1",
            alter.AddAttributes({"attr3": "3.5", "attr4": "-1"}),
        ),
        (
            "upsert alias=newAlias tags(tag3=v3) attributes(attr3=v3)",
            alter.Upsert("newAlias", {"tag3": "v3"}, {"attr3": "v3"}),
        ),
        ("upsert tags(tag3=v3)", alter.Upsert(None, {"tag3": "v3"})),
        ("upsert alias=x", alter.Upsert("x")),
    ],
)
def test_the_six_alterations(text, alteration):
    assert parse(f"alter timeseries root.turbine.d1.s1 {text}") == sql.AlterTimeseries(
        PATH, alteration
    )


# -- what asks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("show timeseries", ask.ShowTimeseries()),
        ("show timeseries root.a.**", ask.ShowTimeseries(pattern=pattern("root.a.**"))),
        (
            "show timeseries root.a where unit = c order by heat limit 10 offset 3",
            ask.ShowTimeseries(
                pattern=pattern("root.a"),
                where=ask.TagFilter("unit", "c"),
                by_heat=True,
                limit=10,
                offset=3,
            ),
        ),
        (
            "show timeseries offset 3 limit 10 where `a key` contains 'it''s' order by heat desc",
            ask.ShowTimeseries(
                where=ask.TagFilter("a key", "it's", contains=True),
                by_heat=True,
                limit=10,
                offset=3,
            ),
        ),
        ("show latest timeseries limit 1", ask.ShowTimeseries(by_heat=True, limit=1)),
        ("show devices", ask.ShowDevices()),
        (
            "show devices root.a with storage group limit 2",
            ask.ShowDevices(pattern=pattern("root.a"), limit=2),
        ),
        ("show storage group", ask.ShowStorageGroups()),
        ("show storage group root.a", ask.ShowStorageGroups(pattern=pattern("root.a"))),
        ("show child paths", ask.ShowChildPaths(pattern=pattern("root"))),
        ("show child paths root.a", ask.ShowChildPaths(pattern=pattern("root.a"))),
        ("show child nodes root.*", ask.ShowChildNodes(pattern=pattern("root.*"))),
        ("show ttl", ask.ShowTtl()),
        ("show all ttl", ask.ShowTtl()),
        (
            "show ttl on root.a, root.b",
            ask.ShowTtl(groups=(pattern("root.a"), pattern("root.b"))),
        ),
        ("show tag keys", ask.ShowTagKeys()),
        ("show tag values", ask.ShowTagValues()),
        ("show tag values for key = unit", ask.ShowTagValues(key="unit")),
        (
            "show tag values root.a with key=unit limit 3",
            ask.ShowTagValues(pattern=pattern("root.a"), key="unit", limit=3),
        ),
        ("count timeseries", ask.CountTimeseries()),
        (
            "count timeseries root.a group by level=2",
            ask.CountTimeseries(pattern=pattern("root.a"), level=2),
        ),
        (
            "count timeseries where unit=c group by level = 2",
            ask.CountTimeseries(where=ask.TagFilter("unit", "c"), level=2),
        ),
        ("count devices root.a", ask.CountDevices(pattern=pattern("root.a"))),
        ("count storage group", ask.CountStorageGroups()),
        (
            "count nodes root.** level=2",
            ask.CountNodes(pattern=pattern("root.**"), level=2),
        ),
    ],
)
@pytest.mark.parametrize("at", ["", " at 123"])
def test_statements_that_ask(text, query, at):
    found = parse(text + at)
    assert sql.is_query(found)
    assert found.at == (123 if at else None)
    assert parse(text) == query


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T08:00:00Z",
        "2026-01-31T08:00:00+00:00",
        "'2026-01-31 09:00:00+01:00'",
        "2026-01-31 09:00:00+01:00",
        "2026-01-31T08:00:00.000000Z",
        "`2026-01-31T08:00:00Z`",
    ],
)
def test_a_time_can_be_said_in_several_ways(text):
    moment = datetime.datetime(2026, 1, 31, 8, tzinfo=datetime.UTC)
    assert parse(f"show devices at {text}").at == moment
    assert parse(f"show devices at {text} limit 1").limit == 1


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai"])
def test_a_time_without_a_zone_is_of_this_machine(monkeypatch, zone):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        found = parse("count devices at 2026-01-31").at
        assert found == datetime.datetime(2026, 1, 31).astimezone()
        assert found.astimezone().hour == 0
    finally:
        monkeypatch.undo()
        time.tzset()


# -- names -----------------------------------------------------------------------------------------


def test_every_keyword_can_be_a_name():
    for word in [*sorted(keywords()), "root", "1", "a-b", "温度", "x.y", "3e5"]:
        found = parse(
            f"alter timeseries root.a.{word.lower()}.b set {word}={word}, x={word}"
            if word.isalnum()
            else f"alter timeseries root.a.b set {word}={word}"
        )
        assert found.alteration.values[word] == word
        assert parse(
            f"alter timeseries root.a.b rename {word} to {word}"
        ).alteration == alter.Rename(word, word)
        # A name that becomes a node of a path is written as in a path.
        node = word if word.replace("_", "").isalnum() else f"`{word}`"
        assert (
            parse(f"alter timeseries root.a.b upsert alias={node} tags({word}={word})") is not None
        )
        assert parse(f"show timeseries where {word} = {word} limit 1").where == ask.TagFilter(
            word, word
        )
        assert (
            parse(f"create aligned timeseries root.a({node}({node}) INT32 tags({word}=1))")
            is not None
        )
        assert parse(f"show tag values with key = {word}").key == word


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("'it''s'", "it's"),
        ('"say ""x"""', 'say "x"'),
        ("''", ""),
        ("`a``b`", "a`b"),
        ("'a\nb'", "a\nb"),
        ("-1.5e3", "-1.5e3"),
        ("/a/b", "/a/b"),
        ("a--b", "a--b"),
        ("'-- no comment'", "-- no comment"),
        ("true", "true"),
    ],
)
def test_values_are_what_their_quotes_hold(written, meant):
    assert parse(f"alter timeseries root.a.b set k={written}").alteration.values == {"k": meant}


# -- what is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, ["SHOW", "CREATE", "ends here"]),
        ("show", 1, 5, ["TIMESERIES", "DEVICES", "ends here"]),
        ("show timeserie root.a", 1, 6, ["timeserie", "did you mean TIMESERIES"]),
        ("select * from root.a", 1, 1, ["select", "SHOW"]),
        ("show timeseries limit x", 1, 23, ["a number", "'x'"]),
        ("show timeseries limit -1", 1, 23, ["a number", "'-1'"]),
        ("show timeseries limit 99999999999999999999", 1, 23, ["above"]),
        ("show timeseries limit 1 limit 2", 1, 31, ["limit is given twice"]),
        ("show timeseries at 1 at 2", 1, 25, ["at is given twice"]),
        ("show timeseries; show devices", 1, 18, ["the end", "'show'"]),
        ("show timeseries where a = 'b", 1, 27, ["quote", "no end"]),
        ("show timeseries where a = b`c", 1, 28, ["quote", "no end"]),
        ("show devices /* what", 1, 14, ["comment", "no end"]),
        ("show timeseries where = b", 1, 23, ["a name", "'='"]),
        ("show timeseries where a", 1, 24, ["CONTAINS", "`=`", "ends here"]),
        ("show timeseries where '' = b", 1, 23, ["a name", "\"''\""]),
        ("show timeseries where `` = b", 1, 23, ["empty"]),
        ("show timeseries where a`b`c = b", 1, 23, ["quotes stand around the whole"]),
        ("\n\nshow\n  timeserie", 4, 3, ["did you mean TIMESERIES"]),
        ("set storage group root.a", 1, 19, ["TO", "'root.a'"]),
        ("alter timeseries root.a.b rename a", 1, 35, ["TO"]),
        ("alter table root.a rename to root.b", 1, 30, ["not renamed", "names of its files"]),
        ("alter timeseries root.a.b set a=", 1, 33, ["a value"]),
        ("alter timeseries root.a.b set a=b, a=c", 1, 36, ["a is given twice"]),
        ("alter timeseries root.a.b upsert", 1, 33, ["ALIAS, ATTRIBUTES or TAGS"]),
        ("create aligned timeseries root.a(x.y INT32)", 1, 34, ["x.y", "back-ticks"]),
        ("create timeseries root.a.b(a-b) INT32", 1, 28, ["a-b", "back-ticks"]),
        ("alter timeseries root.a.b upsert alias=a.b", 1, 40, ["a.b", "back-ticks"]),
        ("show timeseries limt 3", 1, 17, ["LIMIT", "a path", "'limt'; did you mean LIMIT?"]),
        ("count timeseries limit 3", 1, 18, ["a path", "'limit'"]),
        ("create timeseries root.a.b with encoding=RLE", 1, 19, ["DATATYPE"]),
        ("create timeseries root.b with datatype=INT32", 1, 19, ["below a device"]),
        (
            "create timeseries root.a.b with datatype=INT32, datatype=INT64",
            1,
            58,
            ["datatype is given twice"],
        ),
        (
            "create timeseries root.a.b with datatype=INT32 tags()",
            1,
            53,
            ["a name", "`)`".strip("`")],
        ),
        ("set ttl to root.a soon", 1, 19, ["no TTL"]),
        ("set ttl to root.a 1.5", 1, 19, ["no TTL"]),
        ("show devices at yesterday", 1, 17, ["no time", "2026-01-31T08:00:00Z"]),
        ("show devices at 2026-02-30", 1, 17, ["no time"]),
        ("count nodes root.**", 1, 20, ["LEVEL"]),
    ],
)
def test_an_error_says_where_and_what_was_expected(text, line, column, words):
    with pytest.raises(SqlError) as caught:
        parse(text)
    error = caught.value
    assert (error.extra["line"], error.extra["column"]) == (line, column), error.message
    assert error.message.startswith(f"line {line}, column {column}: ")
    for word in words:
        assert word in error.message
    assert error.exit_code == 2
    assert error.http_status == 400


@pytest.mark.parametrize(
    ("text", "kind", "column", "words"),
    [
        ("show timeseries root..s1", IllegalPathError, 22, ["root..s1", "empty"]),
        ("show timeseries root.a-b", IllegalPathError, 23, ["root.a-b", "back-ticks"]),
        ("show timeseries turbine.d1", IllegalPathError, 17, ["turbine.d1", "root"]),
        ("set storage group to root.*", IllegalPathError, 27, ["root.*", "wildcard"]),
        ("create timeseries root.a.s FLAOT", UnknownTypeError, 28, ["FLAOT", "FLOAT"]),
        ("create timeseries root.a.s VECTOR", UnknownTypeError, 28, ["VECTOR"]),
        ("create timeseries root.a.s FLOAT encoding=X", UnknownEncodingError, 43, ["X", "GORILLA"]),
        (
            "create timeseries root.a.s FLOAT compressor=X",
            UnknownCompressionError,
            45,
            ["X", "LZ4"],
        ),
    ],
)
def test_paths_types_encodings_and_compressions_have_errors_of_their_own(text, kind, column, words):
    with pytest.raises(kind) as caught:
        parse(text)
    assert (caught.value.extra["line"], caught.value.extra["column"]) == (1, column)
    for word in words:
        assert word in caught.value.message


def test_a_statement_that_is_too_long_is_not_read():
    with pytest.raises(SqlError, match="at most"):
        parse("show timeseries" + " " * MAX_STATEMENT)


@pytest.mark.parametrize("piece", ["'", '"', "`", "a''", "`a`", '."a"', "/**/ ", "/*", "--\n", "*"])
def test_a_hostile_statement_is_read_in_a_time_that_grows_with_its_length(piece):
    def seconds(length):
        text = "show timeseries " + piece * (length // len(piece)) + "'"
        began = time.process_time()
        with pytest.raises(SqlError):
            parse(text)
        return time.process_time() - began

    assert seconds(1 << 19) < 64 * min(seconds(1 << 14) for _ in range(3)) + 1


def test_half_a_character_is_no_text():
    for text in ("show timeseries root.`\udcff`", "show timeseries where k = '\ud800'"):
        with pytest.raises(SqlError, match="half a character") as caught:
            parse(text)
        assert caught.value.extra["column"] in (23, 28)


def test_what_could_be_mended_by_more_is_told_from_what_could_not():
    for text, unfinished in {
        "create timeseries root.a.s1": True,
        "create timeseries root.a.s1 with datatype=FLOAT tags(": True,
        "show devices limit x": False,
        "create snapshots": False,
    }.items():
        with pytest.raises(TsferryError) as caught:
            parse(text)
        assert caught.value.extra["unfinished"] is unfinished


# -- completion, scripts ---------------------------------------------------------------------------


def test_what_may_come_next_is_known():
    assert next_words("show ") >= {"TIMESERIES", "DEVICES", "STORAGE"}
    assert "PATH" in next_words("show timeseries ")
    assert next_words("create timeseries root.a.s1 with datatype=") == {"NAME"}
    assert next_words("nonsense ") == frozenset()
    assert next_words("show 'open") == frozenset()


def test_a_script_is_cut_at_semicolons_that_stand_for_themselves():
    script = """
        set storage group to root.a;  -- a ; b
        ;
        create timeseries root.a.`x;y` with datatype=INT32
            tags(a='1;2'); /* ; */ show
        devices
    """
    assert list(statements(script)) == [
        (2, 9, "set storage group to root.a"),
        (4, 9, "create timeseries root.a.`x;y` with datatype=INT32\n            tags(a='1;2')"),
        (5, 36, "show\n        devices"),
    ]
    assert list(statements("")) == []
    assert list(statements(" ; -- nothing")) == []
    assert list(statements("show 'a;b; c")) == [(1, 1, "show 'a;b; c")]


def test_a_long_script_is_cut_in_time_that_grows_with_its_length():
    script = "show devices;\n" * 50_000
    found = list(statements(script))
    assert found[-1] == (50_000, 1, "show devices")
    assert len(found) == 50_000


def test_one_parser_serves_all_threads():
    from concurrent.futures import ThreadPoolExecutor

    texts = [EVERYTHING.replace("d1", f"d{n}") for n in range(50)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(parse, texts * 20))
    assert [each.device[2] for each in found[:50]] == [f"d{n}" for n in range(50)]


def test_when_files_are_uploaded_is_asked_of_now_only():
    assert parse("show upload") == ask.ShowUpload()
    assert parse("show upload on root.a") == ask.ShowUpload(groups=(pattern("root.a"),))
    with pytest.raises(SqlError, match="expected ON or the end, found 'at'"):
        parse("show upload at 123")
