"""What a merge reads and writes a second has a bound, here and elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from common.errors import StoppedError
from common.tsfile.byte_source import source_of
from receiver.compaction.making.merging import merge_files
from receiver.compaction.merge_pace import MergePace, PacedSource
from receiver.compaction.worth_merging.merge_asked import MergeAnswer, MergeAsked
from receiver.executor.executor_files import ExecutorFiles
from receiver.executor.merging_elsewhere import answer_merge
from receiver.executor.operated_receiver import StoppedCalls
from receiver.executor.task_executor import Executor
from receiver.metadata.model.ranks import NOW
from receiver.node import Node
from receiver.superseding.asking import FileAsked
from tests.support.merging_node import MergedHere, compactions, merge_here, small_files
from tests.support.node_world import READER, Clock, World
from tests.support.proving import Site
from tests.support.tsfile_bytes import build

RATE = 1 << 16
BURST = RATE // 4
"""What an idle line saves up."""


class Hours:
    """A clock that goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def pace(self, rate: int, stopped: Callable[[], bool] = lambda: False) -> MergePace:
        return MergePace(rate, stopped, clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def asked_of(directory: Path, files: int = 4, points: int = 5000) -> MergeAsked:
    """Files that overlap nothing, of values that no compression makes small."""
    made = []
    for number in range(files):
        times = range(number * points, (number + 1) * points)
        content = build({"root.sg.d1": {"a": [(t, t * 7919 % 2**61) for t in times]}})
        path = directory / f"{number}.tsfile"
        path.write_bytes(content)
        made.append(
            FileAsked(
                physical=path.name, path=str(path), sender="edge", size=len(content),
                md5=hashlib.md5(content).hexdigest(), series=0, points=0, start=None, end=None,
                name=(0, number, number, 0, 0), first=1, closed=1, last=NOW, loaded=number,
            )
        )  # fmt: skip
    out = directory / "out"
    out.mkdir()
    return MergeAsked(tuple(made), (), "sg", str(out), "m", 1 << 20, bytes_per_second=RATE)


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_a_merge_takes_the_time_that_its_bytes_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """Files that are held are read once, others twice; outputs are written and read again."""
    monkeypatch.setattr("receiver.compaction.making.input_files._SMALL", small)
    monkeypatch.setattr("common.tsfile.byte_source._LAST_BLOCK", 1 << 10)  # is read for the index
    asked, hours = asked_of(tmp_path), Hours()
    answer = merge_files(asked, pace=hours.pace(RATE))
    written = sum(each.size for each in answer.outputs)
    least = answer.read_bytes * (1 if small else 2) + 2 * written
    assert least > 10 * BURST
    taken = (hours.now - 1000.0) * RATE
    assert least - BURST <= taken <= 1.5 * least, "where a chunk ends is not known before"


def test_without_a_bound_nobody_waits(tmp_path: Path) -> None:
    hours = Hours()
    merge_files(asked_of(tmp_path), pace=hours.pace(0))
    assert hours.now == 1000.0


def test_the_process_that_merges_keeps_the_bound_that_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def paced(rate: int, stopped: Callable[[], bool]) -> MergePace:
        told.append(rate)
        return Hours().pace(rate, stopped)

    monkeypatch.setattr("receiver.compaction.making.merging.MergePace", paced)
    merge_files(asked_of(tmp_path))
    assert told == [RATE]


def test_a_merge_that_waits_is_stopped_within_a_second_and_leaves_nothing(tmp_path: Path) -> None:
    asked, hours = asked_of(tmp_path), Hours()
    until = 1000.0 + 3

    def stopped() -> bool:
        return hours.now >= until

    with pytest.raises(StoppedError):
        merge_files(asked, stopped, pace=hours.pace(1 << 10, stopped))
    assert hours.now < until + 1
    assert list((tmp_path / "out").iterdir()) == []


def test_what_a_damaged_index_asks_for_is_not_waited_for() -> None:
    hours = Hours()
    source = PacedSource(source_of(bytes(1000)), hours.pace(RATE))
    with pytest.raises(Exception, match="the file ends at offset 1000"):
        source.read(10, 1 << 50)
    assert hours.now < 1001.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


def world_of(directory: Path, clock: Clock, *, here: bool) -> World:
    merge = {"enabled": True, "quiet": 60.0, "min_files": 5, "here": here}
    return World(directory, clock=clock, merge=merge | {"max_bytes_per_second": RATE})


def due(node: Node, clock: Clock) -> None:
    small_files(Site(node), 6)
    clock.now += 61


def test_the_server_has_its_process_keep_the_configured_bound(tmp_path: Path, clock: Clock) -> None:
    with world_of(tmp_path, clock, here=True).still_node() as node:
        process = merge_here(node, Unpaced())
        due(node, clock)
        assert node.compactor.run_once() == 1
        assert [each.bytes_per_second for each in process.asked] == [RATE]


class Unpaced(MergedHere):
    """Merges without waiting."""

    def ask(
        self, asked: MergeAsked, stopped: Callable[[], bool], paused: Callable[[], bool]
    ) -> MergeAnswer:
        del stopped, paused
        self.asked.append(asked)
        return merge_files(asked, pace=MergePace(0))


class Reads:
    """Files as a receiver gives them, at a time that is noted."""

    def __init__(self, node: Node, hours: Hours) -> None:
        self.node, self.hours = node, hours
        self.sizes: list[int] = []

    def read(self, physical: str, begin: int, length: int) -> bytes:
        self.sizes.append(length)
        row = self.node.content.find(READER, physical)
        return self.node.content.read(row, begin, length)


def test_an_executor_elsewhere_fetches_merges_and_sends_within_the_bound(
    tmp_path: Path, clock: Clock
) -> None:
    """It is told the bound with the question; what it fetches and sends are the receiver's disk."""
    rate, hours, told = 1 << 6, Hours(), []

    def pace(given: int, stopped: Callable[[], bool]) -> MergePace:
        told.append(given)
        return hours.pace(rate, stopped)  # so few that the small files of this test take long

    with world_of(tmp_path, clock, here=False).still_node() as node:
        due(node, clock)
        assert node.compactor.run_once() == 0
        process, reads = Unpaced(), Reads(node, hours)
        worker = Executor(
            StoppedCalls(node.remote_work, "x@t"),
            ExecutorFiles(reads),
            wait=lambda _: None,
            kinds={"merge": lambda task: answer_merge(task, lambda _: process, pace)},
        )
        assert worker.run_once(["merge"]) is not None
        (row,) = compactions(node)
        assert told == [RATE]
        assert [each.bytes_per_second for each in process.asked] == [RATE]
        moved = sum(reads.sizes) + sum(each.size for each in row.outputs)
        assert (hours.now - 1000.0) * rate >= moved - rate
