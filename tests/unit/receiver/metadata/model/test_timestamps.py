import math

import pytest

from receiver.metadata.model.timestamps import COUNTER_BITS, from_seconds, hybrid, to_seconds


def test_a_timestamp_is_milliseconds_and_a_counter():
    allocate = hybrid(lambda: 1_700_000_000.123)
    first = allocate(0)
    assert first == 1_700_000_000_123 << COUNTER_BITS
    assert allocate(first) == first + 1
    assert to_seconds(first + 1) == 1_700_000_000.123


def test_at_a_time_is_its_first_timestamp():
    assert from_seconds(2.5) == 2500 << COUNTER_BITS


def test_a_clock_that_goes_back_never_takes_the_order_along():
    now = [2000.0]
    allocate = hybrid(lambda: now[0])
    newest = allocate(0)
    for now[0] in (1000.0, 0.0, -5.0, 1999.9):
        later = allocate(newest)
        assert later == newest + 1
        newest = later


def test_a_clock_far_ahead_leaves_order_and_room():
    now = [1e30]
    allocate = hybrid(lambda: now[0])
    far = allocate(0)
    now[0] = 1_700_000_000.0
    assert far < allocate(far) < 1 << 63


@pytest.mark.parametrize("sick", [math.nan, math.inf, -math.inf, -1.0])
def test_a_sick_clock_still_gives_growing_timestamps(sick):
    allocate = hybrid(lambda: sick)
    assert allocate(77) == 78
