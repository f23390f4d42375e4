"""Line logs: exactly what was whole, whatever stands behind it."""

from __future__ import annotations

import pytest

from common import crash
from common.durable import Tree
from common.errors import ProtocolError
from common.formats.linelog import (
    LoadLog,
    Phase,
    SyncLog,
    parse_lines,
    parse_load,
    parse_paths,
    parse_sync,
)
from common.names import FilePath
from tests.support.disk import heal, no_leak

TASK, OTHER = "0" * 32, "1" * 32
A, B, C = (FilePath.parse(f"sequence/root.größe/0/{n}/{n}-1-0-0.tsfile") for n in range(3))


@pytest.fixture(autouse=True)
def _healthy(monkeypatch):
    heal(monkeypatch)


@pytest.fixture
def tree(tmp_path):
    with Tree(tmp_path) as tree:
        yield tree


def whole_log(tree) -> bytes:
    log = SyncLog.open(tree, "whole.log")
    log.start(TASK)
    log.deleted([A])
    log.files([B, C])
    log.reach(Phase.ENDED)
    log.close()
    return tree.read("whole.log")


def test_a_sync_log_reads_as_users_know_it(tree):
    assert whole_log(tree).decode().splitlines() == [
        f"sync start {TASK}",
        "sync deleted file names start",
        A.text,
        "sync deleted file names end",
        "sync tsfile start",
        B.text,
        C.text,
        "sync tsfile end",
        "sync end",
    ]


def test_a_sync_log_reads_back(tree):
    data = whole_log(tree)
    state = parse_sync(data)
    assert (state.task, state.phase, state.deleted, state.files) == (
        TASK, Phase.ENDED, [A], [B, C],
    )  # fmt: skip
    assert state.ended
    assert (state.good_bytes, state.problem) == (len(data), None)


TAILS = [
    b"",
    b"\0" * 100,
    b"\0" * 50 + b"\n",
    b"\xff\xfe\n",
    b"\xff",
    b"garbage",
    b"garbage\n",
    b"\r\n",
    b"\n",
    b"sync end",
    b"sync start " + OTHER.encode() + b"\n",
    b"\x1b[2J\n",
]


@pytest.mark.parametrize("tail", TAILS, ids=ascii)
def test_every_truncation_point_with_any_tail_gives_the_whole_lines(tree, tail):
    data = whole_log(tree)
    lines = data.decode().splitlines()
    for cut in range(len(data) + 1):
        head = data[:cut]
        whole = lines[: head.count(b"\n")]
        good = sum(len(each.encode()) + 1 for each in whole)
        torn = head[good:] + tail
        if len(whole) < len(lines) and torn.startswith(f"{lines[len(whole)]}\n".encode()):
            continue  # the tail has just what was cut
        if cut == 0 and tail.startswith(b"sync start"):
            continue  # a log of its own
        state = parse_sync(head + tail)
        assert state.good_bytes == good, cut
        assert (state.problem is None) == (torn == b"")
        assert state.deleted + state.files == [each for each in (A, B, C) if each.text in whole]
        assert state.ended == (len(whole) == len(lines))


def test_a_log_goes_on_after_any_cut(tree):
    data = whole_log(tree)
    for cut in range(len(data) + 1):
        tree.write_atomic("sync.log", data[:cut])
        with no_leak():
            log = SyncLog.open(tree, "sync.log")
            log.start(TASK)
            log.deleted([A] if log.state.phase.value <= Phase.DELETING.value else [])
            log.files([B, C] if log.state.phase.value <= Phase.SENDING.value else [])
            log.reach(Phase.ENDED)
            log.close()
        assert tree.read("sync.log") == data


def test_a_torn_tail_is_cut_before_anything_is_added(tree):
    tree.write_atomic("sync.log", f"sync start {TASK}\nsync del".encode() + b"\0" * 9)
    log = SyncLog.open(tree, "sync.log")
    assert log.state.phase is Phase.STARTED
    log.deleted([A])
    log.close()
    assert parse_sync(tree.read("sync.log")).deleted == [A]
    assert b"\0" not in tree.read("sync.log")


def test_the_state_in_memory_is_what_reads_back(tree):
    log = SyncLog.open(tree, "sync.log")
    steps = [
        lambda: log.start(TASK),
        lambda: log.deleted([A, B]),
        lambda: log.files([C]),
        lambda: log.reach(Phase.SENT),
        lambda: log.reach(Phase.ENDED),
    ]
    for step in steps:
        step()
        assert parse_sync(tree.read("sync.log")) == log.state
    log.close()


def test_nothing_is_written_twice(tree):
    log = SyncLog.open(tree, "sync.log")
    log.start(TASK)
    log.start(TASK)
    log.deleted([A, A])
    log.deleted(iter([A, B, B]))
    log.files([C, C])
    log.files([C])
    log.reach(Phase.SENDING)
    log.reach(Phase.DELETED)
    log.reach(Phase.ENDED)
    log.reach(Phase.ENDED)
    log.files([C])
    log.deleted([A])
    log.close()
    lines = tree.read("sync.log").decode().splitlines()
    assert len(lines) == len(set(lines)) == 9


def test_what_would_not_read_back_is_refused_before_it_is_written(tree):
    log = SyncLog.open(tree, "sync.log")
    for early in (lambda: log.deleted([A]), lambda: log.files([A]), lambda: log.reach(Phase.ENDED)):
        with pytest.raises(ProtocolError):
            early()
    for bad in ("", "x", TASK.upper().replace("0", "A"), f"{TASK}\nsync end"):
        with pytest.raises(ProtocolError):
            log.start(bad)
    assert tree.read("sync.log") == b""
    log.start(TASK)
    with pytest.raises(ProtocolError, match=TASK):
        log.start(OTHER)
    log.files([A])
    with pytest.raises(ProtocolError, match="too late"):
        log.deleted([B])  # would read back as a file to load
    log.reach(Phase.SENT)
    with pytest.raises(ProtocolError, match="too late"):
        log.files([B])
    log.close()
    state = parse_sync(tree.read("sync.log"))
    assert (state.problem, state.deleted, state.files) == (None, [], [A])


def test_a_name_like_a_mark_is_no_mark():
    for line in ("sync end", "sync tsfile end", f"sync start {OTHER}"):
        data = f"sync start {TASK}\nsync deleted file names start\n{line}\n".encode()
        state = parse_sync(data)
        assert state.phase is Phase.DELETING
        assert state.problem is not None


@pytest.mark.parametrize(
    "text",
    [
        "sync end\n",
        f"sync start {TASK}\nsync start {TASK}\n",
        f"sync start {TASK}\nsync end\n",
        f"sync start {TASK}\nsync tsfile start\n",
        f"sync start {TASK}\n{A}\n",
        f"sync start {TASK[:-1]}\n",
        f"sync start {TASK} \n",
        f" sync start {TASK}\n",
        f"sync start {TASK}\nsync deleted file names start\n../../etc/passwd\n",
        f"sync start {TASK}\nsync deleted file names start\n\n",
    ],
)
def test_a_line_that_cannot_follow_ends_the_reading(text):
    state = parse_sync(text.encode())
    assert state.problem is not None
    assert state.good_bytes < len(text.encode())
    again = parse_sync(text.encode()[: state.good_bytes])
    assert again.problem is None


def test_a_log_that_failed_to_open_leaks_nothing(tree, monkeypatch):
    tree.write_atomic("sync.log", b"torn")

    def broken(_rel):
        raise OSError("broken")

    monkeypatch.setattr(tree, "read", broken)
    for kind in (SyncLog, LoadLog):
        with no_leak(), pytest.raises(OSError, match="broken"):
            kind.open(tree, "sync.log")


# -- load.log ------------------------------------------------------------------------------------


def test_a_load_log_reads_back_and_is_never_opened_empty(tree):
    log = LoadLog.open(tree, "load.log")
    log.record(deleted=[A, A], loaded=iter([B]))
    log.record(deleted=[A], loaded=[B, C, A])
    log.record()
    log.close()
    text = f"delete {A}\nload {B}\nload {C}\nload {A}\n"
    assert tree.read("load.log").decode() == text
    log = LoadLog.open(tree, "load.log")
    assert (log.state.deleted, log.state.loaded) == ({A}, {A, B, C})
    log.close()
    assert tree.read("load.log").decode() == text


@pytest.mark.parametrize("tail", TAILS, ids=ascii)
def test_every_truncation_of_a_load_log_gives_the_whole_lines(tail):
    data = f"delete {A}\nload {B}\nload {C}\n".encode()
    paths = [A, B, C]
    for cut in range(len(data) + 1):
        whole = data[:cut].count(b"\n")
        if data[cut:].startswith(b"\n") and tail.startswith(b"\n"):
            continue  # the tail has just what was cut
        state = parse_load(data[:cut] + tail)
        assert state.deleted == set(paths[: min(whole, 1)])
        assert state.loaded == set(paths[1:whole])


@pytest.mark.parametrize(
    "line", ["load", "load ", f"loaded {A}", f"LOAD {A}", f"load  {A}", f"{A}", "load ../../x"]
)
def test_a_line_that_is_no_load_ends_the_reading(line):
    state = parse_load(f"load {A}\n{line}\nload {B}\n".encode())
    assert state.loaded == {A}
    assert state.good_bytes == len(f"load {A}\n".encode())
    assert state.problem


# -- lists ---------------------------------------------------------------------------------------


def listing(*paths):
    return "".join(f"{each}\n" for each in paths).encode()


def test_a_list_of_paths_reads_back():
    assert parse_paths(listing(A, B, C)) == ([A, B, C], None)
    assert parse_paths(b"") == ([], None)


@pytest.mark.parametrize("tail", [b"x", b"\0", b"\xff\n", b"\n", b"../x\n", A.text.encode()])
def test_a_damaged_list_gives_what_is_good_and_says_the_rest(tail):
    paths, problem = parse_paths(listing(A, B) + tail)
    assert paths == [A, B]
    assert problem


def test_a_newline_alone_ends_a_line():
    """Other line breaks of Unicode are part of a line, or not ours at all."""
    assert parse_lines("a\u2028b\n".encode()).lines == ["a\u2028b"]
    for bad in ("a\rb\n", "a\x0bb\n", "a\x0cb\n", "a\x1cb\n", "a\x85b\n"):
        assert parse_lines(bad.encode()).lines == []


def test_a_death_during_an_append_leaves_a_log_that_goes_on(tree):
    points = []
    log = SyncLog.open(tree, "sync.log")
    with crash.arm(points.append):
        log.start(TASK)
    log.close()
    for point in set(points):
        tree.unlink("sync.log")
        log = SyncLog.open(tree, "sync.log")

        def die(name, point=point):
            if name == point:
                raise crash.SimulatedCrash

        with crash.arm(die), pytest.raises(crash.SimulatedCrash):
            log.start(TASK)
        log.close()
        log = SyncLog.open(tree, "sync.log")
        log.start(TASK)
        log.files([A])
        log.close()
        assert parse_sync(tree.read("sync.log")).files == [A]
