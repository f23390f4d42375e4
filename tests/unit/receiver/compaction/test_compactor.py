"""What is merged behind the scenes, when, and what becomes of it when something comes between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from receiver.compaction.merge_asked import MergeAnswer, MergeAsked
from receiver.compaction.merge_process import MergeRefused
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import WorkRow, WorkState
from receiver.node import Node
from receiver.side_process import ProcessDied
from receiver.work_queue import WorkQueue
from tests.support.merging_node import (
    MergedHere,
    Refusing,
    compactions,
    given_by,
    merge_here,
    small_files,
)
from tests.support.node_world import Clock, World
from tests.support.proving import Site


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    merge = {"enabled": True, "quiet": 60.0, "min_files": 5}
    return World(
        tmp_path, clock=clock, keep_deleted=100.0, metadata={"history": 1000.0}, merge=merge
    )


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    with world.still_node() as node:
        yield node


def work(node: Node) -> list[tuple[str, WorkState, str]]:
    with node.engine.reading() as state:
        rows = list(state.work_table.rows.values())
    return [(row.kind, row.state, row.reason) for row in rows]


def merged_names(world: World) -> list[str]:
    names = [name for name in world.loaded() if "/merged-" in name]
    merging = world.data / "merging"
    return names + [str(each) for each in merging.rglob("*")] if merging.exists() else names


def test_small_files_of_a_quiet_partition_are_read_as_one(
    node: Node, world: World, clock: Clock
) -> None:
    site = Site(node)
    merge_here(node)
    paths = small_files(site, 6)
    assert node.compactor.run_once() == 0, "the partition is not quiet yet"
    clock.now += 61
    assert node.compactor.run_once() == 1
    (row,) = compactions(node)
    assert sorted(row.inputs) == sorted(site.row(each).physical for each in paths)
    assert given_by(node, row) == site.answer()
    assert [each.physical for each in row.outputs] == merged_names(world)
    assert node.compactor.run_once() == 0, "nothing is left to be done"
    told = node.compactor.progress()
    assert (told.compactions, told.inputs, told.outputs) == (1, 6, 1)
    assert (told.last, told.waiting, told.problem) == (row.created, 0, None)


def test_late_values_and_deletions_are_applied_in_what_is_read(node: Node, clock: Clock) -> None:
    site = Site(node)
    merge_here(node)
    paths = small_files(site, 3)
    site.round({"unsequence/root.sg/0/0/9-9-0-0.tsfile": {"a": {10: 99, 32: 98}}})
    site.note(paths[1], "a", 20, 22, floor=0)
    clock.now += 61
    assert node.compactor.run_once() == 1
    (row,) = compactions(node)
    assert given_by(node, row) == site.answer()
    assert ("a", 20) not in given_by(node, row)
    assert given_by(node, row)["a", 10] == 99


def test_nothing_is_merged_by_itself_unless_it_is_enabled(tmp_path: Path, clock: Clock) -> None:
    with World(tmp_path, clock=clock).still_node() as node:
        merge_here(node)
        site = Site(node)
        small_files(site, 20)
        clock.now += 10_000
        assert node.compactor.run_once() == 0
        answers = node.compactor.compact("root.sg")
        assert [(each.files, each.work > 0) for each in answers] == [(20, True)]
        assert node.compactor.run_once() == 1
        assert node.compactor.compact("root.sg")[0].work == 0, "nothing more can be merged"
        assert node.compactor.compact("root.s") == []


def test_a_few_new_files_do_not_have_much_rewritten(node: Node, clock: Clock) -> None:
    site = Site(node)
    merge_here(node)
    small_files(site, 40)
    clock.now += 61
    assert node.compactor.run_once() == 1
    for begin, made in ((41, 0), (45, 1), (50, 1)):
        small_files(site, 4 if begin < 50 else 12, begin=begin)
        clock.now += 61
        assert node.compactor.run_once() == made
    rows = compactions(node)
    assert [row.count for row in rows] == [60]
    assert {key: value for row in rows for key, value in given_by(node, row).items()} == (
        site.answer()
    )


@pytest.mark.parametrize("what", ["deleted", "quarantined", "a deletion"])
def test_what_happens_to_an_input_during_the_merge_wins(
    what: str, node: Node, world: World, clock: Clock
) -> None:
    site = Site(node)
    paths = small_files(site, 8)
    physical = site.row(paths[3]).physical

    def meanwhile() -> None:
        if len(process.asked) > 1:
            return
        if what == "a deletion":
            site.note(paths[3], "a", 0, 1000, floor=0)
        elif what == "deleted":
            node.engine.commit([records.FileDeleted(physical, "operator")])
        else:
            node.engine.commit([records.FileQuarantined(physical, "rotten")])

    process = merge_here(node, MergedHere(meanwhile))
    clock.now += 61
    assert node.compactor.run_once() == 1
    assert len(process.asked) == 2, "it is merged anew, as things are then"
    (row,) = compactions(node)
    gone = {("a", at) for at in range(40, 45)}
    assert given_by(node, row).keys().isdisjoint(gone)
    assert merged_names(world) == [each.physical for each in row.outputs]


def test_an_executor_that_slept_longer_than_its_lease_commits_nothing(
    node: Node, world: World, clock: Clock
) -> None:
    site = Site(node)
    small_files(site, 6)
    now = [0.0]
    queue = WorkQueue(node.engine, lease=60.0, clock=lambda: now[0])
    taken: list[int] = []

    def sleeps() -> None:
        if not taken:
            now[0] += 600
            other = queue.take("another one", ["merge"])
            assert other is not None
            taken.append(other.id)

    process = merge_here(node, MergedHere(sleeps))
    node.compactor._work = queue
    node.compactor.run = replace(node.compactor.run, work=queue)
    clock.now += 61
    assert node.compactor.run_once() == 0
    assert taken
    assert len(process.asked) == 1
    assert compactions(node) == []
    assert merged_names(world) == []
    assert [state for _, state, _ in work(node)] == [WorkState.RUNNING], "it is the other's"


def test_one_whose_lease_is_lost_is_stopped_at_work(node: Node, world: World, clock: Clock) -> None:
    small_files(Site(node), 6)
    taken: list[WorkRow] = []

    class Stopped(MergedHere):
        def ask(
            self, asked: MergeAsked, stopped: Callable[[], bool], paused: Callable[[], bool]
        ) -> MergeAnswer:
            assert not stopped()
            with node.engine.reading() as state:
                (row,) = state.work_table.running()
            node.work.cancel(row, "by a test")
            taken.append(row)
            assert stopped()
            raise ProcessDied("it was stopped")

    merge_here(node, Stopped())
    clock.now += 61
    assert node.compactor.run_once() == 0
    assert taken
    assert compactions(node) == []
    assert merged_names(world) == []


@pytest.mark.parametrize("died", [False, True])
def test_a_file_over_which_merging_fails_is_named_and_keeps_no_other_from_being_merged(
    node: Node, clock: Clock, died: bool
) -> None:
    site = Site(node)
    paths = small_files(site, 24)
    bad = site.row(paths[20]).physical
    why = ProcessDied("exit status -9") if died else MergeRefused("it contradicts the others")
    process = merge_here(node, Refusing(bad, why))
    clock.now += 61
    assert node.compactor.run_once() > 0
    inputs = [each for row in compactions(node) for each in row.inputs]
    assert len(inputs) >= 17, "what is left of 24 in halves, but for the few beside the bad one"
    assert bad not in inputs
    assert str(why) in (node.compactor.progress().problem or "")
    assert any(str(why) in reason for _, _, reason in work(node))
    asked = len(process.asked)
    node.compactor.run_once()
    assert len(process.asked) == asked, "it is not tried again until something comes"


def test_without_room_the_inputs_stay_as_they_are(world: World, clock: Clock) -> None:
    with world.still_node() as node:
        merge_here(node)
        small_files(Site(node), 6)
        node.compactor.run = replace(node.compactor.run, room=lambda: 1000)
        clock.now += 61
        assert node.compactor.run_once() == 0
        assert compactions(node) == []
        assert "bytes" in (node.compactor.progress().problem or "")
        node.compactor.compact("root.sg")
        assert node.compactor.run_once() == 0, "nor is it tried over and over"
        assert merged_names(world) == []
