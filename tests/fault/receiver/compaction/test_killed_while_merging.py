"""The receiver dies at every crash point of merges and of what goes behind them; the disk fills.

The inputs are as they were, what readers are given is what it was, and nothing half of a merge is
there for them; the next life takes away what was left, and comes to the same end.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from common import crash
from common.durable import flushing
from common.errors import NoSpaceError, TsferryError
from receiver.compaction.worth_merging.merge_asked import MergeAnswer, MergeAsked
from receiver.executor.executor_files import ExecutorFiles
from receiver.executor.merging_elsewhere import answer_merge
from receiver.executor.operated_receiver import StoppedCalls
from receiver.executor.task_executor import Executor
from receiver.load.upkeep.fsck import fsck
from receiver.metadata.model import records
from receiver.node import Node
from tests.fault.receiver.test_node_full_disk import Failing
from tests.support.merging_node import MergedHere, compactions, given_by, merge_here, small_files
from tests.support.node_world import Clock, World, fsck_of
from tests.support.proving import Site, in_this_process

START = 1_700_000_000.0
POINTS = ("merge.staged", "merge.made", "placing.moved", "placing.synced", "merge.placed",
          "mlog.commit.before", "mlog.commit.durable", "mlog.commit.published", "merge.committed",
          "merge.unlinked", "merge.removed", "merge.forgotten")  # fmt: skip
ELSEWHERE = ("merge.staged", "merge.block_came", "merge.made", "merge.placed", "merge.committed")
OF_RECOVERY = ("merge.taken_back", "merge.swept")


def world_at(root: Path, now: float = START) -> World:
    merge = {"enabled": True, "quiet": 0.0, "min_files": 3}
    return World(root, clock=Clock(now), keep_deleted=10.0, metadata={"history": 0.0}, merge=merge)


def begin(root: Path) -> Site:
    with world_at(root).still_node() as node:
        site = Site(node)
        paths = small_files(site, 4)
        site.round({"unsequence/root.sg/0/0/9-9-0-0.tsfile": {"a": {10: 99, 32: 98}}})
        site.note(paths[1], "a", 20, 22, floor=0)
        return site


def life(root: Path, at: float, *, lose: bool = False) -> None:
    """Merge what is to be merged, and let what nobody reads go."""
    with world_at(root, at).still_node() as node:
        node.merged.recover()
        merge_here(node)
        if lose:
            for row in compactions(node):
                node.engine.commit([records.CompactionDissolved(row.id, "for a test")])
        node.compactor.run_once()
        node.merged.let_go(at)


def life_elsewhere(root: Path, at: float) -> None:
    """The same by an executor elsewhere; what others had is nobody's by now."""
    with world_at(root, at).still_node() as node:
        node.merged.recover()
        node.compactor._here = False
        node.compactor.run_once()
        node.work._clock = lambda: at
        executor = Executor(
            StoppedCalls(node.remote_work, "x@t"),
            ExecutorFiles(None, [each.path for each in node.load.disks.trees]),
            wait=lambda _: None,
            kinds={"merge": lambda task: answer_merge(task, lambda _: MergedHere())},
        )
        executor.run_once(["merge"])


def dies(live: Callable[[], None], name: str, passage: int) -> bool:
    """Whether a life came to the n-th passage of a point, and was killed there."""
    left = [passage]

    def hook(here: str) -> None:
        if here == name:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        try:
            with crash.arm(hook):
                live()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def check(root: Path, at: float, site: Site, answer: dict[tuple[str, int], int]) -> None:
    """What holds after any death, as soon as the next life has begun."""
    with world_at(root, at).still_node() as node:
        node.merged.recover()
        site.again(node)
        assert site.answer() == answer
        assert all_there(node)
        rows = compactions(node)
        for row in rows:
            assert given_by(node, row) == answer
        named = {each.physical for row in rows_of(node) for each in row.outputs}
        assert {name for name in world_at(root).loaded() if "/merged-" in name} <= named
        merging = world_at(root).data / "merging"
        assert not merging.exists() or list(merging.iterdir()) == []
        assert fsck_of(node).found == []


def rows_of(node: Node):  # type: ignore[no-untyped-def]
    with node.engine.reading() as state:
        return list(state.compacted_table.rows.values())


def all_there(node: Node) -> bool:
    with node.engine.reading() as state:
        rows = list(state.files.values())
    trees = node.load.disks.trees
    return all(any(tree.exists(row.physical) for tree in trees) for row in rows)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_death_in_a_merge_elsewhere_changes_no_answer_and_is_made_good(
    tmp_path: Path, name: str
) -> None:
    site = begin(tmp_path)
    answer = site.answer()
    assert dies(partial(life_elsewhere, tmp_path, START + 5), name, 1)
    check(tmp_path, START + 60, site, answer)
    life_elsewhere(tmp_path, START + 120)
    check(tmp_path, START + 180, site, answer)
    with world_at(tmp_path, START + 240).still_node() as node:
        assert len(compactions(node)) == 1


@pytest.mark.parametrize("name", POINTS)
def test_a_death_while_merging_changes_no_answer_and_is_made_good(
    tmp_path: Path, name: str
) -> None:
    site = begin(tmp_path)
    answer = site.answer()
    for number, at in enumerate((START + 5, START + 60, START + 120), 1):
        dies(lambda at=at: life(tmp_path, at, lose=at > START + 5), name, number)  # type: ignore[misc]
        check(tmp_path, at, site, answer)
    life(tmp_path, START + 200, lose=True)
    life(tmp_path, START + 300)
    check(tmp_path, START + 300, site, answer)
    with world_at(tmp_path, START + 300).still_node() as node:
        (row,) = rows_of(node)
        assert row.count == 5
        assert not row.dissolved
        assert len(world_at(tmp_path).loaded()) == 5 + len(row.outputs)
    assert fsck(world_at(tmp_path).config).found == []


def test_what_was_committed_before_the_death_is_kept(tmp_path: Path) -> None:
    site = begin(tmp_path)
    assert dies(lambda: life(tmp_path, START + 5), "merge.committed", 1)
    with world_at(tmp_path, START + 9).still_node() as node:
        node.merged.recover()
        (row,) = compactions(node)
        assert given_by(node, row) == site.answer()


@pytest.mark.parametrize("name", OF_RECOVERY)
def test_a_death_while_leftovers_are_swept_leaves_them_to_the_next_life(
    tmp_path: Path, name: str
) -> None:
    site = begin(tmp_path)
    assert dies(lambda: life(tmp_path, START + 5), "merge.placed", 1)
    assert [each for each in world_at(tmp_path).loaded() if "/merged-" in each]
    assert fsck(world_at(tmp_path).config).found == [], "the next start takes it away"
    assert dies(lambda: life(tmp_path, START + 9), name, 1)
    check(tmp_path, START + 10, site, site.answer())


def test_each_point_is_one_that_a_life_comes_to(tmp_path: Path) -> None:
    begin(tmp_path)
    seen: set[str] = set()
    with crash.arm(seen.add):
        life(tmp_path, START + 5)
        life(tmp_path, START + 60, lose=True)
        life(tmp_path, START + 120)
    assert seen >= set(POINTS)


@pytest.mark.parametrize("call", ["write", "fsync", "rename", "mkdir", "unlink", "rmdir"])
def test_a_disk_that_fills_in_the_middle_leaves_the_inputs_and_nothing_half(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = begin(tmp_path)
    answer = site.answer()
    for nth in (1, 3, 6):
        with monkeypatch.context() as patch, world_at(tmp_path, START + nth).still_node() as node:
            merge_here(node, Later(partial(Failing, patch, call, nth, errno.ENOSPC)))
            with suppress(OSError, TsferryError):
                node.compactor.run_once()
        monkeypatch.setattr(flushing, "_failure", None)  # what a new process has
        check(tmp_path, START + nth, site, answer)
    life(tmp_path, START + 900, lose=True)
    check(tmp_path, START + 900, site, answer)


class Later(MergedHere):
    """Begins to fail when it is asked to merge."""

    def __init__(self, fail: Callable[[], object]) -> None:
        super().__init__()
        self.fail = fail

    def ask(
        self, asked: MergeAsked, stopped: Callable[[], bool], paused: Callable[[], bool]
    ) -> MergeAnswer:
        self.fail()
        try:
            return super().ask(asked, stopped, paused)
        except OSError as error:
            raise NoSpaceError(str(error)) from error


def test_a_merged_file_that_rots_or_is_lost_is_read_no_more(tmp_path: Path) -> None:
    site = begin(tmp_path)
    answer = site.answer()
    for damage in ("rot", "loss"):
        life(tmp_path, START + 5)
        with world_at(tmp_path, START + 6).still_node() as node:
            (row,) = compactions(node)
            place = world_at(tmp_path).data / row.outputs[0].physical
        if damage == "rot":
            place.write_bytes(place.read_bytes()[:-9] + b"123456789")
            (found,) = fsck(world_at(tmp_path).config, repair=True).found
            assert (found.kind, found.repaired) == ("merged", True)
        else:
            place.unlink()
        with world_at(tmp_path, START + 7).still_node() as node:
            node.merged.recover()
            site.again(node)
            assert compactions(node) == []
            assert site.answer() == answer


# -- for good ------------------------------------------------------------------------------------

OF_FINAL = ("merge.compared", "merge.verified", "merge.reread",
            "mlog.commit.before", "mlog.commit.durable", "mlog.commit.published",
            "merge.final", "reaper.superseded", "reaper.unlinked", "reaper.forgotten")  # fmt: skip


def final_world(root: Path, now: float) -> World:
    merge = {"enabled": True, "quiet": 0.0, "min_files": 3, "final_after": 5.0}
    return World(root, clock=Clock(now), keep_deleted=10.0, metadata={"history": 0.0}, merge=merge)


def begin_to_end(root: Path) -> tuple[Site, dict[tuple[str, int], int]]:
    """Files are merged, and gone at the edge."""
    with final_world(root, START).still_node() as node:
        site = Site(node)
        paths = small_files(site, 4)
        merge_here(node)
        in_this_process(node)
        assert node.compactor.run_once() == 1
        answer = site.answer()
        site.round({}, gone=paths)
        node.prover.run_once()
        site.round({"sequence/root.sg/0/9/9-9-0-0.tsfile": {"a": {900: 9}}})
        return site, answer


def final_life(root: Path, at: float) -> None:
    with final_world(root, at).still_node() as node:
        node.merged.recover()
        merge_here(node)
        in_this_process(node)
        node.prover.run_once()
        node.compactor.run_once()
        node.load.reaper.run_once()


@pytest.mark.few(5)
@pytest.mark.parametrize("name", OF_FINAL)
def test_a_death_while_merged_files_become_final_loses_no_point(tmp_path: Path, name: str) -> None:
    _, answer = begin_to_end(tmp_path)
    for number, at in enumerate((START + 20, START + 60, START + 100), 1):
        dies(lambda at=at: final_life(tmp_path, at), name, number)  # type: ignore[misc]
        with final_world(tmp_path, at).still_node() as node:
            node.merged.recover()
            assert fsck_of(node).found == []
            assert read(node) == answer
    final_life(tmp_path, START + 200)
    final_life(tmp_path, START + 300)
    with final_world(tmp_path, START + 300).still_node() as node:
        assert read(node) == answer
        assert len(final_world(tmp_path, START).loaded()) == 2
        with node.engine.reading() as state:
            assert len(state.files) == 2
    assert fsck(final_world(tmp_path, START).config).found == []


def read(node: Node) -> dict[tuple[str, int], int]:
    """What the visible files of the partition give; none of them overlap."""
    with node.engine.reading() as state:
        rows = state.file_table.partition("root.sg", "0", 0)
    found: dict[tuple[str, int], int] = {}
    for row in rows:
        more = given_by(node, SimpleNamespace(outputs=[row]))  # type: ignore[arg-type]
        assert found.keys().isdisjoint(more)
        found |= more
    return found


def test_each_point_of_becoming_final_is_one_that_a_life_comes_to(tmp_path: Path) -> None:
    begin_to_end(tmp_path)
    seen: set[str] = set()
    with crash.arm(seen.add):
        final_life(tmp_path, START + 20)
        final_life(tmp_path, START + 60)
    assert seen >= set(OF_FINAL)


@pytest.mark.parametrize("name", ["merge.compared", "merge.verified", "merge.reread"])
def test_nothing_is_final_of_which_no_verdict_is_on_the_disk(tmp_path: Path, name: str) -> None:
    begin_to_end(tmp_path)
    assert dies(lambda: final_life(tmp_path, START + 20), name, 1)
    with final_world(tmp_path, START + 20).still_node() as node:
        (row,) = compactions(node)
        assert (row.verified > 0) == (name != "merge.compared")
        merge_here(node)
        verified = row.verified
        assert node.final_merges.run_once() == 0, "its files may yet be given by others"
        in_this_process(node)
        node.prover.run_once()
    final_life(tmp_path, START + 60)
    with final_world(tmp_path, START + 60).still_node() as node:
        (row,) = rows_of(node)
        assert 0 < row.verified < row.final
        assert verified in (0, row.verified), "what is known is not found out again"
