"""Known devices that get warmer all at once are what they are one by one."""

from __future__ import annotations

import random

import pytest

from receiver.metadata.model.paths import parse_pattern
from receiver.metadata.model.records import LoadedDevice
from receiver.metadata.schema import Schema, changes, many_devices
from receiver.metadata.schema.tree_columns import name_table
from receiver.metadata.schema.tree_columns.heat import COLD

_SHAPES = (("s1",), ("s1", "s2"), ("s1", "s2"), ("s1", "s3"), ("s1", "s2", "s3"), ("s2", "s1"))


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_devices, "MANY_DEVICES", 2)
    monkeypatch.setattr(changes, "MANY_DEVICES", 2)


def _load(source: random.Random, ts: int) -> list[LoadedDevice]:
    shape, last = source.choice(_SHAPES), source.randrange(ts, ts + 4)
    found = []
    for _ in range(source.randrange(2, 7)):
        if not source.randrange(3):
            last = source.randrange(ts, ts + 4)
        if not source.randrange(4):
            shape = source.choice(_SHAPES)
        lasts: list[int | None] = [last] * len(shape)
        if not source.randrange(5):
            lasts[source.randrange(len(shape))] = source.choice((None, 1, ts + 9))
        device = source.choice(("root.sg.d1", "root.sg.d2", "root.sg.a.d3", "root.sg.a"))
        codes = bytes([1] * len(shape))
        found.append(LoadedDevice(device, False, shape, codes, codes, codes, tuple(lasts)))
    return found


def _seen(schema: Schema, at: int | None) -> list[object]:
    rows = schema.series.match(parse_pattern("root.**"), limit=1000, at=at)
    return [schema.series.describe(row, at)._replace(row=0) for row in rows]


@pytest.mark.parametrize("seed", range(60))
def test_what_known_devices_have_at_each_time_does_not_hang_on_how_many_there_are(
    seed: int,
) -> None:
    source = random.Random(seed)
    one, many = Schema(), Schema()
    for schema in (one, many):
        schema.changes.set_storage_group(("root", "sg"), 1)
    for ts in range(10, 16):
        gone = source.choice(("root.sg.d1.s1", "root.sg.**.s2")) if not source.randrange(3) else ""
        if gone:
            for schema in (one, many):
                schema.changes.delete_series(parse_pattern(gone), ts)
        for _ in range(source.choice((1, 1, 2, 3))):  # files of one commit
            step = _load(source, ts)
            many.changes.load_devices(step, ts)
            for each in step:
                one.changes.load_devices([each], ts)
    for at in (None, *range(10, 16)):
        assert _seen(many, at) == _seen(one, at)
    assert many.columns.memory == one.columns.memory


@pytest.mark.parametrize("seed", range(20))
def test_what_was_collected_before_does_not_matter(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and names that are free are taken again, by one way and by the other."""
    monkeypatch.setattr(name_table, "_MANY", 1)
    monkeypatch.setattr(name_table, "_CACHED", 2)
    source = random.Random(seed)
    one, many = Schema(), Schema()
    for schema in (one, many):
        schema.changes.set_storage_group(("root", "sg"), 1)
    for ts in range(10, 30):
        gone = source.choice(("root.sg.d1.s1", "root.sg.**.s2", "root.sg.a.**", "root.sg.d2.**"))
        step = _load(source, ts)
        for schema in (one, many):
            schema.changes.delete_series(parse_pattern(gone), ts)
            schema.collector.collect(ts, 1000)
            schema.collector.release_names()
        many.changes.load_devices(step, ts + 1)
        for each in step:
            one.changes.load_devices([each], ts + 1)
        assert _seen(many, None) == _seen(one, None)
        assert many.columns.memory == one.columns.memory


def test_a_series_that_is_older_than_the_commit_keeps_its_past_beside_one_that_is_not() -> None:
    schema = Schema()
    schema.changes.set_storage_group(("root", "sg"), 1)

    def load(devices: tuple[str, ...], names: tuple[str, ...], last: int | None, ts: int) -> None:
        codes, lasts = bytes([1] * len(names)), (last,) * len(names)
        parts = [LoadedDevice(each, False, names, codes, codes, codes, lasts) for each in devices]
        schema.changes.load_devices(parts, ts)

    other, ours = "root.sg.d1", "root.sg.d2"
    load((other,), ("s1", "s2"), None, 9)
    load((ours,), ("s1",), None, 10)
    load((ours,), ("s2",), None, 11)
    load((other, ours), ("s1", "s2"), 5, 11)
    row = schema.series.find(("root", "sg", "d2", "s1"), at=10)
    assert row is not None
    assert schema.columns.heats.get(row, 10) == COLD
    assert schema.columns.heats.get(row, 11) == 5
