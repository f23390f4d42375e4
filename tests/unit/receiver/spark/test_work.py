"""Work is dealt out whole and evenly, whatever it weighs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from receiver.spark.work import deal, spread

WEIGHTS = st.lists(st.integers(0, 1000), max_size=60)


@given(WEIGHTS, st.integers(1, 12))
def test_each_item_is_dealt_out_once_and_no_group_is_empty(weights: list[int], count: int):
    groups = deal(range(len(weights)), count, lambda at: weights[at])
    assert sorted(at for group in groups for at in group) == list(range(len(weights)))
    assert len(groups) == min(count, len(weights))
    assert all(groups)
    loads = [sum(weights[at] for at in group) for group in groups]
    for group, load in zip(groups, loads, strict=True):
        assert load - min(weights[at] for at in group) <= min(loads)


@given(WEIGHTS, st.integers(1, 12))
def test_a_file_is_cut_into_runs_of_what_lies_together(weights: list[int], count: int):
    runs = spread(range(len(weights)), count, lambda at: weights[at])
    assert [at for run in runs for at in run] == list(range(len(weights)))
    assert len(runs) == count
    for run in runs:
        assert sum(weights[at] for at in run[:-1]) <= sum(weights) / count
