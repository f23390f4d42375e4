from __future__ import annotations

import random

import pytest

from receiver.metadata.model.paths import Nodes, parse_pattern
from receiver.metadata.schema import Schema

ALL = parse_pattern("root.**")


@pytest.fixture(scope="module")
def large() -> Schema:
    """30,000 series: 200 devices of 100, 10,000 of one in one storage group; some of the past."""
    made = Schema()
    codes = bytes(100)
    names = [f"s{i}" for i in range(100)]
    made.set_storage_group(("root", "wide"), 1)
    made.set_storage_group(("root", "deep", "sg"), 1)
    for i in range(200):
        tags = [{"group": f"g{k % 3}"} for k in range(100)]
        device = ("root", "deep", "sg", f"area{i % 4}", f"d{i}")
        made.create_series(device, names, codes, codes, codes, 10 + i, tags=tags)
    order = list(range(10_000))
    random.Random(3).shuffle(order)
    for i in order:
        made.create_series(("root", "wide", f"d{i}"), ["s1"], b"\0", b"\0", b"\0", 500)
    made.delete_series(parse_pattern("root.deep.sg.area1.**"), 1000)
    made.delete_series(parse_pattern("root.wide.d1*.s1"), 1001)
    return made


def nodes(made: Schema, rows: list[int]) -> list[Nodes]:
    return [made.nodes_of(row) for row in rows]


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
    whole = nodes(large, large.match_series(meant, at))
    assert whole == sorted(whole)
    pages: list[Nodes] = []
    after = None
    while page := large.match_series(meant, at, after, 997):
        pages += nodes(large, page)
        after = pages[-1]
    assert pages == whole
    assert large.count_series(meant, at) == len(whole)
    assert sorted(large.select(meant, at)) == sorted(large.match_series(meant, at))


def test_counting_by_level_adds_up(large: Schema) -> None:
    groups = large.count_by_level(ALL, 1)
    assert [(path[-1], count) for path, count in groups] == [("deep", 15_000), ("wide", 8889)]
    assert sum(count for _, count in large.count_by_level(ALL, 3, 999)) == 30_000
    assert large.count_devices(ALL) == 150 + 8889
    assert large.count_devices(ALL, 999) == 10_200
    assert len(large.match_devices(parse_pattern("root.wide.*"), None, None, 50)) == 50


def test_a_cursor_goes_on_behind_a_path_that_is_gone(large: Schema) -> None:
    page = large.match_series(ALL, None, ("root", "deep", "sg", "area1", "d5", "s3"), 1)
    assert nodes(large, page)[0][3] == "area2"
    page = large.match_series(ALL, None, ("root", "deep", "sg", "area0", "d0", "s99"), 1)
    assert nodes(large, page) == [("root", "deep", "sg", "area0", "d100", "s0")]
    assert large.match_series(ALL, None, ("root", "x"), 5) == []


@pytest.mark.parametrize("at_once", [10, 100_000])
def test_pages_of_tagged_series_are_the_same_sorted_or_walked(
    large: Schema, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.metadata.schema.listing._SORTED_AT_ONCE", at_once)
    whole = nodes(large, large.find_tagged("group", "g1"))
    assert len(whole) == 150 * 33
    assert whole == sorted(whole)
    page = large.find_tagged("group", "g1", after=whole[100], limit=10)
    assert nodes(large, page) == whole[101:111]
    some = large.find_tagged("group", "g1", parse_pattern("root.deep.sg.area2.**"), contains=True)
    assert nodes(large, some) == [path for path in whole if path[3] == "area2"]


def test_the_children_of_a_large_node_stay_sorted_while_it_changes() -> None:
    made = Schema()
    made.set_storage_group(("root", "sg"), 1)
    expected: set[str] = set()
    source = random.Random(9)
    for step in range(60):
        ts = 10 + step
        fresh = {f"d{source.randrange(5000)}" for _ in range(60)} - expected
        for name in sorted(fresh):
            made.create_series(("root", "sg", name), ["s"], b"\0", b"\0", b"\0", ts)
        expected |= fresh
        for name in source.sample(sorted(expected), 20):
            made.delete_series(parse_pattern(f"root.sg.{name}.s"), ts)
            expected.discard(name)
        while step % 3 == 0 and made.collect(ts):
            pass
        found = [path[2] for path in nodes(made, made.match_series(ALL))]
        assert found == sorted(expected)


def test_the_hottest_are_found_among_many_that_are_equally_cold(large: Schema) -> None:
    made = Schema.thaw(dict(large.freeze().sections()))
    device = ("root", "wide", "d77")
    made.load_series(device, ["s1"], b"\0", b"\0", b"\0", [9], 2000)
    rows = made.by_heat(made.select(ALL), None, 3)
    assert nodes(made, rows)[0] == (*device, "s1")
    assert nodes(made, rows)[1:] == nodes(made, made.match_series(ALL, None, None, 2))
    rows = made.by_heat(made.select(ALL, 1999), 1999, 2)
    assert nodes(made, rows) == nodes(made, made.match_series(ALL, None, None, 2))


def test_paths_are_given_in_their_stored_form() -> None:
    made = Schema()
    made.set_storage_group(("root", "a.b"), 1)
    made.create_series(("root", "a.b", "1"), ["s 1", "s"], b"\0\0", b"\0\0", b"\0\0", 2)
    rows = made.match_series(ALL)
    assert made.paths_of(rows) == ["root.`a.b`.`1`.s", "root.`a.b`.`1`.`s 1`"]
    assert [row.path for row in made.series_rows(rows)] == made.paths_of(rows)
