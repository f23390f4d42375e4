"""What has left the disks for storage nodes is uploaded from there, in bounded room."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.durable import Tree
from common.errors import UnreachableError
from receiver.datadirs.disks import disk_room
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileRow
from receiver.storage.reading.reader_calls import ReaderCalls
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.uploading.pulled_files import PulledFiles
from tests.support.heard_nodes import SpeakingNode
from tests.support.node_world import Edge, World, path_of, tsfile
from tests.support.uploading import Centre
from tests.support.web import until


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Centre]:
    (tmp_path / "bucket").mkdir()
    made = Centre(tmp_path, DirectoryStore(tmp_path / "bucket"))
    yield made
    made.end()


class Nodes:
    """Give what they have, into a directory."""

    def __init__(self) -> None:
        self.has: dict[str, bytes] = {}
        self.problem: Exception | None = None
        self.free = 1 << 30
        self.most = 0
        self._lock = threading.Lock()
        self._there = 0

    def fetch(self, row: FileRow, tree: Tree) -> str | None:
        if self.problem is not None:
            raise self.problem
        content = self.has.get(row.physical)
        if content is None:
            return None
        rel = f".fetching/{row.created}"
        tree.make_dirs(".fetching")
        with tree.create(rel) as file:
            file.write(content)
        return rel

    def pulled(self, centre: Centre, keep_free: int = 0) -> PulledFiles:
        return PulledFiles(
            lambda: [centre.tree], self.fetch, keep_free=keep_free, free=lambda tree: self.free
        )


def leaves(centre: Centre, nodes: Nodes, number: int, size: int = 1500) -> str:
    """A file is loaded, and is at nodes alone."""
    physical = centre.load(number, size=size, resource=b"r" if number == 1 else None)
    place = centre.root / "data" / physical
    nodes.has[physical] = place.read_bytes()
    place.unlink()
    return physical


def left(centre: Centre) -> list[Path]:
    return list((centre.root / "data" / ".fetching").glob("*"))


def test_what_is_at_nodes_alone_is_uploaded_and_leaves_nothing_here(centre: Centre) -> None:
    nodes = Nodes()
    names = {leaves(centre, nodes, each) for each in (1, 2, 3)}
    here = centre.load(4)
    centre.uploader_of(pulled=nodes.pulled(centre))
    assert centre.uploader.run_once() == 4
    assert centre.uploaded() == {*names, here}
    for each in names:
        assert centre.store.read(centre.key(each), 0, 1 << 20) == nodes.has[each]
        assert not (centre.root / "data" / each).exists()
    assert left(centre) == []


@pytest.mark.parametrize("why", ["none", "away", "no room", "other bytes"])
def test_what_does_not_come_waits_keeps_nothing_else_waiting_and_comes_later(
    centre: Centre, why: str
) -> None:
    nodes = Nodes()
    physical = leaves(centre, nodes, 1)
    good = nodes.has[physical]
    here = centre.load(2)
    if why == "none":
        nodes.has.clear()
    if why == "away":
        nodes.problem = UnreachableError("it is silent")
    if why == "no room":
        nodes.free = 1000 + disk_room(len(good)) - 1
    if why == "other bytes":
        nodes.has[physical] = good[:-1] + b"?"
    centre.uploader_of(pulled=nodes.pulled(centre, keep_free=1000))
    assert centre.uploader.run_once() == 1
    assert centre.uploaded() == {here}
    assert centre.uploader.progress().unreadable_files == 1
    assert centre.bad == []  # nothing is concluded of the file
    assert left(centre) == []
    nodes.has[physical], nodes.problem, nodes.free = good, None, 1 << 30
    centre.now += 61
    assert centre.uploader.run_once() == 1
    assert centre.uploaded() == {physical, here}


def test_files_that_come_at_once_take_no_more_room_than_there_is(centre: Centre) -> None:
    nodes = Nodes()
    rows = []
    for number in (2, 3):
        name = leaves(centre, nodes, number)
        with centre.engine.reading() as state:
            rows.append(state.files[name])
    nodes.free = 1000 + disk_room(rows[0].size) + disk_room(rows[1].size) - 1
    pulled = nodes.pulled(centre, keep_free=1000)
    with pulled.opened(rows[0]):
        with (
            pytest.raises(ContentChangedError, match="none has room for it"),
            pulled.opened(rows[1]),
        ):
            pass
        assert len(left(centre)) == 1
    with pulled.opened(rows[1]):
        assert len(left(centre)) == 1
    assert left(centre) == []


@contextmanager
def _released(root: Path, speaking: SpeakingNode, kept: dict[str, bytes]) -> Iterator[World]:
    """A receiver without a store, whose file is at a node alone."""
    world = World(root)
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile("root.sg.d1")})
        speaking.settle(node.nodes)
        with node.engine.reading() as state:
            (row,), (tablet,) = state.files.values(), state.tablet_table.rows
        node.engine.commit([records.TabletPlaced(tablet, 1, [speaking.uuid], speaking.uuid)])
        node.engine.commit([records.FileReleased(row.physical, tablet, 1, [speaking.uuid])])
    place = world.data / row.physical
    kept[row.physical] = place.read_bytes()
    place.unlink()
    yield world


def test_a_receiver_that_goes_over_to_a_store_puts_there_what_nodes_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, bytes] = {}

    def get(calls: object, path: str, query: dict, headers: object = None) -> bytes:
        return kept[query["path"]][query["begin"] : query["begin"] + query["length"]]

    monkeypatch.setattr(ReaderCalls, "get", get)
    (tmp_path / "bucket").mkdir()
    speaking = SpeakingNode(tmp_path / "speaking")
    with _released(tmp_path / "centre", speaking, kept):
        storage = {"url": (tmp_path / "bucket").as_uri(), "lag": 0.1}
        again = World(tmp_path / "centre", storage=storage)
        with again.node() as node:
            speaking.settle(node.nodes)
            (name,) = kept

            def is_stored() -> bool:
                with node.engine.reading() as state:
                    return name in state.uploaded_table.rows

            until(is_stored, "a copy in the store")
        assert not (again.data / name).exists()
    speaking.close()
