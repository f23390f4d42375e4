"""Names in the order in which their series were made are found at once, and no differently."""

from __future__ import annotations

import random

import numpy as np
import pytest

from receiver.metadata.model.paths import Nodes, parse_pattern
from receiver.metadata.schema import Schema
from receiver.metadata.schema.looked_up.pattern_walk import path_order, sort_keys

D1 = ("root", "sg", "d1")
SIZES = [2, 10, 40]


def made(count: int, ts: int = 20) -> Schema:
    schema = Schema()
    schema.changes.set_storage_group(("root", "sg"), 10)
    create(schema, D1, [f"s{i}" for i in range(count)], ts)
    return schema


def create(schema: Schema, device: Nodes, names: list[str], ts: int) -> None:
    codes = b"\3" * len(names)
    schema.changes.create_series(device, names, codes, codes, codes, ts)


def load(schema: Schema, names: list[str], lasts: list[int | None], ts: int) -> int:
    codes = b"\3" * len(names)
    return schema.changes.load_series(D1, names, codes, codes, codes, lasts, ts)


@pytest.mark.parametrize("count", SIZES)
def test_series_side_by_side_are_found_as_a_block(count: int) -> None:
    schema, names = made(count), [f"s{i}" for i in range(count)]
    rows = schema.devices.rows(D1, names)
    assert isinstance(rows, range)
    assert list(rows) == [schema.series.find((*D1, name)) for name in names]
    assert schema.devices.missing(D1, names) == []
    assert list(schema.devices.taken(D1, names)) == list(range(count))


@pytest.mark.parametrize("count", SIZES)
def test_other_orders_and_parts_give_the_same_rows(count: int) -> None:
    schema, names = made(count), [f"s{i}" for i in range(count)]
    for asked in (names[::-1], names[1:], [*names, "new"], ["new", *names], [names[0], "new"]):
        expected = [schema.series.find((*D1, name)) for name in asked]
        assert list(schema.devices.rows(D1, asked)) == expected


@pytest.mark.parametrize("count", SIZES)
def test_a_block_with_a_deleted_series_is_none(count: int) -> None:
    schema, names = made(count), [f"s{i}" for i in range(count)]
    schema.changes.delete_series(parse_pattern("root.sg.d1.s1"), 30)
    assert list(schema.devices.missing(D1, names)) == [1]
    create(schema, D1, ["s1"], 40)
    rows = schema.devices.rows(D1, names)
    assert list(rows) == [schema.series.find((*D1, name)) for name in names]
    assert not isinstance(rows, range)


@pytest.mark.parametrize("count", SIZES)
def test_a_block_that_goes_on_in_another_device_is_none(count: int) -> None:
    schema = made(count)
    create(schema, ("root", "sg", "d2"), ["t1", "t2"], 30)
    names = [*[f"s{i}" for i in range(count)], "d2", "t1"]
    assert list(schema.devices.missing(D1, names)) == [count, count + 1]


@pytest.mark.parametrize("count", SIZES)
def test_types_are_compared_one_by_one_where_one_differs(count: int) -> None:
    schema, names = made(count), [f"s{i}" for i in range(count)]
    assert [list(each) for each in schema.devices.compare(D1, names, b"\3" * count)] == [[], []]
    other = b"\3" + b"\5" + b"\3" * (count - 2)
    assert [list(each) for each in schema.devices.compare(D1, names, other)] == [[], [1]]


@pytest.mark.parametrize("count", SIZES)
def test_an_alias_or_node_between_series_differs(count: int) -> None:
    schema = made(count)
    schema.changes.set_alias((*D1, "s0"), "other", 30)
    create(schema, (*D1, "below"), ["s"], 40)
    names = [f"s{i}" for i in range(count)] + ["other", "below"]
    found = schema.devices.compare(D1, names, b"\3" * len(names))
    assert [list(each) for each in found] == [[], [count, count + 1]]


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_heat_does_not_depend_on_the_order_of_names(count: int, seed: int) -> None:
    """Whole devices, parts, older times and no points: a shuffled load says the same."""
    source = random.Random(seed)
    one, other = made(count), made(count)
    names = [f"s{i}" for i in range(count)]
    stamps = [30]
    for ts in range(40, 140, 10):
        base = source.randrange(50)
        kind = source.randrange(4)
        lasts: list[int | None] = [base] * count
        if kind == 1:
            lasts = [base + source.randrange(20) for _ in names]
        elif kind == 2:
            lasts[source.randrange(count)] = None
        elif kind == 3:
            create(one, D1, [f"new{ts}"], ts)
            create(other, D1, [f"new{ts}"], ts)
            names, lasts = [*names, f"new{ts}"], [*lasts, base]
            count += 1
        load(one, names, lasts, ts)
        order = source.sample(range(count), count)
        load(other, [names[i] for i in order], [lasts[i] for i in order], ts)
        stamps.append(ts)
    for at in [None, *stamps]:
        for name in names:
            row = one.series.find((*D1, name), at)
            if row >= 0:
                there = other.series.find((*D1, name), at)
                assert one.series.heat(row, at) == other.series.heat(there, at), (name, at)


def test_an_older_file_changes_no_heat_and_costs_no_history() -> None:
    schema, names = made(10), [f"s{i}" for i in range(10)]
    load(schema, names, [50] * 10, 30)
    before = len(schema.columns.heats.ts)
    load(schema, names, [40] * 10, 40)
    assert len(schema.columns.heats.ts) == before
    assert schema.series.heat(schema.series.find((*D1, "s3"))) == 50
    assert schema.series.heat(schema.series.find((*D1, "s3"), 25), 25) is None


def test_series_that_this_commit_made_have_no_heat_before_it_to_remember() -> None:
    schema, names = made(10, ts=20), [f"s{i}" for i in range(10)]
    for last in (50, 60):
        load(schema, names, [last] * 10, 20)
    assert not schema.columns.heats.ts
    assert schema.series.heat(schema.series.find((*D1, "s3"))) == 60


@pytest.mark.parametrize("uniform", [True, False])
def test_the_order_by_ranks_is_that_of_the_paths(uniform: bool) -> None:
    source = random.Random(7)
    schema = Schema()
    schema.changes.set_storage_group(("root", "sg"), 10)
    letters = ["a", "a b", "a\0b", "ab", "b", "ä", "Z", "1", "a.b"]
    devices = {
        ("root", "sg", *source.choices(letters, k=3 if uniform else source.randrange(1, 4)), "d")
        for _ in range(60)
    }
    for ts, device in enumerate(sorted(devices, key=lambda _: source.random()), 20):
        create(schema, device, source.sample(letters, 4), ts)
    rows = np.array(schema.series.match(parse_pattern("root.**")))
    source.shuffle(rows)
    found = rows[path_order(schema.tree, rows)].tolist()
    assert [schema.tree.nodes(row) for row in found] == sorted(
        map(schema.tree.nodes, rows.tolist())
    )
    keys = sort_keys(schema.tree, found)
    assert keys == sorted(keys)
    assert schema.series.describe_many(found) == [schema.series.describe(row) for row in found]
