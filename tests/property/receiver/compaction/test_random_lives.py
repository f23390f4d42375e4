"""Lives of a centre at random: whatever comes and goes, merged files change no answer."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.merging_life import FINAL_AFTER, MergingLife, merged_answer
from tests.support.merging_node import compactions, with_interval
from tests.support.node_world import Clock, World

LIVES = 12
STEPS = 25
INTERVAL = 20
"""Width of a partition where times are of several."""


@pytest.mark.slow
@pytest.mark.parametrize("number", range(tiers.examples(LIVES)))
def test_merged_files_change_no_answer_whatever_comes_and_goes(number: int, tmp_path: Path) -> None:
    lived(random.Random(f"{tiers.seed()}-{number}"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(tiers.examples(LIVES)))
def test_nor_where_files_have_times_of_several_partitions(number: int, tmp_path: Path) -> None:
    lived(random.Random(f"{tiers.seed()}-{number}"), tmp_path, partitions=3)


@pytest.mark.slow
def test_nor_where_merged_files_take_the_place_of_what_is_gone_and_are_dropped(
    tmp_path: Path,
) -> None:
    finals = 0
    for number in range(tiers.examples(LIVES)):
        name = f"{tiers.seed()}-{number}"
        finals += lived(random.Random(name), tmp_path / name, final=True)
    assert finals


def lived(
    chance: random.Random, directory: Path, partitions: int = 1, *, final: bool = False
) -> int:
    """Live; returns how many merges became final."""
    clock = Clock()
    merge = {"enabled": True, "quiet": 60.0, "min_files": 3, "target_bytes": 1 << 16}
    if final:
        merge["final_after"] = FINAL_AFTER
    world = World(
        directory, clock=clock, keep_deleted=100.0, metadata={"history": 1000.0}, merge=merge
    )
    with world.still_node() as node:
        if partitions > 1:
            with_interval(node, INTERVAL)
        life = MergingLife(chance, node, clock, partitions)
        steps = [life.files, life.files, life.files, life.ends, life.deletion, life.loss,
                 life.proofs, life.merge, life.merge, life.by_hand, life.let_go]  # fmt: skip
        steps += [life.fade, life.fade, life.final, life.drop] if final else []
        for _ in range(STEPS):
            chance.choice(steps)()
            assert merged_answer(life.site) == life.site.answer()
        life.process.meanwhile = lambda: None
        for _ in range(3):
            life.files()
        life.by_hand()
        assert merged_answer(life.site) == life.site.answer()
        assert life.merged or partitions > 1, "something was merged in this life"
        told = node.compactor.progress()
        assert told.problem is None
        for row in compactions(node) if partitions > 1 else ():
            for each in row.outputs:
                assert each.first is not None
                assert each.last is not None
                assert each.first // INTERVAL == each.last // INTERVAL
        named = {each.physical for row in compactions(node) for each in row.outputs}
        on_disk = {name for name in world.loaded() if "/merged-" in name}
        assert named <= on_disk
        return life.finals
