"""The receiver dies at every crash point of an adoption: said again it is whole, nothing is twice.

The old receiver's directories stay as they are, or what is moved has no name there in the end.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common import crash
from receiver.load.upkeep.fsck import fsck
from receiver.operator.adopting import bringing_in
from receiver.operator.stored.files import list_files
from receiver.operator.views.load_wire import AdoptionAnswer, AdoptionRequest
from tests.support import tiers
from tests.support.node_world import A, Edge, World, path_of, tsfile
from tests.support.old_tool import OTHER, UUID, OldReceiverTree, name_of, tree_of

FILES = {
    path_of(1): tsfile(first=100),
    f"{path_of(1)}.resource": b"resource of one",
    path_of(2): tsfile(first=200),
    path_of(3): tsfile(first=300),
    path_of(3, sg="root.other"): tsfile("root.other.x"),
}
SHARES = 4


def fresh(root: Path) -> tuple[World, OldReceiverTree]:
    world, old = World(root / "world"), OldReceiverTree(root / "iotdb")
    with world.node() as node:
        Edge(node).round({path_of(9): tsfile("root.sg.mine")})
    old.loaded(FILES)
    old.owners(
        {
            "root.sg.d1": name_of(),
            "root.other.x": name_of(OTHER, "10.0.0.9"),
            "root.sg.idle": name_of(),
        }
    )
    return world, old


def adopt(world: World, old: OldReceiverTree, task: str, *, move: bool) -> AdoptionAnswer:
    with world.node() as node:
        request = AdoptionRequest(task=task, paths=[str(old.root)], move=move, commit=True)
        return node.operator.adoptions.adopt(request)


@contextmanager
def die_at(wanted: int | None, seen: list[str] | None = None) -> Iterator[None]:
    count = 0

    def hook(name: str) -> None:
        nonlocal count
        count += 1
        if seen is not None:
            seen.append(name)
        if count == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    bringing_in._TASK_FILES = 2
    with crash.arm(hook):
        yield


def in_child(world: World, old: OldReceiverTree, wanted: int, *, move: bool) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            with die_at(wanted):
                adopt(world, old, "7" * 32, move=move)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0


@pytest.fixture(scope="module", params=[False, True], ids=["copied", "moved"])
def points(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[bool, list[str]]]:
    move: bool = request.param
    world, old = fresh(tmp_path_factory.mktemp("dry"))
    before, seen = bringing_in._TASK_FILES, []
    with die_at(None, seen):
        assert adopt(world, old, "7" * 32, move=move).committed
    needed = {"adoption.begun", "adoption.brought", "adoption.staged", "intake.moved"}
    if move:
        needed |= {"adoption.let_go", "durable.link.linked"}
    assert needed | {"placing.moved", "load.committed", "finish.done"} <= set(seen)
    yield move, seen
    bringing_in._TASK_FILES = before


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_death_at_any_point_is_mended_by_saying_it_again(
    tmp_path: Path, points: tuple[bool, list[str]], share: int
) -> None:
    move, passed = points
    for at in tiers.passages(passed)[share::SHARES]:
        world, old = fresh(tmp_path / str(at))
        before = tree_of(old.home)
        in_child(world, old, at, move=move)
        assert adopt(world, old, "8" * 32, move=move).committed, passed[at - 1]
        left = {name: before[name] for name in before if "/sync/" in name}
        assert tree_of(old.home) == (left if move else before), passed[at - 1]
        _see_whole(world, passed[at - 1])


def _see_whole(world: World, died: str) -> None:
    with world.node() as node:
        rows = [each for each in list_files(node.operator).files if each.sender != A]
        assert {(each.path, each.sender) for each in rows} == {
            *((path_of(number), UUID) for number in (1, 2, 3)),
            (path_of(3, sg="root.other"), OTHER),
        }, died
        assert len(rows) == 4
        assert all(each.adopted for each in rows)
        with node.engine.reading() as state:
            assert state.owners["root.sg.idle"].sender == UUID
        for uuid in (UUID, OTHER):
            folder = node.load.folder_of(uuid, "")
            assert (folder.task, folder.staged.all()) == (None, [])
    assert fsck(world.config).found == [], died
    expected = sorted([*FILES.values(), tsfile("root.sg.mine")])
    assert sorted(world.loaded().values()) == expected, died
    assert {each.stat().st_nlink for each in world.data.rglob("*.tsfile")} == {1}
