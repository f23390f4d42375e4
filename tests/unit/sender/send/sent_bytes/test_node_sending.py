"""Files by storage nodes, as their sender does it: what a node says never counts by itself."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from common import wire
from common.config import Secret, Timetable
from common.digests import md5
from common.errors import ConfigError, ForbiddenError, GoneError, StoppedError
from common.network.bandwidth import Bandwidth
from common.wire import Action, PullState
from sender.send.calls import UploadState
from sender.send.connection.backoff import Backoff, Tries
from sender.send.connection.body_compression import BodyCompression
from sender.send.connection.transport import Endpoint
from sender.send.sent_bytes.node_lines import NodeLines
from sender.send.sent_bytes.node_sending import NodeOffer, NodeSending
from sender.send.sent_bytes.upload import ReceivedFile, TusUpload
from sender.send.task_calls import TaskCalls
from tests.support.scripted_receiver import Answer, ScriptedReceiver, problem
from tests.unit.sender.send.sent_bytes.test_upload import Bytes

TASK, NODE = "1" * 32, "7" * 32
CONTENT = random.Random(8).randbytes(300_000)
MD5 = md5(CONTENT).hexdigest()
ENTRY = wire.PlanEntry(path="sequence/root.a/0/0/1-1-0-0.tsfile", size=len(CONTENT), tail="t")


class Prepared:
    entry = ENTRY


class Master:
    """The client of a receiver, as far as this asks it."""

    def __init__(self) -> None:
        self.answers: list[wire.PullAnswer | Exception] = []
        self.asked: list[wire.PullRequest] = []

    def pull(
        self, task: str, epoch: str | None, request: wire.PullRequest, wait: float = 0.0
    ) -> wire.PullAnswer:
        assert (task, epoch) == (TASK, "1.x")
        self.asked.append(request)
        if request.md5 is None:
            return wire.PullAnswer(state=PullState.COMING)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


HERE = wire.PullAnswer(state=PullState.HERE, md5=MD5)
FAILED = wire.PullAnswer(state=PullState.FAILED, reason="it lies")


class Sent:
    """A file on its way, a clock, and what was planned anew."""

    def __init__(self, url: str) -> None:
        self.now = 0.0
        self.url = url
        self.master = Master()
        self.plans: list[tuple[wire.PlanDecision, NodeOffer | None]] = []
        self.stopped = False
        like = Endpoint("http://receiver", "a" * 32, Secret("token"), insecure=True)
        unlimited = Bandwidth(Timetable(), sleep=lambda _: False)
        self.lines = NodeLines(
            like,
            unlimited,
            lambda: BodyCompression("off", unlimited),
            monotonic=lambda: self.now,
        )
        tries = Tries(5, Backoff(first=0.1, chance=lambda: 0.0), self.sleep)
        calls = TaskCalls(self.master, TASK, "1.x", tries, lambda: self.stopped)  # type: ignore[arg-type]
        self.sending = NodeSending(calls, self.lines, self.plan, lambda: self.now)

    def sleep(self, seconds: float) -> bool:
        self.now += seconds
        return False

    def plan(self, prepared: object) -> tuple[wire.PlanDecision, NodeOffer | None]:
        return self.plans.pop(0)

    def offer(self, url: str | None = None, until: float = 1e9) -> NodeOffer:
        node = wire.UploadNode(uuid=NODE, url=url or self.url, ticket="tick", lasts=1.0)
        return NodeOffer(node, until)

    def planned(self, action: Action, offer: NodeOffer | None = None, **more: Any) -> None:
        self.plans.append((wire.PlanDecision(path=ENTRY.path, action=action, **more), offer))

    def send(self, offer: NodeOffer | None = None, begin: UploadState | None = None) -> object:
        content = Bytes(CONTENT, ENTRY.path)

        def upload(calls: TaskCalls, at: UploadState) -> TusUpload:
            return TusUpload(calls, content, 1 << 16, at)

        return self.sending.send(Prepared(), content, offer or self.offer(), begin, upload)  # type: ignore[arg-type]


@pytest.fixture
def sent(receiver: ScriptedReceiver) -> Sent:
    return Sent(receiver.url)


def test_a_file_counts_when_the_receiver_has_it_and_not_before(sent, receiver):
    sent.master.answers = [wire.PullAnswer(state=PullState.COMING, offset=9), HERE]
    assert sent.send() == ReceivedFile(MD5, len(CONTENT), None)
    assert receiver.received[ENTRY.path] == CONTENT
    assert [each.md5 for each in sent.master.asked] == [MD5, MD5]
    assert all(each.headers["tsferry-ticket"] == "tick" for each in receiver.requests)
    assert not any("authorization" in each.headers for each in receiver.requests)
    assert not any("tsferry-epoch" in each.headers for each in receiver.requests)


@pytest.mark.parametrize(
    "answer",
    [FAILED, wire.PullAnswer(state=PullState.HERE, md5="f" * 32)],
)
def test_what_the_receiver_does_not_get_goes_the_other_way(sent, answer):
    sent.master.answers = [answer]
    sent.planned(Action.RESUME, upload="u1", offset=70_000)
    assert sent.send() == UploadState("u1", 70_000)
    assert sent.lines.avoided() == [NODE]
    sent.now += 601
    assert sent.lines.avoided() == []


def test_a_receiver_that_gets_nothing_is_not_waited_for_without_end(sent):
    sent.master.answers = [wire.PullAnswer(state=PullState.COMING, offset=5)] * 1000
    sent.planned(Action.SEND)
    assert sent.send() is None
    assert 120 < sent.now < 200


def test_a_ticket_that_may_be_old_is_exchanged_first_and_one_that_is_refused_once(sent, receiver):
    sent.planned(Action.SEND, sent.offer())
    sent.master.answers = [HERE]
    assert isinstance(sent.send(sent.offer(until=-1.0)), ReceivedFile)
    assert sent.plans == []

    receiver.received.clear()
    receiver.fault("POST /files", Answer(problem(ForbiddenError)))
    sent.planned(Action.SEND, sent.offer())
    sent.master.answers = [HERE]
    assert isinstance(sent.send(), ReceivedFile)
    assert sent.lines.avoided() == []


def test_a_node_that_is_not_there_is_left_alone_for_all_files(sent):
    sent.planned(Action.SEND, None)
    assert sent.send(sent.offer("http://127.0.0.1:1")) is None
    assert sent.lines.avoided() == [NODE]


def test_a_node_that_goes_after_it_has_refused_a_ticket_is_left_alone(sent, receiver):
    receiver.fault("POST /files", Answer(problem(ForbiddenError)))
    sent.planned(Action.SEND, sent.offer("http://127.0.0.1:1"))
    sent.planned(Action.SEND, None)
    assert sent.send() is None
    assert sent.lines.avoided() == [NODE]


def test_what_a_plan_says_anew_holds(sent):
    sent.master.answers = [FAILED]
    sent.planned(Action.HAVE, md5=MD5)
    assert sent.send() == ReceivedFile(MD5, 0, None)
    sent.master.answers = [FAILED]
    sent.planned(Action.HAVE, md5="f" * 32)
    assert sent.send() is None
    sent.master.answers = [FAILED]
    sent.planned(Action.REFUSED, reason="no")
    assert sent.send() is None


def test_what_the_receiver_has_more_of_than_the_node_goes_on_there(sent, receiver):
    begin = UploadState("u1", 200_000)
    assert sent.send(begin=begin) == begin
    assert receiver.count("PATCH") == 0


def test_a_receiver_that_refuses_ends_it(sent):
    sent.master.answers = [GoneError("another task")]
    with pytest.raises(GoneError):
        sent.send()
    sent.stopped = True
    with pytest.raises(StoppedError):
        sent.send()


def test_plans_without_end_come_to_an_end(sent):
    for _ in range(9):
        sent.planned(Action.SEND, sent.offer("http://127.0.0.1:1"))
    assert sent.send(sent.offer("http://127.0.0.1:1")) is None
    assert len(sent.plans) == 5


def test_a_node_is_not_reached_by_less_than_the_receiver_is(sent):
    node = sent.offer().node
    secure = NodeLines(
        Endpoint("https://receiver", "a" * 32, Secret("token")),
        sent.lines._bandwidth,
        sent.lines._compression,
    )
    for url in ("http://127.0.0.1:8765", "http://10.0.0.1:1"):
        with pytest.raises(ConfigError, match="https"):
            secure.client(msgspec.structs.replace(node, url=url))
    made = secure.client(msgspec.structs.replace(node, url="https://n.example.com:1"))
    assert made.endpoint.token is None
    plain = NodeLines(
        Endpoint("http://127.0.0.1:1", "a" * 32), sent.lines._bandwidth, sent.lines._compression
    )
    with pytest.raises(ConfigError, match="plain HTTP"):
        plain.client(msgspec.structs.replace(node, url="http://10.0.0.1:1"))
    for url in ("ftp://x", "https://u:p@h", "https://h/path", "https://h?x", "https://h\n"):
        with pytest.raises(ConfigError):
            secure.client(msgspec.structs.replace(node, url=url))


def test_a_long_file_is_read_ahead_while_it_travels(sent, monkeypatch):
    monkeypatch.setattr("sender.send.sent_bytes.node_sending._AHEAD", 100_000)
    monkeypatch.setattr("sender.send.sent_bytes.node_sending._AHEAD_S", 0.0)
    sent.master.answers = [HERE]
    assert isinstance(sent.send(), ReceivedFile)
    ahead = [each for each in sent.master.asked if each.md5 is None]
    assert len(ahead) == 3  # as it begins, and two more
    assert all((each.path, each.node) == (ENTRY.path, NODE) for each in ahead)
