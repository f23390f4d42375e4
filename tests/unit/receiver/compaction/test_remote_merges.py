"""Merges by executors elsewhere: what is believed, and what becomes of who sleeps or dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from common import __version__
from common.digests import md5, xxh3_64
from common.durable import Tree
from common.errors import (
    BusyError,
    ConflictError,
    DigestError,
    NoSpaceError,
    OffsetError,
    ProtocolError,
    TooLargeError,
    TsferryError,
    UsageError,
)
from common.tsfile import read_tail
from receiver.background.remote_work import AskedAnewError, OtherVersionError
from receiver.background.side_process import ProcessDied
from receiver.compaction import remote_merges
from receiver.compaction.merge_process import MergeRefused, MergeReply
from receiver.compaction.output_checks import OutputRefusedError
from receiver.compaction.worth_merging.merge_asked import MergeAnswer, MergeOutput, MergeQuestion
from receiver.executor import merging_elsewhere
from receiver.executor.executor_files import ExecutorFiles
from receiver.executor.merging_elsewhere import answer_merge
from receiver.executor.operated_receiver import StoppedCalls
from receiver.executor.task_executor import Executor
from receiver.metadata.model import records
from receiver.metadata.model.records import WorkPlace
from receiver.metadata.state.work_rows import WorkRow
from receiver.node import Node
from receiver.operator.views.background_views import TaskTaken
from tests.support.merging_node import (
    MergedHere,
    Refusing,
    compactions,
    given_by,
    merge_here,
    small_files,
)
from tests.support.node_world import READER, Clock, World
from tests.support.proving import Site, content
from tests.support.tsfile_bytes import build

KINDS = ["merge"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    merge = {"enabled": True, "quiet": 60.0, "min_files": 5, "here": False}
    return World(tmp_path, clock=clock, keep_deleted=100.0, merge=merge)


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    with world.still_node() as node:
        yield node


@pytest.fixture
def site(node: Node, clock: Clock) -> Site:
    site = Site(node)
    small_files(site, 6)
    clock.now += 61
    assert node.compactor.run_once() == 0, "it only finds what is due"
    return site


class Reads:
    """Files as readers are given them."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.asked = 0

    def read(self, physical: str, begin: int, length: int) -> bytes:
        self.asked += 1
        row = self.node.content.find(READER, physical)
        return self.node.content.read(row, begin, length)


def executor(
    node: Node, process: MergedHere | None = None, name: str = "x@t", *, shared: bool = True
) -> Executor:
    process = process or MergedHere()
    dirs = [each.path for each in node.load.disks.trees] if shared else []
    return Executor(
        StoppedCalls(node.remote_work, name),
        ExecutorFiles(Reads(node), dirs),
        wait=lambda _: None,
        kinds={"merge": lambda task: answer_merge(task, lambda _: process)},
    )


def rows(node: Node) -> list[WorkRow]:
    with node.engine.reading() as state:
        return list(state.work_table.rows.values())


def states(node: Node) -> list[str]:
    return [str(each.state) for each in rows(node)]


def leftovers(world: World) -> list[str]:
    """What lies of merges, committed or not."""
    found = [name for name in world.loaded() if "/merged-" in name]
    merging = world.data / "merging"
    return found + [str(each) for each in merging.rglob("*")] if merging.exists() else found


def outputs(node: Node) -> list[str]:
    return [each.physical for row in compactions(node) for each in row.outputs]


@pytest.mark.parametrize("shared", [True, False])
def test_what_is_merged_elsewhere_is_read_as_what_is_merged_here(
    node: Node, world: World, site: Site, shared: bool
) -> None:
    worker = executor(node, shared=shared)
    assert worker.run_once(KINDS) is not None
    (row,) = compactions(node)
    assert given_by(node, row) == site.answer()
    assert leftovers(world) == outputs(node) != []
    (task,) = rows(node)
    assert (task.state, task.executor, task.attempt) == ("done", "x@t", 1)
    assert (worker._files._reads.asked == 0) == shared  # type: ignore[union-attr]
    assert worker.run_once(KINDS) is None
    assert node.compactor.run_once() == 0
    assert states(node) == ["done"], "nothing is due any more"


def test_late_values_and_deletions_are_applied_elsewhere_too(
    node: Node, site: Site, clock: Clock
) -> None:
    site.round({"unsequence/root.sg/0/0/9-9-0-0.tsfile": {"a": {10: 99, 32: 98}}})
    site.note("sequence/root.sg/0/0/2-2-0-0.tsfile", "a", 20, 22, floor=0)
    assert executor(node).run_once(KINDS) is not None
    (row,) = compactions(node)
    assert given_by(node, row) == site.answer()
    assert ("a", 20) not in given_by(node, row)


def test_a_merge_whose_answer_is_lost_is_committed_once(node: Node, site: Site) -> None:
    calls = StoppedCalls(node.remote_work, "x@t")
    said: list[bytes] = []

    def cut(task: TaskTaken, tag: str, content: bytes) -> None:
        said.append(content)
        node.remote_work.answer(int(task.task), 1, "x@t", tag, content)
        if len(said) == 1:
            raise BusyError("the reply was lost")

    worker = executor(node)
    worker._calls = calls
    calls.answer = cut  # type: ignore[method-assign]
    worker.run_once(KINDS)
    assert len(said) == 2
    assert states(node) == ["done"]
    assert len(compactions(node)) == 1


@pytest.mark.parametrize("what", ["deleted", "quarantined", "a deletion"])
def test_what_happens_to_an_input_meanwhile_wins(
    node: Node, world: World, site: Site, what: str
) -> None:
    path = "sequence/root.sg/0/0/3-3-0-0.tsfile"
    physical = site.row(path).physical

    def meanwhile() -> None:
        if len(process.asked) > 1:
            return
        if what == "a deletion":
            site.note(path, "a", 0, 1000, floor=0)
        elif what == "deleted":
            node.engine.commit([records.FileDeleted(physical, "operator")])
        else:
            node.engine.commit([records.FileQuarantined(physical, "rotten")])

    process = MergedHere(meanwhile)
    worker = executor(node, process, shared=False)
    worker.run_once(KINDS)
    assert (states(node), leftovers(world)) == (["pending"], [])
    worker.run_once(KINDS)
    (row,) = compactions(node)
    assert given_by(node, row).keys().isdisjoint({("a", at) for at in range(30, 35)})
    assert leftovers(world) == outputs(node)


# -- an executor by hand ---------------------------------------------------------------------------


class ByHand:
    """Says one thing after another, as an executor would or would not."""

    def __init__(self, node: Node, name: str = "x@t") -> None:
        self.node, self.name = node, name
        row = node.remote_work.take(name, KINDS, __version__)
        assert row is not None
        self.row = row
        self.ask()

    def ask(self) -> None:
        found = self.node.remote_work.question(self.row.id, self.row.attempt, self.name)
        assert found is not None
        self.tag = found.tag
        self.question = msgspec.msgpack.decode(found.content, type=MergeQuestion)

    def put(self, number: int, content: bytes, offset: int = 0, xxh3: str | None = None) -> None:
        self.node.remote_work.put(
            self.row.id, self.row.attempt, self.name, self.tag, number, offset,
            memoryview(content), xxh3_64(content) if xxh3 is None else xxh3,
        )  # fmt: skip

    def answer(self, *made: MergeOutput) -> None:
        self.say(MergeReply(MergeAnswer(made, 30, 1000, 0.1)))

    def say(self, reply: MergeReply) -> None:
        packed = msgspec.msgpack.encode(reply)
        self.node.remote_work.answer(self.row.id, self.row.attempt, self.name, self.tag, packed)


def merged(site: Site, *, first: int = 0, last: int = 10_000) -> bytes:
    """What a right merge of all the files gives, of some times."""
    points = {at: value for (_, at), value in site.answer().items() if first <= at <= last}
    return content({"a": points}, "merged")


def said_of(made: bytes) -> MergeOutput:
    tail = read_tail(made)
    assert tail.first_time is not None
    assert tail.last_time is not None
    return MergeOutput(
        "", len(made), md5(made).hexdigest(), tail.version or 0, tail.series_count,
        tail.point_count, tail.first_time, tail.last_time, (),
    )  # fmt: skip


def test_a_right_output_is_taken(node: Node, site: Site) -> None:
    """What the lies below differ from."""
    hand, made = ByHand(node), merged(site)
    hand.put(1, made[:100])
    hand.put(1, made[:100])  # its answer was lost
    hand.put(1, made[100:], 100)
    hand.answer(said_of(made))
    assert states(node) == ["done"]
    assert given_by(node, compactions(node)[0]) == site.answer()


def test_an_output_is_flushed_before_readers_hear_of_it(
    node: Node, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    flush, commit = Tree.sync_file, node.engine.commit

    def flushed(tree: Tree, rel: str) -> None:
        flush(tree, rel)
        steps.append(rel.rpartition("/")[2])

    def committed(*args: object) -> int:
        steps.append("commit")
        return commit(*args)  # type: ignore[arg-type]

    hand, made = ByHand(node), merged(site)
    hand.put(1, made)
    monkeypatch.setattr(Tree, "sync_file", flushed)
    monkeypatch.setattr(node.engine, "commit", committed)
    hand.answer(said_of(made))
    assert steps[:2] == [f"merged-{hand.row.changed}-1.tsfile", "commit"]


def _other_bytes(hand: ByHand, site: Site) -> list[MergeOutput]:
    made = merged(site)
    hand.put(1, made.replace(b"merged", b"forged"))
    return [said_of(made)]


def _too_few(hand: ByHand, site: Site) -> list[MergeOutput]:
    made = merged(site)
    hand.put(1, made[:-10])
    return [said_of(made)]


def _no_tsfile(hand: ByHand, site: Site) -> list[MergeOutput]:
    made = merged(site)
    cut = made[:-1] + b"?"
    hand.put(1, cut)
    return [msgspec.structs.replace(said_of(made), md5=md5(cut).hexdigest())]


def _other_count(hand: ByHand, site: Site) -> list[MergeOutput]:
    made = merged(site)
    hand.put(1, made)
    return [msgspec.structs.replace(said_of(made), points=29)]


def _strange_device(hand: ByHand, site: Site) -> list[MergeOutput]:
    made = build({"root.sg.d9": {"a": [(10, 1)]}})
    hand.put(1, made)
    return [said_of(made)]


def _times_of_none(hand: ByHand, site: Site) -> list[MergeOutput]:
    made = content({"a": {5000: 1}}, "merged")
    hand.put(1, made)
    return [said_of(made)]


def _twice(hand: ByHand, site: Site) -> list[MergeOutput]:
    one, other = merged(site, last=30), merged(site, first=30)
    hand.put(1, one)
    hand.put(2, other)
    return [said_of(one), said_of(other)]


def _one_more(hand: ByHand, site: Site) -> list[MergeOutput]:
    made = merged(site)
    hand.put(1, made)
    hand.put(2, made)
    return [said_of(made)]


def _not_sent(hand: ByHand, site: Site) -> list[MergeOutput]:
    return [said_of(merged(site))]


@pytest.mark.parametrize(
    "lie",
    [
        _other_bytes, _too_few, _no_tsfile, _other_count, _strange_device,
        _times_of_none, _twice, _one_more, _not_sent,
    ],
)  # fmt: skip
def test_what_no_merge_of_these_files_can_be_is_refused_and_nothing_of_it_stays(
    node: Node, world: World, site: Site, clock: Clock, lie: Callable[..., list[MergeOutput]]
) -> None:
    hand = ByHand(node)
    said = lie(hand, site)
    with pytest.raises(OutputRefusedError):
        hand.answer(*said)
    assert (compactions(node), leftovers(world), states(node)) == ([], [], ["failed"])
    assert rows(node)[0].reason.startswith("x@t: ")
    assert "x@t" in (node.compactor.progress().problem or "")
    clock.now += 61
    node.compactor.run_once()
    assert states(node) == ["failed"], "it is not handed out again at once"


def test_more_points_than_the_inputs_have_are_refused(node: Node, world: World, site: Site) -> None:
    hand = ByHand(node)
    points = dict.fromkeys(range(10, 65), 1)
    made = content({"a": points}, "merged")
    hand.put(1, made)
    with pytest.raises(TsferryError, match="more points"):
        hand.answer(said_of(made))
    assert (compactions(node), leftovers(world)) == ([], [])


def test_blocks_come_in_order_and_are_what_was_sent(node: Node, world: World, site: Site) -> None:
    hand = ByHand(node)
    for number, at, sent, error in (
        (1, 0, b"abc", DigestError),
        (1, 5, b"abc", OffsetError),
        (0, 0, b"abc", ProtocolError),
        (10_001, 0, b"abc", ProtocolError),
        (1, 0, b"", ProtocolError),
    ):
        with pytest.raises(error):
            hand.put(number, sent, at, "0" * 16 if error is DigestError else None)
    assert not [each for each in leftovers(world) if each.endswith(".tsfile")]
    with pytest.raises(ProtocolError):
        node.remote_work.answer(hand.row.id, 1, hand.name, hand.tag, b"\xc1")


def test_no_more_comes_than_a_merge_of_these_files_can_be(
    node: Node, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.compaction.merge_run._SLACK", 100)
    hand = ByHand(node)
    most = sum(each.size for each in hand.question.asked.files) + 100
    hand.put(1, b"x" * (most - 100))
    hand.put(2, b"x" * 100)
    for number, offset in ((1, most - 100), (2, 100), (3, 0)):
        with pytest.raises(TooLargeError):
            hand.put(number, b"x", offset)
    hand.put(2, b"y" * 100)


def test_a_disk_that_fills_gives_the_task_back_and_leaves_nothing(
    node: Node, world: World, site: Site
) -> None:
    room = [1 << 30, 10]
    node.compactor.run = replace(node.compactor.run, room=lambda: room[0])
    worker = executor(node, MergedHere(lambda: room.pop(0)))
    worker.run_once(KINDS)
    assert (states(node), leftovers(world)) == (["pending"], [])
    assert "bytes are to come" in rows(node)[0].reason
    assert worker.given_back == 1


def test_without_room_nothing_is_asked(node: Node, world: World, site: Site) -> None:
    node.compactor.run = replace(node.compactor.run, room=lambda: 1000)
    process = MergedHere()
    executor(node, process).run_once(KINDS)
    assert (process.asked, states(node), leftovers(world)) == ([], ["failed"], [])
    assert "1000 may be written" in rows(node)[0].reason


def test_an_executor_without_room_gives_the_task_back(
    node: Node, world: World, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging_elsewhere, "free_bytes", lambda _: 1000)
    executor(node).run_once(KINDS)
    assert (states(node), leftovers(world)) == (["pending"], [])
    assert "of the executor, and 1000 are free" in rows(node)[0].reason
    monkeypatch.undo()
    full = Refusing(site.row("sequence/root.sg/0/0/1-1-0-0.tsfile").physical, NoSpaceError("full"))
    executor(node, full).run_once(KINDS)
    assert "the disk of the executor: full" in rows(node)[0].reason


def test_files_wait_for_nobody_who_merges(node: Node, site: Site) -> None:
    hand = ByHand(node)
    now = [0.0]
    node.compactor._is_busy, node.compactor._monotonic = lambda: True, lambda: now[0]
    with pytest.raises(BusyError):
        hand.put(1, b"x")
    assert not merges_are_open(node)
    now[0] += 31
    hand.put(1, b"x")  # though not for ever


def merges_are_open(node: Node) -> bool:
    return node.remote_work._kinds["merge"].is_open()


# -- who sleeps, who dies --------------------------------------------------------------------------


def test_an_executor_that_slept_ten_minutes_commits_nothing_and_leaves_nothing(
    node: Node, world: World, site: Site
) -> None:
    now = [0.0]
    node.work._clock = lambda: now[0]
    sleeper, made = ByHand(node, "sleeper@t"), merged(site)
    sleeper.put(1, made[:100])
    now[0] += 600
    assert executor(node, name="awake@t").run_once(KINDS) is not None
    (row,) = compactions(node)
    assert leftovers(world) == outputs(node), "what the sleeper sent is gone"
    for late in (
        lambda: sleeper.put(1, made[100:], 100),
        lambda: sleeper.answer(said_of(made)),
        sleeper.ask,
        lambda: node.remote_work.end(sleeper.row.id, 1, sleeper.name, "failed", "late"),
    ):
        with pytest.raises(ConflictError):
            late()
    assert compactions(node) == [row]
    assert leftovers(world) == outputs(node)
    (task,) = rows(node)
    assert (task.state, task.attempt, task.executor) == ("done", 2, "awake@t")


def test_one_that_slept_after_all_had_come_commits_nothing(
    node: Node, world: World, site: Site
) -> None:
    now = [0.0]
    node.work._clock = lambda: now[0]
    sleeper, made = ByHand(node), merged(site)
    sleeper.put(1, made)
    now[0] += 600
    with pytest.raises(ConflictError):
        sleeper.answer(said_of(made))
    assert (compactions(node), states(node)) == ([], ["pending"])
    node.remote_work.sweep()
    assert leftovers(world) == []


def test_what_a_killed_executor_sent_goes_with_its_lease(
    node: Node, world: World, site: Site
) -> None:
    now = [0.0]
    node.work._clock = lambda: now[0]
    hand = ByHand(node)
    hand.put(1, b"x" * 100)
    node.load.reaper.run_once()
    assert len(leftovers(world)) == 3, "a directory, where it goes to, and a file"
    now[0] += 60
    node.load.reaper.run_once()
    assert (leftovers(world), states(node)) == ([], ["pending"])


def test_what_is_cancelled_goes_at_once(node: Node, world: World, site: Site) -> None:
    hand = ByHand(node)
    hand.put(1, b"x" * 100)
    node.work.cancel(rows(node)[0], "not now")
    with pytest.raises(ConflictError):
        hand.put(1, b"y", 100)
    node.remote_work.sweep()
    assert leftovers(world) == []


def test_after_a_restart_of_the_receiver_it_is_asked_anew(world: World, clock: Clock) -> None:
    with world.still_node() as node:
        site = Site(node)
        small_files(site, 6)
        clock.now += 61
        node.compactor.run_once()
        hand, made = ByHand(node), merged(site)
        hand.put(1, made[:100])
    with world.still_node() as node:
        node.merged.recover()
        assert leftovers(world) == []
        hand.node = node
        with pytest.raises(AskedAnewError):
            hand.put(1, made[100:], 100)
        with pytest.raises(AskedAnewError):
            hand.answer(said_of(made))
        hand.ask()
        hand.put(1, made)
        hand.answer(said_of(made))
        assert states(node) == ["done"]
        assert given_by(node, compactions(node)[0]) == site.answer()


def test_an_executor_goes_on_with_a_receiver_that_was_started_again(
    node: Node, world: World, site: Site
) -> None:
    process = MergedHere(lambda: node.remote_work._asked.clear() if len(process.asked) == 1 else 0)
    executor(node, process).run_once(KINDS)
    assert len(process.asked) == 2
    assert states(node) == ["done"]
    assert leftovers(world) == outputs(node)


@pytest.mark.parametrize("died", [False, True])
def test_files_that_cannot_be_merged_are_left_out_of_what_is_asked_next(
    node: Node, clock: Clock, died: bool
) -> None:
    site = Site(node)
    paths = small_files(site, 24)
    bad = site.row(paths[20]).physical
    why = ProcessDied("exit status -9") if died else MergeRefused("it contradicts the others")
    worker = executor(node, Refusing(bad, why))
    clock.now += 61
    node.compactor.run_once()
    while worker.run_once(KINDS) is not None:
        assert len(rows(node)) < 20
    inputs = [each for row in compactions(node) for each in row.inputs]
    assert len(inputs) >= 17
    assert bad not in inputs
    assert str(why) in (node.compactor.progress().problem or "")


def test_what_an_operator_asked_for_goes_on_until_all_is_merged(
    node: Node, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.work.cancel(rows(node)[0], "by a test")
    node.compactor.due.rules = replace(
        node.compactor.due.rules,
        limits=replace(node.compactor.due.rules.limits, most_files=3),
    )
    node.compactor.compact("root.sg")
    worker, count = executor(node), 0
    while worker.run_once(KINDS) is not None:
        count += 1
    assert (count, len(compactions(node))) == (2, 2)


def test_several_calls_of_one_attempt_wait_for_each_other(
    node: Node, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.background.remote_work._PATIENCE", 0.01)
    hand = ByHand(node)
    with node.remote_work._asked[hand.row.id].lock, pytest.raises(BusyError):
        hand.put(1, b"x")
    hand.put(1, b"x")


def test_checking_that_takes_long_is_asked_for_again(
    node: Node, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    hand = ByHand(node)
    parts = [merged(site, last=30), merged(site, first=31)]
    for number, part in enumerate(parts, 1):
        hand.put(number, part)
    attempt = node.remote_work._asked[hand.row.id].attempt
    attempt._merges.monotonic = lambda: now[0]  # type: ignore[attr-defined]
    checked = remote_merges.checked_output

    def slow(*args: object) -> MergeOutput:
        now[0] += 30
        return checked(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(remote_merges, "checked_output", slow)
    with pytest.raises(BusyError, match="1 of 2 outputs are checked"):
        hand.answer(*map(said_of, parts))
    hand.answer(*map(said_of, parts))
    assert states(node) == ["done"]
    assert given_by(node, compactions(node)[0]) == site.answer()


# -- what is handed out ----------------------------------------------------------------------------


def test_out_of_hours_only_what_an_operator_wants_is_handed_out(node: Node, site: Site) -> None:
    node.compactor._is_time = lambda: False
    assert node.remote_work.take("x@t", KINDS, __version__) is None
    ident = rows(node)[0].id
    for wrong in (ident + 1, 1):
        with pytest.raises(ConflictError):
            node.remote_work.take("x@t", KINDS, __version__, task=wrong)
    with pytest.raises(ConflictError):
        node.remote_work.take("x@t", ["prove"], __version__, task=ident)
    row = node.remote_work.take("x@t", KINDS, __version__, task=ident)
    assert row is not None
    assert row.id == ident
    node.work.cancel(row, "by a test")
    node.compactor.compact("root.sg")
    assert node.remote_work.take("x@t", KINDS, __version__) is not None


def test_an_executor_of_another_version_is_given_nothing(node: Node, site: Site) -> None:
    for kinds in (KINDS, ["prove"]):
        with pytest.raises(OtherVersionError, match=r"0\.0\.9"):
            node.remote_work.take("x@t", kinds, "0.0.9")
    with pytest.raises(UsageError):
        node.remote_work.take("x@t", ["odd"], __version__)
    assert states(node) == ["pending"]


def test_here_and_elsewhere_do_each_merge_once(world: World, clock: Clock) -> None:
    merge = {**world.merge, "here": True}
    with World(world.root, clock=clock, merge=merge).still_node() as node:
        site = Site(node)
        small_files(site, 6)
        clock.now += 61
        node.compactor.look()
        hand = ByHand(node)
        merge_here(node)
        assert node.compactor.run_once() == 0, "somebody else has it"
        node.remote_work.end(hand.row.id, 1, hand.name, "pending", "enough")
        assert node.compactor.run_once() == 1
        assert leftovers(world) == outputs(node)


def test_no_file_goes_with_an_answer_of_proofs(node: Node, site: Site) -> None:
    ident = node.work.add("prove", b"", [WorkPlace("root.other", "1")])
    row = node.remote_work.take("x@t", ["prove"], __version__)
    assert row is not None
    assert row.id == ident
    attempt = node.remote_work._kinds["prove"].begin(row)
    with pytest.raises(ProtocolError):
        attempt.put(1, 0, memoryview(b"x"), xxh3_64(b"x"))
