"""A limit that depends on the hour and the day, for lines that others need by day."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.config.units import format_rate, parse_rate

__all__ = ["DayWindow", "Hours", "Timetable"]

_DAY_S = 86400
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_WINDOW_KEYS = ("from", "to", "days", "limit")


@dataclass(frozen=True)
class DayWindow:
    """Part of a week with one limit.

    Attributes:
        limit: bytes a second, None for no limit.
        start: seconds after local midnight, included.
        end: seconds after local midnight, excluded; less than `start` for a window over midnight.
        days: weekdays (Monday is 0) on which the window *begins*.
    """

    limit: int | None
    start: int = 0
    end: int = _DAY_S
    days: frozenset[int] = frozenset(range(7))

    @property
    def always(self) -> bool:
        """Whether the window is the whole week."""
        return (self.start, self.end, len(self.days)) == (0, _DAY_S, 7)

    def holds(self, weekday: int, second: int) -> bool:
        """Whether this second after local midnight of that weekday is in the window."""
        if self.start < self.end:
            return weekday in self.days and self.start <= second < self.end
        if second >= self.start:
            return weekday in self.days
        return second < self.end and (weekday - 1) % 7 in self.days


@dataclass(frozen=True)
class Timetable:
    """The first window that holds the moment decides; outside all of them nothing is limited."""

    windows: tuple[DayWindow, ...] = ()

    def limit_at(self, local_time: datetime.datetime) -> int | None:
        """Bytes a second at this moment of local time (with its date: windows know weekdays)."""
        second = local_time.hour * 3600 + local_time.minute * 60 + local_time.second
        for window in self.windows:
            if window.holds(local_time.weekday(), second):
                return window.limit
        return None

    @classmethod
    def parse(cls, value: object) -> Timetable:
        """From a rate, one window, or a list of windows.

        A window is a table with any of ``from`` and ``to`` ("08:00"), ``days`` (["mon", "fri"])
        and, always, ``limit`` (a rate, or "none").

        Raises:
            ValueError: says which window is wrong and why.
        """
        if isinstance(value, Mapping):
            value = [value]
        if isinstance(value, str | int):
            limit = _limit(value)
            return cls() if limit is None else cls((DayWindow(limit),))
        if not isinstance(value, Sequence):
            raise ValueError("not a rate and not a list of windows")
        windows = []
        for number, item in enumerate(value, start=1):
            try:
                windows.append(_window(item))
            except ValueError as error:
                raise ValueError(f"window {number}: {error}") from None
            if number < len(value) and windows[-1].always:
                raise ValueError(f"window {number + 1} is never reached: the one before it holds")
        return cls(tuple(windows))

    def to_plain(self) -> str | int | list[dict[str, object]]:
        """What `parse` reads back: "none", a rate, or the list of windows."""
        if not self.windows:
            return "none"
        if len(self.windows) == 1 and self.windows[0].always:
            return _plain_limit(self.windows[0].limit)
        return [_plain_window(window) for window in self.windows]


@dataclass(frozen=True)
class Hours:
    """When something may be done: in any of the windows; always, without one."""

    windows: tuple[DayWindow, ...] = ()

    def hold(self, local_time: datetime.datetime) -> bool:
        """Whether they hold at this moment of local time (with its date)."""
        second = local_time.hour * 3600 + local_time.minute * 60 + local_time.second
        weekday = local_time.weekday()
        return not self.windows or any(each.holds(weekday, second) for each in self.windows)

    @classmethod
    def parse(cls, value: object) -> Hours:
        """From "always", one window, or a list of windows.

        A window is a table with any of ``from``, ``to`` and ``days``, as in a `Timetable`.

        Raises:
            ValueError: says which window is wrong and why.
        """
        if isinstance(value, str):
            if value.strip().lower() != "always":
                raise ValueError('not "always" and not a list of windows')
            return cls()
        if isinstance(value, Mapping):
            value = [value]
        if not isinstance(value, Sequence) or not value:
            raise ValueError('not "always" and not a list of windows')
        windows = []
        for number, item in enumerate(value, start=1):
            try:
                windows.append(_hours_window(item))
            except ValueError as error:
                raise ValueError(f"window {number}: {error}") from None
        return cls(tuple(windows))

    def to_plain(self) -> str | list[dict[str, object]]:
        """What `parse` reads back."""
        if not self.windows:
            return "always"
        plain = [_plain_window(window) for window in self.windows]
        return [{key: each[key] for key in each if key != "limit"} for each in plain]


def _limit(value: object) -> int | None:
    if isinstance(value, str) and value.strip().lower() in ("none", "unlimited"):
        return None
    try:
        return parse_rate(value)
    except ValueError as error:
        raise ValueError(f'{error} (expected a rate such as "1MiB/s", or "none")') from None


def _window(item: object) -> DayWindow:
    if not isinstance(item, Mapping):
        raise ValueError("not a table with from, to, days, limit")
    unknown = sorted(set(item) - set(_WINDOW_KEYS))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r} (known: {', '.join(_WINDOW_KEYS)})")
    if "limit" not in item:
        raise ValueError("limit is missing")
    start, end = _clock(item.get("from", "00:00")), _clock(item.get("to", "24:00"))
    if start in (end, _DAY_S):
        raise ValueError("from and to leave no time between them")
    return DayWindow(_limit(item["limit"]), start, end, _days(item.get("days", _DAYS)))


def _hours_window(item: object) -> DayWindow:
    if isinstance(item, Mapping):
        if "limit" in item:
            raise ValueError("it has no limit")
        item = {**item, "limit": "none"}
    return _window(item)


def _clock(value: object) -> int:
    if isinstance(value, datetime.time):
        return value.hour * 3600 + value.minute * 60 + value.second
    found = _CLOCK.fullmatch(value.strip()) if isinstance(value, str) else None
    if found:
        hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
        total = hour * 3600 + minute * 60 + second
        if minute < 60 and second < 60 and total <= _DAY_S:
            return total
    raise ValueError(f'{value!r} is no time of day such as "08:00"')


def _days(value: object) -> frozenset[int]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise ValueError('days is no list such as ["mon", "fri"]')
    days = set()
    for name in value:
        if not isinstance(name, str) or name.lower() not in _DAYS:
            raise ValueError(f"{name!r} is no day (days are {', '.join(_DAYS)})")
        days.add(_DAYS.index(name.lower()))
    return frozenset(days)


def _plain_limit(limit: int | None) -> str | int:
    return "none" if limit is None else format_rate(limit)


def _plain_window(window: DayWindow) -> dict[str, object]:
    plain: dict[str, object] = {}
    if (window.start, window.end) != (0, _DAY_S):
        plain |= {"from": _plain_clock(window.start), "to": _plain_clock(window.end)}
    if len(window.days) < 7:
        plain["days"] = [_DAYS[day] for day in sorted(window.days)]
    return plain | {"limit": _plain_limit(window.limit)}


def _plain_clock(second: int) -> str:
    text = f"{second // 3600:02}:{second // 60 % 60:02}"
    return f"{text}:{second % 60:02}" if second % 60 else text
