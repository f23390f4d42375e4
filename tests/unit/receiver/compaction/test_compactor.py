"""What is merged behind the scenes, when, and what becomes of it when something comes between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from receiver.background.side_process import ProcessDied
from receiver.background.work_queue import WorkQueue
from receiver.compaction.merge_process import MergeRefused
from receiver.compaction.worth_merging.merge_asked import MergeAnswer, MergeAsked
from receiver.metadata.model import records
from receiver.metadata.model.errors import UnknownOutcomeError
from receiver.metadata.state.work_rows import WorkRow, WorkState
from receiver.node import Node
from tests.support.merging_node import (
    MergedHere,
    Refusing,
    compactions,
    given_by,
    merge_here,
    small_files,
    with_interval,
)
from tests.support.node_world import Clock, World
from tests.support.proving import Site, in_this_process


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


def test_what_waited_for_proofs_is_merged_when_they_are_made(node: Node, clock: Clock) -> None:
    """That a proof took nothing out of sight is told by no commit."""
    site = Site(node)
    merge_here(node)
    in_this_process(node)
    paths = small_files(site, 6)
    site.round({}, gone=paths)
    clock.now += 61
    assert node.compactor.run_once() == 0, "they may be superseded yet"
    assert node.prover.run_once() == 0
    assert node.compactor.run_once() == 1


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


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_a_commit_that_was_not_answered_for_tells_of_is_on_the_disk(
    node: Node, world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    """A remote log took it, and its answer was lost: the outputs are what readers are given."""
    site = Site(node)
    merge_here(node)
    small_files(site, 6)
    clock.now += 61
    assert node.engine._committer is not None
    appender = node.engine._committer._appender
    append, sent = appender.append, []

    def lost(commits: object, tags: bytes) -> None:
        if b"merged-" not in b"".join(each[1] for each in commits):  # type: ignore[attr-defined]
            append(commits, tags)  # type: ignore[arg-type]
            return
        sent.append((commits, tags))
        raise UnknownOutcomeError("no answer")

    def settle() -> bool:
        if is_kept:
            append(*sent[-1])  # type: ignore[arg-type]
        return is_kept

    with monkeypatch.context() as patched:
        patched.setattr(appender, "append", lost)
        patched.setattr(appender, "settle", settle)
        node.compactor.run_once()
    rows = compactions(node)
    assert [each.physical for row in rows for each in row.outputs] == merged_names(world)
    assert len(rows) == is_kept
    clock.now += 1000
    node.compactor.compact("root.sg")
    node.compactor.run_once()
    (row,) = compactions(node)
    assert given_by(node, row) == site.answer()


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


@pytest.mark.parametrize("given_back", [False, True])
def test_a_process_that_is_killed_once_is_no_word_about_the_files(
    node: Node, world: World, clock: Clock, given_back: bool
) -> None:
    site = Site(node)
    paths = small_files(site, 8)

    def killed() -> None:
        if len(process.asked) == 1:
            raise ProcessDied("exit status -9")

    process = merge_here(node, MergedHere(killed))
    clock.now += 61
    if given_back:  # by an executor elsewhere that had no room
        assert node.compactor.look() == 1
        taken = node.operator.work.take("elsewhere", ["merge"])
        assert taken is not None
        node.operator.work.end(taken, "pending", reason="no room")
    assert node.compactor.run_once() == 1
    (row,) = compactions(node)
    assert set(row.inputs) == {site.row(each).physical for each in paths}
    assert merged_names(world) == [each.physical for each in row.outputs]
    assert [state for _, state, _ in work(node)] == [WorkState.DONE]
    assert node.compactor.progress().problem is None


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


def test_what_overlaps_files_of_another_partition_is_left_alone(node: Node, clock: Clock) -> None:
    """All else is read above what is merged; a file that lies elsewhere need not stand there."""
    site = Site(node)
    merge_here(node)
    low = "sequence/root.sg/0/1/1-1-0-0.tsfile"
    several = {f"sequence/root.sg/0/0/{n}-{n}-0-0.tsfile": {"a": {n * 10: n}} for n in range(2, 9)}
    site.round({low: {"a": {20: 1, 21: 1}}, **several})
    clock.now += 61
    node.compactor.run_once()
    (row,) = compactions(node)
    assert site.answer()["a", 20] == 2
    assert site.row("sequence/root.sg/0/0/2-2-0-0.tsfile").physical not in row.inputs
    assert row.count == 6


def test_a_file_of_another_partition_that_comes_late_and_does_not_stand_above_dissolves(
    node: Node, clock: Clock
) -> None:
    site = Site(node)
    merge_here(node)
    small_files(site, 6, begin=10)
    clock.now += 61
    assert node.compactor.run_once() == 1
    site.round({"sequence/root.sg/0/7/99-99-0-0.tsfile": {"a": {110: 5}}})
    assert len(compactions(node)) == 1, "it stands above"
    site.round(
        {"sequence/root.sg/0/8/3-3-0-0.tsfile": {"a": {120: 5}}},
        open_since={"sequence/root.sg/0/8/3-3-0-0.tsfile": 1},
    )
    assert compactions(node) == []


def test_what_comes_elsewhere_during_the_merge_wins(node: Node, clock: Clock) -> None:
    site = Site(node)
    small_files(site, 6, begin=10)

    def meanwhile() -> None:
        path = "sequence/root.sg/0/8/3-3-0-0.tsfile"
        if len(process.asked) == 1:
            site.round({path: {"a": {150: 5}}}, open_since={path: 1})

    process = merge_here(node, MergedHere(meanwhile))
    clock.now += 61
    node.compactor.run_once()
    assert len(process.asked) == 2
    (row,) = compactions(node)
    assert row.count == 5


def test_no_output_has_points_of_two_partitions(node: Node, clock: Clock) -> None:
    site = Site(node)
    merge_here(node)
    with_interval(node, 60)
    small_files(site, 14)
    clock.now += 61
    assert node.compactor.run_once() == 1
    (row,) = compactions(node)
    assert [(each.first, each.last) for each in row.outputs] == [(10, 54), (60, 114), (120, 144)]
    assert given_by(node, row) == site.answer()


def test_files_of_as_many_partitions_as_there_are_of_them_are_left_alone(
    node: Node, clock: Clock
) -> None:
    site = Site(node)
    merge_here(node)
    with_interval(node, 10)
    small_files(site, 14)
    clock.now += 61
    assert node.compactor.run_once() == 0


def test_files_that_expire_one_after_another_are_read_alone_and_not_merged_over_and_over(
    node: Node, world: World, clock: Clock
) -> None:
    """The last commit that has all of them in one is that in which the first expires."""
    site = Site(node)
    merge_here(node)
    week, day = 604_800_000, 86_400_000
    begin = int(clock.now * 1000) // week * week
    files = {
        f"sequence/root.sg/0/{begin // week}/{n}-{n}-0-0.tsfile": {"a": {begin + n * day: n}}
        for n in range(7)
    }
    site.round(files)
    node.engine.commit([records.TtlSet("root.sg", 10 * day)])
    clock.now = (begin + week) / 1000 + 3700
    assert node.compactor.run_once() == 1
    made = 0
    for _ in range(10 * 24):
        clock.now += 3600
        node.load.ttl.run_once()
        answer = site.answer()
        rows = compactions(node)
        assert [given_by(node, row) for row in rows] in ([], [answer])
        made += node.compactor.run_once()
        assert node.compactor.progress().problem is None
    assert made == 0
    assert answer == {}
    assert rows == []
    clock.now += 2000
    node.engine.collect()
    node.merged.let_go(clock.now)
    assert merged_names(world) == []


def test_points_past_the_ttl_in_a_file_that_is_not_stay_in_what_is_merged(
    node: Node, clock: Clock
) -> None:
    site = Site(node)
    merge_here(node)
    now = int(clock.now * 1000)
    site.round(
        {
            f"sequence/root.sg/0/0/{n}-{n}-0-0.tsfile": {"a": {n: n, now + n * 100_000: n}}
            for n in range(1, 4)
        }
    )
    node.engine.commit([records.TtlSet("root.sg", 10_000_000)])
    assert node.load.ttl.run_once() == 0
    with_interval(node, 0)
    node.compactor.compact("root.sg")
    assert node.compactor.run_once() == 1
    (row,) = compactions(node)
    assert given_by(node, row) == site.answer()
    assert ("a", 1) in given_by(node, row)


def test_what_had_to_make_room_is_not_merged_again_as_soon_as_there_is_some(
    node: Node, clock: Clock
) -> None:
    """A disk that fills and is freed by turns: merged once a day, not once a turn."""
    merge_here(node)
    node.compactor._monotonic = clock
    small_files(Site(node), 6)
    clock.now += 61
    made = node.compactor.run_once()
    for _ in range(70):  # three days
        pressed = iter((True, True, False))
        node.merged._is_pressed = partial(next, pressed, False)
        node.merged.let_go(clock.now)
        clock.now += 3600
        made += node.compactor.run_once()
    assert made == 3
    assert "make room" in (node.compactor.progress().problem or "")
    node.compactor.compact("root.sg")
    assert node.compactor.run_once() == 1, "an operator may have it merged all the same"
