"""A process beside the server: it stands back, stands still, and ends when it is told to."""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from receiver.background import side_process
from receiver.background.side_process import ProcessDied, SideProcess
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


def test_it_stands_back_behind_other_sessions_too(process: Process) -> None:
    """Where the kernel shares a processor among sessions, niceness says nothing outside of one."""
    said = process.ask(Wish("say"), never)
    assert said.session == said.pid, "or the server would stand back with it"
    has_groups = Path("/proc/self/autogroup").exists()
    assert said.session_nice == ("nice 19" if has_groups else None)


def test_a_session_of_its_own_is_niced_and_a_kernel_that_is_busy_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "autogroup"
    monkeypatch.setattr(side_process, "_SESSION_NICE", place)
    place.touch()
    assert side_process._yield_as_session(), "in a session of somebody else's"
    assert place.read_text() == ""
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    assert side_process._yield_as_session()
    assert place.read_text() == "19"
    monkeypatch.setattr(side_process, "_SESSION_NICE", tmp_path / "none" / "autogroup")
    assert side_process._yield_as_session(), "a kernel without it is not asked again"
    busy = BlockingIOError(errno.EAGAIN, "too often")
    monkeypatch.setattr(Path, "write_bytes", raising(busy))
    assert not side_process._yield_as_session()


def raising(error: Exception) -> Callable[..., object]:
    def fail(*given: object, **more: object) -> object:
        raise error

    return fail


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


def test_what_it_has_begun_ends_with_it(process: Process) -> None:
    """What works there may begin processes of its own: they hold memory, and the line."""
    born = int(process.ask(Wish("bear"), never).text)
    assert state_of(born) in "RS"
    process.close()
    assert is_over(born)
    born = int(process.ask(Wish("bear"), never).text)
    with pytest.raises(ProcessDied, match="exit status 7"):
        process.ask(Wish("die"), never)
    assert is_over(born)


def test_one_that_dies_is_told_of_though_what_it_has_begun_holds_its_line(process: Process) -> None:
    pid, calls = process.ask(Wish("say"), never).pid, itertools.count()
    with pytest.raises(ProcessDied, match="exit status 7"):
        process.ask(Wish("leave"), lambda: next(calls) > 10)
    every = map(int, filter(str.isdigit, os.listdir("/proc")))
    assert all(is_over(each) for each in every if group_of(each) == pid)


def group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def is_over(pid: int) -> bool:
    """Whether a process has ended, whoever is to wait for it."""
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or state_of(pid) == "Z":
            return True
        time.sleep(0.05)
    return False


def test_of_one_that_splits_in_two_one_answers(process: Process) -> None:
    """A second answer would be taken for that to the next question."""
    assert process.ask(Wish("split"), never).text == "split"
    time.sleep(0.3)
    assert [process.ask(Wish("say"), never).text for _ in range(3)] == ["say"] * 3
