"""Bytes for readers of a file that the receiver's own disk has lost and a storage node has."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import NoSpaceError, NotFoundError, ReadOnlyDiskError, UnreachableError
from receiver.metadata.state.tables.sender_tables.released import ReleasedRow
from receiver.node import Node
from receiver.operator.centre.loaded_content import LoadedContent
from receiver.storage.stores.object_store import ObjectMissingError
from tests.support.node_world import READER, Edge, World, path_of, tsfile


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


def test_a_file_that_is_in_the_store_is_brought_by_nobody_and_read_at_a_node_if_it_is_lost_there(
    tmp_path: Path,
):
    """A disk that is full, and was to hold what left it, kept readers from both."""
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    node = World(tmp_path, storage={"url": bucket.as_uri(), "lag": 0.1}).still_node()
    try:
        edge = Edge(node)
        edge.check()
        edge.round({path_of(1): tsfile()})
        assert node.storage is not None
        for step in (node.storage._ship, node.storage._upload):
            step()
        (entry,) = node.listing.catalogue(READER, None, 10).entries
        place = Path(entry.data_dir) / entry.path
        content = place.read_bytes()
        place.unlink()

        def bring(row) -> bool:
            raise NoSpaceError("the disk is full")

        def relay(physical: str, begin: int, length: int) -> bytes:
            asked.append(physical)
            return content[begin : begin + length]

        asked: list[str] = []
        there = LoadedContent(node.config, node.engine, node.load.disks, bring=bring, relay=relay)
        row = there.find(READER, entry.path)
        assert there.read(row, 0, 10) == content[:10]
        assert asked == []
        there.close()
        (found,) = bucket.rglob("*.tsfile")
        found.unlink()
        there = LoadedContent(node.config, node.engine, node.load.disks, bring=bring, relay=relay)
        assert there.read(row, 10, 10) == content[10:20]
        assert asked == [entry.path]
        there.close()
        there = LoadedContent(node.config, node.engine, node.load.disks, bring=bring)
        with pytest.raises(ObjectMissingError):
            there.read(row, 10, 10)
        there.close()
    finally:
        node.close()


@pytest.mark.parametrize("is_silent", [True, False])
def test_what_has_left_for_nodes_is_read_in_the_store_where_no_node_gives_it(
    tmp_path: Path, is_silent: bool
):
    """It was uploaded since; the nodes do not answer, or have other bytes."""
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    node = World(tmp_path, storage={"url": bucket.as_uri(), "lag": 0.1}).still_node()
    try:
        edge = Edge(node)
        edge.check()
        edge.round({path_of(1): tsfile()})
        assert node.storage is not None
        for step in (node.storage._ship, node.storage._upload):
            step()
        (entry,) = node.listing.catalogue(READER, None, 10).entries
        place = Path(entry.data_dir) / entry.path
        content = place.read_bytes()
        place.unlink()
        released = ReleasedRow(
            physical=entry.path, tablet="a" * 32, generation=1, nodes=(), created=1, changed=1
        )
        with node.engine.reading() as state:
            state.released_table.restore(released)

        def relay(physical: str, begin: int, length: int) -> bytes:
            asked.append(physical)
            if is_silent:
                raise UnreachableError("no storage node gives it now")
            return bytes(length)

        asked: list[str] = []
        there = LoadedContent(node.config, node.engine, node.load.disks, relay=relay)
        row = there.find(READER, entry.path)
        if is_silent:
            assert there.read(row, 0, 10) == content[:10]
        assert bytes.fromhex(row.md5) in there.digests(row)
        assert asked
        there.close()
        (found,) = bucket.rglob("*.tsfile")
        found.unlink()
        there = LoadedContent(node.config, node.engine, node.load.disks, relay=relay)
        if is_silent:
            with pytest.raises(UnreachableError):
                there.read(row, 0, 10)
        there.close()
    finally:
        node.close()


@pytest.mark.parametrize(
    "error",
    [
        NoSpaceError("the disk is full"),
        ReadOnlyDiskError("it is read-only"),
        OSError(5, "it fails"),
    ],
)
def test_what_no_disk_here_takes_back_is_read_at_the_node(edge: Edge, error: Exception):
    node = edge.node
    edge.round({path_of(1): tsfile()})
    (entry,) = node.listing.catalogue(READER, None, 10).entries
    place = Path(entry.data_dir) / entry.path
    content = place.read_bytes()
    place.unlink()
    silent: list[bool] = []

    def bring(row) -> bool:
        raise error

    def relay(physical: str, begin: int, length: int) -> bytes:
        if silent:
            raise UnreachableError("no storage node gives it now")
        return content[begin : begin + length]

    there = LoadedContent(node.config, node.engine, node.load.disks, bring=bring, relay=relay)
    row = there.find(READER, entry.path)
    assert there.read(row, 10, 10) == content[10:20]
    assert bytes.fromhex(row.md5) in there.digests(row)
    silent.append(True)
    with pytest.raises(type(error)):
        there.read(row, 10, 10)
    there.close()
