"""Storage nodes over HTTP: their heartbeats, and what operators see and say of them."""

from pathlib import Path

import msgspec
import pytest

from receiver.heartbeats.node_wire import DirectoryRoom, NodeHeartbeatAnswer, NodeRegistration
from receiver.metadata.engine import Engine
from receiver.operator.edges.tokens import make_token
from receiver.operator.views.node_views import LossView, NodesPage, NodeView
from receiver.operator.views.remote_node_views import (
    RemoteNodesPage,
    RemoteNodeView,
    UnknownTablets,
)
from receiver.operator.views.status_views import StatusView
from receiver.storagenode.heartbeat_talk import HeartbeatTalk
from tests.support.heard_nodes import CALL_KEY, SpeakingNode, tablet, tablet_id

JSON = {"Content-Type": "application/json"}
REMOTE = "/v1/nodes/remote"


@pytest.fixture
def token(node):
    return {"Authorization": f"Bearer {make_token(node.engine, role='node').token}"}


@pytest.fixture
def say(client, operator):
    def say(method, path, kind=None, expected=200, body=None):
        answer = client.open(path, method=method, headers=operator | JSON, data=body)
        assert answer.status_code == expected, answer.get_data()
        return None if kind is None else msgspec.json.decode(answer.get_data(), type=kind)

    return say


@pytest.fixture
def beat(client, token):
    """Has a node speak until it has nothing to say; or once, and the status is looked at."""

    def beat(speaking, expected=200, *, once=False):
        more = 0.0
        while more is not None:
            answer = client.post(
                "/v1/nodes/heartbeat",
                data=msgspec.json.encode(speaking.talk.next()),
                headers=token | JSON,
            )
            assert answer.status_code == expected, answer.get_data()
            if expected != 200:
                return answer.get_json()
            more = speaking.talk.answered(
                msgspec.json.decode(answer.get_data(), type=NodeHeartbeatAnswer)
            )
            if once:
                break
        return None

    return beat


@pytest.fixture
def speaking(tmp_path: Path):
    made = SpeakingNode(tmp_path / "node7")
    yield made
    made.close()


def test_a_node_registers_reports_and_is_listed(say, beat, speaking):
    assert say("GET", REMOTE, RemoteNodesPage).nodes == []
    speaking.store.put(tablet(1, files=3, size=30), tablet(2, state="copying", size=5))
    beat(speaking, once=True)
    (view,) = say("GET", REMOTE, RemoteNodesPage).nodes
    assert (view.uuid, view.state, view.tablets) == (speaking.uuid, "reporting", 0)
    beat(speaking)
    view = say("GET", f"{REMOTE}/{speaking.uuid}", RemoteNodeView)
    assert (view.state, view.tablets, view.files, view.bytes) == ("up", 2, 3, 35)
    assert (view.copying, view.unknown, view.url) == (1, 2, speaking.url)
    page = say("GET", f"{REMOTE}/{speaking.uuid}/unknown?limit=1", UnknownTablets)
    assert [each.id for each in page.tablets] == [tablet_id(1)]
    page = say("GET", f"{REMOTE}/{speaking.uuid}/unknown?after={page.next}", UnknownTablets)
    assert [each.id for each in page.tablets] == [tablet_id(2)]
    assert page.next is None


def test_nodes_come_in_pages(say, beat, tmp_path):
    made = [SpeakingNode(tmp_path / f"node{each}") for each in range(3)]
    for each in made:
        beat(each)
    uuids = sorted(each.uuid for each in made)
    page = say("GET", f"{REMOTE}?limit=2", RemoteNodesPage)
    assert [each.uuid for each in page.nodes] == uuids[:2]
    page = say("GET", f"{REMOTE}?after={page.next}", RemoteNodesPage)
    assert [each.uuid for each in page.nodes] == uuids[2:]
    assert page.next is None
    for each in made:
        each.close()


def test_status_has_nodes_that_are_down_and_the_longest_silence(say, beat, speaking, node):
    beat(speaking)
    assert say("GET", "/v1/status", StatusView).nodes.down == 0
    node.nodes._monotonic = lambda: 10.0**9
    totals = say("GET", "/v1/status", StatusView).nodes
    assert (totals.nodes, totals.down) == (1, 1)
    assert totals.oldest > 30
    assert "1 of 1 storage nodes are down." in node.concerns()
    assert [each.state for each in say("GET", REMOTE, RemoteNodesPage).nodes] == ["down"]


def test_a_node_that_speaks_is_neither_lost_nor_forgotten(say, beat, speaking, node):
    beat(speaking)
    path, one = f"/v1/nodes/{speaking.uuid}", f"{REMOTE}/{speaking.uuid}"

    def lost(expected, body=b'{"confirm":true}'):
        return say("POST", f"{path}/lost", LossView, expected, body)

    say("POST", f"{path}/lost", expected=409, body=b'{"confirm":true}')
    say("POST", f"{path}/forget", expected=409)
    say("POST", f"{path}/found", expected=409)
    node.nodes._monotonic = lambda: 10.0**9
    say("POST", f"{path}/lost", expected=400, body=b'{"replace":"/x"}')
    assert not lost(200, b"{}").done
    assert say("GET", one, RemoteNodeView).state == "down"
    assert lost(200).done
    assert lost(200).done, "it may be said again"
    assert say("GET", one, RemoteNodeView).state == "lost"
    assert "nodes found" in beat(speaking, 410)["detail"]
    say("POST", f"{path}/found", expected=204)
    beat(speaking)
    node.nodes._monotonic = lambda: 10.0**10
    say("POST", f"{path}/forget", expected=204)
    assert say("GET", REMOTE, RemoteNodesPage).nodes == []
    say("GET", one, expected=404)
    beat(speaking)
    assert say("GET", one, RemoteNodeView).state == "up"


def test_nodes_of_both_kinds_are_listed_together(say, beat, speaking):
    speaking.store.put(tablet(1, files=3, size=30))
    beat(speaking)
    found = {each.kind: each for each in say("GET", "/v1/nodes", NodesPage).nodes}
    assert found["directory"].state == "standing"
    process = found["remote"]
    assert (process.uuid, process.state, process.files, process.tablets) == (
        speaking.uuid,
        "up",
        3,
        1,
    )
    assert process.why == "1 tablets are not of this catalogue"
    drained = say("POST", f"/v1/nodes/{speaking.uuid}/drain", NodeView)
    assert drained.state == "draining"


def test_a_clone_is_refused_and_shown_until_an_operator_accepts_it(say, beat, speaking, tmp_path):
    import shutil

    beat(speaking)
    shutil.copytree(speaking.path, tmp_path / "clone")
    speaking.restart()
    beat(speaking)
    clone = SpeakingNode(tmp_path / "clone")
    assert beat(clone, 409)["type"] == "urn:tsferry:clone"
    assert "is of a copy" in say("GET", f"{REMOTE}/{speaking.uuid}", RemoteNodeView).refused
    say("POST", f"/v1/nodes/{speaking.uuid}/accept", expected=204)
    beat(clone)
    assert say("GET", f"{REMOTE}/{speaking.uuid}", RemoteNodeView).instance == 3
    clone.close()


def test_only_a_nodes_token_may_say_it_lives_and_it_may_do_nothing_else(
    client, node, operator, token, speaking
):
    body = msgspec.json.encode(speaking.talk.next())
    worker = {"Authorization": f"Bearer {make_token(node.engine, role='worker').token}"}
    for headers, status in ((operator, 403), (worker, 403), ({}, 401)):
        answer = client.post("/v1/nodes/heartbeat", data=body, headers=headers | JSON)
        assert answer.status_code == status
    for path in (REMOTE, "/v1/status", "/sync/v1/catalogue", "/v1/tasks"):
        assert client.get(path, headers=token).status_code == 403


def test_a_master_that_lost_its_place_is_none(beat, speaking, monkeypatch):
    beat(speaking)
    monkeypatch.setattr(Engine, "trouble", property(lambda self: "fenced"))
    assert beat(speaking, 421)["type"] == "urn:tsferry:not-the-writer"


def test_a_heartbeat_that_is_none_is_refused(client, token):
    for body in (b"{", b"{}", b'{"start":{"uuid":"x","instance":1,"boot":"y"}}'):
        answer = client.post("/v1/nodes/heartbeat", data=body, headers=token | JSON)
        assert answer.status_code == 400


def test_numbers_that_no_disk_has_can_be_listed(say, beat, speaking):
    most = (1 << 63) - 1
    rooms = [DirectoryRoom(path=f"/d{each}", device=each, free=most) for each in range(3)]
    speaking.store.put(*(tablet(each, size=most) for each in range(3)))
    speaking.talk = HeartbeatTalk(
        speaking.home,
        speaking.store,
        lambda: NodeRegistration(url=speaking.url, call_key=CALL_KEY, directories=tuple(rooms)),
        lambda: rooms,
    )
    beat(speaking)
    [view] = say("GET", REMOTE, RemoteNodesPage).nodes
    assert (view.free, view.bytes, view.tablets) == (most, most, 3)
    assert say("GET", "/v1/nodes", NodesPage).nodes
