import pytest

from receiver.metadata.kv.ring import Ring, RingHit


def filled(size, pairs):
    ring = Ring(size)
    for ts, revision in pairs:
        ring.push(ts, revision)
    return ring


def test_an_empty_ring_finds_nothing():
    ring = Ring(4)
    assert ring.find(10**18) is None
    assert (ring.oldest, ring.newest, ring.oldest_revision, len(ring)) == (None, None, 0, 0)


def test_between_two_commits_the_older_counts():
    ring = filled(4, [(100, 7), (200, 9), (300, 12)])
    assert ring.find(99) is None
    assert ring.find(100) == RingHit(100, 7, 9)
    assert ring.find(199) == RingHit(100, 7, 9)
    assert ring.find(250) == RingHit(200, 9, 12)
    assert ring.find(10**9) == RingHit(300, 12, 0)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_answer_is_the_same_at_any_wrap_position(size):
    ring = Ring(size)
    for number in range(1, 4 * size + 2):
        ring.push(number * 10, number * 3)
        first = max(1, number - size + 1)
        assert ring.oldest == first * 10
        assert ring.newest == number * 10
        assert ring.oldest_revision == first * 3
        assert ring.find(first * 10 - 1) is None
        for each in range(first, number + 1):
            after = 0 if each == number else (each + 1) * 3
            for ts in (each * 10, each * 10 + 9):
                assert ring.find(ts) == RingHit(each * 10, each * 3, after)


def test_what_does_not_follow_the_newest_is_refused():
    ring = filled(4, [(100, 7)])
    for ts, revision in ((100, 8), (99, 8), (101, 7)):
        with pytest.raises(ValueError, match="does not follow"):
            ring.push(ts, revision)
    assert ring.find(1000) == RingHit(100, 7, 0)


def test_a_ring_has_room_for_one_pair_at_least():
    with pytest.raises(ValueError, match="at least 1"):
        Ring(0)


def test_a_cleared_ring_begins_anew():
    ring = filled(2, [(1, 1), (2, 2), (3, 3)])
    ring.clear()
    assert ring.find(3) is None
    ring.push(1, 1)
    assert ring.find(3) == RingHit(1, 1, 0)
