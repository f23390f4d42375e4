"""What a store or a storage node is to have whole is not called lost by a check of the disks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from common.errors import UsageError
from receiver.load.upkeep import asked_again
from receiver.load.upkeep.fsck import fsck
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileRow, FileState
from tests.support.copy_nodes import place_tablets
from tests.support.node_world import Edge, World, path_of, tsfile

FILES = {path_of(number): tsfile(first=number * 100) for number in (1, 2)}
NODE = "5" * 32


@pytest.fixture
def filled(world: World) -> World:
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.round(FILES)
    return world


def row_of(world: World, number: int) -> FileRow:
    with world.still_node() as node, node.engine.reading() as state:
        (row,) = (each for each in state.files.values() if each.path == path_of(number))
    return row


def states(world: World) -> Counter[FileState]:
    with world.still_node() as node, node.engine.reading() as state:
        return Counter(each.state for each in state.files.values())


def place(world: World) -> None:
    with world.still_node() as node:
        place_tablets(node.engine, NODE)


def damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])


@pytest.mark.parametrize("how", ["missing", "md5"])
def test_what_a_storage_node_is_to_have_is_left_until_the_server_has_asked_it(
    filled: World, how: str
):
    place(filled)
    row = row_of(filled, 1)
    here = filled.data / row.physical
    damage(here, how)
    bad = b"" if how == "missing" else here.read_bytes()
    (found,) = fsck(filled.config).found
    assert (found.kind, found.elsewhere, found.is_bad_file) == (how, "nodes", True)
    for _ in range(2):
        assert not fsck(filled.config, repair=True).good  # it has not come yet
        assert row_of(filled, 1).state is FileState.LIVE
        assert not here.exists()  # nobody reads what is damaged
    if bad:
        assert (filled.data / "stray" / row.physical).read_bytes() == bad
    assert fsck(filled.config, repair=True, without_nodes=True).good
    assert row_of(filled, 1).state is FileState.QUARANTINED


def test_a_node_that_is_declared_lost_is_not_waited_for(filled: World):
    place(filled)
    row = row_of(filled, 1)
    (filled.data / row.physical).unlink()
    with filled.still_node() as node:
        node.engine.commit([records.NodeLost(NODE)])
    assert fsck(filled.config, repair=True).good
    assert row_of(filled, 1).state is FileState.QUARANTINED


def test_a_damaged_file_that_the_store_has_is_set_aside_and_read_there(filled: World):
    row = row_of(filled, 1)
    with filled.still_node() as node:
        node.engine.commit([records.FileUploaded(row.physical, 1, row.size, "", "")])
    damage(filled.data / row.physical, "md5")
    (found,) = fsck(filled.config).found
    assert (found.kind, found.elsewhere) == ("md5", "store")
    assert fsck(filled.config, repair=True).good
    assert row_of(filled, 1).state is FileState.LIVE
    assert not (filled.data / row.physical).exists()
    assert (filled.data / "stray" / row.physical).exists()
    report = fsck(filled.config)
    assert (report.found, report.remote) == ([], 1)


def test_a_repair_with_empty_disks_says_what_it_would_ask_for_and_asks_for_nothing(world: World):
    files = {path_of(number): tsfile(first=number * 100) for number in range(1, 25)}
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.round(files)
    place(world)
    with world.still_node() as node:
        with node.engine.reading() as state:
            rows = list(state.files.values())
        node.engine.commit([records.FileRetired(rows[0].physical)])
    for each in rows:
        (world.data / each.physical).unlink()
    with pytest.raises(UsageError) as refused:
        fsck(world.config, repair=True, without_nodes=True)
    text = refused.value.message
    assert "24 of 24 files" in text
    assert "1 of these their senders have no more" in text
    assert "storage nodes are to have 24 of them" in text
    assert states(world) == {FileState.LIVE: 23, FileState.RETIRED: 1}
    assert fsck(world.config, repair=True, without_nodes=True, confirm=True).good
    assert states(world)[FileState.LIVE] == 0


def test_a_repair_that_has_cut_the_log_before_it_asks_says_so(filled: World, monkeypatch):
    monkeypatch.setattr(asked_again, "_FROM", 1)
    for number in (1, 2):
        (filled.data / row_of(filled, number).physical).unlink()
    with filled.still_node() as node:
        for name in ("one", "two", "three"):
            node.engine.set_storage_group(f"root.{name}")
    log = max(filled.config.schema_dir.glob("mlog-*"))
    content = bytearray(log.read_bytes())
    at = content.rindex(b"TSFm", 0, content.rindex(b"TSFm"))
    content[at + 30] ^= 0xFF
    log.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        fsck(filled.config, repair=True, cut_log=True)
    (cut,) = filled.config.schema_dir.glob("*.cut-*")
    assert f"nothing was changed but the log, which is cut ({cut.name} has what it held)" in str(
        refused.value
    )


def test_a_repair_of_what_a_failing_disk_has_lost_asks_by_itself(world: World):
    files = {path_of(number): tsfile(first=number * 100) for number in range(1, 202)}
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.round(files)
    for number in range(1, 21):
        (world.data / row_of(world, number).physical).unlink()
    assert fsck(world.config, repair=True).good


@pytest.mark.parametrize("how", ["missing", "md5"])
def test_what_gives_points_of_a_file_at_nodes_is_not_given_up_together_with_it(
    world: World, how: str
):
    files = {path_of(number): tsfile(first=number * 100) for number in range(1, 5)}
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.round(files)
    place(world)
    lower, middle, above, _other = (row_of(world, number).physical for number in range(1, 5))
    with world.still_node() as node:
        node.engine.commit([records.FileRetired(each) for each in (lower, middle)])
        node.engine.commit([records.FileSuperseded(lower, [middle])])
        node.engine.commit([records.FileSuperseded(middle, [above])])
    for each in (lower, middle):
        damage(world.data / each, how)
    (world.data / above).unlink()
    report = fsck(world.config, repair=True, without_nodes=True)
    assert {each.path: (each.elsewhere, each.repaired) for each in report.found} == {
        lower: ("nodes", False),
        middle: ("nodes", False),
        above: ("", True),
    }
    assert row_of(world, 3).state is FileState.QUARANTINED
    assert row_of(world, 2).state is FileState.RETIRED  # a node gives it, checked
    assert row_of(world, 1).state is FileState.SUPERSEDED  # it rests on that one
    assert not (world.data / middle).exists()
    for _ in range(2):  # no node gave it: each run gives up what readers would see
        fsck(world.config, repair=True, without_nodes=True)
    assert fsck(world.config, repair=True, without_nodes=True).good
    assert states(world) == {FileState.QUARANTINED: 3, FileState.LIVE: 1}


def test_a_superseded_file_is_forgotten_where_what_gives_its_points_is_here(world: World):
    files = {path_of(number): tsfile(first=number * 100) for number in range(1, 4)}
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.round(files)
    place(world)
    lower, above = (row_of(world, number).physical for number in (1, 2))
    with world.still_node() as node:
        node.engine.commit([records.FileRetired(lower)])
        node.engine.commit([records.FileSuperseded(lower, [above])])
    (world.data / lower).unlink()
    (world.data / row_of(world, 3).physical).unlink()
    assert fsck(world.config, repair=True, without_nodes=True).good
    assert states(world)[FileState.DELETED] == 1
