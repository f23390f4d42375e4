"""What was committed lately, and what has to do with it."""

from __future__ import annotations

from receiver.metadata.commit import recent_commits
from receiver.metadata.commit.recent_commits import RecentCommits
from receiver.metadata.commit.touched import Touched


def touching(*written: str, exclusive: bool = False, read: str = "", shared: str = "") -> Touched:
    return Touched(
        {("d", read)} if read else set(),
        {("d", each) for each in written},
        {("d", shared)} if shared else set(),
        exclusive,
        any=True,
    )


def test_what_came_since_counts_and_nothing_before():
    recent = RecentCommits(10)
    recent.add(11, touching("a"))
    recent.add(12, touching("b"))
    assert recent.leave_alone(10, touching("c"))
    assert not recent.leave_alone(10, touching("a"))
    assert recent.leave_alone(11, touching("a"))
    assert not recent.leave_alone(11, touching("b"))
    assert recent.leave_alone(12, touching("a", "b"))


def test_what_was_before_all_that_is_known_is_not_left_alone():
    recent = RecentCommits(10)
    assert recent.leave_alone(10, touching("c"))
    assert not recent.leave_alone(9, touching("c"))


def test_reading_and_sharing_count():
    recent = RecentCommits(0)
    recent.add(1, touching("a", shared="n"))
    assert not recent.leave_alone(0, touching("c", read="a"))
    assert not recent.leave_alone(0, touching("n"))
    assert not recent.leave_alone(0, touching("c", read="n"))
    assert recent.leave_alone(0, touching("c", shared="n"))


def test_what_may_change_anything_has_to_do_with_all():
    recent = RecentCommits(0)
    recent.add(1, touching(exclusive=True))
    assert not recent.leave_alone(0, touching("c"))
    assert recent.leave_alone(1, touching("c"))


def test_batches_that_are_forgotten_are_not_left_alone(monkeypatch):
    monkeypatch.setattr(recent_commits, "_MOST_BATCHES", 4)
    recent = RecentCommits(0)
    for ts in range(1, 6):
        recent.add(ts, touching(f"{ts}"))
    assert not recent.leave_alone(0, touching("c"))
    assert not recent.leave_alone(1, touching("c"))
    assert recent.leave_alone(2, touching("c"))
    assert not recent.leave_alone(2, touching("3"))
    recent.forget(6)
    assert not recent.leave_alone(5, touching("c"))
    assert recent.leave_alone(6, touching("c"))


def test_a_very_large_batch_is_not_kept(monkeypatch):
    monkeypatch.setattr(recent_commits, "_MOST_KEYS", 2)
    recent = RecentCommits(0)
    recent.add(1, touching("a", "b", "c"))
    assert not recent.leave_alone(0, touching("z"))
    assert recent.leave_alone(1, touching("a"))


def test_all_that_is_kept_has_so_many_keys_at_most(monkeypatch):
    monkeypatch.setattr(recent_commits, "_MOST_KEYS", 10)
    recent = RecentCommits(0)
    for ts in range(1, 6):
        recent.add(ts, touching(*(f"{ts}{letter}" for letter in "abc")))
    assert recent.leave_alone(2, touching("z")), "three batches of three keys"
    assert not recent.leave_alone(1, touching("z")), "those before gave way"
    assert not recent.leave_alone(2, touching("3b"))
    recent.forget(6)
    recent.add(7, touching(*"abcdefghij"))
    assert recent.leave_alone(6, touching("z"))
