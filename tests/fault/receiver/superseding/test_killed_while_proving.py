"""The receiver dies at every crash point of proofs and of the space that they free.

Nothing but commits is state: the next life finds every file or its proof, gives the same answer,
and comes to the same end.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from common import crash
from receiver.load.upkeep.fsck import fsck
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState
from receiver.node import Node
from tests.support.node_world import Clock, World, fsck_of
from tests.support.proving import Site, in_this_process

SOURCES = [f"sequence/root.sg/0/0/{each}-{each}-0-0.tsfile" for each in range(1, 4)]
ALONE = "sequence/root.sg/0/0/4-4-0-0.tsfile"
FIRST = "sequence/root.sg/0/0/1-1-0-1.tsfile"
SECOND = "sequence/root.sg/0/0/1-1-0-2.tsfile"
POINTS = ("proofs.answered", "proofs.decided", "mlog.commit.before", "mlog.commit.durable",
          "mlog.commit.published", "proofs.committed", "reaper.superseded", "reaper.unlinked",
          "reaper.forgotten")  # fmt: skip


def world_at(root: Path, now: float = 1_700_000_000.0) -> World:
    return World(root, clock=Clock(now), keep_deleted=10.0, metadata={"history": 0.0})


def begin(root: Path) -> Site:
    """Two generations of compactions, and a file of which one point exists nowhere else."""
    with world_at(root).still_node() as node:
        site = Site(node)
        site.round({path: {"a": {at: 1, 9: at}} for at, path in enumerate(SOURCES, 1)})
        site.round({FIRST: {"a": {1: 1, 2: 1, 3: 1, 9: 3}}, ALONE: {"b": {1: 1, 5: 1}}}, SOURCES)
        site.round({SECOND: {"a": {1: 1, 2: 1, 3: 1, 9: 3}, "b": {1: 2}}}, [FIRST, ALONE])
        return site


def life(root: Path, at: float) -> None:
    """Prove all, and let what nobody needs go."""
    with world_at(root, at).still_node() as node:
        in_this_process(node)
        node.prover.run_once()
        node.load.reaper.run_once()


def dies(root: Path, at: float, name: str, passage: int) -> bool:
    """Whether a life came to the n-th passage of a point, and was killed there."""
    child = os.fork()
    if not child:
        try:
            with crash.arm(_killer(name, passage)):
                life(root, at)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _killer(name: str, passage: int):  # type: ignore[no-untyped-def]
    left = [passage]

    def hook(here: str) -> None:
        if here == name:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def answer(site: Site, node: Node) -> dict[tuple[str, int], int]:
    site.again(node)
    return site.answer()


@pytest.mark.few(4)
@pytest.mark.parametrize("name", POINTS)
def test_a_death_while_proving_changes_no_answer_and_is_made_good(
    tmp_path: Path, name: str
) -> None:
    site = begin(tmp_path)
    before = site.answer()
    start = 1_700_000_000.0
    for number, at in enumerate((start + 5, start + 60, start + 120), 1):
        dies(tmp_path, at, name, number)
        with world_at(tmp_path, at).still_node() as node:
            assert answer(site, node) == before
            with node.engine.reading() as state:
                for row in state.files.values():
                    kept = any(tree.exists(row.physical) for tree in node.load.disks.trees)
                    assert kept or row.state is FileState.DELETED, row.physical
    life(tmp_path, start + 200)
    life(tmp_path, start + 300)
    with world_at(tmp_path, start + 300).still_node() as node:
        assert answer(site, node) == before
        with node.engine.reading() as state:
            assert {row.path: row.state for row in state.files.values()} == {
                ALONE: FileState.RETIRED,
                SECOND: FileState.LIVE,
            }
        assert len(world_at(tmp_path).loaded()) == 2
        assert fsck_of(node).found == []


def test_each_point_is_one_that_a_life_comes_to(tmp_path: Path) -> None:
    begin(tmp_path)
    seen: set[str] = set()
    with crash.arm(seen.add):
        life(tmp_path, 1_700_000_005.0)
        life(tmp_path, 1_700_000_300.0)
    assert seen >= set(POINTS)


@pytest.mark.parametrize("both", [False, True])
def test_a_superseded_file_that_is_lost_is_forgotten_and_what_rested_on_it_comes_back_in_its_place(
    tmp_path: Path, both: bool
) -> None:
    site = begin(tmp_path)
    world = world_at(tmp_path)
    with world.still_node() as node:
        site.again(node)
        one, first, second = (site.row(each).physical for each in (SOURCES[0], FIRST, SECOND))
        node.engine.commit([records.FileSuperseded(one, [first])])
        node.engine.commit([records.FileSuperseded(first, [second])])
        for lost in (first, second)[: 1 + both]:
            (node.load.disks.trees[0].path / lost).unlink()
    report = fsck(world.config, repair=True)
    assert [each.repaired for each in report.found] == [True] * (1 + both)
    with world.still_node() as node:
        site.again(node)
        if not both:
            assert site.state(FIRST) is FileState.DELETED
            assert site.row(SOURCES[0]).rests == (second,)
            node.engine.commit([records.FileQuarantined(second, "rot")])
        assert site.state(SOURCES[0]) is FileState.RETIRED


def test_what_came_back_through_reaped_files_is_there_after_a_restart(tmp_path: Path) -> None:
    site = begin(tmp_path)
    with world_at(tmp_path).still_node() as node:
        site.again(node)
        in_this_process(node)
        one, first, second = (site.row(each).physical for each in (SOURCES[0], FIRST, SECOND))
        node.engine.commit([records.FileSuperseded(one, [first])])
        node.engine.commit([records.FileSuperseded(first, [second])])
        node.engine.commit([records.FileDeleted(first, "superseded")])
        node.load.reaper.run_once()
        assert not (node.load.disks.trees[0].path / first).exists()
        node.engine.checkpoint()
    with world_at(tmp_path).still_node() as node:
        site.again(node)
        node.engine.commit([records.FileQuarantined(second, "rot")])
        assert site.state(SOURCES[0]) is FileState.RETIRED
