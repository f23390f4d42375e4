"""A schema of tens of thousands of series, asked in pages."""

from __future__ import annotations

import random

import pytest

from receiver.metadata.model.paths import Nodes, Pattern, format_path, parse_pattern
from receiver.metadata.query import ordering, searching
from receiver.metadata.query import questions as ask
from receiver.metadata.schema import Schema
from receiver.metadata.schema.tree_columns.node_tree import KIND, LEAF
from tests.support.schema_asked import first, number, rows, tagged


@pytest.fixture(scope="module")
def large() -> Schema:
    """30,000 series: 200 devices of 100, 10,000 of one in one storage group; some of the past."""
    made = Schema()
    codes = bytes(100)
    names = [f"s{i}" for i in range(100)]
    made.changes.set_storage_group(("root", "wide"), 1)
    made.changes.set_storage_group(("root", "deep", "sg"), 1)
    for i in range(200):
        tags = [{"group": f"g{k % 3}"} for k in range(100)]
        device = ("root", "deep", "sg", f"area{i % 4}", f"d{i}")
        made.changes.create_series(device, names, codes, codes, codes, 10 + i, tags=tags)
    order = list(range(10_000))
    random.Random(3).shuffle(order)
    for i in order:
        made.changes.create_series(("root", "wide", f"d{i}"), ["s1"], b"\0", b"\0", b"\0", 500)
    made.changes.delete_series(parse_pattern("root.deep.sg.area1.**"), 1000)
    made.changes.delete_series(parse_pattern("root.wide.d1*.s1"), 1001)
    return made


def paths(
    made: Schema, pattern: Pattern = ask.ALL, at: int | None = None, page: int = 1000
) -> list[str]:
    return first(made, ask.ShowTimeseries(pattern=pattern), at, page)


@pytest.mark.few(6)
@pytest.mark.parametrize("at", [None, 999, 100])
@pytest.mark.parametrize(
    "pattern",
    [
        "root.**",
        "root.deep.**",
        "root.*.d5*.*",
        "root.**.s1",
        "root.**.d7.*",
        "root.deep.sg.*.*.s9",
    ],
)
def test_pages_give_everything_once_and_in_order(
    large: Schema, pattern: str, at: int | None
) -> None:
    meant = parse_pattern(pattern)
    expected = [format_path(nodes) for nodes in sorted(all_of(large, at)) if meant.matches(nodes)]
    assert paths(large, meant, at, 997) == expected
    assert number(large, ask.CountTimeseries(pattern=meant), at) == len(expected)


def all_of(made: Schema, at: int | None) -> list[Nodes]:
    tree = made.tree
    leaves = [row for row in range(len(tree)) if tree.kind[row] & KIND == LEAF]
    return [tree.nodes(row) for row in leaves if tree.is_visible(row, at)]


def test_counting_by_level_adds_up(large: Schema) -> None:
    by_level = ask.CountTimeseries(level=1)
    assert rows(large, by_level) == [("root.deep", 15_000), ("root.wide", 8889)]
    assert sum(count for _, count in rows(large, ask.CountTimeseries(level=3), 999)) == 30_000
    assert number(large, ask.CountDevices()) == 150 + 8889
    assert number(large, ask.CountDevices(), 999) == 10_200
    some = ask.ShowDevices(pattern=parse_pattern("root.wide.*"), limit=50)
    assert len(rows(large, some)) == 50


def test_a_walk_goes_on_behind_a_path_that_is_gone(large: Schema) -> None:
    def behind(path: Nodes, count: int) -> list[Nodes]:
        return [large.tree.nodes(row) for row in large.series.match(ask.ALL, None, path, count)]

    assert behind(("root", "deep", "sg", "area1", "d5", "s3"), 1)[0][3] == "area2"
    found = behind(("root", "deep", "sg", "area0", "d0", "s99"), 1)
    assert found == [("root", "deep", "sg", "area0", "d100", "s0")]
    assert behind(("root", "x"), 5) == []


@pytest.mark.parametrize("at_once", [10, 100_000])
def test_pages_of_tagged_series_are_the_same_sorted_or_walked(
    large: Schema, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "_SORTED", at_once)
    monkeypatch.setattr(searching, "_FEW", at_once)
    whole = tagged(large, "group", "g1")
    assert len(whole) == 150 * 33
    assert whole == sorted(whole)
    query = ask.ShowTimeseries(where=ask.TagFilter("group", "g1"), offset=101, limit=10)
    assert first(large, query, page=3) == whole[101:111]
    some = tagged(large, "group", "g1", parse_pattern("root.deep.sg.area2.**"), contains=True)
    assert some == [path for path in whole if ".area2." in path]


def test_the_children_of_a_large_node_stay_sorted_while_it_changes() -> None:
    made = Schema()
    made.changes.set_storage_group(("root", "sg"), 1)
    expected: set[str] = set()
    source = random.Random(9)
    for step in range(60):
        ts = 10 + step
        fresh = {f"d{source.randrange(5000)}" for _ in range(60)} - expected
        for name in sorted(fresh):
            made.changes.create_series(("root", "sg", name), ["s"], b"\0", b"\0", b"\0", ts)
        expected |= fresh
        for name in source.sample(sorted(expected), 20):
            made.changes.delete_series(parse_pattern(f"root.sg.{name}.s"), ts)
            expected.discard(name)
        while step % 3 == 0 and made.collector.collect(ts):
            pass
        found = [path.split(".")[2] for path in paths(made)]
        assert found == sorted(expected)


def test_the_hottest_are_found_among_many_that_are_equally_cold(large: Schema) -> None:
    made = Schema.thaw(dict(large.freeze().sections()))
    device = ("root", "wide", "d77")
    made.changes.load_series(device, ["s1"], b"\0", b"\0", b"\0", [9], 2000)
    hottest = first(made, ask.ShowTimeseries(by_heat=True, limit=3))
    assert hottest == ["root.wide.d77.s1", *paths(made)[:2]]
    assert first(made, ask.ShowTimeseries(by_heat=True, limit=2), 1999) == paths(made)[:2]


def test_paths_are_given_in_their_stored_form() -> None:
    made = Schema()
    made.changes.set_storage_group(("root", "a.b"), 1)
    made.changes.create_series(("root", "a.b", "1"), ["s 1", "s"], b"\0\0", b"\0\0", b"\0\0", 2)
    assert paths(made) == ["root.`a.b`.`1`.s", "root.`a.b`.`1`.`s 1`"]
    found = made.series.match(ask.ALL)
    assert [made.series.describe(row).path for row in found] == paths(made)
