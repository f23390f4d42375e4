"""The receiver dies at every crash point of a task; the next life must make all of it good.

Each run forks a child that opens the node, does a round and is killed (SIGKILL, all threads) at
one passage of one point. What the child was told before it died is the measure: acknowledged bytes
are there, an acknowledged end is loaded, nothing is loaded twice, nothing unverified is visible,
and the next round completes.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from common import crash, wire
from receiver.load.upkeep.fsck import fsck
from receiver.operator.stored.files import list_files
from tests.support import tiers
from tests.support.node_world import (
    A,
    B,
    Edge,
    World,
    path_of,
    plan_entry,
    resource_entry,
    results,
    tsfile,
)

OLD = {
    path_of(1): tsfile(),
    path_of(2, partition=1): tsfile(first=100),
    path_of(6): tsfile("root.sg.d6"),
}
NEW = {
    path_of(1): tsfile(salt=7),  # a replacement
    path_of(3): tsfile(first=200, points=300),  # uploaded in blocks
    path_of(4): tsfile("root.sg.d4"),  # in a batch, with its resource
    path_of(5, partition=1): tsfile("root.sg.b1"),  # a device of B: in conflict
}
RESOURCE = b"resource of four"
ANEW = b"another resource of six"  # which is loaded, and stays
GONE = [path_of(2, partition=1)]
TASK = "7" * 32
CHUNK = 1000


class Told:
    """What the sender was told, and keeps whatever happens to the receiver."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def note(self, **what: object) -> None:
        with self._file.open("a") as out:
            out.write(json.dumps(what) + "\n")

    def all(self) -> list[dict[str, object]]:
        if not self._file.exists():
            return []
        return [json.loads(line) for line in self._file.read_text().splitlines()]

    def last(self, key: str) -> object:
        return next((each[key] for each in reversed(self.all()) if key in each), None)


def begin(world: World) -> str:
    with world.node() as node:
        Edge(node, B).round({path_of(9): tsfile("root.sg.b1")})
        edge = Edge(node)
        outcome = edge.round(OLD, resources={path_of(6): b"resource of six"})
        assert set(results(outcome).values()) == {"loaded"}
        return edge.epoch or ""


def the_round(world: World, told: Told) -> dict[str, str]:
    """One round of A, saying what it is told; can be begun again after any crash."""
    with world.node() as node:
        edge = Edge(node, epoch=str(told.last("epoch")))
        edge.start(TASK, wire.Propagate.ALL)
        told.note(epoch=edge.epoch)
        state = node.tasks.answer(edge.who, A, TASK).state
        if state is wire.TaskState.OPEN:
            send(edge, told)
            edge.end(TASK, told_of(), GONE)
            told.note(ended=True)
        outcome = results(edge.outcome(TASK))
        told.note(outcome=outcome)
        return outcome


def told_of() -> dict[str, bytes]:
    """Files of the manifest: new ones, one in conflict, one of which the resource alone comes."""
    files = {path: NEW[path] for path in list(NEW)[:3]} | conflict()
    return files | {path_of(6): OLD[path_of(6)]}


def conflict() -> dict[str, bytes]:
    return {path_of(5, partition=1): NEW[path_of(5, partition=1)]}


def send(edge: Edge, told: Told) -> None:
    entries = [
        plan_entry(
            path,
            content,
            devices=[],  # no hint: the conflict is found when it is loaded
            replaces=path == path_of(1),
            resource=resource_entry(RESOURCE) if path == path_of(4) else None,
        )
        for path, content in NEW.items()
    ]
    six = path_of(6)
    entries.append(plan_entry(six, OLD[six], resource=resource_entry(ANEW)))
    decisions = {each.path: each for each in edge.plan(TASK, entries)}
    check_promises(told, decisions)
    edge.deleted(TASK, GONE)
    upload(edge, told, decisions[path_of(3)])
    goes = {
        path: NEW[path]
        for path in (path_of(1), path_of(4), path_of(5, partition=1))
        if decisions[path].action is wire.Action.SEND
    }
    if decisions[path_of(4)].resource:
        goes[f"{path_of(4)}.resource"] = RESOURCE
    if decisions[six].resource:
        goes[f"{six}.resource"] = ANEW
    if goes:
        for each in edge.batch(TASK, goes):
            assert each.problem is None
            told.note(verified=each.path)


def upload(edge: Edge, told: Told, decision: wire.PlanDecision) -> None:
    path, content = decision.path, NEW[decision.path]
    if decision.action is wire.Action.SEND:
        view = edge.node.uploads.create(edge.who, A, len(content), {"path": path, "task": TASK})
    elif decision.action is wire.Action.RESUME:
        assert decision.upload is not None
        view = edge.node.uploads.head(edge.who, decision.upload)
        assert view.offset == decision.offset
    else:
        return
    while view.offset < len(content):
        block = content[view.offset : view.offset + CHUNK]
        view = edge.node.uploads.patch(edge.who, view.id, view.offset, block, at_once=True)
        told.note(offset=view.offset)
    told.note(verified=path)


def check_promises(told: Told, decisions: dict[str, wire.PlanDecision]) -> None:
    """What was acknowledged before a crash does not travel again."""
    for each in told.all():
        verified = str(each.get("verified", ""))
        if verified.endswith(".resource"):
            assert not decisions[verified.removesuffix(".resource")].resource
        elif verified:
            assert decisions[verified].action in (wire.Action.HAVE, wire.Action.ALREADY)
    offset = told.last("offset")
    if isinstance(offset, int) and offset < len(NEW[path_of(3)]):
        decision = decisions[path_of(3)]
        assert decision.action is wire.Action.HAVE or decision.offset >= offset


EXPECTED = {
    path_of(1): "loaded",
    path_of(2, partition=1): "held",
    path_of(3): "loaded",
    path_of(4): "loaded",
    path_of(5, partition=1): "conflict",
    path_of(6): "already",
}


def check_end(world: World, outcome: dict[str, str]) -> None:
    assert outcome == EXPECTED
    with world.node() as node:
        edge = Edge(node)
        rows = node.listing.inventory(edge.who, A, None, 100).entries
        assert sorted(each.path for each in rows) == sorted([*list(NEW)[:3], *GONE, path_of(6)])
        visible = list_files(node.operator, sender=A, state="live").files
        content = {each.path: world.loaded()[each.physical] for each in visible}
        assert content == {
            **{path: NEW[path] for path in list(NEW)[:3]},
            GONE[0]: OLD[GONE[0]],
            path_of(6): OLD[path_of(6)],
        }
        places = {each.path: each.physical for each in visible}
        assert world.loaded()[f"{places[path_of(4)]}.resource"] == RESOURCE
        assert world.loaded()[f"{places[path_of(6)]}.resource"] == ANEW
        assert node.load.loader.waiting == 0
        assert node.uploads.numbers() == (0, 0)
    report = fsck(world.config)
    assert report.found == []
    left = [each.name for each in world.folder().iterdir() if each.is_file()]
    assert left == ["verified.log"]


def die_at(wanted: int | None, seen: list[str] | None = None) -> object:
    """Kill this process at the `wanted`-th passage of any point."""
    count = 0

    def hook(name: str) -> None:
        nonlocal count
        count += 1
        if seen is not None:
            seen.append(name)
        if count == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return crash.arm(hook)


def in_child(world: World, told: Told, wanted: int, *, only_open: bool = False) -> bool:
    """Do the round in a child that dies at a point; whether it died."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with die_at(wanted):  # type: ignore[attr-defined]
                if only_open:
                    world.node().close()
                else:
                    the_round(world, told)
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def fresh(root: Path) -> tuple[World, Told]:
    world, told = World(root / "world"), Told(root / "told")
    told.note(epoch=begin(world))
    return world, told


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The points that a round passes; those that must be among them."""
    world, told = fresh(tmp_path_factory.mktemp("dry"))
    seen: list[str] = []
    with die_at(None, seen):  # type: ignore[attr-defined]
        outcome = the_round(world, told)
    check_end(world, outcome)
    needed = {"task.start.log", "upload.block_logged", "intake.moved", "intake.recorded"}
    needed |= {"task.end.ended", "placing.moved", "load.committed", "finish.staged"}
    needed |= {"placing.resource.written", "placing.resource.placed", "finish.resources"}
    assert needed <= set(seen)
    return seen


SHARES = 8


@pytest.mark.few(5, always="[0]")
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_death_at_any_point_of_a_task_loses_nothing_and_loads_nothing_twice(
    tmp_path: Path, points: list[str], share: int
) -> None:
    for at in tiers.passages(points)[share::SHARES]:
        world, told = fresh(tmp_path / str(at))
        in_child(world, told, at)
        ended = told.last("ended")
        outcome = the_round(world, told)
        if ended:
            assert outcome == EXPECTED
        check_end(world, outcome)


@pytest.mark.few(4)
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_recovery_cut_off_anywhere_and_run_again_gives_the_same(
    tmp_path: Path, points: list[str], share: int
) -> None:
    """The child dies in the last part of the round, then twice more during recovery."""
    late = [at for at in tiers.passages(points) if at > len(points) // 3]
    for number, at in enumerate(late[share::SHARES]):
        world, told = fresh(tmp_path / str(at))
        in_child(world, told, at)
        for second in (number % 23 + 1, number % 11 + 1):
            in_child(world, told, second, only_open=True)
        check_end(world, the_round(world, told))
