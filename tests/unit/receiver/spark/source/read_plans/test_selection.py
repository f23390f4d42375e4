"""What is taken over from Spark is decided as Spark does it, NULL included; the rest is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from receiver.spark.source.read_plans.selection import Condition, Selection, TimeRange

CONSTANT = {"device": "device", "value_long": "value_long"}


@dataclass(frozen=True)
class _Unary:
    attribute: tuple[str, ...]


@dataclass(frozen=True)
class _Binary:
    attribute: tuple[str, ...]
    value: Any


@dataclass(frozen=True)
class Not:
    child: Any


def made(kind: str, column: str, *value: Any) -> Any:
    base = _Binary if value else _Unary
    return type(kind, (base,), {})((column,), *value)


def push(*filters: Any) -> tuple[Selection, list[Any]]:
    return Selection().pushed(filters, time="time", constant=CONSTANT)


@pytest.mark.parametrize(
    ("kind", "value", "span"),
    [
        ("EqualTo", 5, TimeRange(5, 5)),
        ("EqualNullSafe", 5, TimeRange(5, 5)),
        ("GreaterThan", 5, TimeRange(6)),
        ("GreaterThanOrEqual", 5, TimeRange(5)),
        ("LessThan", 5, TimeRange(end=4)),
        ("LessThanOrEqual", 5, TimeRange(end=5)),
    ],
)
def test_a_range_of_times_is_taken_over_whole(kind: str, value: int, span: TimeRange):
    assert push(made(kind, "TIME", value)) == (Selection(span), [])


def test_all_filters_hold_together():
    selection, left = push(made("GreaterThan", "time", 5), made("LessThan", "time", 9))
    assert (selection.span, left) == (TimeRange(6, 8), [])
    assert push(made("LessThan", "time", -(1 << 63)))[0].span.is_empty


def test_single_times_narrow_the_range_and_stay_with_spark():
    wanted = made("In", "time", (9, None, 3))
    assert push(wanted) == (Selection(TimeRange(3, 9)), [wanted])
    assert push(made("In", "time", (None,)))[0].span.is_empty


def test_what_is_not_understood_stays_with_spark():
    strange = [
        made("EqualTo", "temp", 5),
        made("EqualTo", "time", True),
        made("EqualTo", "time", None),
        made("EqualTo", "value_long", 5),
        made("EqualTo", "device", 5),
        made("Like", "device", "x"),
        Not(made("GreaterThan", "time", 5)),
        made("IsNull", "time"),
    ]
    assert push(*strange) == (Selection(), strange)


def test_where_the_value_stands_is_decided_what_it_is_not():
    selection, left = push(made("IsNotNull", "value_long"))
    assert left == []
    assert selection.takes({"value_long": "value"})
    assert not selection.takes({"value_long": None})


# Each condition with what SQL answers for an equal, another and a NULL value.
@pytest.mark.parametrize(
    ("kind", "value", "same", "other", "null"),
    [
        ("EqualTo", "b", True, False, None),
        ("EqualNullSafe", "b", True, False, False),
        ("GreaterThan", "a", True, False, None),
        ("GreaterThanOrEqual", "b", True, False, None),
        ("LessThan", "c", True, None, None),
        ("LessThanOrEqual", "b", True, None, None),
        ("In", ("b", "z"), True, False, None),
        ("In", ("b", None), True, None, None),
        ("StringStartsWith", "b", True, False, None),
        ("StringEndsWith", "b", True, False, None),
        ("StringContains", "b", True, False, None),
        ("IsNull", None, False, False, True),
        ("IsNotNull", None, True, True, False),
        ("EqualTo", None, None, None, None),
    ],
)
def test_conditions_and_their_negations_answer_as_sql_does(
    kind: str, value: Any, same: bool | None, other: bool | None, null: bool | None
):
    other_value = "a"
    for actual, answer in (("b", same), (other_value, other), (None, null)):
        if answer is None and kind.startswith("Less") and actual == other_value:
            continue  # "a" lies below both
        assert Condition("device", kind, value).holds(actual) is (answer is True)
        assert Condition("device", kind, value, negated=True).holds(actual) is (answer is False)


def test_a_negated_condition_is_taken_over():
    selection, left = push(Not(made("EqualTo", "device", "root.a.d1")))
    assert left == []
    assert not selection.takes({"device": "root.a.d1"})
    assert selection.takes({"device": "root.a.d2"})
    assert selection.takes({"measurement": "s1"})


def test_texts_are_ordered_by_their_bytes_as_spark_orders_them():
    # U+FF61 sorts behind U+10000 by UTF-16 units and before it by bytes.
    assert Condition("device", "LessThan", "\U00010000").holds("\uff61")


def test_a_span_meets_what_it_shares_a_time_with():
    span = TimeRange(5, 8)
    assert span.meets(8, 20)
    assert span.meets(1, 5)
    assert not span.meets(9, 20)
    assert not span.meets(None, None)
    assert not TimeRange(8, 5).meets(1, 20)
    assert span.cut(None, 6) == TimeRange(5, 6)


def test_a_value_of_an_option_may_be_null():
    wanted = Condition("tag:line", "OneOf", ("1", None))
    assert [wanted.holds(each) for each in ("1", None, "2")] == [True, True, False]
