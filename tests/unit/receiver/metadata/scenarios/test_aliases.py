"""Aliases: names and aliases of a device are one space, and a series is found by both."""

import pytest

from common.errors import NotFoundError
from tests.support.asking import column, refused, rows, run

FLOAT = "with datatype=FLOAT, encoding=RLE, compression=SNAPPY"
INT = "with datatype=INT32, encoding=RLE"


@pytest.fixture(autouse=True)
def group(engine):
    run(engine, "set storage group to root.turbine")


def test_two_series_of_a_device_do_not_share_one(engine):
    run(engine, f"create timeseries root.turbine.d3.s1(temperature) {FLOAT}")
    refused(
        engine,
        f"create timeseries root.turbine.d3.s2(temperature) {INT}",
        "temperature",
        "root.turbine.d3",
    )
    assert column(engine, "show timeseries") == ["root.turbine.d3.s1"]


def test_two_devices_may_have_the_same(engine):
    run(engine, f"create timeseries root.turbine.d1.s1(temperature) {FLOAT}")
    run(engine, f"create timeseries root.turbine.d2.s1(temperature) {FLOAT}")
    assert column(engine, "show timeseries", "alias") == ["temperature", "temperature"]


def test_no_series_takes_the_name_that_is_an_alias(engine):
    run(engine, f"create timeseries root.turbine.d4.s1(temperature) {FLOAT}")
    refused(
        engine,
        f"create timeseries root.turbine.d4.temperature {INT}",
        "root.turbine.d4",
        "temperature",
    )


def test_no_alias_is_the_name_of_a_sibling(engine):
    run(engine, f"create timeseries root.turbine.d5.s1(temperature) {FLOAT}")
    refused(engine, f"create timeseries root.turbine.d5.s2(s1) {INT}", "s1", "root.turbine.d5")
    run(engine, f"create timeseries root.turbine.d5.s2 {INT}")
    refused(engine, "alter timeseries root.turbine.d5.s2 upsert alias=s1", "s1", "root.turbine.d5")
    refused(engine, "alter timeseries root.turbine.d5.s2 upsert alias=temperature", "temperature")
    assert column(engine, "show timeseries", "alias") == ["temperature", None]


def test_no_device_stands_below_one(engine):
    run(engine, f"create timeseries root.turbine.d1.s1(t1) {FLOAT}")
    refused(engine, f"create timeseries root.turbine.d1.t1.s1 {INT}", "root.turbine.d1.t1")


def test_none_is_the_name_of_a_device(engine):
    run(engine, f"create timeseries root.turbine.d1.sub.s1 {FLOAT}")
    refused(engine, f"create timeseries root.turbine.d1.s1(sub) {FLOAT}", "sub")


def test_two_series_of_one_statement_do_not_share_one(engine):
    refused(
        engine,
        "create aligned timeseries root.turbine.d1(s1(t1) FLOAT, s2(t1) FLOAT)",
        "t1",
        "root.turbine.d1",
    )
    assert column(engine, "show timeseries") == []


def test_a_series_is_shown_by_it(engine):
    run(
        engine,
        f"create timeseries root.turbine.d6.s1(temperature) {FLOAT} "
        "tags(tag1=v1) attributes(attr1=v2)",
    )
    (row,) = rows(engine, "show timeseries root.turbine.d6.temperature")
    assert row["timeseries"] == "root.turbine.d6.s1"
    assert (row["alias"], row["tags"], row["attributes"]) == (
        "temperature",
        {"tag1": "v1"},
        {"attr1": "v2"},
    )


def test_a_series_is_altered_by_it(engine):
    run(engine, f"create timeseries root.turbine.d6.s1(temperature) {FLOAT}")
    run(engine, "alter timeseries root.turbine.d6.temperature add tags unit=c")
    assert column(engine, "show timeseries where unit=c") == ["root.turbine.d6.s1"]


def test_a_series_is_deleted_by_it_and_it_goes_along(engine):
    run(engine, f"create timeseries root.turbine.d7.s1(temperature) {FLOAT}")
    run(engine, f"create timeseries root.turbine.d7.s2(status) {INT}")
    run(engine, "delete timeseries root.turbine.d7.status")
    assert column(engine, "show timeseries") == ["root.turbine.d7.s1"]
    assert column(engine, "show timeseries root.turbine.d7.status") == []
    refused(
        engine,
        "delete timeseries root.turbine.d7.status",
        "root.turbine.d7.status",
        kind=NotFoundError,
    )
    run(engine, f"create timeseries root.turbine.d7.status {INT}")
    assert column(engine, "show timeseries") == ["root.turbine.d7.s1", "root.turbine.d7.status"]


def test_it_is_free_again_when_it_is_changed(engine):
    run(engine, f"create timeseries root.turbine.d1.s1(old) {FLOAT}")
    before = engine.newest_commit
    run(engine, "alter timeseries root.turbine.d1.s1 upsert alias=new")
    assert column(engine, "show timeseries root.turbine.d1.old") == []
    assert column(engine, "show timeseries root.turbine.d1.new") == ["root.turbine.d1.s1"]
    assert column(engine, "show timeseries root.turbine.d1.old", at=before) == [
        "root.turbine.d1.s1"
    ]
    assert column(engine, "show timeseries root.turbine.d1.new", at=before) == []
    run(engine, f"create timeseries root.turbine.d1.s2(old) {FLOAT}")
    assert column(engine, "show timeseries", "alias") == ["new", "old"]


def test_the_same_again_is_no_conflict(engine):
    run(engine, f"create timeseries root.turbine.d1.s1(t1) {FLOAT}")
    run(engine, "alter timeseries root.turbine.d1.s1 upsert alias=t1 tags(unit=c)")
    assert column(engine, "show timeseries where unit=c", "alias") == ["t1"]
