"""In a device that was transferred a file ranks as if it had ended, and in its others as it did."""

from __future__ import annotations

from array import array

import pytest

from receiver.metadata.log.freeze import freeze, thaw
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import centre_uuid
from receiver.metadata.model.ranks import NOW, Rank, RankBelow, TransferCut, rank_in, stands_above
from receiver.metadata.state.state import State
from receiver.metadata.state.tables.sender_tables.owners import OwnerMove
from receiver.metadata.state.transfer_cuts import TransferCuts, looks_in_device
from tests.support.committing import do, fresh
from tests.support.metadata import A, B, load, path, physical, seen

C = "c" * 32
D1, D2 = "root.t.d1", "root.t.d2"


@pytest.mark.parametrize(
    ("moves", "first", "last", "expected"),
    [
        ([], 10, NOW, (10, NOW)),
        ([(5, B)], 10, NOW, (10, NOW)),  # before it was loaded
        ([(30, B)], 10, NOW, (10, 30)),
        ([(30, B)], 10, 20, (10, 20)),  # it had ended
        ([(30, B)], 10, 40, (10, 30)),  # it ends later, in its other devices
        ([(30, B), (40, C)], 10, NOW, (10, 30)),
        ([(30, B), (40, A)], 10, NOW, (41, NOW)),
        ([(30, B), (40, A)], 10, 50, (41, 50)),
        ([(30, B), (40, A)], 10, 35, (10, 30)),  # it was not there when the device came back
        ([(30, B), (40, A), (50, B)], 10, NOW, (41, 50)),
        ([(30, B), (40, A), (50, B), (60, A)], 10, NOW, (61, NOW)),
        ([(30, B)], 45, NOW, (30, 30)),  # a new name, or a list that began anew since
        ([(30, A)], 10, NOW, (31, NOW)),  # another one came first, after a release
        ([(8, A)], 7, NOW, (9, NOW)),  # it waited for the device
        ([(8, A)], 7, 7, (9, 9)),
        ([(8, A, True)], 7, NOW, (7, NOW)),
        ([(8, A), (30, B), (40, A)], 7, 35, (9, 30)),
        ([(30, B, True, 25)], 10, NOW, (10, 25)),  # it was released, and another one came first
        ([(30, B, True, 25)], 10, 20, (10, 20)),
        ([(8, A, True, 6)], 3, NOW, (7, NOW)),  # it waited, and came first
        ([(25, A, False, 0, True)], 10, NOW, (10, NOW)),  # nobody has come yet
        ([(20, B), (30, A, True, 25)], 10, 27, (26, 27)),  # it was there since the release
    ],
)
def test_a_file_stands_in_a_device_as_its_transfers_say(moves, first, last, expected) -> None:
    rank = Rank(None, first, first, last, 11, "p")
    assert looks_in_device(rank, A, [OwnerMove(*each) for each in moves]) == expected


def test_what_was_loaded_at_the_centre_is_on_no_list_that_lifts_it() -> None:
    """What was loaded below all else would stand level with what it is below."""
    centre = centre_uuid("e")
    first = Rank(None, 10, 10, NOW, 11, "p")
    gained = [OwnerMove(20, B), OwnerMove(30, centre, True, 25)]
    assert looks_in_device(first, centre, gained) == (10, 20)
    assert looks_in_device(first, centre, gained[1:]) == (10, NOW)
    below = Rank(None, 5, 40, NOW, 41, "q")
    assert looks_in_device(below, centre, gained) == (5, NOW)


def test_an_end_by_a_transfer_is_told_by_this_centre_alone() -> None:
    """Looks of a centre below, which both came by, say nothing of it."""
    late = (1, 9, 9, 0, 0)
    low, high = RankBelow("e", 1, 1, NOW, 2, "low"), RankBelow("e", 1, 1, NOW, 2, "high")
    old = Rank(late, 10, 10, NOW, 11, "p", (high,))
    new = Rank((0, 1, 1, 0, 0), 31, 31, NOW, 32, "q", (low,))
    assert stands_above(old, new)
    assert stands_above(new, rank_in(old, TransferCut(10, 30, frozenset([D1]))))


@pytest.fixture
def state() -> State:
    state = fresh()
    do(state, seen(), seen(B), seen(C))
    do(state, load(path("1-1-0"), 1, devices={D1: (1, 9), D2: (1, 9), "root.t.d3": None}))
    return state


def give(state: State, sender: str | None, *devices: str) -> int:
    return do(state, *(records.OwnerSet(each, sender, "why") for each in devices))


def cuts(state: State, at: int = NOW, tag: int = 1, name: str = "1-1-0") -> tuple[TransferCut, ...]:
    row = state.files[physical(path(name), tag)]
    return TransferCuts(state.owner_table.moves, at).of(row)


def test_only_what_a_transfer_parted_is_a_cut_and_only_from_its_commit_on(state: State) -> None:
    first = state.files[physical(path("1-1-0"), 1)].rank.first
    assert cuts(state) == ()
    one = give(state, B, D1)
    assert cuts(state) == (TransferCut(first, one, frozenset([D1])),)
    two = give(state, C, D1, D2)
    ended = {D1: one, D2: two}
    assert {each: cut.last for cut in cuts(state) for each in cut.devices} == ended
    assert cuts(state, at=one) == (TransferCut(first, one, frozenset([D1])),)
    assert cuts(state, at=one - 1) == ()
    back = give(state, A, D1, D2)
    assert [each[:2] for each in cuts(state)] == [(back + 1, NOW)] * 2
    do(state, records.FileRetired(physical(path("1-1-0"), 1), back))
    give(state, B, D1, D2, "root.t.d3")
    assert {cut.last for cut in cuts(state)} == {back}


def test_a_release_ends_nothing_until_another_one_comes_and_forgets_no_transfer(
    state: State,
) -> None:
    released = give(state, None, D2)
    assert cuts(state) == ()
    one = give(state, B, D1)
    give(state, None, D1)
    assert [each.last for each in cuts(state)] == [one]
    do(state, load(path("2-2-0"), 2, sender=C, devices={D1: (1, 9), D2: (1, 9)}))
    assert {each: cut.last for cut in cuts(state) for each in cut.devices} == {
        D1: one,
        D2: released,
    }
    other = state.files[physical(path("2-2-0"), 2)]
    assert TransferCuts(state.owner_table.moves, NOW).of(other) == ()


def test_a_device_that_is_released_and_taken_again_by_its_owner_never_went(state: State) -> None:
    give(state, None, D1)
    do(state, load(path("2-2-0"), 2, devices={D1: (1, 9)}))
    assert cuts(state) == cuts(state, tag=2, name="2-2-0") == ()


def checkpoint(state: State) -> dict[str, memoryview]:
    frozen = freeze(state, lsn=1, commits=array("Q"), tags_end=0, segment=1, oldest=0)
    return {name: memoryview(content) for name, content in frozen.sections()}


def test_transfers_outlive_a_checkpoint(state: State) -> None:
    give(state, B, D1)
    give(state, C, D1, D2)
    give(state, None, D1)
    thawed = thaw(checkpoint(state)).state
    assert thawed.owner_table.moves == state.owner_table.moves
    assert thawed.owner_table.moved == state.owner_table.moved > 0
    assert cuts(thawed) == cuts(state) != ()
    for each in (thawed, state):
        give(each, A, D2)
    assert cuts(thawed) == cuts(state)


def test_a_checkpoint_makes_no_transfer_of_what_stayed_where_it_was(state: State) -> None:
    give(state, A, D1)
    assert state.owner_table.moves == {}
    thawed = thaw(checkpoint(state)).state
    assert thawed.owner_table.moves == {}
    assert thawed.owner_table.moved == 0


def test_of_a_checkpoint_that_knows_no_transfers_the_owners_tell_the_last_ones(
    state: State,
) -> None:
    give(state, B, D1)
    two = give(state, C, D1)
    older = {name: each for name, each in checkpoint(state).items() if "moves" not in name}
    assert [each.last for each in cuts(thaw(older).state)] == [two]
