"""What a query wants: a range of times, and conditions on device, measurement, type and tags.

Spark's filters come as objects of ``pyspark.sql.datasource``; they are known by the names of their
classes, so that this module needs no Spark. A device, a measurement and a tag do not change within
a series: a condition on them is decided once, exactly, and Spark need not look again. So is a range
of times. All other filters are Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

__all__ = ["MAX_TIME", "MIN_TIME", "Condition", "Selection", "TimeRange"]

MIN_TIME: Final = -(1 << 63)
MAX_TIME: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Times from `start` to `end`, both included; empty where `start` is after `end`."""

    start: int = MIN_TIME
    end: int = MAX_TIME

    def cut(self, start: int | None, end: int | None) -> TimeRange:
        """What of it lies within other bounds; None is no bound."""
        return TimeRange(
            self.start if start is None else max(self.start, start),
            self.end if end is None else min(self.end, end),
        )

    @property
    def is_empty(self) -> bool:
        """Whether no time lies in it."""
        return self.start > self.end

    @property
    def is_all(self) -> bool:
        """Whether every time lies in it."""
        return self.start <= MIN_TIME and self.end >= MAX_TIME

    def meets(self, first: int | None, last: int | None) -> bool:
        """Whether points from `first` to `last` may lie in it; None, None: there are no points."""
        if first is None or last is None:
            return False
        return first <= self.end and last >= self.start and not self.is_empty


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter on a column whose value is the same for a whole series.

    Attributes:
        column: that it is about.
        operator: the name of the filter's class.
        value: that is compared with; None for the unary ones.
        negated: whether it must be false. SQL knows a third answer: a comparison with NULL is
            neither true nor false, so neither it nor its negation lets a row pass.
    """

    column: str
    operator: str
    value: Any = None
    negated: bool = False

    def holds(self, actual: str | None) -> bool:
        """Whether rows pass whose column has this value; None is NULL."""
        answer = _TESTS[self.operator](actual, self.value)
        return answer is not None and answer is not self.negated


@dataclass(frozen=True, slots=True)
class Selection:
    """What of the points is wanted.

    Attributes:
        span: times.
        conditions: all of which must hold.
    """

    span: TimeRange = field(default_factory=TimeRange)
    conditions: tuple[Condition, ...] = ()

    def takes(self, values: Mapping[str, str | None]) -> bool:
        """Whether rows pass that have these values, as far as conditions are about them."""
        return all(
            each.holds(values[each.column]) for each in self.conditions if each.column in values
        )

    def pushed(
        self, filters: Iterable[Any], *, time: str, constant: Mapping[str, str]
    ) -> tuple[Selection, list[Any]]:
        """Take over the filters that can be decided here.

        Args:
            filters: of pyspark, all of which must be true.
            time: name of the time column.
            constant: columns that do not change within a series, by their names in lower case.

        Returns:
            the narrower selection, and the filters that Spark has to apply still.
        """
        span, conditions, left = self.span, list(self.conditions), []
        for each in filters:
            if (narrowed := _narrowed(span, each, time)) is not None:
                span, exact = narrowed
                if not exact:
                    left.append(each)
            elif (condition := _condition(each, constant)) is not None:
                conditions.append(condition)
            else:
                left.append(each)
        return replace(self, span=span, conditions=tuple(conditions)), left


# -- times ---------------------------------------------------------------------------------------


def _column(filter_: Any) -> str | None:
    path = getattr(filter_, "attribute", None)
    return path[0] if isinstance(path, tuple) and len(path) == 1 else None


def _narrowed(span: TimeRange, filter_: Any, time: str) -> tuple[TimeRange, bool] | None:
    """The span with a filter on the time applied, and whether that says all of the filter."""
    column = _column(filter_)
    if column is None or column.lower() != time.lower():
        return None
    kind = type(filter_).__name__
    value: Any = getattr(filter_, "value", None)
    if kind == "IsNotNull":
        return span, True  # a point has a time
    if kind == "In":
        known = [each for each in value if _is_integer(each)]
        if len(known) != len([each for each in value if each is not None]):
            return None
        return (span.cut(min(known), max(known)), False) if known else (_EMPTY, True)
    if not _is_integer(value):
        return None
    bounds = _BOUNDS.get(kind)
    return None if bounds is None else (span.cut(*bounds(value)), True)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_EMPTY: Final = TimeRange(1, 0)
_BOUNDS: Final[Mapping[str, Callable[[int], tuple[int | None, int | None]]]] = {
    "EqualTo": lambda value: (value, value),
    "EqualNullSafe": lambda value: (value, value),
    "GreaterThan": lambda value: (value + 1, None),
    "GreaterThanOrEqual": lambda value: (value, None),
    "LessThan": lambda value: (None, value - 1),
    "LessThanOrEqual": lambda value: (None, value),
}


# -- what is constant in a series ----------------------------------------------------------------


def _condition(filter_: Any, constant: Mapping[str, str]) -> Condition | None:
    negated = type(filter_).__name__ == "Not"
    inner = filter_.child if negated else filter_
    column, kind = _column(inner), type(inner).__name__
    name = None if column is None else constant.get(column.lower())
    if name is None or kind not in _TESTS:
        return None
    if name.startswith("value_") and kind not in ("IsNull", "IsNotNull"):
        return None  # what the value is differs from row to row, where it stands does not
    value: Any = getattr(inner, "value", None)
    texts = value if kind == "In" else () if value is None else (value,)
    if not all(each is None or isinstance(each, str) for each in texts):
        return None
    return Condition(name, kind, tuple(value) if kind == "In" else value, negated)


def _compared(test: Any) -> Any:
    """A comparison that has no answer where one of both is NULL."""
    return lambda actual, value: (
        None if actual is None or value is None else bool(test(actual, value))
    )


def _in(actual: str | None, values: tuple[str | None, ...]) -> bool | None:
    if actual is None:
        return None
    if actual in values:
        return True
    return None if None in values else False


def _as_bytes(text: str) -> bytes:
    # Spark orders texts by their UTF-8 bytes.
    return text.encode("utf-8", "surrogatepass")


_TESTS: Final[Mapping[str, Any]] = {
    "EqualTo": _compared(lambda actual, value: actual == value),
    "EqualNullSafe": lambda actual, value: actual == value,
    "GreaterThan": _compared(lambda actual, value: _as_bytes(actual) > _as_bytes(value)),
    "GreaterThanOrEqual": _compared(lambda actual, value: _as_bytes(actual) >= _as_bytes(value)),
    "LessThan": _compared(lambda actual, value: _as_bytes(actual) < _as_bytes(value)),
    "LessThanOrEqual": _compared(lambda actual, value: _as_bytes(actual) <= _as_bytes(value)),
    "In": _in,
    "OneOf": lambda actual, values: actual in values,  # an option's, where NULL is a value
    "IsNull": lambda actual, _: actual is None,
    "IsNotNull": lambda actual, _: actual is not None,
    "StringStartsWith": _compared(lambda actual, value: actual.startswith(value)),
    "StringEndsWith": _compared(lambda actual, value: actual.endswith(value)),
    "StringContains": _compared(lambda actual, value: value in actual),
}
