"""A receiver dies while a data directory is drained; each file is whole somewhere at any moment.

A child drains a directory and is killed (SIGKILL, all threads) at one passage of one point. Then
the bytes on the disks are compared with what was acknowledged, without the receiver; the next life
has to read all of it, and to come to the end of the draining.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from common import crash
from receiver.load.placing import tree_of
from receiver.node import Node
from receiver.operator.places.node_lists import drain_node, list_nodes, undrain_node
from tests.support import powercut, tiers
from tests.support.disk import heal
from tests.support.moved_bytes import contents, lost_of, places_of
from tests.support.node_world import A, B, Clock, Edge, World, fsck_of, path_of, tsfile

FILES = {path_of(each, partition=each % 2): tsfile(f"root.sg.d{each}") for each in range(4)}
BAD = b"TsFile no more" * 20
OTHERS = {path_of(9): tsfile("root.sg.d9")}
RESOURCE = b"of the first"


def begin(root: Path) -> World:
    world = World(root, keep_deleted=0.0, clock=Clock())
    node = world.still_node()
    edge = Edge(node)
    edge.round(FILES, resources={path_of(0): RESOURCE})
    task = edge.start()
    edge.batch(task, {path_of(7): BAD})  # bytes in quarantine go along
    edge.end(task, {})
    edge.outcome(task)
    node.close()
    return world


def empty(node: Node, world: World) -> None:
    """Drain the first directory, to the end."""
    drain_node(node.operator, str(world.data))
    while node.load.mover.run_once():
        pass


def read(node: Node) -> dict[str, bytes]:
    """What readers get, by the directory that the catalogue names."""
    with node.engine.reading() as state:
        rows = [row for row in state.files.values() if row.visible]
    found = {}
    for row in rows:
        tree = tree_of(node.load.disks.trees, row)
        assert tree is not None, row.path
        found[row.path] = tree.read(row.physical)
        named = Path(row.data_dir) / row.physical
        assert named.read_bytes() == found[row.path], "the catalogue names one that has it"
    return found


def in_child(world: World, wanted: int, *, undrain: bool = False) -> bool:
    """Drain in a child that dies at a passage; whether it died."""
    pid = os.fork()
    if pid == 0:
        code = 1
        count = 0

        def hook(_: str) -> None:
            nonlocal count
            count += 1
            if count == wanted:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            node = world.still_node()
            with crash.arm(hook):
                if undrain:
                    undrain_node(node.operator, str(world.data))
                    node.load.mover.run_once()
                else:
                    empty(node, world)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def check_bytes(world: World, files: dict[str, bytes] = FILES) -> None:
    assert lost_of(world.config.data_dirs, files) == []


def check_end(node: Node, world: World, files: dict[str, bytes] = FILES) -> None:
    assert read(node) == files
    assert contents(world.root / "data") == {}
    for path, content in files.items():
        assert len(places_of(world.config.data_dirs, path, content)) == 1, "once, and no more"
    there = contents(world.root / "data2")
    assert [there[each] for each in there if each.endswith(".resource")] == [RESOURCE]
    with node.engine.reading() as state:
        (kept,) = (row.kept for row in state.quarantine.values())
    assert kept is not None
    assert (world.root / "data2" / kept).read_bytes() == BAD
    assert fsck_of(node).found == []
    (view,) = (each for each in list_nodes(node.operator).nodes if each.name == str(world.data))
    assert view.drain is not None
    assert view.drain.empty


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The points that a draining passes; those that must be among them."""
    world = begin(tmp_path_factory.mktemp("dry"))
    seen: list[str] = []
    node = world.still_node()
    with crash.arm(seen.append):
        empty(node, world)
    check_end(node, world)
    node.close()
    needed = {"move.begun", "move.copied", "move.named", "move.committed", "move.settled"}
    needed |= {"move.half_gone", "move.gone", "move.kept_copied", "folder.made", "folder.left"}
    assert needed <= set(seen)
    return seen


SHARES = 4


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_death_at_any_point_of_a_move_leaves_each_file_whole_and_the_next_life_ends_it(
    tmp_path: Path, points: list[str], share: int
):
    for at in tiers.passages(points)[share::SHARES]:
        world = begin(tmp_path / str(at))
        assert in_child(world, at), points[at - 1]
        check_bytes(world)
        node = world.still_node()
        assert read(node) == FILES, points[at - 1]
        Edge(node, B).round(OTHERS)
        empty(node, world)
        check_end(node, world, FILES | OTHERS)
        node.close()


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_draining_that_was_cut_off_and_given_up_leaves_each_file_once(
    tmp_path: Path, points: list[str], share: int
):
    for number, at in enumerate(tiers.passages(points)[share::SHARES]):
        world = begin(tmp_path / str(at))
        in_child(world, at)
        in_child(world, number % 13 + 1, undrain=True)
        check_bytes(world)
        node = world.still_node()
        undrain_node(node.operator, str(world.data))
        node.load.mover.run_once()
        assert read(node) == FILES, points[at - 1]
        assert fsck_of(node).found == []
        assert not list(world.root.glob("data*/moving/*"))
        node.close()


POINTS = [
    "move.begun",
    "move.copied",
    "move.named",
    "move.committed",
    "move.settled",
    "move.half_gone",
    "move.gone",
    "move.kept_copied",
]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_power_cut_at_any_step_of_a_move_leaves_each_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
):
    heal(monkeypatch)
    with powercut.disk(tmp_path, megabytes=32) as disk:
        world = begin(disk.path / "r")
        node = world.still_node()

        def dies(here: str) -> None:
            if here == point:
                raise crash.SimulatedCrash(here)

        with crash.arm(dies), suppress(crash.SimulatedCrash):
            empty(node, world)
            raise AssertionError(f"{point} was not passed")
        powercut.let_go(disk.path)
        disk.cut()
        check_bytes(world)
        again = world.still_node()
        assert read(again) == FILES
        empty(again, world)
        check_end(again, world)
        with again.engine.reading() as state:
            assert A in state.senders
        again.close()
