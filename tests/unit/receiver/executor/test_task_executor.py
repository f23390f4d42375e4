"""An executor without a network: what it answers, gives back, and says again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.errors import (
    BusyError,
    ConflictError,
    DamagedError,
    NoSpaceError,
    NotFoundError,
    ProtocolError,
    Transient,
    UnauthorizedError,
    UnreachableError,
)
from receiver.background.remote_work import AskedAnewError
from receiver.executor.executor_files import ExecutorFiles, FetchFailed
from receiver.executor.proving_elsewhere import answer_proofs
from receiver.executor.task_asked import TaskAsked
from receiver.executor.task_executor import Executor
from receiver.executor.work_kinds import WORK_KINDS
from receiver.executor.worker_calls import AskedQuestion
from receiver.operator.views.background_views import TaskTaken
from receiver.superseding.asking import FileAsked, PartitionAnswer, PartitionAsked
from tests.support.proving import content

TASK = TaskTaken(task="7", attempt=1, kind="merge", lease=60.0)


class Receiver:
    """Gives one task with some questions, and remembers what is said."""

    def __init__(self, *questions: bytes) -> None:
        self.questions = list(questions)
        self.tasks = [TASK]
        self.said: list[object] = []
        self.refusals: Iterator[Exception | None] = iter(())

    def take(self, kinds: list[str], task: str = "") -> TaskTaken | None:
        self.said.append(("take", *kinds))
        return self.tasks.pop(0) if self.tasks else None

    def renew(self, task: TaskTaken) -> None:
        raise AssertionError("not within a lease")

    def question(self, task: TaskTaken) -> AskedQuestion | None:
        return (
            AskedQuestion(f"tag {len(self.questions)}", self.questions[0])
            if self.questions
            else None
        )

    def answer(self, task: TaskTaken, tag: str, content: bytes) -> None:
        refusal = next(self.refusals, None)
        if isinstance(refusal, UnreachableError):  # it came, and the reply is lost
            self.said.append(content)
            self.questions.pop(0)
        if refusal is not None:
            raise refusal
        if tag != f"tag {len(self.questions)}":
            raise AskedAnewError("another one")
        self.said.append(content)
        self.questions.pop(0)

    def end(self, task: TaskTaken, end: str, reason: str) -> None:
        self.said.append((end, reason))


def executor(receiver: Receiver, merge: Callable[[bytes], bytes] = bytes.upper) -> Executor:
    kinds = {"merge": lambda task: merge(task.question)}
    return Executor(receiver, None, wait=lambda _: None, kinds=kinds)  # type: ignore[arg-type]


def test_a_kind_of_work_is_a_function_from_question_to_answer() -> None:
    receiver = Receiver(b"one", b"two")
    assert executor(receiver).run_once(["merge"]) is TASK
    assert receiver.said == [("take", "merge"), b"ONE", b"TWO"]
    assert executor(receiver).run_once(["merge"]) is None
    assert set(WORK_KINDS) == {"merge", "prove"}


def test_an_answer_whose_reply_is_lost_is_said_again_and_counts_once() -> None:
    receiver = Receiver(b"one", b"two")
    receiver.refusals = iter([UnreachableError("the line is cut")])
    executor(receiver).run_once(["merge"])
    assert receiver.said[1:] == [b"ONE", b"TWO"]


def test_who_lost_a_task_says_no_more_of_it() -> None:
    receiver = Receiver(b"one", b"two")
    receiver.refusals = iter([ConflictError("it is another's")])
    assert executor(receiver).run_once(["merge"])
    assert receiver.said[1:] == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("types contradict"), ("failed", "ValueError: types contradict")),
        (DamagedError("it is cut"), ("failed", "DamagedError: it is cut")),
        (Transient("not now"), ("pending", "not now")),
        (KeyboardInterrupt(), ("pending", "its executor was stopped")),
    ],
)
def test_what_goes_wrong_is_said_of_the_task(error: BaseException, said: tuple[str, str]) -> None:
    def fail(_: bytes) -> bytes:
        raise error

    receiver = Receiver(b"one")
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            executor(receiver, fail).run_once(["merge"])
    else:
        executor(receiver, fail).run_once(["merge"])
    assert receiver.said[1:] == [said]


def test_who_gives_tasks_back_one_after_another_takes_them_ever_more_seldom() -> None:
    outcomes = [Transient("not now")] * 7 + [None, Transient("not now")]
    waited: list[float] = []

    def fail(task: TaskAsked) -> bytes:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return task.question

    receiver = Receiver(b"one")
    receiver.tasks = [TASK] * 9
    busy = Executor(receiver, None, wait=waited.append, kinds={"merge": fail})  # type: ignore[arg-type]
    for _ in range(8):
        busy.run_once(["merge"])
    receiver.questions = [b"two"]
    busy.run_once(["merge"])
    assert waited == [2, 4, 8, 16, 32, 60, 60, 2]


def test_a_token_that_is_refused_ends_it() -> None:
    receiver = Receiver()
    receiver.take = lambda kinds, task: _refuse()  # type: ignore[method-assign]
    with pytest.raises(UnauthorizedError):
        executor(receiver).run_once(["merge"])


def _refuse() -> None:
    raise UnauthorizedError("it was revoked")


# -- proofs ----------------------------------------------------------------------------------------


class Reads:
    def __init__(self, files: dict[str, Any]) -> None:
        self.files = files
        self.asked: list[tuple[str, int, int]] = []

    def read(self, physical: str, begin: int, length: int) -> bytes:
        self.asked.append((physical, begin, length))
        found = self.files[physical]
        if isinstance(found, Exception):
            raise found
        return found[begin : begin + length]


LOW = "sequence/root.sg/0/0/1-1-0-0.tsfile"
HIGH = "sequence/root.sg/0/0/1-1-0-1.tsfile"
BYTES = {LOW: content({"a": {1: 1}}, "low"), HIGH: content({"a": {1: 1, 2: 2}}, "high")}


def question() -> bytes:
    files = [
        FileAsked(
            physical=name,
            path=None,
            sender="a" * 32,
            size=len(BYTES[name]),
            md5=hashlib.md5(BYTES[name]).hexdigest(),
            series=1,
            points=1 + at,
            start=1,
            end=1 + at,
            name=(0, 0, 1, 1, at),
            first=1 + at,
            closed=1 + at,
            last=1 + at,
            loaded=1 + at,
            candidate=name == LOW,
        )
        for at, name in enumerate((LOW, HIGH))
    ]
    return msgspec.msgpack.encode(PartitionAsked(files, [], 1000))


def asked(question: bytes, reads: Reads | None, *directories: Path) -> TaskAsked:
    files = ExecutorFiles(reads, directories)
    return TaskAsked(question, files, 1 << 28, lambda: False, lambda *_: None)


def proved(reads: Reads) -> PartitionAnswer:
    found = answer_proofs(asked(question(), reads))
    return msgspec.msgpack.decode(found, type=PartitionAnswer)


def test_a_file_is_proved_by_bytes_that_were_fetched_once() -> None:
    reads = Reads(dict(BYTES))
    (proof,) = proved(reads).proofs
    assert (proof.physical, proof.proved, proof.rests) == (LOW, True, (HIGH,))
    assert sorted(reads.asked) == [(name, 0, len(BYTES[name])) for name in sorted(BYTES)]


def test_what_lies_in_a_directory_that_both_see_is_not_fetched(tmp_path: Path) -> None:
    for name, content_of in BYTES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content_of)
    packed = answer_proofs(asked(question(), None, tmp_path / "no", tmp_path))
    (proof,) = msgspec.msgpack.decode(packed, type=PartitionAnswer).proofs
    assert proof.proved
    (tmp_path / LOW).write_bytes(BYTES[LOW].replace(b"low", b"lox"))
    packed = answer_proofs(asked(question(), None, tmp_path))
    (proof,) = msgspec.msgpack.decode(packed, type=PartitionAnswer).proofs
    assert not proof.proved, "its bytes are compared there, too"


def test_another_size_in_such_a_directory_is_another_file(tmp_path: Path) -> None:
    (tmp_path / LOW).parent.mkdir(parents=True)
    (tmp_path / LOW).write_bytes(b"cut")
    reads = Reads(dict(BYTES))
    answer_proofs(asked(question(), reads, tmp_path))
    assert len(reads.asked) == 2
    assert (tmp_path / LOW).read_bytes() == b"cut"


def test_what_came_otherwise_is_fetched_once_more() -> None:
    reads = Reads(dict(BYTES))
    good, count = reads.read, [0]

    def once_bad(physical: str, begin: int, length: int) -> bytes:
        found = good(physical, begin, length)
        count[0] += 1
        return found.replace(b"low", b"lox").replace(b"high", b"hihh") if count[0] == 1 else found

    reads.read = once_bad  # type: ignore[method-assign]
    (proof,) = proved(reads).proofs
    assert (proof.proved, len(reads.asked)) == (True, 3)


def test_who_has_lost_the_task_fetches_no_more(tmp_path: Path) -> None:
    reads = Reads(dict(BYTES))
    files = ExecutorFiles(reads)
    placed = files.placed(msgspec.msgpack.decode(question(), type=PartitionAsked).files, tmp_path)
    with pytest.raises(FetchFailed):
        files.fetch_all(placed, lambda: True, lambda _: None)
    assert reads.asked == []
    sizes: list[int] = []
    files.fetch_all(placed, lambda: False, sizes.append)
    assert sorted(sizes) == sorted(map(len, BYTES.values()))


class Sending(Receiver):
    """Takes blocks, after some refusals."""

    def __init__(self, *refusals: Exception | None) -> None:
        super().__init__(b"one")
        self.refused = iter(refusals)
        self.came: list[tuple[int, int, bytes]] = []

    def put(self, task: TaskTaken, tag: str, number: int, offset: int, content: bytes) -> None:
        refusal = next(self.refused, None)
        if refusal is not None:
            raise refusal
        self.came.append((number, offset, content))


def sending(receiver: Sending) -> None:
    def send(task: TaskAsked) -> bytes:
        task.put(1, 0, b"block")
        return b"said"

    kinds = {"merge": send}
    Executor(receiver, ExecutorFiles(None), wait=lambda _: None, kinds=kinds).run_once(["merge"])


def test_a_block_is_sent_until_it_is_taken() -> None:
    receiver = Sending(UnreachableError("cut"), BusyError("files are loaded first"))
    sending(receiver)
    assert (receiver.came, receiver.said[1:]) == ([(1, 0, b"block")], [b"said"])


def test_what_a_receiver_has_no_room_for_gives_the_task_back() -> None:
    receiver = Sending(NoSpaceError("the disk is full"))
    sending(receiver)
    assert (receiver.came, receiver.said[1:]) == ([], [("pending", "the disk is full")])


def test_who_is_asked_anew_begins_anew() -> None:
    receiver = Sending(AskedAnewError("the receiver was started again"))
    sending(receiver)
    assert (receiver.came, receiver.said[1:]) == ([(1, 0, b"block")], [b"said"])


@pytest.mark.parametrize("name", [LOW, HIGH])
def test_bytes_that_changed_on_the_way_prove_nothing(name: str) -> None:
    reads = Reads(dict(BYTES))
    reads.files[name] = reads.files[name].replace(b"low", b"lox").replace(b"high", b"hihh")
    assert reads.files[name] != BYTES[name]
    (proof,) = proved(reads).proofs
    assert not proof.proved


def test_what_the_receiver_has_no_more_is_unreadable_and_what_it_cannot_give_now_is_not() -> None:
    for gone in (NotFoundError("it is gone"), DamagedError("it is cut")):
        (proof,) = proved(Reads(BYTES | {LOW: gone})).proofs
        assert not proof.proved
        assert gone.message in proof.unreadable
    for away in (UnreachableError("no answer"), OSError(28, "no room"), UnauthorizedError("no")):
        with pytest.raises(Transient, match="not to be had now"):
            proved(Reads(BYTES | {LOW: away}))


def test_what_is_no_question_is_refused() -> None:
    with pytest.raises(ProtocolError):
        answer_proofs(asked(b"\xc1", Reads({})))
