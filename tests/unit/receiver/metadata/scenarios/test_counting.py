"""Counts of series, devices and nodes, with wildcards and by level."""

import pytest

from tests.support.asking import column, number, rows, run

PLAIN = "with datatype=INT32, encoding=PLAIN, compression=GZIP"


def make(engine, group, *paths):
    run(engine, f"set storage group to {group}")
    run(engine, *(f"create timeseries {group}.{path} {PLAIN}" for path in paths))


@pytest.fixture
def laptop(engine):
    make(engine, "root.laptop", "d1.s1", "d1.s2", "d2.s1", "d2.s2")
    return engine


def test_series_are_counted_by_pattern(laptop):
    expected = {
        "": 4,
        "root": 4,
        "root.**": 4,
        "root.laptop": 4,
        "root.laptop.**": 4,
        "root.laptop.*": 0,
        "root.laptop.*.*": 4,
        "root.laptop.*.s1": 2,
        "root.laptop.d1": 2,
        "root.laptop.d1.s1": 1,
        "root.laptop.d1.s3": 0,
        "root.**.s2": 2,
        "root.l*.d*.s1": 2,
        "root.*p.*1.*": 2,
        "root.other": 0,
        "root.lap": 0,
    }
    assert {each: number(laptop, f"count timeseries {each}") for each in expected} == expected


def test_series_are_counted_by_level(laptop):
    make(laptop, "root.vehicle", "s0", "d1.s1")

    def levels(pattern, level):
        found = rows(laptop, f"count timeseries {pattern} group by level={level}")
        return dict(tuple(row.values()) for row in found)

    assert levels("root", 0) == {"root": 6}
    assert levels("root", 1) == {"root.laptop": 4, "root.vehicle": 2}
    assert levels("root.laptop", 2) == {"root.laptop.d1": 2, "root.laptop.d2": 2}
    assert levels("root.**", 2) == {
        "root.laptop.d1": 2,
        "root.laptop.d2": 2,
        "root.vehicle.d1": 1,
        "root.vehicle.s0": 1,
    }
    assert levels("root.laptop.*.s1", 1) == {"root.laptop": 2}
    assert levels("root", 9) == {}


def test_nodes_are_counted_at_a_level(laptop):
    expected = {
        ("root.laptop.*", 2): 2,
        ("root.laptop.*.*", 3): 4,
        ("root.laptop.**", 2): 2,
        ("root.laptop.**", 3): 4,
        ("root.laptop.d1.*", 3): 2,
        ("root.laptop.d1.**", 4): 0,
        ("root", 1): 1,
    }
    found = {
        (path, level): number(laptop, f"count nodes {path} level={level}")
        for path, level in expected
    }
    assert found == expected


def test_devices_are_counted_where_series_hang(engine):
    make(engine, "root.laptop", "s1", "d1.s1", "d2.s1.t1", "d2.s2", "a.d1.s1")
    expected = {
        "root.laptop.d1": 1,
        "root.laptop.*": 2,
        "root.laptop.*.*": 2,
        "root.laptop.*.*.*": 0,
        "root.laptop.**": 4,
        "root.**": 5,
        "root.**.*": 4,
        "root.*.**": 4,
        "root.**.d1": 2,
        "root.laptop.*.d1": 1,
        "root.**.d*": 3,
        "root.laptop.**.s1": 1,
        "root.*.d2.*": 1,
    }
    assert {each: number(engine, f"count devices {each}") for each in expected} == expected
    assert column(engine, "show devices") == [
        "root.laptop",
        "root.laptop.a.d1",
        "root.laptop.d1",
        "root.laptop.d2",
        "root.laptop.d2.s1",
    ]


def test_a_device_below_another_is_one_of_its_own(engine):
    make(engine, "root.laptop", "d1.s1", "d1.s2.b")
    assert column(engine, "show devices root.**") == ["root.laptop.d1", "root.laptop.d1.s2"]
    assert number(engine, "count timeseries root.**") == 2
    assert number(engine, "count timeseries root.laptop.d1") == 2


def test_counts_follow_deletions_and_the_past_keeps_its_own(laptop):
    before = laptop.newest_commit
    run(laptop, "delete timeseries root.laptop.d1.*")
    assert number(laptop, "count timeseries") == 2
    assert number(laptop, "count devices") == 1
    assert number(laptop, f"count timeseries at {before}") == 4
    assert number(laptop, f"count devices at {before}") == 2
    assert rows(laptop, f"count timeseries root group by level=2 at {before}") == rows(
        laptop, "count timeseries root group by level=2", at=before
    )
