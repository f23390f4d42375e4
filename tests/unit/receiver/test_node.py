"""Whole rounds: at the end the loaded set equals the senders' set, file by file, byte by byte."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from common import wire
from common.errors import LockedError
from receiver.node import Node
from receiver.operator.stored.files import list_files
from tests.support.node_world import A, B, Edge, World, fsck_of, path_of, results, tsfile
from tests.support.web import descriptors


def loaded_set(world: World, node: Node, uuid: str) -> dict[str, bytes]:
    on_disk = world.loaded()
    rows = list_files(node.operator, sender=uuid, limit=1000).files
    assert len({row.path for row in rows}) == len(rows)
    return {row.path: on_disk[row.physical] for row in rows}


def files_of(edge: str, numbers: range, *, kind: str = "sequence") -> dict[str, bytes]:
    """Files of several storage groups, virtual groups and partitions."""
    groups = ["root.sg_1", "root.sg", "root.été", "root.`a b`"]
    return {
        f"{kind}/{groups[n % 4]}/{n % 2}/{n % 3}/{1_600_000_000_000 + n}-{n}-0-0.tsfile": tsfile(
            f"root.{edge}.d{n % 5}", first=n * 100
        )
        for n in numbers
    }


def test_new_late_and_deleted_files_of_two_senders_in_three_rounds(tmp_path: Path) -> None:
    """The rounds that the sync tool's own tests had, with a restart before each."""
    world = World(tmp_path)
    have: dict[str, dict[str, bytes]] = {A: {}, B: {}}
    memory: dict[str, tuple[str | None, str | None]] = {A: (None, None), B: (None, None)}
    for number in range(3):
        with world.node() as node:
            for uuid in (A, B):
                edge = Edge(node, uuid)
                edge.epoch, edge.engine = memory[uuid]
                edge.check()
                new = files_of(uuid[0], range(number * 12, number * 12 + 12))
                new |= files_of(uuid[0], range(number * 12, number * 12 + 4), kind="unsequence")
                gone = sorted(have[uuid])[::3]
                outcome = edge.round(new, gone, propagate=wire.Propagate.ALL, uploads=number == 1)
                assert set(results(outcome).values()) <= {"loaded", "deleted"}
                have[uuid] = {**{p: c for p, c in have[uuid].items() if p not in gone}, **new}
                memory[uuid] = edge.epoch, edge.engine
            for uuid in (A, B):
                assert loaded_set(world, node, uuid) == have[uuid]
            assert fsck_of(node).found == []


@pytest.mark.parametrize("seed", range(3))
def test_a_restart_between_any_two_steps_changes_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = World(tmp_path)
    have: dict[str, bytes] = {}
    epoch = None
    node = world.node()

    def perhaps_restart(edge: Edge) -> None:
        nonlocal node
        if chance.random() < 0.5:
            node.close()
            node = world.node()
            edge.node = node

    for number in range(4):
        edge = Edge(node, epoch=epoch)
        new = files_of("a", range(number * 5, number * 5 + 5))
        gone = chance.sample(sorted(have), min(2, len(have)))
        perhaps_restart(edge)
        task = edge.start(propagate=wire.Propagate.ALL)
        perhaps_restart(edge)
        from tests.support.node_world import plan_entry

        edge.plan(task, [plan_entry(*each) for each in new.items()])
        perhaps_restart(edge)
        edge.deleted(task, gone)
        for path, content in new.items():
            perhaps_restart(edge)
            if chance.random() < 0.5:
                edge.batch(task, {path: content})
            else:
                edge.upload(task, path, content, chunk=150)
        perhaps_restart(edge)
        edge.end(task, new, gone)
        perhaps_restart(edge)
        edge.outcome(task)
        epoch = edge.epoch
        have = {**{path: c for path, c in have.items() if path not in gone}, **new}
        assert loaded_set(world, node, A) == have
    node.close()


def test_a_lost_list_loads_nothing_twice_and_deletes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    files = files_of("a", range(8))
    with world.node() as node:
        edge = Edge(node)
        edge.round(files)
        inventory = node.listing.inventory(edge.who, A, None, 100).entries
        assert {each.path for each in inventory} == set(files)
        again = edge.round(files)
        assert set(results(again).values()) == {"already"}
        assert len(world.loaded()) == 8


def test_one_directory_has_one_receiver(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world.node(), pytest.raises(LockedError):
        world.node()


def test_a_node_that_could_not_open_leaves_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import receiver.node as module

    world = World(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(module.Uploads, "recover", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            world.node()
    world.node().close()


def test_a_closed_node_has_no_threads_and_no_descriptors_left(tmp_path: Path) -> None:
    import threading

    world = World(tmp_path)
    world.node().close()
    threads, files = set(threading.enumerate()), descriptors()
    for number in range(3):
        with world.node() as node:
            edge = Edge(node, f"{number + 1}" * 32)
            edge.round({path_of(number): tsfile(f"root.s.d{number}")}, uploads=True)
            edge.start()
    # Those of earlier tests may end meanwhile.
    assert set(threading.enumerate()) <= threads
    assert descriptors() <= files


def test_many_senders_at_once_disturb_each_other_not(tmp_path: Path) -> None:
    import threading

    world = World(tmp_path)
    problems: list[BaseException] = []
    with world.node() as node:

        def run(number: int) -> None:
            try:
                edge = Edge(node, f"{number + 1:x}" * 32)
                for turn in range(3):
                    files = {
                        path_of(turn * 10 + n): tsfile(f"root.e{number}.d{n}", first=turn * 100)
                        for n in range(3)
                    }
                    outcome = edge.round(files, uploads=bool((turn + number) % 2))
                    assert set(results(outcome).values()) == {"loaded"}
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        assert len(world.loaded()) == 6 * 9
        assert fsck_of(node).found == []
