"""Lives of a centre at random: whatever comes and goes, merged files change no answer."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from receiver.metadata.model import records
from receiver.metadata.model.ranks import highest
from receiver.metadata.state.table_rows import FileState
from receiver.node import Node
from tests.support import tiers
from tests.support.merging_node import (
    MergedHere,
    compactions,
    given_by,
    merge_here,
    with_interval,
)
from tests.support.node_world import Clock, World
from tests.support.proving import Site, given, in_this_process

LIVES = 12
STEPS = 25
INTERVAL = 20
"""Width of a partition where times are of several."""


def merged_answer(site: Site) -> dict[tuple[str, int], int]:
    """What a reader is given that reads outputs in place of their inputs, below all else."""
    rows = compactions(site.node)
    inside = {each for row in rows for each in row.inputs}
    found: dict[tuple[str, int], int] = {}
    for row in rows:
        found |= given_by(site.node, row)
    with site.node.engine.reading() as state:
        others = {
            row.physical: row
            for row in state.files.values()
            if row.visible and row.physical not in inside
        }
    giving: dict[tuple[str, int], dict[str, int]] = {}
    for physical, row in others.items():
        for key, value in given(row, site.points[physical], site.deleted).items():
            giving.setdefault(key, {})[physical] = value
    for key, each in giving.items():
        found[key] = each[highest([others[name].rank for name in each]).physical]
    return found


class Life:
    """What may happen to an edge and its centre."""

    def __init__(
        self, chance: random.Random, node: Node, clock: Clock, partitions: int = 1
    ) -> None:
        self.chance, self.node, self.clock = chance, node, clock
        self.partitions = partitions
        self.site = Site(node)
        self.number = 0
        self.merged = 0
        self.process = merge_here(node, MergedHere(self.meanwhile))
        in_this_process(node)

    def visible(self) -> list[str]:
        with self.node.engine.reading() as state:
            return [row.physical for row in state.files.values() if row.visible]

    def listed(self) -> list[str]:
        with self.node.engine.reading() as state:
            return [row.path for row in state.files.values() if row.state is FileState.LIVE]

    def files(self) -> None:
        made = {}
        for _ in range(self.chance.randint(1, 6)):
            self.number += 1
            kind = self.chance.choice(("sequence", "sequence", "unsequence"))
            part = self.chance.randrange(self.partitions)
            path = f"{kind}/root.sg/0/{part}/{self.number}-{self.number}-0-0.tsfile"
            base = self.number * 3 if kind == "sequence" else self.chance.randint(0, 60)
            series = self.chance.sample(("a", "b"), self.chance.randint(1, 2))
            made[path] = {
                each: {base + at: self.number for at in range(self.chance.randint(1, 4))}
                for each in series
            }
        self.site.round(made)

    def ends(self) -> None:
        if listed := self.listed():
            self.site.round({}, self.chance.sample(listed, min(len(listed), 2)))

    def deletion(self) -> None:
        if not (listed := self.listed()):
            return
        first = self.chance.randint(0, 60)
        self.site.note(
            self.chance.choice(listed), self.chance.choice("ab"), first, first + 5,
            floor=self.chance.choice((0, self.site.look)),
        )  # fmt: skip

    def loss(self) -> None:
        if visible := self.visible():
            self.node.engine.commit([records.FileDeleted(self.chance.choice(visible), "operator")])

    def proofs(self) -> None:
        self.node.prover.run_once()

    def merge(self) -> None:
        self.clock.now += 100
        self.merged += self.node.compactor.run_once()

    def by_hand(self) -> None:
        self.node.compactor.compact("root.sg")
        self.merge()

    def let_go(self) -> None:
        self.clock.now += 5000
        self.node.merged.let_go(self.clock.now)

    def meanwhile(self) -> None:
        if self.chance.random() < 0.3:
            self.chance.choice((self.files, self.ends, self.deletion, self.loss))()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(tiers.examples(LIVES)))
def test_merged_files_change_no_answer_whatever_comes_and_goes(number: int, tmp_path: Path) -> None:
    lived(random.Random(f"{tiers.seed()}-{number}"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(tiers.examples(LIVES)))
def test_nor_where_files_have_times_of_several_partitions(number: int, tmp_path: Path) -> None:
    lived(random.Random(f"{tiers.seed()}-{number}"), tmp_path, partitions=3)


def lived(chance: random.Random, directory: Path, partitions: int = 1) -> None:
    clock = Clock()
    merge = {"enabled": True, "quiet": 60.0, "min_files": 3, "target_bytes": 1 << 16}
    world = World(
        directory, clock=clock, keep_deleted=100.0, metadata={"history": 1000.0}, merge=merge
    )
    with world.still_node() as node:
        if partitions > 1:
            with_interval(node, INTERVAL)
        life = Life(chance, node, clock, partitions)
        steps = [life.files, life.files, life.files, life.ends, life.deletion, life.loss,
                 life.proofs, life.merge, life.merge, life.by_hand, life.let_go]  # fmt: skip
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
