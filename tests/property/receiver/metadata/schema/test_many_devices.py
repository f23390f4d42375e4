"""Devices that are made all at once are what they are one by one, whatever was there before."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.metadata.model.paths import parse_pattern, parse_stored
from receiver.metadata.model.records import LoadedDevice
from receiver.metadata.schema import Schema, changes, many_devices
from tests.support import tiers

_NAMES = ("a", "b", "c", "`x.y`", "d1", "d2")
_SERIES = (("s1",), ("s1", "s2"), ("s2", "s3", "a"))


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    monkeypatch.setattr(many_devices, "MANY_DEVICES", 2)
    monkeypatch.setattr(changes, "MANY_DEVICES", 2)


def _device(parts, series, aligned, last):
    count = len(series)
    codes = bytes([1 + len(parts)] * count), bytes(count), bytes([1] * count)
    lasts = (last,) * (count - 1) + (None if last == 3 else last,)
    return LoadedDevice(".".join(("root", "sg", *parts)), aligned, series, *codes, lasts)


_devices = st.builds(
    _device,
    st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3),
    st.sampled_from(_SERIES),
    st.booleans(),
    st.integers(1, 5),
)
_steps = st.lists(
    st.one_of(
        st.lists(_devices, min_size=1, max_size=12),
        st.sampled_from(["root.sg.a.**", "root.sg.**.s1", "root.**", "collect", "page"]),
    ),
    min_size=1,
    max_size=8,
)


def _allowed(schema, device):
    """Whether the rules would take it: no series above it or below, none of its own a node."""
    nodes = parse_stored(device.device)
    if any(schema.nodes.kind_at(nodes[:end]) == "leaf" for end in range(1, len(nodes) + 1)):
        return False
    return all(schema.nodes.kind_at((*nodes, each)) in (None, "leaf") for each in device.names)


def _take(schema, step, ts, *, at_once):
    if step == "collect":
        while schema.collector.collect(ts):
            pass
    elif step == "page":  # what is asked for in order is kept in order
        schema.tree.order.children(schema.tree.find(("root", "sg")))
    elif isinstance(step, str):
        schema.changes.delete_series(parse_pattern(step), ts)
    elif at_once:
        schema.changes.load_devices(step, ts)
    else:
        for each in step:
            schema.changes.load_devices([each], ts)


def _seen(schema, at):
    rows = schema.series.match(parse_pattern("root.**"), limit=10_000, at=at)
    tree = schema.tree
    nodes = {tree.nodes(row)[:end] for row in rows for end in range(1, 6)}
    return (
        [schema.series.describe(row, at)._replace(row=0) for row in rows],
        {each: schema.nodes.kind_at(each, at) for each in nodes},
        {each: schema.nodes.reach(each) for each in nodes} if at is None else None,
    )


def _is_linked(schema):
    """Whether each child knows the one before it."""
    tree = schema.tree
    for parent in range(len(tree)):
        if tree.kind[parent] & 7 in (1, 2):
            found = tree.children(parent)
            assert [tree.prev[row] for row in found] == [-1, *found[:-1]][: len(found)]
    return True


@settings(max_examples=tiers.examples(60))
@given(_steps)
def test_devices_made_all_at_once_are_what_they_are_one_by_one(steps):
    one, many = Schema(), Schema()
    for schema in (one, many):
        schema.changes.set_storage_group(("root", "sg"), 1)
        schema.tree.order._known.clear()
    for ts, step in enumerate(steps, 10):
        if isinstance(step, list):
            step = [each for each in step if _allowed(one, each)]
            made = Schema()  # within the step they must not contradict each other either
            made.changes.set_storage_group(("root", "sg"), 1)
            fit = []
            for each in step:
                if _allowed(made, each):
                    made.changes.load_devices([each], 2)
                    fit.append(each)
            step = fit
        _take(one, step, ts, at_once=False)
        _take(many, step, ts, at_once=True)
        assert _is_linked(many)
    newest = 10 + len(steps)
    for at in (None, *range(10, newest)):
        assert _seen(many, at) == _seen(one, at)
    totals = ("series_count", "device_count", "storage_group_count", "memory")
    assert [getattr(many.columns, each) for each in totals] == [
        getattr(one.columns, each) for each in totals
    ]
    again = Schema.thaw({name: memoryview(part) for name, part in many.freeze().sections()})
    assert _seen(again, None) == _seen(one, None)
    many.changes.delete_series(parse_pattern("root.**"), newest)
    assert many.columns.series_count == many.columns.device_count == 0
