"""How times, numbers and sizes are written on the page."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape

from common.config.shared_rules import PER_MILLISECOND
from common.console.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["ago", "data_time", "day", "number", "plural", "stamp", "visible", "when"]

_NONE: Final = "–"  # noqa: RUF001
_STEPS: Final = ((60, "s", 1), (3600, "min", 60), (2 * 86400, "h", 3600))
_DAY: Final = 86400


def visible(value: Any) -> Any:
    """A value as it may stand on a page: nothing in a name moves the text, and None is a dash."""
    if value is None:
        return _NONE
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value


def number(value: float | None) -> str:
    """A whole number with its thousands apart."""
    return _NONE if value is None else f"{value:,.0f}".replace(",", "\u202f")


def plural(count: int, one: str, several: str = "") -> str:
    """`1 file`, `2 files`."""
    return f"{number(count)} {one if count == 1 else several or one + 's'}"


def stamp(seconds: float | None) -> str:
    """A moment as `2026-01-31 08:00:00Z`."""
    moment = _utc(seconds)
    return _NONE if moment is None else moment.strftime("%Y-%m-%d %H:%M:%SZ")


def day(seconds: float | None) -> Markup | str:
    """A day as an element that machines read too: `2026-01-31`."""
    moment = _utc(seconds)
    if moment is None:
        return _NONE
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), stamp(seconds)[:10])


def when(seconds: float | None) -> Markup | str:
    """A moment as an element that machines read too."""
    moment = _utc(seconds)
    if moment is None:
        return _NONE
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), stamp(seconds))


def ago(clock: Callable[[], float]) -> Callable[[float | None], Markup | str]:
    """A filter that says how long ago a moment was; the moment itself is its title."""

    def since(seconds: float | None) -> Markup | str:
        moment = _utc(seconds)
        if moment is None or seconds is None:
            return _NONE
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            moment.isoformat(), stamp(seconds), _distance(clock() - seconds)
        )

    return since


def _distance(passed: float) -> str:
    ahead = passed < -1
    passed = abs(passed)
    for end, unit, seconds in _STEPS:
        if passed < end:
            text = f"{passed // seconds:.0f} {unit}"
            break
    else:
        text = f"{passed // _DAY:.0f} d"
    return f"in {text}" if ahead else f"{text} ago"


def data_time(unit: str) -> Callable[[int | None], Markup | str]:
    """A filter for times of the data, which are numbers in the unit of the files."""
    per_second = 1000 * PER_MILLISECOND[unit]

    def shown(value: int | None) -> Markup | str:
        if value is None:
            return _NONE
        if _utc(value / per_second) is None:
            return str(escape(value))
        return when(value / per_second)

    return shown


def _utc(seconds: float | None) -> datetime.datetime | None:
    if seconds is None:
        return None
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return None
