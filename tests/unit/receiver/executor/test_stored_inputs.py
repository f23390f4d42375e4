"""Files of tasks come from the object store where that has them, and else from the receiver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from common import wire
from common.durable import Tree
from common.errors import TooLargeError
from receiver.executor.executor_files import ExecutorFiles
from receiver.executor.stored_inputs import StoredInputs
from receiver.node import Node
from receiver.operator.client import ServerAnswer
from receiver.storage.reading.stored_place import ReceiverAddress
from receiver.storage.stores.incarnation import own_incarnation
from receiver.storage.stores.store_opening import open_store
from receiver.storage.uploading.uploader import Uploader
from receiver.superseding.asking import FileAsked
from receiver.superseding.due import file_asked
from tests.support.merging_node import small_files
from tests.support.node_world import READER, World
from tests.support.proving import Site


class Receiver:
    """Answers calls by a node, and remembers whose bytes it gave."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.gave: list[str] = []
        self.asked = 0

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None],
        headers: Mapping[str, str],
        body: bytes,
    ) -> ServerAnswer:
        assert (method, path) == ("POST", "/sync/v1/catalogue/objects")
        self.asked += 1
        request = wire.decode(body, wire.ObjectsRequest, "request")
        return ServerAnswer(200, {}, wire.encode(self.node.listing.objects(READER, request.paths)))

    def read(self, physical: str, begin: int, length: int) -> bytes:
        self.gave.append(physical)
        row = self.node.content.find(READER, physical)
        return self.node.content.read(row, begin, length)

    url = "http://receiver"


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


@pytest.fixture
def node(tmp_path: Path, bucket: Path) -> Iterator[Node]:
    with World(tmp_path / "centre", storage={"url": bucket.as_uri()}).still_node() as node:
        site = Site(node)
        small_files(site, 3)
        store = open_store(bucket.as_uri())
        with Tree(node.config.schema_dir) as home:
            owner = own_incarnation(store, home, node.engine.uuid)
            trees = [node.load.disks.roomiest()]
            uploader = Uploader(node.engine, store, owner, home, lambda: trees)
            uploader.run_once()
            uploader.close()
        store.close()
        small_files(site, 2, begin=10)
        yield node


def asked_files(node: Node) -> list[FileAsked]:
    with node.engine.reading() as state:
        return [file_asked(row, None) for row in state.files.values()]


def fetched(node: Node, receiver: Receiver, folder: Path) -> list[FileAsked]:
    address = ReceiverAddress("http://receiver")
    some: Any = receiver
    stored = StoredInputs(some, some, address)
    files = ExecutorFiles(stored, expect=stored.expect)
    placed = files.placed(asked_files(node), folder)
    files.fetch_all(placed, lambda: False, lambda _: None)
    return placed


def test_what_the_store_has_is_read_there(node: Node, tmp_path: Path) -> None:
    receiver = Receiver(node)
    placed = fetched(node, receiver, tmp_path)
    assert len(placed) == 5
    assert receiver.asked == 1
    assert len(receiver.gave) == 2, "those that are not uploaded"
    for each in placed:
        assert Path(each.path or "").stat().st_size == each.size


def test_what_the_store_does_not_give_the_receiver_gives(
    node: Node, tmp_path: Path, bucket: Path
) -> None:
    for each in bucket.rglob("*.tsfile"):
        each.unlink()
    receiver = Receiver(node)
    assert len(fetched(node, receiver, tmp_path)) == 5
    assert len(receiver.gave) == 5


def test_bytes_of_the_store_are_compared_too(node: Node, tmp_path: Path, bucket: Path) -> None:
    for each in bucket.rglob("*.tsfile"):
        each.write_bytes(each.read_bytes()[::-1])
    with pytest.raises(ValueError, match="not those that were loaded"):
        fetched(node, Receiver(node), tmp_path)


def test_without_a_store_the_receiver_gives_all(tmp_path: Path) -> None:
    with World(tmp_path / "centre").still_node() as node:
        small_files(Site(node), 3)
        receiver = Receiver(node)
        assert len(fetched(node, receiver, tmp_path)) == 3
        assert len(receiver.gave) == 3
        with pytest.raises(TooLargeError):
            node.listing.objects(READER, ["x"] * 1001)
