"""Copies over HTTP: what nodes ask their master, who may ask, and where readers find files."""

from __future__ import annotations

import msgspec
import pytest

from receiver.heartbeats.node_wire import NodeStart
from receiver.metadata.model import records
from receiver.operator.edges.tokens import make_token
from receiver.operator.views.copy_views import BackView, CopiesView, RebalanceView
from receiver.tablet_copies.copies_wire import CopyNews, FilePlaces, HeldCopies, HeldCopy

NODE, OTHER, TABLET = "a" * 32, "b" * 32, "c" * 32


def bearer(node, role):
    return {"Authorization": f"Bearer {make_token(node.engine, role=role).token}"}


@pytest.fixture
def ask(node, client):
    token = bearer(node, "node")

    def ask(path, *, method="GET", body=None, headers=token):
        content = None if body is None else msgspec.json.encode(body)
        more = {} if body is None else {"Content-Type": "application/json"}
        return client.open(path, method=method, data=content, headers={**headers, **more})

    return ask


@pytest.fixture
def known(node):
    node.engine.commit(
        [records.NodeRegistered(NODE, "remote", "n", "h", 1, ("http://n",), "d" * 32)]
    )


def test_only_a_nodes_token_asks_for_copies(ask, node, known):
    for role in ("reader", "writer", "worker", "operator"):
        answer = ask(f"/v1/copies?node={NODE}&after=0", headers=bearer(node, role))
        assert answer.status_code == 403, role
    assert ask(f"/v1/copies?node={NODE}&after=0", headers={}).status_code == 401


def test_a_node_that_is_unknown_or_lost_is_told_nothing(ask, node, known):
    assert ask(f"/v1/copies?node={OTHER}&after=0").status_code == 404
    assert ask("/v1/copies?node=../x&after=0").status_code == 400
    assert ask("/v1/copies?after=0").status_code == 400
    answer = ask(f"/v1/copies?node={NODE}&after=0")
    news = msgspec.json.decode(answer.get_data(), type=CopyNews)
    assert news.tablets == []
    assert news.master.engine == node.engine.uuid
    node.engine.commit([records.NodeLost(NODE)])
    assert ask(f"/v1/copies?node={NODE}&after=0").status_code == 404


def test_what_is_not_placed_at_a_node_is_not_given_to_it(ask, known):
    assert ask(f"/v1/copies/{TABLET}/files?node={NODE}").status_code == 404
    path = "sequence/root.t/0/0/1-1-0-0.tsfile"
    assert ask(f"/v1/copies/content?node={NODE}&path={path}&begin=0&length=1").status_code == 404
    assert ask(f"/v1/copies/content?node={NODE}&path=../../etc/passwd").status_code == 404
    assert ask(f"/v1/copies/{TABLET}/files?node={NODE}&digest=zz").status_code == 400


def test_a_start_that_is_not_registered_says_nothing_that_counts(ask, known):
    start = NodeStart(uuid=NODE, instance=1, boot="d" * 32)
    copy = HeldCopy(tablet=TABLET, generation=1, commit=1, digest="0" * 32)
    said = HeldCopies(start=start, copies=[copy])
    assert ask(f"/v1/copies/held?node={NODE}", method="POST", body=said).status_code == 409
    assert ask(f"/v1/copies/held?node={OTHER}", method="POST", body=said).status_code == 404


def test_readers_are_told_where_a_file_is_and_nodes_are_not_readers(ask, node, known):
    reader = bearer(node, "reader")
    assert ask("/v1/copies/where?path=x", headers=reader).status_code == 404
    assert ask("/v1/copies/where", headers=reader).status_code == 400
    assert ask("/v1/copies/where?path=x").status_code == 403


def test_operators_see_how_far_the_copies_are(client, operator, known):
    answer = client.get("/v1/copies/status", headers=operator)
    view = msgspec.json.decode(answer.get_data(), type=CopiesView)
    assert (view.replicas, view.tablets, view.short, view.busy) == (0, 0, 0, None)
    answer = client.post("/v1/copies/back", headers=operator)
    assert msgspec.json.decode(answer.get_data(), type=BackView) == BackView(files=0, size=0)


def test_only_operators_have_tablets_go_to_other_nodes(client, operator, node, known):
    call, body = "/v1/copies/rebalance", {"confirm": True}
    answer = client.post(call, headers=operator, json=body)
    view = msgspec.json.decode(answer.get_data(), type=RebalanceView)
    assert view == RebalanceView(tablets=0, size=0, moving=0, nodes=view.nodes, done=True)
    assert client.post(call, headers=bearer(node, "reader"), json=body).status_code == 403


def test_an_empty_list_of_places_says_whether_there_are_nodes():
    assert msgspec.json.decode(b'{"places":[]}', type=FilePlaces).nodes is False
