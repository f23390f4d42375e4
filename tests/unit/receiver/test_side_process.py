"""A process beside the server: it stands back, stands still, and ends when it is told to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.side_process import ProcessDied, SideProcess
from tests.support.side_worker import Said, Wish

MEMORY = 1 << 28
Process = SideProcess[Wish, Said]


def never() -> bool:
    return False


@pytest.fixture
def process() -> Iterator[Process]:
    made: Process = SideProcess("tests.support.side_worker", Said, memory=MEMORY)
    yield made
    made.close()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_it_answers_behind_everything_else_and_in_so_much_memory(process: Process) -> None:
    said = process.ask(Wish("say"), never)
    assert (said.text, said.nice) == ("say", 19)
    assert process.ask(Wish("take", 1 << 20), never).text == str(1 << 20)
    assert process.ask(Wish("take", 2 * MEMORY), never).text == "too much"
    assert process.ask(Wish("say"), never).pid == said.pid, "it is the same one all the time"
    process.close()
    assert not Path(f"/proc/{said.pid}").exists()


def test_one_that_dies_is_told_of_and_the_next_question_has_another(process: Process) -> None:
    first = process.ask(Wish("say"), never).pid
    with pytest.raises(ProcessDied, match="exit status 7"):
        process.ask(Wish("die"), never)
    assert process.ask(Wish("say"), never).pid != first


def test_one_that_is_told_to_stop_is_gone_at_once(process: Process) -> None:
    pid = process.ask(Wish("say"), never).pid
    with pytest.raises(ProcessDied):
        process.ask(Wish("wait", 3600), lambda: True)
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
def test_one_that_is_to_wait_stands_still_and_goes_on(process: Process) -> None:
    pid = process.ask(Wish("say"), never).pid
    seen: list[str] = []
    rounds = itertools.count()

    def paused() -> bool:
        seen.append(state_of(pid))
        return next(rounds) == 0

    assert process.ask(Wish("wait", 1.2), never, paused).text == "wait"
    assert seen[:2] == ["S", "T"], "it stood still from the first time to the second"
