from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from receiver.metadata.kv.ring import Ring, RingHit


@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=40),
    st.lists(st.integers(-1, 220), max_size=20),
)
def test_the_ring_answers_as_a_sorted_list_of_its_newest_pairs(size, steps, questions):
    ring = Ring(size)
    pairs = []
    ts = revision = 0
    for step, growth in steps:
        ts, revision = ts + step, revision + growth
        ring.push(ts, revision)
        pairs.append((ts, revision))
    kept = pairs[-size:]
    assert len(ring) == len(kept)
    for question in questions:
        place = bisect_right([ts for ts, _ in kept], question) - 1
        expected = None
        if place >= 0:
            after = kept[place + 1][1] if place + 1 < len(kept) else 0
            expected = RingHit(*kept[place], after)
        assert ring.find(question) == expected
