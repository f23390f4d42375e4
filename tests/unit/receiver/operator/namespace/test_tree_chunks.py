"""`tree FILE`: the chunks of a file, wherever it lies, now and then."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from common.durable import Tree
from common.errors import DamagedError, NotFoundError, UsageError
from common.tsfile import read_tail
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.directories import ReceiverDirectories
from receiver.operator.namespace.tree import list_tree
from receiver.operator.namespace.tree_chunks import list_chunks
from receiver.operator.stored.storage import running_storage
from receiver.storage.stores.object_store import StoreRefusedError
from tests.support.node_world import Edge, World, path_of
from tests.support.tsfile_bytes import build
from tests.support.web import until


def content(series: int = 3) -> bytes:
    device = {
        f"s{each}": [(time, time * 10 + each) for time in range(1, 6)] for each in range(series)
    }
    return build({"root.sg.d1": device, "root.sg.d2": {"s0": [(7, -1)]}})


def loaded(node: Node, number: int = 1) -> str:
    Edge(node).round({path_of(number): content()})
    return next(each.path for each in list_tree(node.operator, files=True).nodes)


def test_chunks_lie_where_they_are_said_to_and_come_in_pages(node: Node) -> None:
    path = loaded(node)
    every = list_chunks(node.operator, path=path)
    assert [(each.device, each.measurement, each.count) for each in every.chunks] == [
        ("root.sg.d1", "s0", 5),
        ("root.sg.d1", "s1", 5),
        ("root.sg.d1", "s2", 5),
        ("root.sg.d2", "s0", 1),
    ]
    assert [(each.minimum, each.maximum) for each in every.chunks][1::2] == [(11, 51), (-1, -1)]
    with node.load.disks.trees[0].open_write(path) as file:
        tail = read_tail(file.fileno())
    there = {
        chunk.offset for device in tail.devices for one in device.series() for chunk in one.chunks
    }
    assert {each.offset for each in every.chunks} == there
    assert every.chunks[-1].offset + every.chunks[-1].length == tail.meta_offset
    paged, after = [], None
    while True:
        page = list_chunks(node.operator, path=path, after=after, limit=3)
        paged += page.chunks
        if (after := page.next) is None:
            break
    assert paged == every.chunks


def test_of_a_time_the_chunks_are_those_of_the_file_until_its_bytes_have_gone(node: Node) -> None:
    path = loaded(node)
    engine, then = node.engine, str(node.engine.newest_commit)
    before = list_chunks(node.operator, path=path)
    engine.commit([records.FileQuarantined(path, "bad")])
    engine.commit([records.FileDeleted(path, "operator")])
    with pytest.raises(NotFoundError, match="no such file"):
        list_chunks(node.operator, path=path)
    assert list_chunks(node.operator, path=path, at=then).chunks == before.chunks
    with Tree(node.config.data_dirs[0]) as tree:
        tree.unlink(path)
    with pytest.raises(NotFoundError, match="its bytes have gone"):
        list_chunks(node.operator, path=path, at=then)


def test_what_is_no_path_no_cursor_and_no_whole_file_is_named(node: Node) -> None:
    path = loaded(node)
    for wrong in (None, ""):
        with pytest.raises(UsageError):
            list_chunks(node.operator, path=wrong)
    with pytest.raises(UsageError):
        list_chunks(node.operator, path=path, after="x")
    for wrong in (path[:-1], path + "x", "root.sg"):
        with pytest.raises(NotFoundError):
            list_chunks(node.operator, path=wrong)
    with node.load.disks.trees[0].open_write(path) as file:
        file.truncate(40)
    with pytest.raises(DamagedError, match="no whole TsFile"):
        list_chunks(node.operator, path=path)


def test_a_file_in_the_store_only_is_read_there(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    world = World(tmp_path / "centre", storage={"url": bucket.as_uri(), "lag": 0.1})
    with world.node() as node:
        path = loaded(node)
        until(lambda: running_storage(node.operator).uploaded_files == 1)
        before = list_chunks(node.operator, path=path)
        with Tree(node.config.data_dirs[0]) as tree:
            tree.unlink(path)
        assert list_chunks(node.operator, path=path) == before
        there: ReceiverDirectories = node.operator
        shutil.rmtree(bucket)
        with pytest.raises(StoreRefusedError):
            list_chunks(there, path=path)
