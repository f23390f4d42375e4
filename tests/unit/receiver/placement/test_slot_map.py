"""Slots go to nodes by rendezvous: few move, and each node has its share."""

from __future__ import annotations

import pytest

from receiver.metadata.model.records.cache_records import CACHE_SLOTS
from receiver.placement.slot_map import owners_of, rendezvous, slot_of


def names(count: int) -> list[str]:
    return [f"{number:032x}" for number in range(count)]


def owners(weights: dict[str, int]) -> list[str]:
    nodes, packed = owners_of(weights)
    assert len(packed) == 2 * CACHE_SLOTS
    return [nodes[int.from_bytes(packed[at : at + 2])] for at in range(0, len(packed), 2)]


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_a_node_that_comes_takes_its_share_and_nothing_else_moves(count: int):
    weights = dict.fromkeys(names(count + 1), 1 << 30)
    newest = names(count + 1)[-1]
    before = owners({node: size for node, size in weights.items() if node != newest})
    after = owners(weights)
    moved = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert all(other == newest for _, other in moved)
    assert 0.7 / (count + 1) < len(moved) / CACHE_SLOTS < 1.3 / (count + 1)


def test_a_node_that_goes_leaves_the_slots_of_all_others_where_they_are():
    weights = dict.fromkeys(names(5), 1)
    gone = names(5)[2]
    before = owners(weights)
    after = owners({node: 1 for node in weights if node != gone})
    assert all(one in (gone, other) for one, other in zip(before, after, strict=True))
    assert gone not in after


def test_who_keeps_twice_as_much_has_twice_as_many_slots():
    one, two = names(2)
    found = owners({one: 10, two: 20})
    assert 1.7 < found.count(two) / found.count(one) < 2.3


def test_files_of_workers_move_as_slots_do():
    workers = dict.fromkeys(("a", "b", "c", "d"), 1)
    files = [f"file {number}" for number in range(2000)]
    before = [rendezvous(each, workers) for each in files]
    after = [rendezvous(each, {**workers, "e": 1}) for each in files]
    moved = [other for one, other in zip(before, after, strict=True) if one != other]
    assert set(moved) == {"e"}
    assert 320 < len(moved) < 480


def test_all_files_of_a_partition_are_in_one_slot_that_stays_the_same_for_good():
    assert slot_of("root.wind", 7) == 166
    assert slot_of("root.sun", -3) == 1008
    assert slot_of("a\udcff", 0) in range(CACHE_SLOTS)
    assert len({slot_of("root.wind", number) for number in range(200)}) > 150


def test_without_nodes_there_are_no_owners():
    assert owners_of({}) == ([], b"")
