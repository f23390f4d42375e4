"""Merged files go when nobody reads them any more, and first where space is short."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.compaction.worth_merging.merge_due import files_of
from receiver.metadata.model import records
from receiver.metadata.state.tables.file_tables.retired import PartitionKey
from receiver.node import Node
from receiver.storage.cache.cache_books import CacheBooks, allocated
from receiver.storage.cache.disk_cache import DiskCache
from tests.support.merging_node import compactions, merge_here, small_files
from tests.support.node_world import Clock, World
from tests.support.proving import Site

HISTORY, KEPT = 1000.0, 100.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    return World(tmp_path, clock=clock, keep_deleted=KEPT, metadata={"history": HISTORY})


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    with world.still_node() as node:
        yield node


def merged(node: Node, count: int = 1) -> list[str]:
    """Have files merged; returns where the outputs are."""
    merge_here(node)
    site = Site(node)
    for each in range(count):
        paths = [
            f"sequence/root.sg/0/{each}/{n}-{n}-0-0.tsfile" for n in (each * 9 + 1, each * 9 + 2)
        ]
        site.round({path: {"a": {n: n}} for n, path in enumerate(paths, each * 9)})
        node.compactor.compact("root.sg")
        node.compactor.run_once()
    rows = compactions(node)
    assert len(rows) == count
    return [output.physical for row in rows for output in row.outputs]


def there(world: World) -> list[str]:
    return [name for name in world.loaded() if "/merged-" in name]


def test_what_was_dissolved_stays_for_readers_of_the_past_and_then_goes(
    node: Node, world: World, clock: Clock
) -> None:
    outputs = merged(node)
    (row,) = compactions(node)
    node.engine.commit([records.FileDeleted(row.inputs[0], "operator")])
    assert compactions(node) == []
    for seconds, kept in ((KEPT + 1, True), (HISTORY - KEPT - 2, True), (KEPT, False)):
        clock.now += seconds
        node.engine.collect()
        node.merged.let_go(clock.now)
        assert there(world) == (outputs if kept else [])
    with node.engine.reading() as state:
        assert state.compacted_table.rows == {}


def test_they_make_room_first_the_oldest_first_and_no_more_than_it_takes(
    node: Node, world: World, clock: Clock
) -> None:
    outputs = merged(node, 3)
    inputs = [name for name in world.loaded() if "/merged-" not in name]
    left = [2]

    def is_pressed() -> bool:
        left[0] -= 1
        return left[0] >= 0

    node.merged._is_pressed = is_pressed
    node.merged.let_go(clock.now)
    assert there(world) == sorted(outputs[1:])
    assert [name for name in world.loaded() if "/merged-" not in name] == inputs
    assert len(compactions(node)) == 2


def test_nothing_is_forgotten_while_a_disk_is_away(node: Node, world: World, clock: Clock) -> None:
    merged(node)
    (row,) = compactions(node)
    node.engine.commit([records.CompactionDissolved(row.id, "for a test")])
    clock.now += HISTORY + KEPT + 1
    node.engine.collect()
    marker = world.root / "data2" / ".tsferry-receiver"
    marker.rename(marker.with_name("aside"))
    assert node.merged.let_go(clock.now) == 0
    assert there(world)
    node.merged.recover()
    marker.with_name("aside").rename(marker)
    assert node.merged.let_go(clock.now) == 1


def test_a_start_keeps_what_is_committed_and_dissolves_what_has_lost_a_file(
    node: Node, world: World
) -> None:
    first, second = merged(node, 2)
    node.merged.recover()
    assert there(world) == sorted([first, second])
    (world.data / second).unlink()
    node.merged.recover()
    assert [row.outputs[0].physical for row in compactions(node)] == [first]


def test_what_they_take_counts_towards_the_capacity_and_no_eviction_takes_them(
    node: Node, world: World, clock: Clock
) -> None:
    cache = DiskCache(1 << 20)
    trees = node.load.disks.standing
    books = CacheBooks(node.engine, trees, cache)
    books.look()
    (output,) = merged(node)
    books.look()
    size = sum(allocated(trees(), name.removesuffix(".resource")) for name in world.loaded())
    assert cache.usage == size
    with node.engine.reading() as state:
        assert output not in state.files  # what no row has leaves for no place
    again = DiskCache(1 << 20)
    CacheBooks(node.engine, trees, again).look()
    assert again.usage == size
    pressed = iter((True, True, False))
    node.merged._is_pressed = lambda: next(pressed)
    assert node.merged.let_go(clock.now) == 1
    books.look()
    assert cache.usage == size - 4096


def test_a_partition_is_due_when_its_time_is_over(node: Node, world: World, clock: Clock) -> None:
    week = int(clock.now // 604_800)
    site = Site(node)
    small_files(site, 1)
    path = f"sequence/root.sg/0/{week}/50-50-0-0.tsfile"
    site.round({path: {"a": {5: 1}}})
    rules = node.compactor.due.rules
    for partition, due in (("0", clock.now + 3600), (str(week), (week + 1) * 604_800 + 3600)):
        key = PartitionKey("root.sg", "0", partition)
        assert rules.quiet_at(key, files_of(node.engine, key).touched) == pytest.approx(due, abs=1)
