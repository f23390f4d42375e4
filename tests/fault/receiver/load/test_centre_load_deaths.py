"""The receiver dies at every crash point of a load at the centre: all of it is there, or nothing.

Said once more it is whole, nothing is loaded twice, and nothing is left of the first try.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from common import crash
from common.errors import NoSpaceError
from receiver.load.upkeep.fsck import fsck
from receiver.operator.centre import load_carrier
from receiver.operator.stored.files import list_files
from receiver.operator.views.load_wire import CentreLoadRequest
from tests.support import tiers
from tests.support.node_world import A, Edge, World, path_of, tsfile

FILES = {
    path_of(1): tsfile(first=100),
    f"{path_of(1)}.resource": b"resource of one",
    path_of(2): tsfile("root.sg.d2"),
    f"{path_of(2)}.mods": f"DELETION,root.sg.d2.*,{2**63 - 1},2,3\n".encode(),
    path_of(3, partition=1): tsfile(first=300, points=300),
}
TSFILES = [content for path, content in FILES.items() if path.endswith(".tsfile")]
TASK = "7" * 32
SHARES = 4


def fresh(root: Path) -> tuple[World, Path]:
    world, old = World(root / "world"), root / "old"
    with world.node() as node:
        Edge(node).round({path_of(9): tsfile()})
    for path, content in FILES.items():
        (old / path).parent.mkdir(parents=True, exist_ok=True)
        (old / path).write_bytes(content)
    return world, old


def the_load(world: World, old: Path, task: str = TASK) -> set[str]:
    with world.node() as node:
        request = CentreLoadRequest(task=task, paths=[str(old)], owner=A)
        return {each.result for each in node.operator.centre.load(request).files}


def visible(world: World) -> list[bytes]:
    with world.node() as node:
        rows = list_files(node.operator, state="live").files
        return sorted(world.loaded()[each.physical] for each in rows if each.sender != A)


def die_at(wanted: int | None, seen: list[str] | None = None) -> object:
    count = 0

    def hook(name: str) -> None:
        nonlocal count
        count += 1
        if seen is not None:
            seen.append(name)
        if count == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return crash.arm(hook)


def in_child(world: World, old: Path, wanted: int) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with die_at(wanted):  # type: ignore[attr-defined]
                the_load(world, old)
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    world, old = fresh(tmp_path_factory.mktemp("dry"))
    seen: list[str] = []
    with die_at(None, seen):  # type: ignore[attr-defined]
        assert the_load(world, old) == {"loaded"}
    needed = {"centre.begun", "centre.copied", "centre.staged", "intake.moved", "task.end.ended"}
    assert needed | {"placing.moved", "load.committed", "finish.done"} <= set(seen)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_death_at_any_point_shows_all_of_a_load_or_nothing_and_said_again_it_is_whole(
    tmp_path: Path, points: list[str], share: int
) -> None:
    for at in tiers.passages(points)[share::SHARES]:
        world, old = fresh(tmp_path / str(at))
        in_child(world, old, at)
        assert visible(world) in ([], sorted(TSFILES)), points[at - 1]
        assert the_load(world, old, "8" * 32) in ({"loaded"}, {"already"}), points[at - 1]
        assert visible(world) == sorted(TSFILES)
        with world.node() as node:
            folder = node.load.centre_folder()
            assert (folder.task, folder.staged.all()) == (None, [])
        assert fsck(world.config).found == [], points[at - 1]
        assert sorted(world.loaded().values()) == sorted(
            [*TSFILES, tsfile(), FILES[f"{path_of(1)}.resource"]]
        )
        assert {path: (old / path).read_bytes() for path in FILES} == FILES


def test_what_a_dead_load_had_copied_is_swept_at_the_next_start(
    tmp_path: Path, points: list[str]
) -> None:
    world, old = fresh(tmp_path)
    in_child(world, old, points.index("centre.staged") + 1)
    with world.node() as node:
        folder = node.load.centre_folder()
        assert (folder.task, folder.staged.all()) == (None, [])
        assert list(node.load.disks.roomiest().files(folder.at("data"))) == []
    assert visible(world) == []


def test_a_disk_that_fills_while_files_are_copied_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, old = fresh(tmp_path)
    copy, done = load_carrier.LoadCarrier._copy, []

    def full(*given: object) -> object:
        if len(done) == 2:
            raise NoSpaceError("the disk is full")
        done.append(given)
        return copy(*given)  # type: ignore[arg-type]

    with world.node() as node:
        request = CentreLoadRequest(task=TASK, paths=[str(old)], owner=A)
        with monkeypatch.context() as patch:
            patch.setattr(load_carrier.LoadCarrier, "_copy", full)
            with pytest.raises(NoSpaceError):
                node.operator.centre.load(request)
        folder = node.load.centre_folder()
        assert (folder.task, folder.staged.all()) == (None, [])
        assert list(node.load.disks.roomiest().files(folder.at("data"))) == []
    assert visible(world) == []
    assert the_load(world, old, "8" * 32) == {"loaded"}
