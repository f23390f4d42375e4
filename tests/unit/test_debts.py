"""The judge of the order of steps judges: of a history that is right, each flush is missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.debts import Debts, Forgiven
from tests.support.recording import Step

TCP = "5<TCP:[127.0.0.1:80->127.0.0.1:9]>"
RECEIVED = [
    ("recvfrom", f'{TCP}, "PATCH /files/1 HTTP/1.1\\r\\n", 99', None),
    ("mkdirat", '3</r>, "data", 0755', None),
    ("openat", "3</r>, \"\", O_RDONLY|O_DIRECTORY", "/r"),
    ("fsync", "3</r>", None),
    ("openat2", '3</r>, "up", {flags=O_RDWR|O_CREAT|O_EXCL}, 24', "/r/up"),
    ("pwrite64", '4</r/up>, "content", 7, 0', None),
    ("fsync", "4</r/up>", None),
    ("renameat", '3</r>, "up", 6</r/data>, "sequence_x"', None),
    ("openat", '3</r>, "data", O_RDONLY|O_DIRECTORY', "/r/data"),
    ("fsync", "6</r/data>", None),
    ("fsync", "3</r>", None),
    ("openat2", '3</r>, "log", {flags=O_RDWR|O_CREAT|O_APPEND}, 24', "/r/log"),
    ("fsync", "7</r/log>", None),
    ("fsync", "3</r>", None),
    ("write", '7</r/log>, "line\\n", 5', None),
    ("fdatasync", "7</r/log>", None),
    ("sendto", f'{TCP}, "HTTP/1.1 204 NO CONTENT\\r\\n", 99', None),
]  # fmt: skip
FLUSHES = [6, 9, 13, 15]
"""The others are of the same directory as a later one, or of a log in which nothing is yet."""


def steps(calls, process: int = 1, thread: int = 7) -> list[Step]:
    begin = 100.0 * (process - 1)
    return [
        Step(process, thread, begin + at, begin + at + 0.5, name, arguments, 0, opened)
        for at, (name, arguments, opened) in enumerate(calls)
    ]


def judged(*processes, forgiven=()):
    debts = Debts(Path("/r"), forgiven)
    for at, process in enumerate(processes):
        debts.follow(process, killed=at < len(processes) - 1)
    return debts.broken


def test_a_right_order_is_right():
    assert judged(steps(RECEIVED)) == []


@pytest.mark.parametrize("left_out", FLUSHES)
def test_each_flush_that_is_left_out_is_missed(left_out):
    assert judged(steps(RECEIVED[:left_out] + RECEIVED[left_out + 1 :])) != []


@pytest.mark.parametrize("left_out", FLUSHES)
def test_a_flush_that_comes_after_the_answer_is_too_late(left_out):
    late = [*RECEIVED[:left_out], *RECEIVED[left_out + 1 :], RECEIVED[left_out]]
    assert judged(steps(late)) != []


def test_a_flush_that_was_under_way_when_the_write_ended_does_not_count():
    log = [("openat2", '3</r>, "x", {flags=O_APPEND}, 24', "/r/x")]
    log += [("write", '4</r/x>, "1", 1', None)]
    flush = Step(1, 8, 1.2, 3.0, "fsync", "4</r/x>", 0, None)
    assert judged([*steps(log), flush]) != []
    assert judged([*steps(log), Step(1, 8, 1.6, 3.0, "fsync", "4</r/x>", 0, None)]) == []


def test_a_call_that_failed_changes_nothing():
    failed = Step(1, 7, 0.0, 0.5, "unlinkat", '3</r>, "x", 0', -1, None)
    assert judged([failed]) == []


def test_what_a_killed_process_owed_the_next_one_owes():
    written = steps([RECEIVED[2], *RECEIVED[11:15]])
    answer = [RECEIVED[0], RECEIVED[-1]]
    assert judged(written, steps(answer, process=2)) != []
    flushed = steps([RECEIVED[12], *answer], process=2)
    assert judged(written, flushed) == []
    either = Forgiven("log", ["bytes"], "a log of no promise", own=False)
    assert judged(written, steps(answer, process=2), forgiven=[either]) == []


def test_a_file_that_somebody_else_wrote_is_flushed_before_it_is_linked():
    flush = ("fsync", "4</r/theirs>", None)
    link = ("linkat", '3</r>, "theirs", 3</r>, "ours", 0', None)
    end = [RECEIVED[2], RECEIVED[3]]
    assert judged(steps([link, *end])) != []
    assert judged(steps([flush, link, *end])) == []
