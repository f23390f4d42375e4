"""The highest incarnation of each engine that answered is remembered, and a lower one refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common.durable import Tree
from common.wire import IncarnationMark
from sender.kept.receiver_file import Receiver, ReceiverFile
from sender.kept.seen_incarnations import (
    ReplacedCentreError,
    refuse_replaced,
    remember_incarnation,
)

ENGINE, OTHER = "e" * 32, "f" * 32


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[ReceiverFile]:
    with Tree(tmp_path) as sync:
        yield ReceiverFile.open(sync, "centre_1")


def mark(number: int, ident: str = "") -> IncarnationMark:
    return IncarnationMark(number=number, ident=ident or f"id{number}")


def meet(memory: ReceiverFile, told: IncarnationMark | None, engine: str = ENGINE) -> None:
    remember_incarnation(memory, "dc1", engine, told)


def again(memory: ReceiverFile) -> ReceiverFile:
    return ReceiverFile.open(memory._tree, "centre_1")


def test_a_higher_one_is_taken_and_a_lower_one_refused_after_a_start_too(
    memory: ReceiverFile,
) -> None:
    for number in (1, 1, 2, 4):
        meet(memory, mark(number))
    memory = again(memory)
    for told in (mark(3), mark(1), None):
        with pytest.raises(ReplacedCentreError, match=r"4 \(id4\) has answered here before"):
            meet(memory, told)
        with pytest.raises(ReplacedCentreError):
            refuse_replaced(memory.now, "dc1", ENGINE, told)
    meet(memory, mark(4))


def test_another_one_of_the_same_number_is_refused(memory: ReceiverFile) -> None:
    meet(memory, mark(2))
    with pytest.raises(ReplacedCentreError):
        meet(memory, mark(2, "another"))


def test_another_engine_has_incarnations_of_its_own(memory: ReceiverFile) -> None:
    meet(memory, mark(5))
    meet(memory, mark(1), OTHER)
    meet(memory, None, "a" * 32)
    with pytest.raises(ReplacedCentreError):
        meet(memory, mark(4))


def test_one_that_never_told_of_any_goes_on(memory: ReceiverFile) -> None:
    meet(memory, None)
    meet(memory, None)
    assert memory.now == Receiver()
    meet(memory, mark(1))


def test_what_the_operator_accepts_is_what_is_remembered(memory: ReceiverFile) -> None:
    meet(memory, mark(5))
    remember_incarnation(memory, "dc1", ENGINE, mark(2), accept=True)
    meet(again(memory), mark(2))
    remember_incarnation(memory, "dc1", ENGINE, None, accept=True)
    meet(again(memory), None)


def test_a_memory_of_before_there_were_incarnations_is_read_and_the_other_way_round() -> None:
    assert msgspec.json.decode(b'{"version":1,"newest_commit":3}', type=Receiver).incarnations == ()
    assert b"incarnations" not in msgspec.json.encode(Receiver(newest_commit=3))
