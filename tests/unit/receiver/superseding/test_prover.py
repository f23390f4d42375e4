"""The prover beside a node: its process, what it does without one, and what it tells."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from common.errors import ConflictError, NotFoundError
from receiver.background.side_process import ProcessDied
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.query.past_files import files_at
from receiver.metadata.state.table_rows import FileState
from receiver.node import Node
from receiver.operator.status import running_status
from receiver.operator.stored.retired import drop_retired, list_retired, show_retired
from receiver.superseding.asking import FileProof, PartitionAnswer, PartitionAsked
from receiver.superseding.proof_work import _lowest_first
from tests.support.node_world import Clock, World
from tests.support.proving import SameProcess, Site, in_this_process

SOURCES = [f"sequence/root.sg/0/0/{each}-{each}-0-0.tsfile" for each in range(1, 6)]
PRODUCT = "sequence/root.sg/0/0/1-1-0-1.tsfile"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    return World(tmp_path, clock=clock, keep_deleted=100.0, metadata={"history": 1000.0})


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    with world.still_node() as node:
        yield node


def compacted(node: Node) -> Site:
    site = Site(node)
    site.round({path: {"a": {at: at}} for at, path in enumerate(SOURCES)})
    site.round({PRODUCT: {"a": {at: at for at in range(len(SOURCES) - 1)}}}, SOURCES)
    return site


def test_a_process_of_its_own_reads_and_stands_back(node: Node) -> None:
    site = compacted(node)
    assert node.prover.run_once() == 4
    child = node.prover._process._child
    assert child is not None
    assert os.getpriority(os.PRIO_PROCESS, child[0].pid) == 19
    assert site.state(SOURCES[-1]) is FileState.RETIRED
    assert node.prover.run_once() == 0
    assert node.prover._process._child is None, "it ends when nothing is due"


def test_a_running_node_proves_by_itself(world: World) -> None:
    with world.node() as node:
        node.prover._every = 0.05
        site = compacted(node)
        until = time.monotonic() + 60
        while site.state(SOURCES[0]) is not FileState.SUPERSEDED:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_the_server_itself_loads_no_decoder() -> None:
    code = "import receiver.node, sys; print(sorted({'numba', 'pyarrow'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert found.stdout.strip() == "[]"


def test_without_decoders_retired_files_stay_and_status_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.background.side_process._NEEDED", ("no_such_package",))
    with world.still_node() as node:
        compacted(node)
        node.prover.start()
        assert node.prover._thread._thread is None
        assert node.prover.run_once() == 0
        status = running_status(node.operator, None)
        assert "tsferry[receiver]" in (status.retired.problem or "")
        assert status.retired.waiting_files == 5


class Dying(SameProcess):
    """Dies over one file."""

    def __init__(self, over: str) -> None:
        super().__init__()
        self.over, self.deaths = over, 0

    def ask(self, asked: PartitionAsked, stopped: Callable[[], bool]) -> PartitionAnswer:
        if any(each.candidate and each.physical == self.over for each in asked.files):
            self.deaths += 1
            raise ProcessDied("signal 11")
        return super().ask(asked, stopped)


def test_a_file_over_which_the_process_dies_keeps_no_other_from_being_proved(node: Node) -> None:
    site = compacted(node)
    dying = Dying(site.row(SOURCES[1]).physical)
    node.prover._process = dying  # type: ignore[assignment]
    assert node.prover.run_once() == 3
    assert site.state(SOURCES[1]) is FileState.RETIRED
    assert "died" in (show_retired(node.operator, dying.over).unreadable or "")
    deaths = dying.deaths
    node.prover.run_once()
    assert dying.deaths == deaths, "it is left alone until something touches the partition"


def test_status_and_lists_tell_what_waits_what_is_unique_and_what_is_superseded(
    node: Node,
) -> None:
    in_this_process(node)
    site = compacted(node)
    size = sum(site.row(each).size for each in SOURCES)
    told = running_status(node.operator, None).retired
    assert (told.waiting_files, told.waiting_bytes) == (5, size)
    assert not list_retired(node.operator).files[0].judged
    node.prover.run_once()
    told = running_status(node.operator, None).retired
    assert (told.waiting_files, told.waiting_bytes) == (0, 0)
    assert (told.unique_files, told.superseded_files) == (1, 4)
    assert told.unique_bytes + told.superseded_bytes == size
    assert told.files_per_second > 0
    (alone,) = list_retired(node.operator).files
    assert (alone.path, alone.unique_points, alone.remainder) == (SOURCES[-1], 1, [])
    shown = show_retired(node.operator, alone.physical)
    assert [msgspec.structs.astuple(each) for each in shown.remainder] == [
        ("root.sg.d1", "a", 4, 4, 1)
    ]
    first, *more = list_retired(node.operator, state="superseded", limit=3).files
    assert len(more) == 2
    assert first.rests == [site.row(PRODUCT).physical]


def test_an_operator_gives_up_what_is_retired_or_superseded_and_nothing_else(node: Node) -> None:
    in_this_process(node)
    site = compacted(node)
    node.prover.run_once()
    for path in (SOURCES[0], SOURCES[-1]):
        drop_retired(node.operator, site.row(path).physical)
        assert site.state(path) is FileState.DELETED
    with pytest.raises(ConflictError, match="live"):
        drop_retired(node.operator, site.row(PRODUCT).physical)
    with pytest.raises(NotFoundError):
        drop_retired(node.operator, "sequence/no/0/0/1-1-0.tsfile")


def test_superseded_bytes_go_when_nobody_can_ask_for_the_past_any_more(
    node: Node, world: World, clock: Clock
) -> None:
    in_this_process(node)
    compacted(node)
    node.prover.run_once()
    clock.now += 900
    node.load.reaper.run_once()
    assert len(world.loaded()) == 6
    clock.now += 200
    node.load.reaper.run_once()
    assert len(world.loaded()) == 2


def test_where_space_is_short_superseded_bytes_go_at_once_and_no_more_than_it_takes(
    node: Node, world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(node)
    site = compacted(node)
    seen = node.engine.newest_commit
    clock.now += 5
    node.prover.run_once()
    clock.now += 150
    monkeypatch.setattr("receiver.load.upkeep.reaper._PRESSED_BATCH", 1)
    monkeypatch.setattr(node.load.reaper, "_is_pressed", lambda: len(world.loaded()) > 4)
    before = site.answer()
    assert len(files_at(node.engine, seen).visible) == 6
    node.load.reaper.run_once()
    assert len(world.loaded()) == 4
    assert site.answer() == before
    with pytest.raises(HistoryGoneError):
        files_at(node.engine, seen)


def test_what_rests_on_a_superseded_file_is_committed_before_it() -> None:
    def proof(name: str, *rests: str) -> FileProof:
        return FileProof(name, True, rests)

    proofs = [proof("b", "c", "x"), proof("d"), proof("a", "b"), proof("c", "x")]
    order = [each.physical for each in _lowest_first(proofs)]
    assert sorted(order) == ["a", "b", "c", "d"]
    assert order.index("a") < order.index("b") < order.index("c")


def test_proofs_wait_while_files_are_loaded_but_not_where_space_is_short(node: Node) -> None:
    in_this_process(node)
    compacted(node)
    node.prover._is_busy = lambda: True
    asked: list[bool] = []

    def pressed() -> bool:
        asked.append(True)
        return len(asked) > 2

    node.prover._is_pressed = pressed
    assert node.prover.run_once() == 4
    assert len(asked) == 3
