"""Merged files, and files that a store has too, in a directory that is drained."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedOutput
from receiver.node import Node
from receiver.operator.places.node_lists import drain_node, list_nodes
from receiver.operator.stored.storage import running_storage
from tests.support.merging_node import compactions, given_by, merge_here, small_files
from tests.support.node_world import Clock, Edge, World, fsck_of, path_of, tsfile
from tests.support.proving import Site
from tests.support.web import until


def output(node: Node) -> CompactedOutput:
    (row,) = compactions(node)
    (found,) = row.outputs
    return found


def test_a_merged_file_moves_as_what_it_was_made_of_does(tmp_path: Path):
    clock = Clock()
    merge = {"enabled": True, "quiet": 60.0, "min_files": 5}
    world = World(tmp_path, clock=clock, keep_deleted=0.0, merge=merge)
    with world.still_node() as node:
        site = Site(node)
        merge_here(node)
        small_files(site, 6)
        clock.now += 61
        assert node.compactor.run_once() == 1
        drain_node(node.operator, str(world.data))
        while node.load.mover.run_once():
            pass
        assert Path(output(node).data_dir).name == "data2"
        assert (Path(output(node).data_dir) / output(node).physical).is_file()
        assert not (world.data / output(node).physical).exists()
        (row,) = compactions(node)
        assert given_by(node, row) == site.answer()
        assert fsck_of(node).found == []
    with world.still_node() as node:
        assert Path(output(node).data_dir).name == "data2"
        node.merged.recover()
        assert len(compactions(node)) == 1, "none of it is called lost"


def test_a_file_that_somebody_uses_stays_where_it_is_used(tmp_path: Path):
    (tmp_path / "bucket").mkdir()
    storage = {"url": (tmp_path / "bucket").as_uri(), "lag": 0.1, "capacity": 1 << 20}
    world = World(tmp_path / "centre", keep_deleted=0.0, storage=storage)
    files = {path_of(each): tsfile(f"root.sg.d{each}") for each in range(2)}
    with world.node() as node:
        node.load.mover.close()  # passes are made here
        Edge(node).round(files)
        until(lambda: running_storage(node.operator).uploaded_files == 2)
        with node.engine.reading() as state:
            used, other = state.files.values()
        drain_node(node.operator, str(world.data))
        node.load.mover._thread.stopping.clear()
        with node.load.disks.pinned([used]):
            for _ in range(3):
                node.load.mover.run_once()
            assert (world.data / used.physical).is_file()
            assert not (world.data / other.physical).exists()
        node.load.mover.run_once()
        assert not (world.data / used.physical).exists()
        counted = partial(running_storage, node.operator)
        assert node.storage is not None
        node.storage.disk_room._books.look()
        assert counted().cached_files == 2, "each is counted once, where it is"
        assert counted().cached_bytes == 2 * 4096
        states = {Path(each.name).name: each.files for each in list_nodes(node.operator).nodes}
        assert states == {"data": 0, "data2": 2}
