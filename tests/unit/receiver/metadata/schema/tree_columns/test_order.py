"""Children in order, asked for by a reader and by who checks a commit at the same time."""

import threading

import pytest

from receiver.metadata.model.paths import parse_pattern
from receiver.metadata.schema import Schema
from receiver.metadata.schema.tree_columns.order import Order

ALL = parse_pattern("root.**")


def schema_of(count, later):
    """A storage group whose devices are in order, but for those that came later."""
    schema = Schema()
    schema.changes.set_storage_group(("root", "sg"), 1)
    for number in range(count):
        make(schema, number)
    schema.series.match(ALL)
    for number in range(count, count + later):
        make(schema, number)
    return schema


def make(schema, number):
    schema.changes.create_series(
        ("root", "sg", f"d{number:04}"), ("s",), b"\3", b"\x08", b"\1", 2 + number
    )


def paths(schema, rows):
    return [schema.tree.nodes(row)[2] for row in rows]


@pytest.mark.parametrize("later", [1, 20, 290])
def test_two_who_ask_at_once_both_see_every_child_once(monkeypatch, later):
    """One is stopped each time in the middle of putting new children in, the other asks then."""
    schema = schema_of(300, later)
    expected = [f"d{number:04}" for number in range(300 + later)]
    key, order = Order._key, type(schema.tree.names).order
    others, found = [], []

    def ask():
        found.append(paths(schema, schema.series.match(ALL)))

    def interrupted():
        if threading.current_thread() is threading.main_thread() and len(others) < 3:
            others.append(threading.Thread(target=ask))
            others[-1].start()
            others[-1].join(0.2)  # it may have to wait for us

    def slow_key(self, row):
        interrupted()
        return key(self, row)

    def slow_order(self, numbers):
        interrupted()
        return order(self, numbers)

    monkeypatch.setattr(Order, "_key", slow_key)
    monkeypatch.setattr(type(schema.tree.names), "order", slow_order)
    ask()
    for other in others:
        other.join(60)
    ask()
    assert len(found) == len(others) + 2 > 2
    assert all(each == expected for each in found)


def test_who_walks_is_not_disturbed_by_one_who_asks_after_a_new_child():
    schema = schema_of(300, 0)
    walk = schema.series.walk(ALL)
    seen = [next(walk) for _ in range(100)]
    known = schema.tree.find(("root", "sg"))
    before = schema.tree.order.children(known)
    listed = list(before)
    make(schema, 9999)
    schema.changes.create_series(("root", "sg", "a"), ("s",), b"\3", b"\x08", b"\1", 10_000)
    schema.series.match(ALL)
    assert list(before) == listed
    assert paths(schema, [*seen, *walk]) == [f"d{number:04}" for number in range(300)]
