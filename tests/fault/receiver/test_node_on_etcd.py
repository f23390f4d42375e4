"""A whole receiver that keeps its commits in etcd, and loses its schema directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from common.errors import LockedError
from receiver.config import EtcdConfig
from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_pattern
from receiver.operator.status import running_status
from receiver.operator.stored.files import list_files
from tests.support.etcd import Etcd
from tests.support.node_world import Edge, World, fsck_of, path_of, results, tsfile
from tests.support.procs import wait_until


@pytest.fixture
def world(tmp_path: Path, shared_etcd: Etcd) -> World:
    found = shared_etcd.settings()
    config = EtcdConfig(endpoints=tuple(found.endpoints), prefix=found.prefix, lease=2.0)
    return World(tmp_path, metadata={"backend": "etcd", "etcd": config})


def test_a_receiver_without_its_schema_directory_starts_again_from_etcd(world: World) -> None:
    with world.node() as node:
        edge = Edge(node)
        assert results(edge.round({path_of(1): tsfile()})) == {path_of(1): "loaded"}
        uuid, newest = node.engine.uuid, node.engine.newest_commit
    shutil.rmtree(world.root / "schema")
    with world.node() as node:
        assert node.engine.uuid == uuid
        behind = [each.ops for each in node.engine.log_since(newest)]
        assert {type(op) for ops in behind for op in ops} == {records.NodeRegistered}
        assert [each.path for each in list_files(node.operator).files] == [path_of(1)]
        with node.engine.reading() as state:
            rows = state.schema.series.match(parse_pattern("root.**"))
            assert [state.schema.series.describe(row).path for row in rows] == ["root.sg.d1.s1"]
        assert fsck_of(node).found == []
        edge.node = node
        assert results(edge.round({path_of(2): tsfile(first=90)})) == {path_of(2): "loaded"}


def test_a_second_receiver_on_the_same_keys_does_not_start(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other", metadata=world.metadata)
    with world.node(), pytest.raises(LockedError):
        other.node()


def test_a_lost_quorum_is_told_and_so_is_its_return(tmp_path: Path, own_etcd: Etcd) -> None:
    found = own_etcd.settings()
    etcd = EtcdConfig(endpoints=tuple(found.endpoints), prefix=found.prefix, lease=3.0, timeout=0.5)
    world = World(tmp_path, metadata={"backend": "etcd", "etcd": etcd})
    with world.node() as node:
        assert node.problem() is None
        own_etcd.pause()
        wait_until(lambda: node.problem() is not None, "the receiver to say so")
        assert "etcd does not answer" in (node.problem() or "")
        status = running_status(node.operator, node.problem())
        assert not status.ready
        own_etcd.resume()
        wait_until(lambda: node.problem() is None, "the receiver to recover")
