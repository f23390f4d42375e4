"""A disk that answers no call holds up nobody who speaks to the master, and counts as away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.durable import Tree
from receiver.heartbeats.node_wire import (
    DirectoryRoom,
    HeldTablets,
    MasterMark,
    NodeHeartbeat,
    NodeHeartbeatAnswer,
)
from receiver.storage.reading.several_addresses import Failover
from receiver.storagenode.directory_watch import DirectoryWatch
from receiver.storagenode.node_directories import NodeDirectories, NodeDisk
from receiver.storagenode.prompt_store import PromptStore, SilentStoreError
from receiver.storagenode.storage_node import StorageNode
from receiver.tablet_copies import replica_directory
from receiver.tablet_copies.copies_wire import CopyOrder
from receiver.tablet_copies.copy_journal import append_lines
from tests.support.heard_nodes import HeldByTest, SpeakingNode, tablet
from tests.support.web import BOUND, until
from tests.unit.receiver.storagenode.node_web.test_node_app import config_of

NODE = "a" * 32
MASTER = MasterMark(engine="e" * 32, commit=1)


class Hanging:
    """Disks whose calls do not return until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path: Path | None = None
        self.asked = threading.Event()
        self.go = threading.Event()
        room = NodeDisk.room

        def asked(disk: NodeDisk) -> DirectoryRoom:
            self.wait(disk.path)
            return room(disk)

        def append(tree: Tree, *lines: object) -> None:
            self.wait(tree.path)
            append_lines(tree, *lines)  # type: ignore[arg-type]

        monkeypatch.setattr(NodeDisk, "room", asked)
        monkeypatch.setattr(replica_directory, "append_lines", append)

    def wait(self, path: Path) -> None:
        if path == self.path:
            self.asked.set()
            assert self.go.wait(BOUND)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    made = Hanging(monkeypatch)
    yield made
    made.go.set()


def test_a_directory_that_does_not_answer_in_time_is_away_and_others_are_looked_at(
    tmp_path: Path, hanging: Hanging
):
    now = 0.0
    paths = [tmp_path / "1", tmp_path / "2"]
    with (
        NodeDirectories.open(paths, NODE, {}) as found,
        DirectoryWatch(found.disks, monotonic=lambda: now) as watch,
    ):
        trees = [each.tree for each in found.disks]
        assert trees[0] is not None
        assert trees[1] is not None
        hanging.path = paths[0]
        looking = threading.Thread(target=watch.look, args=(0,))
        looking.start()
        assert hanging.asked.wait(BOUND)
        now = 15.0
        assert [each.problem for each in watch.rooms()] == ["", ""]
        assert watch.free(trees[0]) > 0
        now = 20.0
        watch.look(1)
        silent, other = watch.rooms()
        assert silent.problem == "its disk has not answered for 20 s"
        assert (silent.uuid, silent.begun) == (found.disks[0].uuid, True)
        assert other.problem == ""
        assert watch.free(trees[0]) == 0
        assert watch.free(trees[1]) > 0
        hanging.go.set()
        looking.join(BOUND)
        assert [each.problem for each in watch.rooms()] == ["", ""]


def test_directories_are_looked_at_again_and_again(tmp_path: Path):
    with (
        NodeDirectories.open([tmp_path / "1"], NODE, {}) as found,
        DirectoryWatch(found.disks, every=0.001) as watch,
    ):
        watch.begin()
        (tmp_path / "1" / ".tsferry-node").unlink()
        until(lambda: "is gone" in watch.rooms()[0].problem)


def test_a_look_that_fails_is_told_and_the_next_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with (
        NodeDirectories.open([tmp_path / "1"], NODE, {}) as found,
        DirectoryWatch(found.disks, every=0.001) as watch,
    ):
        room = NodeDisk.room

        def fail(disk: NodeDisk) -> DirectoryRoom:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(NodeDisk, "room", fail)
        watch.begin()
        until(lambda: "Input/output" in watch.rooms()[0].problem)
        monkeypatch.setattr(NodeDisk, "room", room)
        until(lambda: not watch.rooms()[0].problem)


class Master:
    """Hears a node."""

    url = "https://master"

    def __init__(self) -> None:
        self.said: list[NodeHeartbeat] = []

    def heartbeat(self, said: NodeHeartbeat) -> NodeHeartbeatAnswer:
        self.said.append(said)
        return NodeHeartbeatAnswer(master=MASTER, acknowledged=0, needs_full_report=True)


def test_heartbeats_go_on_while_a_disk_hangs_and_its_directory_is_told_to_be_away(
    tmp_path: Path, hanging: Hanging
):
    now = 0.0
    order = CopyOrder(tablet="b" * 32, generation=1, table="root.t", begin=0, end=1)
    with StorageNode.open(config_of(tmp_path, port=0)) as node:
        node._url = "http://127.0.0.1:1"
        node.watch._monotonic = lambda: now
        node._talk._store = PromptStore(node.copies, patience=0.01)
        master = Master()
        node._heartbeats._masters._masters = Failover([master])
        node._heartbeats.say()
        [path, *_] = node.config.data_dirs
        hanging.path = path
        made = threading.Thread(target=node.copies.make, args=([order], MASTER))
        made.start()  # hangs with the locks of the store
        looks = threading.Thread(target=node.watch.look, args=(0,))
        looks.start()
        assert hanging.asked.wait(BOUND)
        until(lambda: node.watch._looks[0].asked is not None)
        now = 60.0
        for _ in range(3):
            node._heartbeats.say()
        said = master.said[-1]
        assert said.report is None
        assert said.directories[0].problem == "its disk has not answered for 60 s"
        assert node.problem() is None
        node._prompt = PromptStore(node.copies, patience=0.01)
        assert node.status().directories[0] == said.directories[0]
        assert any("are away" in each for each in node.concerns())
        hanging.go.set()
        made.join(BOUND)
        looks.join(BOUND)
        until(lambda: node._heartbeats.say() is not None and master.said[-1].report is not None)
        assert [each.id for each in master.said[-1].report.tablets] == [order.tablet]
        assert master.said[-1].directories[0].problem == ""


def test_one_question_is_open_at_most_and_a_late_answer_is_to_its_own_question():
    asked: list[str] = []
    go = threading.Event()
    store = HeldByTest()
    store.put(tablet(1))

    class Slow(HeldByTest):
        def held(self) -> HeldTablets:
            asked.append("held")
            assert go.wait(BOUND)
            return store.held()

    prompt = PromptStore(Slow(), patience=0.01)
    for _ in range(3):
        with pytest.raises(SilentStoreError):
            prompt.held()
    with pytest.raises(SilentStoreError):
        prompt.changed_since(0, 10)
    assert asked == ["held"]
    go.set()
    prompt = PromptStore(store, patience=BOUND)
    assert prompt.changed_since(0, 10) == store.changed_since(0, 10)
    assert prompt.held() == store.held()


def test_what_the_store_raises_is_raised():
    class Broken(HeldByTest):
        def held(self) -> HeldTablets:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        PromptStore(Broken()).held()


def test_a_report_that_is_late_comes_when_it_is_there(tmp_path: Path):
    node = SpeakingNode(tmp_path / "node")
    late = True
    held = node.store.held

    def told() -> HeldTablets:
        if late:
            raise SilentStoreError("late")
        return held()

    node.store.held = told  # type: ignore[method-assign]
    node.store.put(tablet(7))
    answer = NodeHeartbeatAnswer(master=MASTER, needs_full_report=True)
    node.talk.next()
    assert node.talk.answered(answer) is None
    assert node.talk.next().report is None
    late = False
    assert node.talk.answered(answer) == 0.0
    report = node.talk.next().report
    assert report is not None
    assert report.tablets == (tablet(7),)
    node.home.close()
