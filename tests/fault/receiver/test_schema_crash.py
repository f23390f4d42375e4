"""The receiver dies at every crash point of a task with a schema; the next life makes it good.

As in test_node_crash: a child is killed at one passage of one point. What was acknowledged of the
schema does not travel again, an acknowledged end is applied, in one commit with the files, and the
same from there on.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import xxhash

from common import crash, wire
from common.formats.schemawire import encode_schema_block
from common.formats.tlogtext import write_slot
from common.wire import SchemaKind
from receiver.load.schema import task_schema
from receiver.load.upkeep.fsck import fsck
from receiver.metadata.model.paths import parse_pattern
from tests.support import tiers
from tests.support.node_world import (
    A,
    Edge,
    World,
    manifest_entry,
    path_of,
    plan_entry,
    results,
    tsfile,
)

TASK = "7" * 32
CONTENT = tsfile("root.sg.d1")
OLD = b"2,root.sg\n0,root.sg.d1.old,1,0,0,,,\n0,root.sg.d1.stays,1,0,0,,,\n"
NEW = b"1,root.sg.d1.old\n" + b"".join(
    f"0,root.sg.d{each % 4}.s{each},1,0,0,,a{each},{each * 700}\n".encode() for each in range(2, 20)
)
SLOTS = {each * 700: write_slot({"n": str(each)}, {}, None) for each in range(2, 20)}
EXPECTED = sorted(
    [
        *(f"root.sg.d{each % 4}.s{each}" for each in range(2, 20)),
        "root.sg.d1.s1",
        "root.sg.d1.stays",
    ]
)
PIECE = 150


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_schema, "_STEP", 15)  # of about twenty


def begin(world: World) -> str:
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        task = edge.start()
        send(edge, task, OLD, 0, 0)
        finish(edge, task, 0, len(OLD), [])
        return edge.epoch or ""


def send(edge: Edge, task: str, data: bytes, base: int, at: int) -> None:
    body = encode_schema_block(SchemaKind.TEXT, "log", base, at, data, SLOTS if at == 0 else {})
    edge.node.tasks.schema(edge.who, A, task, edge.epoch, body)


def finish(edge: Edge, task: str, base: int, size: int, files: list[str]) -> None:
    schema = wire.SchemaEnd(
        kind=SchemaKind.TEXT, identity="log", base=base, size=size, offset=base + size
    )
    manifest = [manifest_entry(path, CONTENT) for path in files]
    request = wire.EndRequest(manifest=manifest, schema=schema)
    edge.node.tasks.end(edge.who, A, task, edge.epoch, request)
    edge.outcome(task)


def the_round(world: World, told: Path) -> None:
    """One round, saying what it is told; can be begun again after any crash."""
    with world.node() as node:
        edge = Edge(node, epoch=(told / "epoch").read_text())
        request = wire.StartRequest(engine=node.engine.uuid, epoch=edge.epoch)
        answer = node.tasks.start(edge.who, A, TASK, request)
        edge.epoch = answer.epoch or edge.epoch
        (told / "epoch").write_text(str(edge.epoch))
        if answer.state is wire.TaskState.OPEN:
            ship(edge, told, answer.schema_staged)
            decisions = edge.plan(TASK, [plan_entry(path_of(1), CONTENT)])
            if decisions[0].action is wire.Action.SEND:
                assert [each.problem for each in edge.batch(TASK, {path_of(1): CONTENT})] == [None]
            finish(edge, TASK, len(OLD), len(NEW), [path_of(1)])
        assert results(edge.outcome(TASK)) == {path_of(1): "loaded"}


def ship(edge: Edge, told: Path, staged: wire.SchemaStaged | None) -> None:
    at = 0 if staged is None else staged.size
    acknowledged = told / "acknowledged"
    if acknowledged.exists():
        assert at >= int(acknowledged.read_text())
    if staged is not None:
        assert staged.digest == xxhash.xxh3_128_hexdigest(NEW[:at])
    while at < len(NEW):
        send(edge, TASK, NEW[at : at + PIECE], len(OLD), at)
        at = min(at + PIECE, len(NEW))
        acknowledged.write_text(str(at))


def check_end(world: World) -> None:
    with world.node() as node:
        with node.engine.reading() as state:
            schema = state.schema
            rows = schema.series.match(parse_pattern("root.**"))
            assert sorted(schema.series.describe(row).path for row in rows) == EXPECTED
            there = state.schema_positions[A]
            assert (there.identity, there.offset) == ("log", len(OLD) + len(NEW))
            assert (there.applied, there.unapplied) == (22, 0)
            file = state.file_table.live(A, path_of(1))
            assert file is not None
            assert file.created == there.changed
            found = schema.series.describe(schema.series.find(("root", "sg", "d3", "a7")))
        assert node.engine.tags_of(found.tags_at) == ({"n": "7"}, {})
        assert node.load.loader.waiting == 0
    assert fsck(world.config).found == []
    left = [each.name for each in world.folder().iterdir() if each.is_file()]
    assert left == ["verified.log"]


def die_at(wanted: int | None, seen: list[str]) -> object:
    count = 0

    def hook(name: str) -> None:
        nonlocal count
        count += 1
        seen.append(name)
        if count == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return crash.arm(hook)


def in_child(world: World, told: Path, wanted: int) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with die_at(wanted, []):  # type: ignore[attr-defined]
                the_round(world, told)
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0


def fresh(root: Path) -> tuple[World, Path]:
    world, told = World(root / "world"), root / "told"
    told.mkdir(parents=True)
    (told / "epoch").write_text(begin(world))
    return world, told


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The points that a round passes; those that must be among them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_schema, "_STEP", 15)
        world, told = fresh(tmp_path_factory.mktemp("dry"))
        seen: list[str] = []
        with die_at(None, seen):  # type: ignore[attr-defined]
            the_round(world, told)
        check_end(world)
    assert seen.count("taskschema.step") == 1
    assert {"schemastage.added", "load.committed", "finish.staged"} <= set(seen)
    return seen


SHARES = 4


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_death_at_any_point_loses_nothing_of_a_schema_and_applies_it_once(
    tmp_path: Path, points: list[str], share: int
) -> None:
    for at in tiers.passages(points)[share::SHARES]:
        world, told = fresh(tmp_path / str(at))
        in_child(world, told, at)
        the_round(world, told)
        check_end(world)
