"""Proofs as background work: who has a partition has it alone, and commits while it is theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from common import __version__
from common.errors import ConflictError, ProtocolError
from receiver.background.remote_work import AskedAnewError
from receiver.metadata.model.records import WorkPlace
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.tables.file_tables.retired import PartitionKey
from receiver.metadata.state.work_rows import WorkRow, WorkState
from receiver.node import Node
from receiver.superseding import proof_work
from receiver.superseding.asking import FileProof, PartitionAnswer, PartitionAsked
from receiver.superseding.partition_proof import ReadBytes, prove
from receiver.superseding.proof_work import PROVE, place_of
from tests.support.node_world import World
from tests.support.proving import SameProcess, Site, in_this_process

SOURCES = [f"sequence/root.sg/0/0/{each}-{each}-0-0.tsfile" for each in range(1, 6)]
PRODUCT = "sequence/root.sg/0/0/1-1-0-1.tsfile"
PLACE = WorkPlace("root.sg", "0")
KINDS = [PROVE]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with World(tmp_path).still_node() as node:
        in_this_process(node)
        yield node


@pytest.fixture
def site(node: Node) -> Site:
    site = Site(node)
    site.round({path: {"a": {at: at}} for at, path in enumerate(SOURCES)})
    site.round({PRODUCT: {"a": {at: at for at in range(len(SOURCES) - 1)}}}, SOURCES)
    return site


def rows(node: Node) -> list[WorkRow]:
    with node.engine.reading() as state:
        return list(state.work_table.rows.values())


def states(node: Node) -> list[str]:
    return [str(each.state) for each in rows(node)]


def produce(node: Node) -> None:
    node.prover._here = False
    node.prover.run_once()


def placed(node: Node, question: bytes) -> PartitionAsked:
    asked = msgspec.msgpack.decode(question, type=PartitionAsked)
    assert all(each.path is None for each in asked.files), "no path leaves this machine"
    with node.engine.reading() as state:
        paths = {
            each.physical: node.prover._place(state.files[each.physical]) for each in asked.files
        }
    files = [msgspec.structs.replace(each, path=paths[each.physical]) for each in asked.files]
    return msgspec.structs.replace(asked, files=files)


def answer(node: Node, question: bytes) -> bytes:
    return msgspec.msgpack.encode(prove(placed(node, question), ReadBytes()))


def test_a_partition_is_proved_by_one_task_and_then_none_is_added(node: Node, site: Site) -> None:
    assert node.prover.run_once() == 4
    (row,) = rows(node)
    assert (row.kind, row.state, row.scope, row.attempt) == ("prove", WorkState.DONE, (PLACE,), 1)
    newest = node.engine.newest_commit
    for _ in range(3):
        assert node.prover.run_once() == 0
    assert node.engine.newest_commit == newest, "what is not due costs no commit"


def test_a_file_that_touches_nothing_adds_no_task(node: Node, site: Site) -> None:
    node.prover.run_once()
    site.round({"sequence/root.sg/0/0/9-9-0-0.tsfile": {"a": {5000: 1}}})
    newest = node.engine.newest_commit
    assert node.prover.run_once() == 0
    assert (len(rows(node)), node.engine.newest_commit) == (1, newest)


def test_while_others_have_the_partition_it_is_not_proved(node: Node, site: Site) -> None:
    node.work.add("merge", b"", [PLACE])
    assert node.prover.run_once() == 0
    merging = node.work.take("somebody", ["merge"])
    assert merging is not None
    assert node.prover.run_once() == 0
    with pytest.raises(ConflictError):
        node.work.add(PROVE, b"", [PLACE])
    node.work.end(merging, "done")
    assert node.prover.run_once() == 4


class Meanwhile(SameProcess):
    """Something happens while files are read."""

    def __init__(self, what: Callable[[], object]) -> None:
        super().__init__()
        self.what = what

    def ask(self, asked: PartitionAsked, stopped: Callable[[], bool]) -> PartitionAnswer:
        found = super().ask(asked, stopped)
        self.what()
        return found


def test_a_task_that_is_cancelled_while_it_runs_commits_nothing_and_is_left_alone(
    node: Node, site: Site
) -> None:
    def cancel() -> None:
        (row,) = rows(node)
        node.work.cancel(row, "not now")

    node.prover._process = Meanwhile(cancel)  # type: ignore[assignment]
    assert node.prover.run_once() == 0
    assert site.state(SOURCES[0]) is FileState.RETIRED
    in_this_process(node)
    assert node.prover.run_once() == 0
    assert states(node) == ["cancelled"]
    node.work.retry(rows(node)[0])
    assert node.prover.run_once() == 4
    assert states(node) == ["done"]


def test_a_receiver_that_slept_through_its_lease_commits_nothing(node: Node, site: Site) -> None:
    now = [0.0]
    node.work._clock = lambda: now[0]

    def sleep() -> None:
        now[0] += 10 * node.work.lease
        assert node.work.expire() == 1

    node.prover._process = Meanwhile(sleep)  # type: ignore[assignment]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node.work, "take", _once(node.work.take))
        assert node.prover.run_once() == 0
    assert site.state(SOURCES[0]) is FileState.RETIRED
    in_this_process(node)
    assert node.prover.run_once() == 4


def _once(take: Callable[..., WorkRow | None]) -> Callable[..., WorkRow | None]:
    left = [1]

    def once(executor: str, kinds: list[str]) -> WorkRow | None:
        left[0] -= 1
        return take(executor, kinds) if left[0] >= 0 else None

    return once


def test_what_failed_waits_for_a_change_or_an_operator(node: Node, site: Site) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a bug")

    node.prover._process = Meanwhile(fail)  # type: ignore[assignment]
    with pytest.raises(ZeroDivisionError):
        node.prover.run_once()
    (row,) = rows(node)
    assert (row.state, row.reason) == (WorkState.FAILED, "ZeroDivisionError: a bug")
    in_this_process(node)
    assert node.prover.run_once() == 0
    site.round({"sequence/root.sg/0/0/9-9-0-0.tsfile": {"a": {5000: 1}}})
    assert node.prover.run_once() == 4
    assert states(node) == ["failed", "done"]


def test_what_ran_when_the_receiver_died_is_done_by_the_next_at_once(
    node: Node, site: Site
) -> None:
    produce(node)
    assert node.work.take("receiver", KINDS) is not None
    node.prover._here, node.prover._is_first = True, True
    assert node.prover.run_once() == 4


def test_not_all_that_is_due_waits_in_the_table(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_work, "_MOST_WAITING", 3)
    site = Site(node)
    old = [f"sequence/root.sg/0/{each}/1-1-0-0.tsfile" for each in range(10)]
    site.round({path: {"a": {604_800_000 * at: at}} for at, path in enumerate(old)})
    new = {path.replace("1-1-0-0", "1-1-0-1"): {"a": {604_800_000 * at: at}}
           for at, path in enumerate(old)}  # fmt: skip
    site.round(new, old)
    produce(node)
    assert states(node) == ["pending"] * 3
    node.prover._here = True
    assert node.prover.run_once() == 10
    assert states(node) == ["done"] * 10


def test_virtual_groups_of_a_partition_are_one_place() -> None:
    one, other = PartitionKey("root.sg", "0", "7"), PartitionKey("root.sg", "1", "7")
    assert place_of(one) == place_of(other) == WorkPlace("root.sg", "7")


# -- by an executor elsewhere ----------------------------------------------------------------------


def test_an_executor_elsewhere_proves_by_questions(node: Node, site: Site) -> None:
    produce(node)
    remote = node.remote_work
    row = remote.take("x@t", KINDS, __version__)
    assert row is not None
    question = remote.question(row.id, row.attempt, "x@t")
    assert question is not None
    assert remote.question(row.id, row.attempt, "x@t") == question, "the same until it is answered"
    found = answer(node, question.content)
    remote.answer(row.id, row.attempt, "x@t", question.tag, found)
    with pytest.raises(AskedAnewError):
        remote.answer(row.id, row.attempt, "x@t", question.tag, found)
    assert remote.question(row.id, row.attempt, "x@t") is None
    assert states(node) == ["done"]
    assert [site.state(each) for each in SOURCES[:4]] == [FileState.SUPERSEDED] * 4
    assert node.prover.progress().kept_files == 1
    produce(node)
    assert states(node) == ["done"]


def test_what_is_said_of_a_task_by_another_or_of_another_attempt_is_refused(
    node: Node, site: Site
) -> None:
    produce(node)
    remote = node.remote_work
    row = remote.take("x@t", KINDS, __version__)
    assert row is not None
    question = remote.question(row.id, row.attempt, "x@t")
    assert question is not None
    for attempt, who in ((1, "y@t"), (2, "x@t"), (1, "x@u")):
        for late in (
            lambda a=attempt, w=who: remote.renew(row.id, a, w),
            lambda a=attempt, w=who: remote.question(row.id, a, w),
            lambda a=attempt, w=who: remote.answer(row.id, a, w, question.tag, b""),
            lambda a=attempt, w=who: remote.end(row.id, a, w, "failed", "no"),
        ):
            with pytest.raises(ConflictError):
                late()
    assert states(node) == ["running"]


def test_of_two_executors_the_one_that_slept_is_refused_and_the_other_is_asked_anew(
    node: Node, site: Site
) -> None:
    now = [0.0]
    node.work._clock = lambda: now[0]
    produce(node)
    remote = node.remote_work
    sleeper = remote.take("sleeper@t", KINDS, __version__)
    assert sleeper is not None
    question = remote.question(sleeper.id, 1, "sleeper@t")
    assert question is not None
    late = answer(node, question.content)
    assert remote.take("other@t", KINDS, __version__) is None
    now[0] += 2 * node.work.lease
    with pytest.raises(ConflictError):
        remote.answer(sleeper.id, 1, "sleeper@t", question.tag, late)
    other = remote.take("other@t", KINDS, __version__)
    assert other is not None
    assert other.attempt == 2
    with pytest.raises(ConflictError):
        remote.answer(sleeper.id, 1, "sleeper@t", question.tag, late)
    assert site.state(SOURCES[0]) is FileState.RETIRED
    again = remote.question(other.id, 2, "other@t")
    assert again is not None
    remote.answer(other.id, 2, "other@t", again.tag, answer(node, again.content))
    assert site.state(SOURCES[0]) is FileState.SUPERSEDED


def test_after_a_restart_only_what_is_not_committed_is_asked(node: Node, site: Site) -> None:
    produce(node)
    row = node.remote_work.take("x@t", KINDS, __version__)
    assert row is not None
    question = node.remote_work.question(row.id, 1, "x@t")
    assert question is not None
    found = msgspec.msgpack.decode(answer(node, question.content), type=PartitionAnswer)
    some = [each for each in found.proofs if each.proved][:2]
    node.remote_work.answer(
        row.id, 1, "x@t", question.tag, msgspec.msgpack.encode(PartitionAnswer(some))
    )
    node.remote_work._asked.clear()
    node.prover.work._judged.clear()
    again = node.remote_work.question(row.id, 1, "x@t")
    assert again is not None
    asked = msgspec.msgpack.decode(again.content, type=PartitionAsked)
    assert len([each for each in asked.files if each.candidate]) == 3


@pytest.mark.parametrize(
    "proof",
    [
        FileProof("sequence/root.other/0/0/1-1-0-0.tsfile", True),
        FileProof("PRODUCT", True),
        FileProof("SOURCE", True, ("sequence/root.other/0/0/1-1-0-0.tsfile",)),
        FileProof("SOURCE", True, ("SOURCE",)),
    ],
)
def test_an_answer_of_what_was_not_asked_makes_nothing_true(
    node: Node, site: Site, proof: FileProof
) -> None:
    names = {"SOURCE": site.row(SOURCES[0]).physical, "PRODUCT": site.row(PRODUCT).physical}
    said = FileProof(
        names.get(proof.physical, proof.physical),
        True,
        tuple(names.get(each, each) for each in proof.rests),
    )
    produce(node)
    row = node.remote_work.take("x@t", KINDS, __version__)
    assert row is not None
    question = node.remote_work.question(row.id, 1, "x@t")
    assert question is not None
    newest = node.engine.newest_commit
    for content in (msgspec.msgpack.encode(PartitionAnswer([said])), b"\xc1"):
        with pytest.raises(ProtocolError):
            node.remote_work.answer(row.id, 1, "x@t", question.tag, content)
    assert node.engine.newest_commit == newest
