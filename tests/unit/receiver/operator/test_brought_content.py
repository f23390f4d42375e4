"""Bytes for readers of a file that the receiver's own disk has lost and a storage node has."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import NotFoundError
from receiver.node import Node
from receiver.operator.loaded_content import LoadedContent
from tests.support.node_world import READER, Edge, path_of, tsfile


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def test_a_file_that_is_lost_here_comes_from_a_node_and_is_told_to_be_gone_without(edge: Edge):
    node = edge.node
    edge.round({path_of(1): tsfile()})
    (entry,) = node.listing.catalogue(READER, None, 10).entries
    place = Path(entry.data_dir) / entry.path
    content = place.read_bytes()
    place.unlink()
    asked = []

    def bring(row) -> bool:
        asked.append(row.physical)
        if len(asked) == 1:
            return False
        place.write_bytes(content)
        return True

    there = LoadedContent(node.config, node.engine, node.load.disks, bring=bring)
    row = there.find(READER, entry.path)
    with pytest.raises(NotFoundError):
        there.read(row, 0, 10)
    assert there.read(row, 0, 10) == content[:10]
    assert there.read(row, 10, 10) == content[10:20]
    assert asked == [entry.path] * 2
    there.close()
