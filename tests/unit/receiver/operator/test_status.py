from __future__ import annotations

import pytest

from receiver.node import Node
from receiver.operator.edges.senders import list_running_senders
from receiver.operator.status import running_status
from tests.support.node_world import (
    Edge,
    path_of,
    tsfile,
)


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def test_status_counts_what_is_there(edge: Edge) -> None:
    edge.round({path_of(1): tsfile(), path_of(2): tsfile("root.sg.d2")})
    task = edge.start()
    edge.batch(task, {path_of(3): tsfile("root.sg.d3")})
    status = running_status(edge.node.operator, edge.node.problem())
    assert (status.ready, status.senders, status.devices, status.files) == (True, 1, 2, 2)
    assert status.staged_bytes == len(tsfile("root.sg.d3"))
    (view,) = list_running_senders(edge.node.operator)
    assert (view.open_task, view.files, view.epoch) == (task, 2, 2)
