"""Power cuts while a task with tables is loaded, while its tables go, and behind a verdict."""

from __future__ import annotations

from contextlib import suppress

import pytest

from common import crash, wire
from common.tsfile import read_tail
from common.tsfile.proving import series_proofs
from receiver.load.folder.manifests import kept_tasks, read_table
from receiver.load.upkeep.verdicts import Verdict, record_verdicts
from receiver.operator.stored.files import list_files
from receiver.operator.stored.quarantine import list_quarantine
from tests.support import powercut
from tests.support.disk import heal
from tests.support.merging_node import compactions, merge_here, small_files
from tests.support.node_world import Clock, Edge, World, epoch_of, path_of, tsfile
from tests.support.proving import Site, in_this_process

pytestmark = pytest.mark.slow
FILES = {path_of(1): tsfile(), path_of(2): tsfile(first=100)}


@pytest.fixture
def disk(tmp_path, monkeypatch):
    heal(monkeypatch)
    with powercut.disk(tmp_path, megabytes=32) as disk:
        yield disk


@pytest.fixture
def large_disk(tmp_path, monkeypatch):
    """With the room that a merge wants to have."""
    heal(monkeypatch)
    with powercut.disk(tmp_path, megabytes=192) as disk:
        yield disk


def world_on(disk):
    history = {"history": 0.0, "history_commits": 0}
    return World(disk.path / "r", clock=Clock(), keep_deleted=100.0, metadata=history)


def cut(disk):
    """The process dies, and the power goes: the kernel closes what was open."""
    powercut.let_go(disk.path)
    disk.cut()


def dying_at(point):
    def die(here):
        if here == point:
            raise crash.SimulatedCrash(here)

    return crash.arm(die)


def tables(node):
    """Path -> table, of the visible files."""
    with node.engine.reading() as state:
        rows = [row for row in state.files.values() if row.visible]
        directories = {row.uuid: row.directory for row in state.senders.values()}
    dirs = node.config.data_dirs
    return {row.path: read_table(dirs, directories[row.sender], row) for row in rows}


@pytest.mark.parametrize("point", ["load.tables", "load.decided", "load.committed", "finish.done"])
def test_what_is_loaded_after_a_power_cut_has_its_tables(disk, point):
    world = world_on(disk)
    node = world.still_node()
    with dying_at(point), suppress(crash.SimulatedCrash):
        Edge(node).round(FILES)
    cut(disk)
    with world.still_node() as node:
        found = tables(node)
        assert found == {
            path: series_proofs(content, read_tail(content)) for path, content in FILES.items()
        }


@pytest.mark.parametrize("point", ["reaper.unlinked", "reaper.forgotten", "reaper.tables"])
def test_tables_are_gone_after_the_pass_that_follows_a_power_cut(disk, point):
    world = world_on(disk)
    node = world.still_node()
    edge = Edge(node)
    edge.round(FILES)
    edge.round({path_of(3): tsfile(first=300)})
    edge.round({}, FILES, propagate=wire.Propagate.ALL)
    world.clock.now += 101
    with dying_at(point), suppress(crash.SimulatedCrash):
        node.load.reaper.run_once()
    cut(disk)
    with world.still_node() as node:
        node.load.reaper.run_once()
        (folder,) = node.load.folders.all()
        assert len(kept_tasks(folder)) == 1
        assert list(tables(node)) == [path_of(3)]
        assert tables(node)[path_of(3)] is not None


def test_a_verdict_that_was_recorded_survives_a_power_cut(disk):
    world = world_on(disk)
    node = world.still_node()
    Edge(node).round(FILES)
    one, two = list_files(node.operator).files
    found = [Verdict(one.physical, one.md5), Verdict(two.physical, two.md5, "bad")]
    recorded = record_verdicts(node.engine, found)
    cut(disk)
    with world.still_node() as node:
        (live,) = list_files(node.operator).files
        assert (live.path, live.verified > 0) == (one.path, True)
        assert record_verdicts(node.engine, found) == recorded == (1, 1, 0)


def test_a_file_is_hidden_and_held_together_or_not_at_all(disk):
    world = world_on(disk)
    node = world.still_node()
    edge = Edge(node)
    edge.round(FILES)
    one, _ = list_files(node.operator).files
    found = [Verdict(one.physical, one.md5, "bad", as_sent=True)]
    with dying_at("verdicts.decided"), suppress(crash.SimulatedCrash):
        record_verdicts(node.engine, found)
    cut(disk)
    node = world.still_node()
    assert list_quarantine(node.engine) == []
    assert record_verdicts(node.engine, found) == (0, 1, 0)
    cut(disk)
    with world.still_node() as node:
        (entry,) = list_quarantine(node.engine)
        assert (entry.path, entry.hold) == (one.path, True)
        check = Edge(node, epoch=epoch_of(node)).check()
        assert (check.wanted, [each.path for each in check.held]) == ([], [one.path])


@pytest.mark.parametrize("point", ["merge.compared", "mlog.commit.durable", "merge.verified"])
def test_a_merge_is_final_only_behind_a_verdict_that_survives_a_power_cut(large_disk, point):
    disk = large_disk
    history = {"history": 0.0, "history_commits": 0}
    merge = {"quiet": 0.0, "final_after": 5.0}
    world = World(disk.path / "r", clock=Clock(), metadata=history, merge=merge)
    node = world.still_node()
    merge_here(node)
    in_this_process(node)
    site = Site(node)
    paths = small_files(site, 4)
    node.compactor.compact("root.sg")
    assert node.compactor.run_once() == 1
    site.round({}, gone=paths)
    node.prover.run_once()
    site.round({"sequence/root.sg/0/9/9-9-0-0.tsfile": {"a": {900: 9}}})
    world.clock.now += 60.0
    node.engine.collect()
    with dying_at(point), suppress(crash.SimulatedCrash):
        node.final_merges.run_once()
    cut(disk)
    with world.still_node() as node:
        (row,) = compactions(node)
        assert not row.final
        assert (row.verified > 0) == (point != "merge.compared")
        assert len([each for each in row.inputs if (world.data / each).exists()]) == 4
