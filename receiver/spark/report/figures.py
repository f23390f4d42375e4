"""From the results of a run to the figures that the page draws. Pure: no file, no browser."""

from __future__ import annotations

import datetime
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING

from common.config.shared_rules import PER_MILLISECOND
from common.console.terminal import counted
from receiver.spark.report.charts import HUES, Bar, Stack, bars, rows, stacks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from receiver.spark.report.results import DayCount, DeviceSpan, FileResult

__all__ = ["Lag", "Points", "duration", "gaps", "lag", "moment", "points", "sizes", "text_size"]

UNITS = {unit: 1000 * count for unit, count in PER_MILLISECOND.items()}
"""Units of a second."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MOST_BARS = 120
_MOST_GAPS = 15
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_LAGS = (
    (0, "future"), (1, "< 1 s"), (10, "< 10 s"), (_MINUTE, "< 1 min"), (10 * _MINUTE, "< 10 min"),
    (_HOUR, "< 1 h"), (6 * _HOUR, "< 6 h"), (_DAY, "< 1 d"), (7 * _DAY, "< 7 d"),
    (30 * _DAY, "< 30 d"), (365 * _DAY, "< 1 y"),
)  # fmt: skip
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Points:
    """Points per day: the chart, what its colours mean, and what it could not show.

    Attributes:
        legend: (hue, storage group, points), the largest first.
        per: what one bar is: `day`, `week`, `month` or `year`.
        undated: points whose time is no date.
        empty: days between the first and the last without a point.
    """

    chart: Markup
    legend: Sequence[tuple[int, str, int]]
    per: str
    undated: int
    empty: int


@dataclass(frozen=True, slots=True)
class Lag:
    """Time from the last point of a file to its load, in words, and as a histogram."""

    chart: Markup
    median: str
    most: str
    p95: str
    files: int


def points(days: Sequence[DayCount]) -> Points | None:
    """The chart of points per day and storage group; None without any."""
    totals: Counter[str] = Counter()
    for each in days:
        totals[each.storage_group] += each.points
    if not totals:
        return None
    named = [group for group, _ in totals.most_common(HUES - 1 if len(totals) > HUES else HUES)]
    hues = {group: hue for hue, group in enumerate(named)}
    dated = [(each.day, each) for each in days if each.day is not None and each.points]
    undated = sum(each.points for each in days if each.day is None)
    seen = sorted({day for day, _ in dated})
    empty = (seen[-1] - seen[0]).days + 1 - len(seen) if seen else 0
    per, axis = _axis(seen)
    heights: dict[datetime.date, Counter[int]] = {each: Counter() for each in axis}
    for day, each in dated:
        bar = heights.get(_bin(day, per))  # of more years than there is room for, the last
        if bar is not None:
            bar[hues.get(each.storage_group, HUES - 1)] += each.points
    legend = [(hue, group or "(no storage group)", totals[group]) for group, hue in hues.items()]
    if len(totals) > HUES:
        rest = sum(count for group, count in totals.items() if group not in hues)
        legend.append((HUES - 1, f"{len(totals) - len(named)} others", rest))
    names = {hue: group for hue, group, _ in legend}
    stacks_ = [
        Stack(
            _day_label(day, per),
            [
                (hue, n, f"{day}: {counted(n, 'point', form=',')}, {names[hue]}")
                for hue, n in sorted(parts.items())
            ],
        )
        for day, parts in heights.items()
    ]
    return Points(stacks(stacks_, name=f"points per {per}"), legend, per, undated, empty)


def lag(files: Sequence[FileResult], unit: str) -> Lag | None:
    """How long after their last point files were loaded; None where nothing is known."""
    lags = []
    for each in files:
        last = None if each.last_time is None else moment(each.last_time, unit)
        if last is not None and each.loaded_at is not None:
            lags.append((each.loaded_at - last).total_seconds())
    if not lags:
        return None
    lags.sort()
    edges = [edge for edge, _ in _LAGS]
    labels = [label for _, label in _LAGS] + ["longer"]
    counts = Counter(bisect_right(edges, each) for each in lags)
    used = range(min(counts), max(counts) + 1)
    data = [
        Bar(labels[i], counts[i], f"{labels[i]}: {counted(counts[i], 'file', form=',')}")
        for i in used
    ]
    cut = quantiles(lags, n=20, method="inclusive") if len(lags) > 1 else [lags[0]] * 19
    chart = bars(data, name="files by time from last point to load")
    return Lag(chart, duration(cut[9]), duration(lags[-1]), duration(cut[18]), len(lags))


def sizes(files: Sequence[FileResult]) -> Markup | None:
    """How many files there are of each size, in powers of four; None without any."""
    counts = Counter((each.size.bit_length() + 1) // 2 for each in files if each.size)
    if not counts:
        return None
    data = []
    for step in range(min(counts), max(counts) + 1):
        low, high = text_size(4 ** (step - 1)), text_size(4**step)
        data.append(
            Bar(
                f"< {high}",
                counts[step],
                f"{low} to {high}: {counted(counts[step], 'file', form=',')}",
            )
        )
    return bars(data, name="files by size")


def gaps(spans: Sequence[DeviceSpan], unit: str) -> Markup | None:
    """The longest gaps, one a device; None without any."""
    longest: dict[str, DeviceSpan] = {}
    for each in spans:
        if each.longest_gap and each.longest_gap > (_gap(longest.get(each.device)) or 0):
            longest[each.device] = each
    chosen = sorted(longest.values(), key=lambda each: -(each.longest_gap or 0))[:_MOST_GAPS]
    data = [
        Bar(each.device, (each.longest_gap or 0), duration((each.longest_gap or 0) / UNITS[unit]))
        for each in chosen
    ]
    return rows(data, name="longest gap of each device") if data else None


def _gap(span: DeviceSpan | None) -> int | None:
    return None if span is None else span.longest_gap


def moment(time: int, unit: str) -> datetime.datetime | None:
    """A file's time as a moment in UTC; None outside of the years 1 to 9999."""
    seconds, rest = divmod(time, UNITS[unit])
    try:
        return _EPOCH + datetime.timedelta(
            seconds=seconds, microseconds=rest * 1_000_000 // UNITS[unit]
        )
    except OverflowError:
        return None


def duration(seconds: float) -> str:
    """In the largest unit that gives at least one: `3.5 h`; behind a minus for the future."""
    sign = "-" if seconds < 0 else ""
    seconds = abs(seconds)
    for limit, mark in ((365 * _DAY, "y"), (_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= limit:
            return f"{sign}{seconds / limit:,.1f} {mark}"
    if seconds >= 1 or not seconds:
        return f"{sign}{seconds:.3g} s"
    return f"{sign}{seconds * 1000:.3g} ms"


def text_size(count: float) -> str:
    """Bytes in binary units."""
    index = 0
    while count >= 1024 and index + 1 < len(_SIZE_UNITS):
        count /= 1024
        index += 1
    return (
        f"{count:.3g} {_SIZE_UNITS[index]}" if count < 1000 else f"{count:.0f} {_SIZE_UNITS[index]}"
    )


def _axis(days: Sequence[datetime.date]) -> tuple[str, list[datetime.date]]:
    """What one bar is, so that there are not too many, and the begin of each, none left out."""
    if not days:
        return "day", []
    width = (days[-1] - days[0]).days + 1
    for per, length in (("day", 1), ("week", 7), ("month", 30), ("year", 365)):
        if width / length <= _MOST_BARS or per == "year":
            break
    axis = [_bin(days[0], per)]
    end = _bin(days[-1], per)
    if per == "year" and (end.year - axis[0].year) > _MOST_BARS:
        return per, sorted({_bin(day, per) for day in days})[-_MOST_BARS:]
    while axis[-1] < end:
        axis.append(_after(axis[-1], per))
    return per, axis


def _bin(day: datetime.date, per: str) -> datetime.date:
    if per == "week":
        return day - datetime.timedelta(days=min(day.weekday(), day.toordinal() - 1))
    if per == "month":
        return day.replace(day=1)
    return day.replace(month=1, day=1) if per == "year" else day


def _after(day: datetime.date, per: str) -> datetime.date:
    days = {"day": 1, "week": 7, "month": 32, "year": 366}[per]
    return _bin(day + datetime.timedelta(days=days), per)


def _day_label(day: datetime.date, per: str) -> str:
    return day.isoformat()[: {"month": 7, "year": 4}.get(per, 10)]
