from __future__ import annotations

import threading

from common.metering.measures import Readings, counter, gauge, histogram
from common.metering.tallies import Durations, LabelledSums
from tests.support.scraped import Scraped

ROUNDS = counter("tsferry_rounds_total", "Rounds.", "result")
FREE = gauge("tsferry_free_bytes", "Free.")
TOOK = histogram("tsferry_took_seconds", "It took.")


def test_what_has_no_value_is_left_out() -> None:
    into = Readings([ROUNDS, FREE, TOOK])
    into.put(FREE, None)
    assert into.text() == b""


def test_values_are_read_as_they_were_put() -> None:
    into = Readings([ROUNDS, FREE, TOOK])
    into.put(ROUNDS, 2, 'a"b\\\nc')
    into.put(FREE, float(2**53))
    found = Scraped(into.text())
    assert found["tsferry_rounds_total", 'a"b\\\nc'] == 2
    assert found["tsferry_free_bytes"] == 2**53
    assert found.families["tsferry_rounds"].type == "counter"


def test_durations_stand_in_buckets_that_add_up() -> None:
    took = Durations((1.0, 10.0))
    for seconds in (0.5, 1.0, 2.0, 100.0):
        took.observe(seconds)
    into = Readings([TOOK])
    into.put_distribution(TOOK, took.distribution())
    found = Scraped(into.text())
    assert found.of("tsferry_took_seconds_bucket") == {("1.0",): 2, ("10.0",): 3, ("+Inf",): 4}
    assert (found["tsferry_took_seconds_count"], found["tsferry_took_seconds_sum"]) == (4, 103.5)


def test_threads_lose_nothing() -> None:
    tally, took = LabelledSums(), Durations()

    def work() -> None:
        for _ in range(2000):
            tally.add(1, "a")
            took.observe(1.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert tally.sums() == {("a",): 8000}
    assert took.distribution().total == 8000
