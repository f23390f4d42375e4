"""The receiver dies at every crash point of a write's commit: all of it is there, or nothing.

Said once more it is whole, or over by name; nothing is loaded twice, and nothing stays for ever.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from common import crash
from common.digests import md5, xxh3_64
from common.errors import GoneError
from receiver.load.upkeep.fsck import fsck
from receiver.node import Node
from receiver.operator.stored.files import list_files
from receiver.operator.views.write_wire import StagedPart, WriteRequest
from tests.support import tiers
from tests.support.node_world import World, tsfile

TASK, ATTEMPT = "7" * 32, "8" * 32
CONTENTS = [tsfile(), tsfile("root.sg.d2"), tsfile("root.sg.d3", points=300)]
SHARES = 2


def parts() -> list[StagedPart]:
    return [
        StagedPart(
            attempt=ATTEMPT,
            number=at,
            group="root.sg",
            partition=0,
            size=len(content),
            md5=md5(content).hexdigest(),
        )
        for at, content in enumerate(CONTENTS)
    ]


def fresh(root: Path) -> World:
    world = World(root / "world")
    with world.node() as node:
        writes = node.operator.writes
        writes.open(TASK, WriteRequest(), None)
        for at, content in enumerate([*CONTENTS, b"of an attempt that failed"]):
            writes.put(TASK, ATTEMPT, at, 0, memoryview(content), xxh3_64(content), None)
    return world


def commit(node: Node) -> set[str]:
    node.operator.writes.commit(TASK, parts(), None)
    while not (answer := node.operator.centre.answer(TASK, 5.0)).done:
        pass
    return {each.result for each in answer.files}


def visible(world: World) -> list[bytes]:
    with world.node() as node:
        rows = list_files(node.operator, state="live").files
        return sorted(world.loaded()[each.physical] for each in rows)


def in_child(world: World, wanted: int) -> None:
    pid = os.fork()
    if pid == 0:
        count = 0

        def hook(name: str) -> None:
            nonlocal count
            count += 1
            if count == wanted:
                os.kill(os.getpid(), signal.SIGKILL)

        code = 1
        try:
            with crash.arm(hook), world.node() as node:
                commit(node)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    world = fresh(tmp_path_factory.mktemp("dry"))
    seen: list[str] = []
    with crash.arm(seen.append), world.node() as node:
        assert commit(node) == {"loaded"}
    needed = {"centre.begun", "centre.copied", "centre.staged", "centre.write_closed"}
    assert needed | {"durable.rename.renamed", "load.committed"} <= set(seen)
    return seen


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_death_at_any_point_of_a_commit_shows_all_of_a_write_or_nothing(
    tmp_path: Path, points: list[str], share: int
) -> None:
    for at in tiers.passages(points)[share::SHARES]:
        world = fresh(tmp_path / str(at))
        in_child(world, at)
        before = visible(world)
        assert before in ([], sorted(CONTENTS)), points[at - 1]
        with world.node() as node:
            try:
                assert commit(node) == {"loaded"}, points[at - 1]
            except GoneError:  # it was cut off with files that had been moved
                assert before == []
            node.operator.writes.expire(node.clock() + 10**9)
            folder = node.load.centre_folder()
            assert list(folder.tree.files(folder.writes)) == [], points[at - 1]
            assert (folder.task, folder.staged.all()) == (None, [])
        assert visible(world) in ([], sorted(CONTENTS))
        assert fsck(world.config).found == [], points[at - 1]
