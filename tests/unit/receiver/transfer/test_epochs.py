from __future__ import annotations

import pytest

from common.errors import CloneError, ProtocolError
from receiver.metadata.state.table_rows import SenderRow
from receiver.transfer import epochs
from receiver.transfer.epochs import EpochStanding, standing, start

T1, T2, T3 = "1" * 32, "2" * 32, "3" * 32


class Receiver:
    """A receiver's memory of one sender's epochs."""

    def __init__(self) -> None:
        self.row: SenderRow | None = None
        self._random = 0

    def start(self, given: str | None, task: str) -> str:
        step = start(self.row, given, task, random=self._next)
        if step.fresh:
            self.set(step.current, step.previous, task, confirmed=False)
        return step.current

    def _next(self) -> str:
        self._random += 1
        return f"r{self._random}"

    def set(self, current: str, previous: str | None, task: str | None, *, confirmed: bool) -> None:
        self.row = SenderRow(
            created=1, changed=1, uuid="a" * 32, label="", directory="d", first_seen=1,
            epoch=current, previous=previous, epoch_task=task, confirmed=confirmed,
        )  # fmt: skip

    def use(self, epoch: str) -> None:
        epochs.must_be_current(self.row, epoch)
        assert self.row is not None
        self.set(self.row.epoch or "", self.row.previous, self.row.epoch_task, confirmed=True)

    def accept(self) -> None:
        assert self.row is not None
        self.set(epochs.accept(self.row), None, None, confirmed=True)


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


def test_each_task_has_another_epoch(receiver: Receiver) -> None:
    first = receiver.start(None, T1)
    receiver.use(first)
    second = receiver.start(first, T2)
    assert (first, second) == ("1.r1", "2.r2")


def test_a_lost_answer_is_given_again(receiver: Receiver) -> None:
    assert receiver.start(None, T1) == receiver.start(None, T1)
    first = receiver.start(None, T1)
    receiver.use(first)
    assert receiver.start(first, T2) == receiver.start(first, T2)


def test_a_lost_answer_is_given_again_even_after_its_use(receiver: Receiver) -> None:
    first = receiver.start(None, T1)
    receiver.use(first)
    second = receiver.start(first, T2)
    receiver.use(second)
    assert receiver.start(first, T2) == second


def test_a_sender_that_lost_its_answer_may_come_with_another_task(receiver: Receiver) -> None:
    receiver.start(None, T1)
    second = receiver.start(None, T2)
    receiver.use(second)
    third = receiver.start(second, T3)
    assert epochs.number_of(third) == 3


def test_the_same_task_is_resumed_with_its_own_epoch(receiver: Receiver) -> None:
    first = receiver.start(None, T1)
    receiver.use(first)
    assert receiver.start(first, T1) == first


def test_clones_by_turns_are_noticed(receiver: Receiver) -> None:
    first = receiver.start(None, T1)
    receiver.use(first)
    # here the machine is copied; the original goes on
    second = receiver.start(first, T2)
    receiver.use(second)
    with pytest.raises(CloneError, match="senders accept"):
        receiver.start(first, T3)


def test_clones_at_the_same_time_are_noticed(receiver: Receiver) -> None:
    first = receiver.start(None, T1)
    receiver.use(first)
    of_original = receiver.start(first, T2)
    of_clone = receiver.start(first, T3)  # nobody has used the new epoch: a lost answer looks so
    receiver.use(of_clone)
    with pytest.raises(CloneError):
        receiver.use(of_original)
    with pytest.raises(CloneError):
        receiver.start(of_original, "4" * 32)


def test_a_sender_without_an_epoch_is_refused_where_one_is_known(receiver: Receiver) -> None:
    first = receiver.start(None, T1)
    receiver.use(first)
    with pytest.raises(CloneError):
        receiver.start(None, T2)
    receiver.use(receiver.start(first, T2))
    assert standing(receiver.row, None) is EpochStanding.CLONE


def test_an_operator_lets_one_machine_continue_and_the_other_stays_out(receiver: Receiver) -> None:
    first = receiver.start(None, T1)
    receiver.use(first)
    second = receiver.start(first, T2)
    receiver.use(second)
    receiver.accept()
    accepted = receiver.start(None, T3)
    receiver.use(accepted)
    assert epochs.number_of(accepted) > epochs.number_of(second)
    for left_behind in (first, second, None):
        with pytest.raises(CloneError):
            receiver.start(left_behind, "5" * 32)


def test_a_receiver_restored_from_an_old_copy_continues_from_the_senders_number(
    receiver: Receiver,
) -> None:
    first = receiver.start(None, T1)
    receiver.use(first)
    old_copy = receiver.row
    newest = first
    for number in range(5):
        newest = receiver.start(newest, f"{number + 4}" * 32)
        receiver.use(newest)
    receiver.row = old_copy
    assert standing(receiver.row, newest) is EpochStanding.AHEAD
    again = receiver.start(newest, "c" * 32)
    assert epochs.number_of(again) == epochs.number_of(newest) + 1
    assert receiver.start(newest, "c" * 32) == again


@pytest.mark.parametrize(
    "text", ["", "1", "0.ab", "-1.ab", "01.ab", "1.", "1.AB", f"{10**18}.ab", "9" * 5000 + ".a",
             "1.a\n"],
)  # fmt: skip
def test_what_is_no_epoch_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        epochs.number_of(text)


def test_a_call_without_an_epoch_is_refused(receiver: Receiver) -> None:
    receiver.start(None, T1)
    with pytest.raises(ProtocolError):
        epochs.must_be_current(receiver.row, None)
