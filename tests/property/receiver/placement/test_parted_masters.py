"""What an edge is told is true, whichever of two masters it hears, and stays true.

See `tests.support.disks_and_operators`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support import tiers
from tests.support.disks_and_operators import DisksAndOperators


@pytest.mark.slow
def test_what_edges_were_told_is_true_whoever_is_parted_asleep_or_dead() -> None:
    run_state_machine_as_test(
        DisksAndOperators,
        settings=settings(
            max_examples=tiers.examples(10),
            stateful_step_count=30,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink one takes minutes
        ),
    )


def _lives(*steps: Callable[[DisksAndOperators], object]) -> None:
    it = DisksAndOperators()
    try:
        it.begin()
        for step in steps:
            step(it)
            it.nothing_but_the_world_takes_copies()
            it.whoever_leads_knows_what_was_told_and_has_it_once()
    except BaseException:
        it.there.close()
        shutil.rmtree(it.root)
        raise
    it.teardown()


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("drops", [False, True])
def test_what_was_told_outlives_a_log_that_is_turned_back(power: bool, drops: bool) -> None:
    """Over a power cut that takes what nodes had heard, and a human who trusts the master."""

    def drop(it: DisksAndOperators) -> None:
        if drops:
            it.an_operator_drops_a_table("root.wind")

    _lives(
        DisksAndOperators.a_copy_is_made_of_the_log,
        lambda it: it.the_log_is_turned_back(power, 0, "root.wind"),
        drop,
        lambda it: it.all_go_on(3),
    )


def test_a_file_that_a_turned_back_master_never_had_outlives_a_human_who_trusts_it() -> None:
    """Red where a node that has heard only the turned-back one since lets go what that lacks."""
    _lives(
        DisksAndOperators.a_copy_is_made_of_the_log,
        lambda it: it.all_goes_well_for_a_while(0, "root.wind", True),
        lambda it: it.a_node_stops_or_starts(3),
        lambda it: it.the_log_is_turned_back(False, 1, "root.wind"),
    )


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize(("drops", "trusts"), [(False, True), (True, False)])
def test_what_a_turned_back_master_never_had_outlives_its_history(
    power: bool, drops: bool, trusts: bool
) -> None:
    """Red where a node follows a drop, once what it had heard last cannot be looked up.

    Or where what is on no list goes by the word of that master, once a human trusts it.
    """
    _lives(
        DisksAndOperators.a_copy_is_made_of_the_log,
        lambda it: it.the_log_is_turned_back(
            power, 0, "root.wind", away=True, drops=drops, trusts=trusts
        ),
        lambda it: it.all_go_on(3),
    )


@pytest.mark.parametrize("drops", [False, True])
def test_what_a_turned_back_master_never_had_outlives_commits_of_its_own_with_the_same_numbers(
    drops: bool,
) -> None:
    """Red where a number alone says which commit it is: both have counted on by a clock set back.

    Of a tablet that is placed, and of one that is to go.
    """
    _lives(
        lambda it: it.the_clock_of_a_master_is_off(0, -1),
        DisksAndOperators.a_copy_is_made_of_the_log,
        lambda it: it.the_log_is_turned_back(
            False, 0, "root.wind", drops=drops, trusts=True, further=40
        ),
        lambda it: it.all_go_on(3),
    )


@pytest.mark.parametrize("more", [False, True])
def test_a_replica_that_is_to_go_goes_though_an_operator_has_trusted_its_master_meanwhile(
    more: bool,
) -> None:
    """Unless it has what that master never had: no list will come that names any of it."""
    it = DisksAndOperators()
    try:
        it.begin()
        it.all_goes_well_for_a_while(0, "root.wind", False)
        it.a_copy_is_made_of_the_log()
        it.the_log_is_turned_back(False, 0 if more else 1, "root.wind", drops=True, trusts=True)
        it.all_go_on(4)
        it.nothing_but_the_world_takes_copies()
        with it.there.masters[0].engine.reading() as state:
            table = next(row for row in state.loaded_tables.rows.values() if row.dropped)
            dropped = {each.id for each in state.tablet_table.every_of(table.id)}
        left = {each for node in it.there.nodes for each in node.store.tablets()} & dropped
        assert bool(left) == more
        for node in it.there.nodes:
            for each in dropped.intersection(node.store.tablets()):
                assert "were not known to a master" in node.store.replica(each).why_it_stays
    finally:
        it.there.close()
        shutil.rmtree(it.root)


def test_nobody_is_told_of_copies_that_a_node_with_an_older_disk_has_not() -> None:
    """Red where it counts by the word of the start before, until a pass comes by."""
    for at in range(4):
        _lives(
            lambda it: it.all_goes_well_for_a_while(0, "root.sun", False),
            lambda it, at=at: it.a_node_comes_back_with_older_disks_and_an_edge_asks_at_once(
                at, True
            ),
        )


@pytest.mark.parametrize("anew", [False, True])
def test_nobody_is_told_of_a_copy_that_a_master_has_found_to_have_other_bytes(anew: bool) -> None:
    """Red where a stand-by, or a start of the node, knows nothing of it."""
    for at in range(4):
        _lives(
            lambda it: it.all_goes_well_for_a_while(0, "root.sun", False),
            lambda it, at=at: it.a_master_finds_that_a_node_gives_other_bytes_and_an_edge_asks(
                0, at, 0, anew, True
            ),
        )


def test_a_stand_by_knows_which_node_has_a_file_alone() -> None:
    for pick in range(3):
        _lives(
            lambda it, pick=pick: (
                it.a_stand_by_takes_over_and_an_operator_forgets_the_node_that_has_a_file_alone(
                    0, pick
                )
            )
        )


def test_what_has_rotted_counts_no_more_when_an_older_word_arrives_late() -> None:
    for at in range(4):
        _lives(
            lambda it: it.all_goes_well_for_a_while(0, "root.sun", False),
            lambda it, at=at: it.bytes_of_a_node_rot(at, 0, True),
        )


@pytest.mark.parametrize("is_silent", [False, True])
def test_the_last_copies_of_what_was_merged_stay_until_nodes_have_the_merged_file(
    is_silent: bool,
) -> None:
    """Red where nodes that are silent, or lack the merged file that is lost, count for nothing."""
    _lives(
        lambda it: it.inputs_go_behind_a_merge(
            0,
            "root.wind",
            True,
            ["nodes down", "an hour", "reaper", "stand-by"]
            if is_silent
            else ["stand-by", "an hour", "reaper"],
            0,
        )
    )
