"""The sweep over many files at once, held against the same question asked point by point."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from receiver.metadata.model.ranks import NOW, Rank, RankBelow, stands_above
from receiver.superseding.partition_proof import _slices
from receiver.superseding.sweeping import RankArrays, Stored, sweep

NAMES = st.none() | st.tuples(
    st.integers(0, 1), st.integers(1, 3), st.integers(1, 2), st.just(0), st.just(0)
)
LOOKS = st.integers(1, 5)


@st.composite
def ranks(draw: st.DrawFn) -> list[Rank]:
    made = []
    for number in range(draw(st.integers(1, 6))):
        first = draw(LOOKS)
        last = draw(st.integers(first, 6) | st.just(NOW))
        below = tuple(draw(ranks_below(engine)) for engine in draw(WAYS))
        made.append(Rank(draw(NAMES), first, first, last, draw(LOOKS), f"f{number}", below))
    return made


WAYS = st.lists(st.sampled_from("BCD"), unique=True, max_size=2)
"""The engines that handed a file up."""


@st.composite
def ranks_below(draw: st.DrawFn, engine: str) -> RankBelow:
    first = draw(LOOKS)
    last = draw(st.integers(first, 6) | st.just(NOW))
    return RankBelow(engine, first, first, last, draw(LOOKS), draw(st.sampled_from("xy")))


@given(ranks())
def test_of_two_files_one_stands_above(made: list[Rank]) -> None:
    for one, other in itertools.combinations(made, 2):
        assert stands_above(one, other) != stands_above(other, one)


@given(ranks())
def test_ranks_in_arrays_compare_as_one_by_one(made: list[Rank]) -> None:
    arrays = RankArrays(made)
    pairs = [(a, b) for a in range(len(made)) for b in range(len(made)) if a != b]
    if not pairs:
        return
    a, b = (np.array(each) for each in zip(*pairs, strict=True))
    assert arrays.above(a, b).tolist() == [
        stands_above(made[one], made[other]) for one, other in pairs
    ]


@given(ranks(), st.data())
def test_files_are_on_top_where_none_stands_above_them(
    made: list[Rank], data: st.DataObject
) -> None:
    points = {
        number: data.draw(st.sets(st.tuples(st.integers(0, 1), st.integers(0, 4))))
        for number in range(len(made))
    }
    candidates = np.array(data.draw(st.lists(st.booleans(), min_size=len(made),
                                             max_size=len(made))))  # fmt: skip
    flat = [(time, series, file) for file, each in points.items() for series, time in each]
    columns = zip(*flat, strict=True) if flat else [[], [], []]
    stored = Stored(*(np.array(list(each), np.int64) for each in columns))
    found = sweep(stored, RankArrays(made), candidates)

    kept: set[int] = set()
    rests: set[tuple[int, int]] = set()
    alone: dict[tuple[int, int], list[int]] = {}
    for key in sorted({key for each in points.values() for key in each}):
        here = [number for number, each in points.items() if key in each]
        tops = [
            one
            for one in here
            if all(other == one or stands_above(made[one], made[other]) for other in here)
        ]
        for one in here:
            if not tops or one in tops:
                kept.add(one)
                if candidates[one]:
                    alone.setdefault((one, key[0]), []).append(key[1])
            elif candidates[one]:
                rests.add((one, tops[0]))
    assert set(found.files.tolist()) == kept
    assert set(map(tuple, found.rests.tolist())) == rests
    assert {each[:2]: each[2:] for each in found.ranges} == {
        key: (min(times), max(times), len(times)) for key, times in alone.items()
    }


@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**62), st.integers(1, 99)),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 5),
    st.integers(1, 200),
)
def test_slices_follow_each_other_and_leave_no_candidate_out(
    files: list[tuple[int, int, int]], which: int, most: int
) -> None:
    spans = [(first, min(first + length, 2**63 - 1), points) for first, length, points in files]
    chosen = spans[which % len(spans)]
    candidates = np.array([each == chosen for each in spans])
    slices = list(_slices(chosen[0], chosen[1], np.array(spans, np.int64), candidates, most))
    assert (slices[0][0], slices[-1][1]) == chosen[:2]
    for one, other in itertools.pairwise(slices):
        assert other[0] == one[1] + 1
