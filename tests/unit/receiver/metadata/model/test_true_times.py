"""The moments of timestamps that wrong clocks gave."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from receiver.metadata.model.records import TimePiece
from receiver.metadata.model.timestamps import from_seconds
from receiver.metadata.model.true_times import TrueTimes

HOUR, DAY = 3600.0, 86400.0
NOW = 1_900_000_000.0


def at(seconds: float) -> int:
    return from_seconds(NOW + seconds)


def test_without_corrections_a_timestamp_is_its_own_moment():
    times = TrueTimes()
    assert times.moment(at(5) + 3) == at(5) + 3
    assert times.first(at(5)) == at(5)


def test_what_was_given_by_a_clock_that_was_behind_is_moved_to_when_it_was():
    held = at(HOUR)
    times = TrueTimes().corrected(at(0), by=at(0) - at(-30 * DAY), now=at(30 * DAY + 2 * HOUR),
                                  newest=at(2 * HOUR), floor=at(-1))  # fmt: skip
    assert times.moment(held) == at(30 * DAY + HOUR)
    assert times.moment(at(-5)) == at(-5)
    assert times.moment(at(31 * DAY)) == at(31 * DAY)
    assert times.first(at(30 * DAY + HOUR)) == held
    assert times.first(at(10 * DAY)) == at(0), "nothing was committed then: what comes next"
    assert times.first(at(31 * DAY)) == at(31 * DAY)


def test_timestamps_ahead_of_the_time_come_back_to_it_at_half_the_pace():
    ahead = at(730 * DAY)
    times = TrueTimes().corrected(
        at(700 * DAY), by=at(0) - ahead, now=at(0), newest=ahead - 1, floor=0
    )
    assert times.moment(ahead) == at(0)
    assert times.moment(at(729 * DAY)) == at(-DAY)
    assert times.first(at(2 * DAY)) == at(731 * DAY)
    assert times.moment(at(731 * DAY)) == at(2 * DAY)
    met = at(2 * 730 * DAY)
    assert times.moment(met) == met
    assert times.first(met + 7) == met + 7


def test_no_moment_is_before_what_was_committed_earlier():
    times = TrueTimes().corrected(
        at(700 * DAY), by=at(0) - at(730 * DAY), now=at(0), newest=at(730 * DAY), floor=at(-DAY)
    )
    assert times.moment(at(710 * DAY)) == at(-DAY)
    assert times.moment(at(729.5 * DAY)) == at(-DAY / 2)


STAMPS = st.integers(1_000_000, 2_000_000)


@st.composite
def corrected(draw: st.DrawFn) -> TrueTimes:
    """What comes of several corrections, each as the clock makes them."""
    times, newest = TrueTimes(), draw(STAMPS)
    for _ in range(draw(st.integers(0, 5))):
        since = draw(st.integers(1, newest))
        by = draw(st.integers(-800_000, 800_000))
        now = max(1, times.moment(newest) + by)
        floor = min(times.moment(since - 1), now)
        times = times.corrected(since, by=by, now=now, newest=newest, floor=floor)
        assert times.moment(newest + 1) >= now - 2
        newest = max(newest + 1, times.first(now + draw(st.integers(0, 100_000))))
    return times


@given(corrected(), st.lists(STAMPS, min_size=2, max_size=20))
def test_moments_never_go_back_and_many_are_as_one(times: TrueTimes, stamps: list[int]):
    stamps.sort()
    moments = [times.moment(each) for each in stamps]
    assert moments == sorted(moments)
    assert times.moments(np.array(stamps, np.int64)).tolist() == moments
    for before, after in pairwise(times.pieces):
        assert before.ts < after.ts
        assert before.moment <= after.moment


@given(corrected(), STAMPS)
def test_the_first_timestamp_of_a_moment_is_the_first(times: TrueTimes, moment: int):
    first = times.first(moment)
    assert times.moment(first) >= moment
    assert times.moment(first - 1) < moment


def test_pieces_are_let_go_of_where_there_are_too_many():
    pieces = [TimePiece(number * 10, number * 10, number % 2) for number in range(1, 1000)]
    assert len(TrueTimes(pieces).pieces) == 600
