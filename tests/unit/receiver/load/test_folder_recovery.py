"""Starts after a death: sync.log, load.log, sync.end in every combination the seed names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from common import crash, wire
from common.errors import DiskError
from receiver.datadirs.directory_finding import adopt
from receiver.node import Node
from receiver.open_engine import open_engine
from receiver.operator.stored.files import list_files
from tests.support.node_world import (
    A,
    Edge,
    World,
    fsck_of,
    path_of,
    plan_entry,
    results,
    tsfile,
)

FILES = {path_of(number): tsfile(first=number * 100) for number in (1, 2)}


def die_at(name: str, nth: int = 1):
    count = 0

    def hook(here: str) -> None:
        nonlocal count
        count += here == name
        if here == name and count == nth:
            raise crash.SimulatedCrash(name)

    return crash.arm(hook)


def abandon(node: Node) -> None:
    """What is left of a process that died: its locks and descriptors are gone, no work was done."""
    node.engine.close()
    node.load.close()


def ended(world: World, at: str | None = "placing.synced") -> tuple[str, str]:
    """A task whose end is durable, and whose load died; its id and epoch."""
    node = world.still_node()
    edge = Edge(node)
    task = edge.start()
    edge.deleted(task, [path_of(9)])
    edge.batch(task, FILES)
    edge.end(task, FILES)
    if at is not None:
        with die_at(at), pytest.raises(crash.SimulatedCrash):
            node.load.loader.run_due()
    abandon(node)
    return task, edge.epoch or ""


def outcome_of(world: World, task: str) -> dict[str, str]:
    with world.node() as node:
        return results(Edge(node).outcome(task))


DONE = {**dict.fromkeys(FILES, "loaded"), path_of(9): "deleted"}


@pytest.mark.parametrize(
    "at",
    [None, "load.decided", "placing.moved", "placing.synced", "load.committed", "finish.load_log",
     "finish.staged", "finish.done"],
)  # fmt: skip
def test_a_task_with_a_durable_end_is_loaded_at_the_next_start(
    world: World, at: str | None
) -> None:
    task, _ = ended(world, at)
    assert outcome_of(world, task) == DONE
    assert sorted(world.loaded().values()) == sorted(FILES.values())
    assert not any(
        (world.folder() / name).exists() for name in ("sync.log", "load.log", "sync.end")
    )


def test_the_outcome_is_the_same_however_often_it_is_asked_for(world: World) -> None:
    task, epoch = ended(world)
    first = outcome_of(world, task)
    with world.node() as node:
        edge = Edge(node, epoch=epoch)
        edge.start(task)
        edge.end(task, FILES)
        assert results(edge.outcome(task)) == first
    assert sorted(world.loaded().values()) == sorted(FILES.values())


def test_without_a_durable_end_nothing_is_loaded_and_nothing_is_lost(world: World) -> None:
    node = world.still_node()
    edge = Edge(node)
    task = edge.start()
    edge.batch(task, FILES)
    with die_at("task.end.sent"), pytest.raises(crash.SimulatedCrash):
        edge.end(task, FILES)
    abandon(node)
    with world.node() as node:
        assert list_files(node.operator).files == []
        again = Edge(node, epoch=edge.epoch)
        second = again.start()
        decisions = again.plan(second, [plan_entry(*each) for each in FILES.items()])
        assert {each.action for each in decisions} == {wire.Action.HAVE}
        again.end(second, FILES)
        assert set(results(again.outcome(second)).values()) == {"loaded"}


@pytest.mark.parametrize("name", ["load.log", "sync.end", "task.json", "plan.log"])
def test_what_stands_without_sync_log_is_stale(world: World, name: str) -> None:
    with world.node() as node:
        Edge(node).round(FILES)
    folder = world.folder()
    (folder / name).write_text(f"delete {path_of(1)}\n" if name == "load.log" else "")
    with world.node() as node:
        assert len(list_files(node.operator).files) == 2
        assert not (folder / name).exists()


def test_a_torn_sync_log_end_never_happened(world: World) -> None:
    task, epoch = ended(world, None)
    log = world.folder() / "sync.log"
    data = log.read_bytes()
    assert data.endswith(b"sync end\n")
    log.write_bytes(data[:-1])
    with world.node() as node:
        assert list_files(node.operator).files == []
        edge = Edge(node, epoch=epoch)
        assert node.tasks.answer(edge.who, A, task).state is wire.TaskState.OPEN
        edge.end(task, FILES)
        assert results(edge.outcome(task)) == DONE


def test_load_log_is_read_before_it_is_written(world: World) -> None:
    _task, _ = ended(world, "finish.load_log")
    log = world.folder() / "load.log"
    before = log.read_bytes()
    lines = [f"delete {path_of(9)}", f"load {path_of(1)}", f"load {path_of(2)}"]
    assert before.decode().splitlines() == lines
    node = None
    with die_at("finish.load_log"), pytest.raises(crash.SimulatedCrash):
        node = world.still_node()
    assert node is None
    assert log.read_bytes() == before


def test_files_received_but_not_recorded_are_verified_again(world: World) -> None:
    node = world.still_node()
    edge = Edge(node)
    task = edge.start()
    with die_at("intake.synced"), pytest.raises(crash.SimulatedCrash):
        edge.batch(task, FILES)
    abandon(node)
    with world.node() as node:
        edge = Edge(node, epoch=edge.epoch)
        edge.start(task)
        decisions = edge.plan(task, [plan_entry(*each) for each in FILES.items()])
        assert {each.action for each in decisions} == {wire.Action.HAVE}


def test_a_received_file_that_is_no_tsfile_is_set_aside_and_not_deleted(world: World) -> None:
    with world.node() as node:
        Edge(node).round(FILES)
    stray = world.folder() / "data" / path_of(5)
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"garbage")
    with world.node():
        assert not stray.exists()
        (kept,) = (world.folder() / "quarantine").iterdir()
        assert kept.read_bytes() == b"garbage"


def test_verified_files_of_a_copied_folder_are_hashed_afresh(tmp_path: Path) -> None:
    """Inodes and times are others after a restore: the record alone is not believed."""
    world = World(tmp_path / "one")
    with world.node() as node:
        edge = Edge(node)
        task = edge.start()
        edge.batch(task, FILES)
        epoch = edge.epoch
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    copy = World(tmp_path / "two")
    damaged = copy.folder() / "data" / path_of(1)
    data = bytearray(damaged.read_bytes())
    data[20] ^= 1  # in a page: the structure does not show it
    damaged.write_bytes(data)
    with copy.node() as node:
        edge = Edge(node, epoch=epoch)
        edge.start(task)
        decisions = edge.plan(task, [plan_entry(*each) for each in FILES.items()])
        assert [each.action for each in decisions] == [wire.Action.SEND, wire.Action.HAVE]


def test_a_disk_error_in_one_folder_does_not_keep_the_others_from_working(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, epoch = ended(world, None)
    import receiver.load.service as service

    real = service.recover_folder
    with monkeypatch.context() as broken:

        def fails(engine: object, trees: object, folder: object, **more: object) -> object:
            if folder.uuid == A:  # type: ignore[attr-defined]
                raise DiskError("input/output error")
            return real(engine, trees, folder, **more)  # type: ignore[arg-type]

        broken.setattr(service, "recover_folder", fails)
        node = world.node()
        other = Edge(node, "c" * 32)
        assert set(results(other.round({path_of(1): tsfile("root.sg.c")})).values()) == {"loaded"}
        with pytest.raises(DiskError):
            Edge(node, epoch=epoch).start(task)
    with node:
        edge = Edge(node, epoch=epoch)
        edge.start(task)
        assert results(edge.outcome(task)) == DONE


def test_an_upload_without_a_task_that_was_verified_is_loaded_at_the_next_start(
    world: World,
) -> None:
    for number, at in enumerate(("intake.recorded", "placing.synced", "load.committed"), 1):
        node = world.still_node()
        name, content = path_of(number), tsfile(first=number * 100)
        with die_at(at), pytest.raises(crash.SimulatedCrash):
            Edge(node).upload(None, name, content)
        abandon(node)
        with world.node() as node:
            assert name in [each.path for each in list_files(node.operator).files]
            assert fsck_of(node).found == []
            assert node.load.loader.waiting == 0


def test_a_task_that_ended_under_another_engine_is_loaded_by_the_new_one(world: World) -> None:
    task, _ = ended(world, None)
    shutil.rmtree(world.root / "schema")
    with open_engine(world.config, anew=True) as engine:
        adopt(world.config, engine.uuid)
    with world.node() as node:
        assert {each.path for each in list_files(node.operator).files} == set(FILES)
        assert results(Edge(node).outcome(task)) == DONE
