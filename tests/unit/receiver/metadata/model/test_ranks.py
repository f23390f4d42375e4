"""Which of two files stands above the other."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.names import FilePath
from receiver.metadata.model.ranks import (
    NOW,
    Rank,
    RankBelow,
    highest,
    name_rank,
    rank_beneath,
    stands_above,
)
from tests.support import tiers


def name(text: str, kind: str = "sequence"):
    return name_rank(FilePath.parse(f"{kind}/root.sg/0/0/{text}.tsfile"))


def rank(text: str | None, first: int, last: int = NOW, kind: str = "sequence", loaded: int = 1):
    ranked = None if text is None else name(text, kind)
    return Rank(ranked, first, first, last, loaded, f"{kind}/{text}/{first}/{last}/{loaded}")


@pytest.mark.parametrize(
    ("higher", "lower"),
    [
        (name("1-1-0", "unsequence"), name("9-9-9")),
        (name("1-2-0"), name("9-1-9")),
        (name("2-1-0"), name("1-1-9")),
        (name("1-1-1"), name("1-1-0")),
        (name("1-1-1-1"), name("1-1-1")),
    ],
)
def test_the_databases_order_is_kind_version_creation_compactions(higher, lower) -> None:
    assert higher > lower


def test_files_that_one_look_had_rank_by_name_however_late_they_came() -> None:
    assert stands_above(rank("1-1-0", 9, kind="unsequence"), rank("5-5-0", 1))
    assert stands_above(rank("5-5-0", 1, 9), rank("1-1-0", 9))


def test_of_files_that_no_look_had_together_the_later_one_stands_above() -> None:
    assert stands_above(rank("1-1-0", 5), rank("9-9-9", 1, 4, kind="unsequence"))


def test_files_of_no_database_rank_by_when_they_were_first_seen() -> None:
    assert stands_above(rank(None, 3), rank(None, 2))
    assert stands_above(rank(None, 3, loaded=2), rank(None, 3, loaded=1))


def test_where_there_is_no_order_what_was_there_longest_counts() -> None:
    one = rank("3-3-0", 1, 5)
    two = rank("2-2-0", 4, 9)
    three = rank("1-1-0", 6, 12)
    assert stands_above(one, two)
    assert stands_above(two, three)
    assert stands_above(three, one)
    for several in itertools.permutations([one, two, three]):
        assert highest(several) == three


def test_what_is_below_a_whole_circle_does_not_count_however_long_it_was_there() -> None:
    circle = [rank("3-3-0", 1, 5), rank("2-2-0", 4, 9), rank("1-1-0", 6, 12)]
    below = rank("0-0-0", 1, 99)
    for several in itertools.permutations([*circle, below]):
        assert highest(several) == circle[2]


def test_what_stands_for_files_changes_nothing_among_those_above_it() -> None:
    beneath = rank_beneath("sequence/root.t/0/0/merged-1-0.tsfile")
    below = RankBelow("e" * 32, 1, 1, NOW, 1, "a")
    forwarded = [
        rank("3-3-0", 1, 5)._replace(below=(below._replace(first=1, last=2),)),
        rank("2-2-0", 4, 9)._replace(below=(below._replace(first=2, last=9),)),
        rank("1-1-0", 6, 12)._replace(below=(below._replace(first=5, last=7),)),
    ]
    assert all(stands_above(each, beneath) for each in forwarded)
    assert highest([*forwarded, beneath]) == highest(forwarded) == forwarded[1]
    assert highest([beneath]) == beneath


ranks = st.builds(
    lambda text, first, more, kind, loaded: rank(text, first, first + more, kind, loaded),
    st.sampled_from(["1-1-0", "2-1-0", "1-2-0", "1-1-1", None]),
    st.integers(1, 5),
    st.integers(0, 5),
    st.sampled_from(["sequence", "unsequence"]),
    st.integers(1, 3),
)


@settings(max_examples=tiers.examples(200))
@given(ranks, ranks)
def test_of_two_files_exactly_one_stands_above(a: Rank, b: Rank) -> None:
    if a != b:
        assert stands_above(a, b) is not stands_above(b, a)
        assert highest([a, b]) == (a if stands_above(a, b) else b)
