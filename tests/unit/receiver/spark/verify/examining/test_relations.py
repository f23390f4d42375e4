"""An overlap is no problem where ranks say which file stands above; it is named where none do."""

from __future__ import annotations

import numpy as np
import pytest

from receiver.metadata.model.ranks import NOW, Rank, TransferCut
from receiver.spark.verify.examining.part_rows import span_table
from receiver.spark.verify.examining.parts import Expected, PartSpan
from receiver.spark.verify.examining.relations import overlaps, unsettled, unsettled_at_the_centre
from receiver.spark.verify.examining.subjects import Subject

NAME = (0, 1, 1, 0, 0)
LATER = (0, 2, 2, 0, 0)


def rank(name=NAME, first=1, last=NOW, loaded=1, physical="a") -> Rank:
    return Rank(name, first, first, last, loaded, physical)


@pytest.mark.parametrize(
    ("one", "other", "is_one_sender", "said"),
    [
        (rank(), rank(LATER, physical="b"), True, None),
        (rank(), rank(physical="b"), True, "rank the same"),
        (rank(last=3), rank(first=4, physical="b"), False, None),
        (rank(first=4), rank(last=3, physical="b"), True, None),
        (rank(last=4), rank(LATER, first=4, physical="b"), False, "two senders"),
        (rank(None), rank(None, loaded=2, physical="b"), True, None),
        (rank(None), rank(None, physical="b"), True, "no database"),
        (rank(None), rank(physical="b"), True, "only one"),
        (None, rank(), True, "not known"),
    ],
)
def test_ranks_settle_an_overlap_or_it_is_said_why_not(one, other, is_one_sender, said):
    for pair in ((one, other), (other, one)):
        why = unsettled(*pair, is_one_sender=is_one_sender)
        assert why is None if said is None else said in (why or "")


def test_what_is_loaded_at_the_centre_is_settled_by_its_own_look_and_its_name_in_the_load():
    here = rank(None, first=5)
    for other in (rank(), rank(None, loaded=2, physical="b"), rank(None, first=5, physical="b")):
        assert unsettled_at_the_centre(here, other) is None
    assert "two commits" in (unsettled_at_the_centre(here, rank(first=5, loaded=2)) or "")
    assert "not known" in (unsettled_at_the_centre(here, None) or "")


def test_a_transfer_settles_what_two_senders_have_of_a_device():
    """In its other devices a file stands as it did."""
    cut = TransferCut(1, 3, frozenset(["d1"]))
    old = Subject(Expected("a", ()), 0, rank=rank(LATER), sender="old", cuts=(cut,))
    new = Subject(Expected("b", ()), 0, rank=rank(first=4, physical="b"), sender="new")
    pairs = {each: (old.rank_in(each), new.rank_in(each)) for each in ("d1", "d2")}
    assert unsettled(*pairs["d1"], is_one_sender=False) is None
    assert "two senders" in (unsettled(*pairs["d2"], is_one_sender=False) or "")


def test_each_pair_that_overlaps_is_found_whatever_reaches_further():
    spans = [
        PartSpan("d", first, last, 0, None, None, None)
        for first, last in ((0, 9), (5, 20), (6, 7), (30, 31))
    ]
    table = span_table(list(range(4)), spans)
    found = [(each.file, each.other) for each in overlaps(table, np.ones(4, np.bool_))]
    assert found == [(1, 0), (2, 1), (2, 0)]
