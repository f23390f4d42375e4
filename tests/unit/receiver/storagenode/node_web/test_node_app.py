"""A storage node over HTTP, and how it speaks to masters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common.config import Secret
from common.errors import (
    CloneError,
    ConfigError,
    ConflictError,
    LockedError,
    NotTheWriterError,
    TsferryError,
    UnreachableError,
)
from receiver.config import ListenConfig, NodeConfig, ReceiverConfig
from receiver.heartbeats.node_wire import MasterMark, NodeHeartbeat, NodeHeartbeatAnswer
from receiver.storagenode.heartbeats_thread import HeartbeatsThread
from receiver.storagenode.master_calls import Masters
from receiver.storagenode.node_home import ForeignMasterError
from receiver.storagenode.node_status import NodeStatus
from receiver.storagenode.node_web.node_app import ServedNode
from receiver.tablet_copies.copies_wire import CopyOrder, DropOrder
from tests.support.heard_nodes import SpeakingNode


def config_of(root: Path, **listen: object) -> ReceiverConfig:
    return ReceiverConfig(
        schema_dir=root / "schema",
        data_dirs=(root / "d1", root / "d2"),
        listen=ListenConfig(**listen),
        node=NodeConfig(master=("http://127.0.0.1:1",), token=Secret("t")),
    )


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedNode]:
    made = ServedNode(config_of(tmp_path), lambda: None)
    yield made
    made.close()


def test_a_node_that_no_master_hears_lives_and_is_not_ready(served: ServedNode):
    client = served.application.test_client()
    assert client.get("/healthz").get_json()["status"] == "degraded"
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "has no master (http://127.0.0.1:1)" in answer.get_json()["detail"]
    assert client.get("/v1/status").status_code == 404


def test_the_operators_calls_need_the_token_of_the_day_and_the_masters_its_key(
    served: ServedNode,
):
    client = served.application.test_client()

    def asked(path: str, key: str | None) -> int:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return client.get(path, headers=headers).status_code

    for path in ("/v1/node", "/v1/node/start"):
        assert [asked(path, each) for each in (None, "", "x", "\xff")] == [401] * 4
    token = served.give_operator_token().read_text().strip()
    key = served.node.call_key
    assert [asked("/v1/node", each) for each in (token, key)] == [200, 401]
    assert [asked("/v1/node/start", each) for each in (token, key)] == [401, 200]


def test_who_is_not_on_the_list_comes_nowhere(tmp_path: Path):
    made = ServedNode(config_of(tmp_path, hosts=("node7",)), lambda: None)
    client = made.application.test_client()
    there = {"REMOTE_ADDR": "10.1.2.3"}
    assert client.get("/healthz", environ_base=there, headers={"Host": "node7"}).status_code == 403
    assert client.get("/healthz", headers={"Host": "elsewhere"}).status_code == 403
    assert client.get("/healthz", headers={"Host": "node7"}).status_code == 200
    made.close()


def test_status_tells_who_it_is_and_what_it_has(served: ServedNode):
    client = served.application.test_client()
    token = served.give_operator_token().read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    view = msgspec.json.decode(client.get("/v1/node", headers=headers).data, type=NodeStatus)
    assert view.node == served.node.home.start.uuid
    assert (view.instance, view.tablets, len(view.directories)) == (1, 0, 2)
    answer = client.post("/v1/node/confirm-master", headers=headers)
    assert answer.status_code == 409, "nothing is doubted"
    served.node.home.hear(MasterMark(engine="e" * 32, commit=9))
    served.node.home.hear(MasterMark(engine="e" * 32, commit=8))
    assert client.get("/healthz").get_json()["concerns"][-1].startswith("It does not trust")
    assert client.post("/v1/node/confirm-master", headers=headers).status_code == 204
    assert served.node.home.doubt == ""


def test_a_confirmation_that_nobody_needs_keeps_nothing_here_that_is_to_go(served: ServedNode):
    """No list would come that lets it go: nothing is news of a tablet that nothing happens to."""
    node, tablet, master = served.node, "a" * 32, MasterMark(engine="e" * 32, commit=9)
    node.home.hear(master)
    node.copies.make([CopyOrder(tablet=tablet, generation=1, table="t", begin=0, end=1)], master)
    node.copies.replica(tablet).completed(9, 0)
    with pytest.raises(ConflictError, match="not doubted"):
        node.confirm_master()
    assert node.copies.replica(tablet).held().state == "running"
    node.copies.drop([DropOrder(tablet=tablet, generation=1)], master)
    assert (node.copies.tablets(), node.copies.troubles) == ([], {})


def test_the_node_has_no_engine_and_its_directory_no_second_process(
    served: ServedNode, tmp_path: Path
):
    with pytest.raises(LockedError, match="is held by process"):
        ServedNode(config_of(tmp_path), lambda: None)


def test_where_it_listens_everywhere_a_node_must_be_told_its_address(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"node\.url: missing"):
        ServedNode(config_of(tmp_path, host="0.0.0.0", insecure=True), lambda: None)
    assert not (tmp_path / "schema").exists(), "and no start is counted for it"


# -- masters -------------------------------------------------------------------------------------


class Scripted:
    """A master that answers what it is told to."""

    def __init__(self, url: str, answer: TsferryError | NodeHeartbeatAnswer) -> None:
        self.url = url
        self.answer = answer
        self.asked = 0

    def heartbeat(self, said: NodeHeartbeat) -> NodeHeartbeatAnswer:
        self.asked += 1
        if isinstance(self.answer, TsferryError):
            raise self.answer
        return self.answer


def good(commit: int = 5, engine: str = "e" * 32) -> NodeHeartbeatAnswer:
    return NodeHeartbeatAnswer(
        master=MasterMark(engine=engine, commit=commit), acknowledged=0, needs_full_report=False
    )


@pytest.fixture
def speaking(tmp_path: Path) -> Iterator[SpeakingNode]:
    made = SpeakingNode(tmp_path / "node")
    yield made
    made.close()


@pytest.mark.parametrize(
    "first",
    [
        NotTheWriterError("a follower"),
        UnreachableError("nobody there"),
        good(engine="f" * 32),
    ],
)
def test_whoever_is_no_master_is_passed_over(
    speaking: SpeakingNode, first: TsferryError | NodeHeartbeatAnswer
):
    speaking.home.hear(MasterMark(engine="e" * 32, commit=1))
    one, two = Scripted("http://one", first), Scripted("http://two", good())
    masters = Masters([one, two])
    for _ in range(3):
        masters.say(speaking.talk.next, speaking.talk.answered)
    assert masters.url == "http://two"
    assert (one.asked, two.asked) == (1, 3), "the one that heard the last hears the next"


def test_a_refusal_of_the_master_is_not_carried_to_another(speaking: SpeakingNode):
    one, two = Scripted("http://one", CloneError("a copy")), Scripted("http://two", good())
    with pytest.raises(CloneError):
        Masters([one, two]).say(speaking.talk.next, speaking.talk.answered)
    assert two.asked == 0


def test_only_masters_of_other_engines_are_said_to_be_that(speaking: SpeakingNode):
    speaking.home.hear(MasterMark(engine="e" * 32, commit=1))
    one = Scripted("http://one", good(engine="f" * 32))
    with pytest.raises(ForeignMasterError):
        Masters([one, one]).say(speaking.talk.next, speaking.talk.answered)
    assert one.asked == 2


def thread_of(speaking: SpeakingNode, master: Scripted, now: list[float]) -> HeartbeatsThread:
    return HeartbeatsThread(
        speaking.talk,
        Masters([master]),
        every=5.0,
        monotonic=lambda: now[0],
        uniform=lambda low, high: high,
    )


def test_the_next_heartbeat_comes_when_it_is_due_and_not_all_at_once(speaking: SpeakingNode):
    thread = thread_of(speaking, Scripted("http://one", good()), [0.0])
    assert thread.say() == pytest.approx(6.0)
    assert thread.problem() is None


def test_a_node_says_why_no_master_hears_it(speaking: SpeakingNode):
    now, master = [0.0], Scripted("http://one", UnreachableError("nobody there"))
    thread = thread_of(speaking, master, now)
    thread.say()
    assert thread.problem() == "this node has no master (http://one): nobody there"
    master.answer = good()
    thread.say()
    master.answer = UnreachableError("gone again")
    thread.say()
    assert thread.problem() is None, "for a moment"
    now[0] = 31.0
    assert thread.problem() == "this node has no master (http://one): gone again"
    assert thread.age == 31.0
    master.answer = CloneError("a copy")
    thread.say()
    assert thread.problem() == "the master refuses this node: a copy"
    assert speaking.talk.next().registration is not None
    master.answer = ConflictError("another engine")
    thread.say()
    assert thread.refused == "another engine"
    master.answer = good()
    thread.say()
    assert thread.problem() is None
