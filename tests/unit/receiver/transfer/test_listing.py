from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import ForbiddenError
from receiver.node import Node
from tests.support.node_world import (
    READER,
    A,
    B,
    Edge,
    path_of,
    sender,
    tsfile,
)


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def test_readers_read_the_catalogue_and_senders_their_inventory(edge: Edge) -> None:
    node = edge.node
    edge.round({path_of(1): tsfile()})
    (entry,) = node.listing.catalogue(READER, None, 10).entries
    assert entry.original == path_of(1)
    assert (Path(entry.data_dir) / entry.path).read_bytes() == tsfile()
    with pytest.raises(ForbiddenError):
        node.listing.catalogue(edge.who, None, 10)
    with pytest.raises(ForbiddenError):
        node.listing.inventory(READER, A, None, 10)
    with pytest.raises(ForbiddenError):
        node.listing.inventory(sender(B), A, None, 10)


def test_lists_come_in_pages_without_a_gap(edge: Edge) -> None:
    files = {path_of(number): tsfile(f"root.sg.d{number}") for number in range(7)}
    edge.round(files)
    listing = edge.node.listing
    inventory, after = [], None
    while True:
        page = listing.inventory(edge.who, A, after, 3)
        inventory += [each.path for each in page.entries]
        if (after := page.next) is None:
            break
    assert inventory == sorted(files)
    catalogue, after = [], None
    while True:
        page = listing.catalogue(READER, after, 3)
        catalogue += [each.original for each in page.entries]
        if (after := page.next) is None:
            break
    assert sorted(catalogue) == sorted(files)
