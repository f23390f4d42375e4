from datetime import datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.config import Hours, Timetable

MONDAY = datetime(2026, 1, 5)  # noqa: DTZ001 - timetables are in local time


def at(day, clock):
    return datetime.combine(MONDAY + timedelta(days=day), time.fromisoformat(clock))


def test_without_a_limit_nothing_is_limited():
    assert Timetable().limit_at(MONDAY) is None
    assert Timetable.parse("none").limit_at(MONDAY) is None


def test_one_rate_holds_always():
    assert Timetable.parse("10MiB/s").limit_at(at(6, "23:59")) == 10 * 2**20


def test_the_first_window_that_holds_decides_and_its_end_is_excluded():
    table = Timetable.parse(
        [{"from": "08:00", "to": "18:00", "limit": "1KiB/s"}, {"limit": "10KiB/s"}]
    )
    limits = [table.limit_at(at(0, c)) for c in ("07:59:59", "08:00", "17:59:59", "18:00")]
    assert limits == [10240, 1024, 1024, 10240]


def test_outside_all_windows_nothing_is_limited():
    table = Timetable.parse({"from": "08:00", "to": "18:00", "limit": 5})
    assert table.limit_at(at(0, "19:00")) is None


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins():
    table = Timetable.parse([{"from": "22:00", "to": "06:00", "days": ["fri"], "limit": 5}])
    friday, saturday = 4, 5
    assert table.limit_at(at(friday, "23:00")) == 5
    assert table.limit_at(at(saturday, "05:59")) == 5
    assert table.limit_at(at(saturday, "06:00")) is None
    assert table.limit_at(at(saturday, "23:00")) is None
    assert table.limit_at(at(friday, "05:00")) is None


def test_a_window_of_sunday_night_reaches_into_monday():
    table = Timetable.parse([{"from": "22:00", "to": "06:00", "days": ["sun"], "limit": 5}])
    assert table.limit_at(at(7, "01:00")) == 5


def test_a_window_until_midnight_ends_with_its_day():
    for to in ("24:00", "00:00"):
        table = Timetable.parse([{"from": "22:00", "to": to, "days": ["mon"], "limit": 5}])
        assert table.limit_at(at(0, "23:59:59")) == 5
        assert table.limit_at(at(1, "00:00")) is None


def test_toml_times_are_read_as_well():
    table = Timetable.parse([{"from": time(8), "to": time(9), "limit": 5}])
    assert table.limit_at(at(0, "08:30")) == 5


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ([{"from": "08:00", "to": "18:00"}], "window 1: limit is missing"),
        ([{"form": "08:00", "limit": 1}], "unknown key 'form'"),
        ([{"from": "25:00", "limit": 1}], "no time of day"),
        ([{"from": "08:61", "limit": 1}], "no time of day"),
        ([{"from": 8, "limit": 1}], "no time of day"),
        ([{"from": "08:00", "to": "08:00", "limit": 1}], "no time between"),
        ([{"from": "24:00", "to": "08:00", "limit": 1}], "no time between"),
        ([{"days": ["monday"], "limit": 1}], "no day"),
        ([{"days": [], "limit": 1}], "days"),
        ([{"days": "mon", "limit": 1}], "days"),
        ([{"limit": 1}, {"from": "01:00", "limit": 2}], "window 2 is never reached"),
        ([{"limit": "0"}], "at least one byte"),
        ([5], "window 1: not a table"),
        (1.5, "not a rate"),
        ("fast", "expected a rate"),
    ],
)
def test_a_wrong_timetable_says_what_is_wrong(raw, reason):
    with pytest.raises(ValueError, match=reason):
        Timetable.parse(raw)


minutes = st.integers(0, 1439)
weekdays = st.sets(st.integers(0, 6), min_size=1)
NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def clock(minute):
    return f"{minute // 60:02}:{minute % 60:02}"


@given(minutes, minutes, weekdays, st.integers(0, 7 * 1440 - 1))
def test_a_window_holds_exactly_the_minutes_counted_from_its_begin(start, end, days, moment):
    if start == end:
        return
    table = Timetable.parse(
        [{"from": clock(start), "to": clock(end), "days": [NAMES[d] for d in days], "limit": 7}]
    )
    length = (end - start) % 1440
    held = {(day * 1440 + start + i) % (7 * 1440) for day in days for i in range(length)}
    expected = 7 if moment in held else None
    assert table.limit_at(MONDAY + timedelta(minutes=moment)) == expected


windows = st.builds(
    lambda start, length, days, limit: {
        "from": clock(start),
        "to": clock((start + length) % 1440),
        "days": [NAMES[d] for d in days],
        "limit": limit,
    },
    minutes,
    st.integers(1, 1439),
    weekdays,
    st.integers(1, 2**40) | st.just("none"),
)


@given(st.lists(windows, min_size=1, max_size=4))
def test_a_timetable_that_is_shown_reads_back(raw):
    table = Timetable.parse(raw)
    assert Timetable.parse(table.to_plain()) == table


def test_hours_hold_in_any_of_their_windows_and_over_midnight():
    hours = Hours.parse([{"from": "22:00", "to": "06:00"}, {"days": ["sun"]}])
    moments = ((4, "21:59"), (4, "22:00"), (5, "05:59"), (5, "06:00"), (6, "12:00"))
    assert [hours.hold(at(*each)) for each in moments] == [False, True, True, False, True]
    assert Hours.parse("always").hold(at(5, "12:00"))


def test_hours_are_written_as_they_are_read():
    plain = [{"from": "22:00", "to": "06:00", "days": ["mon"]}]
    assert Hours.parse(plain).to_plain() == plain
    until_midnight = [{"from": "22:00", "to": "24:00"}]
    assert Hours.parse({"from": "22:00"}).to_plain() == until_midnight
    assert Hours.parse("Always").to_plain() == "always"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("now", "always"),
        (7, "always"),
        ([], "always"),
        ([{"from": "25:00"}], "window 1"),
        ([{}, {"from": "22:00", "limit": "none"}], "window 2: it has no limit"),
    ],
)
def test_what_are_no_hours_is_said(value, said):
    with pytest.raises(ValueError, match=said):
        Hours.parse(value)
