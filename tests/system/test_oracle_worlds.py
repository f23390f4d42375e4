"""Random histories of an edge beside a centre whose clock goes wrong, and with damaged files."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import pytest

from common import crash
from common.crash import SimulatedCrash
from tests.support import tiers
from tests.support.edge_shapes import ALIGNED, BINARY, PLAIN, SPAN, TABLE
from tests.support.oracle import oracle
from tests.support.oracle_chain import oracle_chain
from tests.support.oracle_clocks import ClockedPlay, clocked
from tests.support.oracle_damage import DamagedPlay, spoil
from tests.support.oracle_fading import FadingPlay
from tests.support.oracle_few_values import EXCHANGED, FORWARDED, FewValuesPlay
from tests.support.oracle_pieces import PiecesPlay, short_parts
from tests.support.oracle_transfer_chain import shared_chain
from tests.support.oracle_transfers import shared_centre
from tests.system.test_oracle_plays import MODES, told

SHAPES = [PLAIN, TABLE, ALIGNED, BINARY]
STEPS = 120
SHORT = 40
FEW = tiers.sample(itertools.product(range(100), MODES, SHAPES), 1)
FEW_FORWARDED = tiers.sample(itertools.product(range(100), MODES), 1)


def dying_at(point: str) -> Callable[[str], None]:
    def hook(name: str) -> None:
        if name == point:
            raise SimulatedCrash(name)

    return hook


@pytest.mark.parametrize("kind", ["nul", "link", "torn", "cut"])
def test_what_is_deleted_is_as_old_as_before_once_its_file_is_whole_again(kind, tmp_path):
    with oracle(tmp_path) as world:
        base = world.database
        for time in range(4):
            base.write("a", time)
        (file,) = base.opened()
        base.close(file)
        assert world.round().error is None
        base.delete("a", 0, 0)
        if kind in ("torn", "cut"):  # nothing tells that a record is lacking that nobody has seen
            base.delete("a", 1, 1)
            assert world.round().error is None
        where = base.beside(file)
        whole = where.read_bytes()
        spoil(where, kind, 0.9)
        for time in (0, 1):
            base.write("a", time)
        (later,) = base.opened()
        base.close(later)
        for _ in range(2):
            assert world.round().error is None
        where.unlink()
        where.write_bytes(whole)
        for _ in range(2):
            assert world.round().error is None
        assert world.answer() == base.answer() == world.read()


def test_a_task_that_goes_on_with_other_files_is_never_too_much_for_its_receiver(tmp_path):
    with oracle(tmp_path) as world:
        limits = world.host.node.config.limits
        msgspec.structs.force_setattr(limits, "max_task_items", 3)
        base = world.database

        def written(*partitions: int) -> None:
            for each in partitions:
                base.write("a", each * SPAN)
                base.close(*base.opened())

        written(0, 1, 2)
        with pytest.raises(SimulatedCrash), crash.arm(dying_at("task.planned")):
            world.round()
        base.remove(base.closed(partition=0))
        written(3)
        assert world.round().error is None
        assert base.answer().items() <= world.read().items()


def test_a_deletion_file_whose_records_do_not_fill_a_part_is_never_too_much_for_a_task(tmp_path):
    with oracle(tmp_path) as world, short_parts():
        limits, base = world.host.node.config.limits, world.database
        for time in range(5):
            base.write("a", time)
        base.close(*base.opened())
        assert world.round().error is None
        for time in range(4):
            base.delete("a", time, time)
        for most in (3, 500):
            msgspec.structs.force_setattr(limits, "max_task_items", most)
            assert world.round().error is None
        assert world.read() == base.answer()


@pytest.mark.parametrize(("seed", "mode"), tiers.sample(itertools.product(range(60), MODES), 1))
def test_deletions_and_resources_that_are_told_in_small_tasks_are_as_the_database_has_them(
    seed, mode, tmp_path
):
    with oracle(tmp_path, mode, SHAPES[seed % len(SHAPES)]) as world, short_parts():
        play = PiecesPlay(world, seed)
        with told(play):
            play.run(STEPS)


@pytest.mark.few(1)
@pytest.mark.parametrize(("seed", "mode"), tiers.sample(itertools.product(range(60), MODES), 2))
def test_a_clock_that_goes_wrong_and_is_put_right_takes_nothing_of_what_was(seed, mode, tmp_path):
    with clocked(tmp_path, mode) as (world, centre):
        play = ClockedPlay(world, centre, seed)
        with told(play):
            play.run(STEPS)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("seed", "mode", "shape"), tiers.sample(itertools.product(range(60), MODES, [PLAIN, TABLE]), 2)
)
def test_deletion_files_that_are_damaged_for_a_while_hide_what_they_hid(
    seed, mode, shape, tmp_path
):
    with oracle(tmp_path, mode, shape) as world:
        play = DamagedPlay(world, seed)
        with told(play):
            play.run(STEPS)


@pytest.mark.parametrize(
    ("seed", "mode", "shape"), tiers.sample(itertools.product(range(60), MODES, [PLAIN, BINARY]), 1)
)
def test_devices_that_go_from_edge_to_edge_are_answered_as_their_owners_answer(
    seed, mode, shape, tmp_path
):
    with shared_centre(tmp_path, mode, seed, shape) as life, told(life):
        life.run(STEPS)


@pytest.mark.parametrize(("seed", "mode"), tiers.sample(itertools.product(range(60), MODES), 1))
def test_devices_that_go_to_and_fro_in_the_middle_of_a_chain_are_handed_up(seed, mode, tmp_path):
    with shared_chain(tmp_path, mode, seed) as life, told(life):
        life.run(STEPS)


@pytest.mark.parametrize(("seed", "mode", "shape"), FEW)
def test_contents_that_come_again_are_answered_as_their_database_answers(
    seed, mode, shape, tmp_path
):
    with oracle(tmp_path, mode, shape) as world:
        play = FewValuesPlay(world, seed, weights=EXCHANGED)
        with told(play):
            play.run(SHORT)


@pytest.mark.parametrize(("seed", "mode", "shape"), FEW)
def test_contents_that_come_again_of_what_is_freed_expires_or_is_away(seed, mode, shape, tmp_path):
    with oracle(tmp_path, mode, shape) as world:
        play = FadingPlay(world, seed)
        with told(play):
            play.run(SHORT)


@pytest.mark.parametrize(("seed", "mode"), FEW_FORWARDED)
def test_contents_that_come_again_are_handed_up_as_they_are_answered(seed, mode, tmp_path):
    with oracle_chain(tmp_path, mode, mode) as world:
        play = FewValuesPlay(world, seed, weights=FORWARDED)
        with told(play):
            play.run(SHORT)
