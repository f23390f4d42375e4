"""Storage nodes over HTTP."""

from __future__ import annotations

import msgspec
import pytest

from receiver.operator.views.node_views import LossRequest, NodesPage, NodeView
from tests.support.node_world import A, Edge, path_of, tsfile

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def ask(client, operator):
    def ask(method, path, kind=None, body=None, expected=200):
        data = None if body is None else msgspec.json.encode(body)
        answer = client.open(path, method=method, data=data, headers=operator | JSON)
        assert answer.status_code == expected, answer.get_data()
        return None if kind is None else msgspec.json.decode(answer.get_data(), type=kind)

    return ask


def test_a_directory_is_drained_and_not_and_is_not_forgotten_while_it_is_configured(ask, node):
    Edge(node, uuid=A).round({path_of(1): tsfile("root.sg.d1")})
    one, other = ask("GET", "/v1/nodes", NodesPage).nodes
    assert (one.state, one.files, other.files) == ("standing", 1, 0)
    assert one.free_bytes
    assert ask("POST", f"/v1/nodes/{one.uuid}/drain", NodeView).state == "draining"
    ask("POST", f"/v1/nodes/{other.uuid}/drain", expected=409)
    ask("POST", f"/v1/nodes/{one.uuid}/forget", expected=409)
    assert ask("POST", f"/v1/nodes/{one.uuid[:6]}/undrain", NodeView).state == "standing"
    ask("POST", "/v1/nodes/nothing/drain", expected=404)
    body = LossRequest(confirm=True)
    ask("POST", f"/v1/nodes/{one.uuid}/lost", None, body, expected=409)
