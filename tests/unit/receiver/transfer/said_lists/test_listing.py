from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import ForbiddenError
from common.listed import ListedSum
from common.wire import CheckRequest, ListedRequest
from receiver.metadata.model import records
from receiver.node import Node
from receiver.principal import Principal
from tests.support.metadata import seen
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


# -- what a token's scope does not cover ----------------------------------------------------------


MINE, OTHER = "root.sg.mine", "root.sg.other"
COVERS_MINE = sender(scope=[MINE])


@pytest.fixture
def mixed(edge: Edge) -> Edge:
    """It has files of devices that a token covers, and of others."""
    names = (MINE, OTHER, OTHER, MINE, OTHER)
    edge.round({path_of(at): tsfile(name, first=at) for at, name in enumerate(names)})
    return edge


def inventory(edge: Edge, who: Principal, limit: int) -> list[str]:
    found, after = [], None
    while True:
        page = edge.node.listing.inventory(who, A, after, limit)
        found += [each.path for each in page.entries]
        if (after := page.next) is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_an_inventory_has_what_the_tokens_scope_covers(mixed: Edge, limit: int) -> None:
    assert inventory(mixed, COVERS_MINE, limit) == [path_of(0), path_of(3)]
    assert len(inventory(mixed, sender(), limit)) == 5


def test_both_sides_agree_with_and_without_what_the_scope_does_not_cover(mixed: Edge) -> None:
    whole, mine = ListedSum(), ListedSum()
    for entry in mixed.node.listing.inventory(sender(), A, None, 10).entries:
        whole.add(entry.path, entry.md5)
    for entry in mixed.node.listing.inventory(COVERS_MINE, A, None, 10).entries:
        mine.add(entry.path, entry.md5)

    def agrees(who: Principal, told: ListedSum) -> bool:
        asked = ListedRequest(files=told.files, digest=told.digest, since=0)
        return mixed.node.listed.compare(who, A, asked).agrees

    assert agrees(sender(), whole)
    assert not agrees(sender(), mine)
    assert agrees(COVERS_MINE, whole)
    assert agrees(COVERS_MINE, mine)
    assert not agrees(COVERS_MINE, ListedSum())


def test_a_sender_that_a_device_came_back_to_is_to_compare_all(mixed: Edge) -> None:
    node = mixed.node
    with node.engine.reading() as state:
        device = next(iter(state.owners))
        told = state.file_table.listed.of(A)
    node.engine.commit([seen(B)])

    def agrees(since: int) -> bool:
        asked = ListedRequest(files=told[0], digest=told[1], since=since)
        return node.listed.compare(sender(), A, asked).agrees

    there = node.engine.commit([records.OwnerSet(device, B, "why")])
    assert agrees(since=0), "it is gone, and that is all"
    back = node.engine.commit([records.OwnerSet(device, A, "why")])
    assert not agrees(since=there)
    assert agrees(since=back)
    node.engine.commit([records.OwnerSet(device, None, "why")])
    assert agrees(since=there)


def test_what_the_receiver_let_go_is_told_to_whom_it_is_covered_for(mixed: Edge) -> None:
    node = mixed.node
    with node.engine.reading() as state:
        physicals = list(state.files)
    node.engine.commit([records.FileDeleted(each, "operator") for each in physicals])
    asked = ListedRequest(files=1, digest="0" * 32, since=0)
    ended = node.listed.compare(COVERS_MINE, A, asked).ended
    assert {each.path for each in ended} == {path_of(0), path_of(3)}
    settled = node.settled.page(COVERS_MINE, A, 0, None, None).files
    assert {each.path for each in settled} == {path_of(0), path_of(3)}


def test_what_is_wanted_again_is_told_to_whom_it_is_covered_for(mixed: Edge) -> None:
    node = mixed.node
    with node.engine.reading() as state:
        physicals = list(state.files)
    node.engine.commit([records.FileQuarantined(each, "it rots") for each in physicals])

    def wanted(who: Principal) -> int:
        request = CheckRequest(
            protocol=1,
            version="0",
            sender=A,
            partition_interval_ms=node.config.partition_interval_ms,
            epoch=mixed.epoch,
        )
        return len(node.checks.check(who, request).wanted)

    assert (wanted(sender()), wanted(COVERS_MINE)) == (5, 2)


def test_what_too_few_storage_nodes_have_does_not_stand(edge: Edge) -> None:
    edge.round({path_of(1): tsfile(), path_of(2): tsfile("root.sg.d2")})
    copied: list[str] = []
    listing = edge.node.listing
    listing._is_copied = lambda _, row: row.path in copied

    def standing() -> list[str]:
        entries = listing.inventory(edge.who, A, None, 9, look=True).entries
        return [each.path for each in entries if each.stands]

    assert standing() == []
    copied.append(path_of(2))
    assert standing() == [path_of(2)]
