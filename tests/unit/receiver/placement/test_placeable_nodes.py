"""What the node manager knows of nodes, as placing them asks for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from receiver.heartbeats.node_manager import NodeManager
from receiver.heartbeats.node_wire import DirectoryRoom
from receiver.heartbeats.reported_columns import ReportedColumns
from receiver.placement.placeable_nodes import PlaceableNode, look_at_nodes
from tests.support.heard_nodes import tablet

NODE = "a" * 32
WELL = DirectoryRoom(path="/1", uuid="1" * 32, device=1, free=100, begun=True)
HELD = ReportedColumns.of([tablet(1, size=3), tablet(2, size=4)], [True, True])


def look(*directories: DirectoryRoom) -> PlaceableNode:
    row = SimpleNamespace(uuid=NODE, host="h", draining=0, lost=0)
    heard = SimpleNamespace(
        registration=SimpleNamespace(host="h1", url="http://h1", call_key="k", cache=0),
        directories=directories,
        reports=SimpleNamespace(held=HELD),
        start=SimpleNamespace(boot="b"),
    )
    manager: Any = SimpleNamespace(nodes=lambda: [(row, heard, 1.0, False)])
    return look_at_nodes(cast(NodeManager, manager))[NODE]


def test_a_node_with_all_its_directories_counts():
    found = look(WELL)
    assert found.counts
    assert (found.host, found.free, found.tablets, found.used) == ("h1", 100, 2, 7)


@pytest.mark.parametrize("begun", [True, False])
def test_one_that_misses_a_directory_that_it_began_with_does_not(begun: bool):
    away = DirectoryRoom(path="/2", problem="it cannot be read", begun=begun)
    found = look(WELL, away)
    assert found.counts is not begun
    assert found.takes, "there is room on the others"
