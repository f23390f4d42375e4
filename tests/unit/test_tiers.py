"""The sample of a sweep is honest: every kind, the same for each worker, and all when asked."""

from __future__ import annotations

import pytest

from tests.support import tiers

NAMES = [f"point.{number % 7}" for number in range(100)] + ["rare"]


@pytest.fixture
def chosen(monkeypatch):
    def chosen(tier, seed=1):
        monkeypatch.setattr(tiers, "_tier", tier)
        monkeypatch.setattr(tiers, "_seed", seed)

    return chosen


@pytest.mark.parametrize("tier", ["quick", "default"])
def test_a_sample_has_every_kind_in_order_and_no_more_than_was_asked_for(chosen, tier):
    chosen(tier)
    taken = tiers.passages(NAMES, 3)
    assert taken == sorted(set(taken))
    counts = {name: [NAMES[at - 1] for at in taken].count(name) for name in NAMES}
    assert counts == {name: 1 if name == "rare" else 3 for name in NAMES}


def test_a_sample_depends_on_the_seed_alone(chosen):
    chosen("default")
    first = tiers.passages(NAMES)
    assert tiers.passages(NAMES) == first
    chosen("default", seed=2)
    assert tiers.passages(NAMES) != first


def test_the_long_tier_takes_all(chosen):
    chosen("long")
    assert tiers.passages(NAMES) == list(range(1, len(NAMES) + 1))
    assert tiers.examples(10) > 10
    assert tiers.memory() is None


def test_a_small_memory_is_no_place_for_files(chosen, monkeypatch):
    chosen("default")
    monkeypatch.setattr(tiers, "ROOM", 1 << 60)
    assert tiers.memory() is None


def test_of_a_test_with_many_cases_few_run_and_the_certain_ones_are_among_them(chosen):
    chosen("default")
    certain = [number in (3, 8) for number in range(10)]
    names = [f"tests/test_{number}.py" for number in range(30)]
    taken = [tiers.few(10, 4, test=name, certain=certain) for name in names]
    assert all(len(each) == 4 and {3, 8} <= each for each in taken)
    assert set().union(*taken) == set(range(10)), "others of each test"
    assert taken == [tiers.few(10, 4, test=name, certain=certain) for name in names]
    assert tiers.few(10, 1, test="x", certain=certain) == {3, 8}
    assert tiers.few(2, 4, test="x", certain=[False, False]) == {0, 1}
    chosen("long")
    assert tiers.few(10, 1, test="x", certain=certain) == set(range(10))
