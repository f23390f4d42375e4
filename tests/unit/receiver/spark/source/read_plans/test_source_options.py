"""Every wrong option is named, with its value and what was expected, before a job starts."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from common.errors import UsageError
from receiver.metadata.model.paths import parse_pattern
from receiver.spark.source.read_plans.source_options import (
    SourceOptions,
    bounds,
    parse_options,
    refuse_stream_options,
    to_ticks,
)


def parsed(**given: str) -> SourceOptions:
    return parse_options({"path": "/data", **given})


def test_without_options_all_columns_of_all_files_are_read_wide():
    options = parse_options({"path": "/data"})
    assert options == SourceOptions(paths=("/data",))
    assert (options.form, options.deletions, options.on_error) == ("wide", True, "fail")


def test_names_are_found_in_any_case_as_spark_hands_them_over():
    assert parsed(starttime="5", TIMEUNIT="us").start_time == 5


def test_spark_gives_several_paths_as_json_and_columns_have_commas_or_json():
    options = parse_options({"paths": '["/a,b", "/c"]', "columns": "temp, `a,b` ,hum"})
    assert options.paths == ("/a,b", "/c")
    assert options.columns == ("temp", "a,b", "hum")
    assert parsed(columns='["x, y"]').columns == ("x, y",)


def test_devices_are_patterns_of_the_schema():
    assert parsed(devices="root.a.*, root.`b,c`.**").devices == (
        parse_pattern("root.a.*"),
        parse_pattern("root.`b,c`.**"),
    )


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("form", "tall", "long or wide"),
        ("deletions", "yes", "true or false"),
        ("kind", "seq", "all, sequence or unsequence"),
        ("text", "utf8", "string or binary"),
        ("onError", "ignore", "fail, skip or row"),
        ("timeUnit", "s", "ms, us or ns"),
        ("startTime", "yesterday", "an integer, or a time such as"),
        ("endTime", str(1 << 63), "an integer, or a time such as"),
        ("partitionBytes", "1", "from 64KiB on"),
        ("partitionBytes", "many", "from 64KiB on"),
        ("maxFilesPerTrigger", "0", "from 1 on"),
        ("devices", "a.b", "paths such as root.site"),
        ("columns", " , ", "names with commas"),
        ("columns", "[1]", "JSON array"),
        ("fileColumn", " ", "a name"),
        ("tags", "site=p1", "a JSON object"),
        ("tags", '{"site": []}', "a JSON object"),
        ("tags", '{"site": 5}', "a JSON object"),
        ("pushFilters", "yes", "auto, true or false"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(name: str, value: str, expected: str):
    with pytest.raises(UsageError) as caught:
        parsed(**{name: value})
    assert f"option {name} = {value!r}: expected" in str(caught.value)
    assert expected in str(caught.value)


def test_a_misspelt_option_is_an_error_with_the_right_name():
    with pytest.raises(UsageError, match=r"option colums = 'a': .* is columns meant\?"):
        parsed(colums="a")
    assert parsed(**{"serialization.format": "1"}).paths == ("/data",)


def test_tags_have_one_value_or_several_and_null_is_one():
    assert parsed(tags='{"site": "p1", "line": ["1", null]}').tags == (
        ("site", ("p1",)),
        ("line", ("1", None)),
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "neither is given"),
        ({"path": "/a", "catalog": "/b"}, "both are given"),
        ({"path": "/a", "asOf": "5"}, "option asOf = '5': expected together with catalog"),
        ({"path": "/a", "token": "secret"}, r"option token = \.\.\.: expected together"),
        ({"path": "/a", "devices": "root.**", "table": "t"}, "both are given"),
        ({"path": "/a", "devices": "root.**", "tags": '{"a": "b"}'}, "only tables have tags"),
        ({"path": "/a", "startTime": "2026-01-31"}, "expected together with timeUnit"),
        ({"catalog": "/a", "asOf": "-5"}, "expected a commit timestamp"),
        ({"catalog": "/a", "tokenFile": "/nowhere/at/all"}, "expected a readable file"),
    ],
)
def test_options_that_contradict_each_other_are_named(given: dict[str, str], said: str):
    with pytest.raises(UsageError, match=said):
        parse_options(given)


def test_a_token_comes_from_its_file_and_shows_in_no_message(tmp_path: Path):
    (tmp_path / "token").write_text("s3cret\n")
    options = parse_options({"catalog": "http://h", "tokenFile": str(tmp_path / "token")})
    assert options.token == "s3cret"
    assert "s3cret" not in repr(options)


def test_a_moment_becomes_a_time_of_the_files_exactly():
    moment = datetime.datetime.fromisoformat("2026-01-31T08:00:00.123456Z")
    assert to_ticks(moment, "us", "startTime") == 1769846400123456
    assert to_ticks(moment, "ms", "startTime") == 1769846400123
    assert to_ticks(moment, "ns", "startTime") == 1769846400123456000
    assert parsed(startTime="1969-12-31T23:59:59Z", timeUnit="ms").start_time is not None
    before = datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
    assert to_ticks(before, "ms", "startTime") == -1000
    assert parsed(startTime="2026-01-31", timeUnit="ms").start_time == datetime.datetime(
        2026, 1, 31, tzinfo=datetime.UTC
    )


def test_a_moment_between_two_times_takes_in_neither_too_early_nor_too_late():
    given = parsed(
        startTime="1970-01-01T00:00:00.0035Z", endTime="1970-01-01T00:00:00.0075Z", timeUnit="ms"
    )
    assert bounds(given) == (4, 7)


def test_a_name_in_a_json_array_is_taken_as_it_stands():
    assert parsed(columns='["`a.b`", "c"]').columns == ("`a.b`", "c")
    assert parsed(columns="`a.b`, c").columns == ("a.b", "c")


@pytest.mark.parametrize("name", ["startingCommit", "maxFilesPerTrigger", "failOnDataLoss"])
def test_an_option_of_streams_is_refused_in_a_batch_query(name: str):
    with pytest.raises(UsageError, match=f"option {name} = '1': expected in streams only"):
        refuse_stream_options({"catalog": "/somewhere", name.lower(): "1"})


# -- what Spark adds, and options that are not ours ------------------------------------------------

TABLE = {
    "owner": "root",
    "path": "file:/data",
    "location": "file:/data",
    "provider": "tsfile",
    "comment": "ours",
    "form": "long",
    "option.form": "long",
    "q": "a property",
}


def test_a_table_of_sparks_catalogue_brings_properties_that_are_no_options():
    options = parse_options(TABLE)
    assert (options.paths, options.form) == (("file:/data",), "long")


def test_a_misspelt_option_of_a_table_is_an_error_all_the_same():
    with pytest.raises(UsageError, match="option frm = 'long': there is no such option; is form"):
        parse_options({**TABLE, "frm": "long", "option.frm": "long"})
    with pytest.raises(UsageError, match="owner"):
        parse_options({"path": "/data", "owner": "root"})  # of no table


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("recursiveFileLookup", "false", "always looked through"),
        ("ignoreCorruptFiles", "true", "onError"),
        ("ignoreMissingFiles", "true", "onError"),
        ("modifiedBefore", "2026-01-01", "endTime"),
        ("modifiedAfter", "2026-01-01", "startTime"),
    ],
)
def test_generic_options_that_are_not_honoured_are_named(name, value, said):
    with pytest.raises(UsageError, match=said):
        parsed(**{name: value})


def test_generic_options_that_are_honoured():
    assert parsed(recursiveFileLookup="true", mergeSchema="true") == parsed()
    assert parsed(pathGlobFilter="*-0.tsfile").name_glob == "*-0.tsfile"
    with pytest.raises(UsageError, match="with path only"):
        parse_options({"catalog": "/c", "pathGlobFilter": "*"})
