"""Calls of a write: by a token of the process's own, once more where the receiver cannot now."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from common.errors import BusyError, ConflictError, GoneError, UnreachableError, UsageError
from receiver.node import Node
from receiver.operator.edges.tokens import make_token
from receiver.operator.views.load_wire import CentreLoadAnswer, CentreLoadFile
from receiver.operator.views.write_wire import StagedPart, WriteOpened
from receiver.spark.sink.sink_calls import WriteCalls, writer_token
from receiver.spark.sink.sink_options import SinkOptions, parse_sink_options
from receiver.spark.sink.write_plan import WritePlan
from receiver.storage.reading.reader_calls import CallAnswer, ReaderCalls
from receiver.web.app import close, create_app, site_of
from tests.support.node_world import A, World, tsfile
from tests.support.ports import free_port
from tests.support.web import running

OPTIONS = SinkOptions(receiver="http://127.0.0.1:1")
TASK = "3" * 32


def test_the_token_is_of_the_environment_or_of_a_file_that_is_named(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("of the file\n")
    by_name = {"TSFERRY_WRITER_TOKEN_FILE": str(file)}
    assert writer_token({"TSFERRY_WRITER_TOKEN": " t "} | by_name, None) == "t"
    assert writer_token(by_name, None) == "of the file"
    assert writer_token({"TSFERRY_WRITER_TOKEN": "t"}, str(file)) == "of the file"
    assert writer_token({}, None) is None
    with pytest.raises(UsageError, match="readable file with a token"):
        writer_token({}, str(tmp_path / "none"))
    with pytest.raises(UsageError, match="needs a writer's token"):
        WriteCalls(OPTIONS, TASK, {})
    away = SinkOptions(receiver="http://centre.example:1")
    with pytest.raises(UsageError, match="expected https"):
        WriteCalls(away, TASK, {"TSFERRY_WRITER_TOKEN": "t"})


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def calls_that(*answers: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> WriteCalls:
    """Calls that are answered so, the last for ever."""
    left = list(answers)

    def ask(*_: object) -> CallAnswer:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return CallAnswer(200, {}, found)

    monkeypatch.setattr(ReaderCalls, "ask", ask)
    environ = {"TSFERRY_WRITER_TOKEN": "t"}
    return WriteCalls(OPTIONS, TASK, environ, sleep=clock.sleep, monotonic=clock)


def test_a_receiver_that_cannot_now_is_asked_again_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    answer = b'{"owner": "a", "interval": 1, "time_unit": "ms", "block": 4096}'
    busy, away = BusyError("another", retry_after=3), UnreachableError("nobody")
    calls = calls_that(busy, away, answer, clock=clock, monkeypatch=monkeypatch)
    assert isinstance(calls.open((), "error"), WriteOpened)
    assert clock.now == 3.5
    calls = calls_that(away, clock=clock, monkeypatch=monkeypatch)
    with pytest.raises(UnreachableError):
        calls.put("4" * 32, 0, 0, b"x")
    assert 60 <= clock.now - 3.5 <= 66
    began = clock.now
    with pytest.raises(UnreachableError):
        calls.commit([])
    assert clock.now - began >= 900, "one load at a time: the next waits"
    refused = calls_that(ConflictError("no"), clock=clock, monkeypatch=monkeypatch)
    began = clock.now
    with pytest.raises(ConflictError):
        refused.commit([])
    assert clock.now == began


def test_the_calls_are_those_of_the_receiver(world: World) -> None:
    from receiver.spark.sink.sink_calls import SentPart

    app = create_app(world.config)
    node = site_of(app).node
    assert isinstance(node, Node)
    token = make_token(node.engine, "operator").token
    with running(app, gate=site_of(app).gate) as server:
        options = SinkOptions(receiver=f"http://127.0.0.1:{server.addresses[0][1]}")
        calls = WriteCalls(options, TASK, {"TSFERRY_WRITER_TOKEN": token})
        opened = calls.open((), "error")
        assert opened.time_unit == "ms"
        assert [each.types for each in calls.known(["root.sg.d1"] * 1001)] == [{}] * 1001
        part = SentPart(calls, "4" * 32, 0, 100)
        part.write(tsfile())
        answer = calls.commit([part.finish("root.sg", 0)])
        assert [each.result for each in answer.files] == ["loaded"]
        calls.drop()
        calls.close()
    close(app)


def test_a_write_that_was_open_at_a_receiver_which_is_gone_says_that_nothing_of_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one has other disks: the words are those that Spark shows when a job fails."""
    from receiver.spark.sink.batch_writer import TsFileBatchWriter, WrittenParts
    from receiver.spark.sink.sink_calls import SentPart

    first, second = (create_app(World(tmp_path / name).config) for name in ("first", "second"))
    for each in (first, second):
        site_of(each).access.accept_operator("secret")
    monkeypatch.setenv("TSFERRY_WRITER_TOKEN", "secret")
    port, other = free_port(), free_port()
    several = f"http://127.0.0.1:{port},http://127.0.0.1:{other}"
    with running(second, gate=site_of(second).gate, port=other):
        with running(first, gate=site_of(first).gate, port=port):
            calls = WriteCalls(SinkOptions(receiver=several), TASK, os.environ)
            opened = calls.open((), "error")
            part = SentPart(calls, "4" * 32, 0, 1 << 20)
            part.write(tsfile())
            sent = part.finish("root.sg", 0)
        writer = TsFileBatchWriter(plan_of(several, opened))
        with pytest.raises(GoneError, match=r"nothing of it is loaded or visible.*run the write"):
            writer.commit([WrittenParts((sent,))])
        writer.abort([])
        node = site_of(second).node
        assert isinstance(node, Node)
        with node.engine.reading() as state:
            assert not state.files
    calls.close()
    for each in (first, second):
        close(each)


def test_a_write_of_which_a_file_is_bad_by_now_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from receiver.spark.sink.batch_writer import TsFileBatchWriter, WrittenParts

    bad = CentreLoadFile(source="a", path="a", size=1, result="missing", reason="in quarantine")
    answer = CentreLoadAnswer(task=TASK, done=True, files=[bad])
    monkeypatch.setenv("TSFERRY_WRITER_TOKEN", "secret")
    monkeypatch.setattr(WriteCalls, "commit", lambda *_: answer)
    opened = WriteOpened(owner=A, interval=1, time_unit="ms", block=1)
    writer = TsFileBatchWriter(plan_of("http://127.0.0.1:1", opened))
    part = StagedPart(
        attempt="4" * 32, number=0, size=1, md5="0" * 32, group="root.sg", partition=0
    )
    with pytest.raises(ConflictError, match=r"rows of it are not to be read.*in quarantine"):
        writer.commit([WrittenParts((part,))])


def plan_of(receiver: str, opened: WriteOpened) -> WritePlan:
    """Of a write that is open."""
    options = SinkOptions(receiver=receiver)
    return WritePlan(options, TASK, (), (), opened.owner, opened.interval, opened.block)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "option receiver: missing"),
        ({"receiver": "ftp://x"}, "option receiver = 'ftp://x': expected the URL"),
        ({"receiver": "http://u:p@x"}, "without credentials"),
        ({"reciever": "http://x"}, "is receiver meant"),
        ({"token": "secret"}, "option token of a write"),
        ({"path": "/x"}, "rows go to a receiver"),
        ({"catalog": "http://x"}, "expected option receiver"),
        ({"receiver": "http://x", "onDuplicate": "perhaps"}, "expected error, keep, replace or"),
        ({"receiver": "http://x", "sg": "../x"}, "expected a storage group"),
        ({"receiver": "http://x", "form": "long", "table": "/a/b"}, "in each device's name"),
    ],
)
def test_options_that_mean_nothing_are_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as found:
        parse_sink_options(given)
    assert "secret" not in str(found.value)
