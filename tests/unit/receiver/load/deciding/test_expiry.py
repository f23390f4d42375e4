"""Wholly past the TTL, and only then."""

from __future__ import annotations

import pytest

from receiver.load.deciding.expiry import Expiry
from receiver.metadata.model.paths import parse_path
from receiver.metadata.schema import Schema

NOW = 1_700_000_000.0
HOUR = 3_600_000
NOW_MS = int(NOW * 1000)


def expiry(unit: str = "ms", **ttls: int | None) -> Expiry:
    schema = Schema()
    for ts, (name, ttl) in enumerate(ttls.items(), 1):
        nodes = parse_path(f"root.{name}") if name != "plant" else ("root", "/plant")
        schema.changes.set_storage_group(nodes, ts)
        schema.changes.set_ttl(nodes, ttl, ts + 100)
    return Expiry(schema, NOW, unit)


def test_a_file_is_past_when_its_newest_point_is() -> None:
    found = expiry(sg=HOUR)
    limit = NOW_MS - HOUR
    assert found.is_past([("root.sg.d1", 0, limit - 1)])
    assert not found.is_past([("root.sg.d1", 0, limit)])
    assert not found.is_past([("root.sg.d1", 0, limit - 1), ("root.sg.d2", 0, limit)])


def test_each_device_goes_by_the_storage_group_that_it_is_in() -> None:
    found = expiry(short=HOUR, long=10 * HOUR, ever=None)
    five = NOW_MS - 5 * HOUR
    assert found.is_past([("root.short.d1", 0, five)])
    assert not found.is_past([("root.long.d1", 0, five)])
    assert not found.is_past([("root.short.d1", 0, five), ("root.long.d1", 0, five)])
    assert not found.is_past([("root.short.d1", 0, five), ("root.ever.d1", 0, five)])
    assert not found.is_past([("root.short.d1", 0, five), ("root.elsewhere.d1", 0, five)])


def test_a_file_without_points_is_never_past() -> None:
    assert not expiry(sg=HOUR).is_past([])
    assert not expiry(sg=HOUR).is_past_word("root.sg", ["root.sg.d1"], None)


def test_nothing_is_past_without_a_ttl() -> None:
    found = expiry(sg=None)
    assert found.newest is None
    assert not found.is_past([("root.sg.d1", 0, 1)])


@pytest.mark.parametrize(("unit", "factor"), [("ms", 1), ("us", 1000), ("ns", 1_000_000)])
def test_times_are_in_the_unit_of_the_data(unit: str, factor: int) -> None:
    found = expiry(unit, sg=HOUR)
    limit = (NOW_MS - HOUR) * factor
    assert found.is_past([("root.sg.d1", 0, limit - 1)])
    assert not found.is_past([("root.sg.d1", 0, limit)])


def test_a_table_device_goes_by_its_database() -> None:
    found = expiry(plant=HOUR)
    assert found.is_past([("/plant/sensors:west", 0, 1)])
    assert not found.is_past([("/other/sensors:west", 0, 1)])


def test_a_plan_is_past_only_where_there_is_no_doubt() -> None:
    found = expiry(short=HOUR, long=10 * HOUR)
    five = NOW_MS - 5 * HOUR
    assert found.is_past_word("root.short", ["root.short.d1"], five)
    assert found.is_past_word("root.short", [], five)
    assert not found.is_past_word("root.short", ["root.short.d1", "root.long.d1"], five)
    assert not found.is_past_word("root.elsewhere", [], five)
    assert found.is_past_word("root.short", ["root.short.d1", "root.long.d1"], five - 6 * HOUR)


def test_a_device_with_a_broken_name_keeps_its_file() -> None:
    assert not expiry(sg=HOUR).is_past([("/broken", 0, 1)])
