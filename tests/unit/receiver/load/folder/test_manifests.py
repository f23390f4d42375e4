"""What a sender says of every series: compared at the load, kept for verifications, let go."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress

import msgspec
import pytest

from common import crash, wire
from common.errors import DamagedError, ProtocolError
from common.tsfile import read_tail
from common.tsfile.proving import series_proofs
from receiver.load.folder.manifests import read_table, tables_path
from receiver.load.upkeep.fsck import fsck
from receiver.operator.stored.files import list_files
from tests.support.node_world import (
    A,
    Clock,
    Edge,
    World,
    manifest_entry,
    path_of,
    tsfile,
)

FILES = {path_of(1): tsfile(), path_of(2): tsfile(first=100)}


def row_of(node, path):
    with node.engine.reading() as state:
        (row,) = (each for each in state.files.values() if each.path == path)
        return row, state.senders[row.sender].directory


def table_of(node, path):
    row, directory = row_of(node, path)
    return read_table(node.config.data_dirs, directory, row)


def kept(world):
    return sorted(each.name for each in (world.folder() / "manifests").glob("*"))


class Lying(Edge):
    """An edge that says of one file what the test tells it to."""

    def tell(self, path, content, proof):
        task = self.start()
        self.plan(task, [])
        self.batch(task, {path: content})
        entry = msgspec.structs.replace(manifest_entry(path, content), proof=proof)
        self.node.tasks.end(
            self.who, self.uuid, task, self.epoch, wire.EndRequest(manifest=[entry])
        )
        return self.outcome(task)[path]


def test_the_table_of_a_loaded_file_is_kept_and_named_by_its_digest(node, world):
    Edge(node).round(FILES)
    for path, content in FILES.items():
        table = series_proofs(content, read_tail(content))
        assert table_of(node, path) == table
        row, _ = row_of(node, path)
        assert row.manifest.root == table.root
    assert len(kept(world)) == 1


def test_senders_that_make_no_table_are_served_as_before(node, world):
    edge = Lying(node)
    assert edge.tell(path_of(1), tsfile(), None).result is wire.Result.LOADED
    assert table_of(node, path_of(1)) is None
    assert row_of(node, path_of(1))[0].manifest.root == ""
    assert kept(world) == []


def test_of_a_table_that_is_too_long_to_travel_the_digest_is_kept(node, world):
    content = tsfile()
    proof = wire.ProofEntry(root=series_proofs(content, read_tail(content)).root)
    assert Lying(node).tell(path_of(1), content, proof).result is wire.Result.LOADED
    assert row_of(node, path_of(1))[0].manifest.root == proof.root
    assert table_of(node, path_of(1)) is None
    assert kept(world) == []


def test_an_upload_without_a_task_has_no_table(node, world):
    Edge(node).upload(None, path_of(1), tsfile())
    assert table_of(node, path_of(1)) is None


def proof_of(content, **changes):
    table = series_proofs(content, read_tail(content))
    given = {"root": table.root, "table": table.pack()} | changes
    return wire.ProofEntry(**given)


@pytest.mark.parametrize(
    ("proof", "said"),
    [
        (proof_of(tsfile(points=6)), "sent 6 points from 1 to 6, found 5 points from 1 to 5"),
        (proof_of(tsfile("root.sg.d9")), "was sent, and is not in the file"),
        (proof_of(tsfile(), root="0" * 32), "it has the digest"),
        (proof_of(tsfile(), table=b"no table"), "a packed table"),
        (proof_of(tsfile(), table=zlib.compress(bytes(1 << 24))), "more than 65"),
    ],
)
def test_a_file_that_is_not_what_its_sender_read_is_put_aside(node, world, proof, said):
    outcome = Lying(node).tell(path_of(1), tsfile(), proof)
    assert (outcome.result, outcome.hold) == (wire.Result.QUARANTINED, True)
    assert said in (outcome.reason or "")
    assert list_files(node.operator).files == []
    assert kept(world) == []


def test_a_digest_that_is_none_is_refused_at_the_door(node):
    with pytest.raises(ProtocolError, match="root"):
        Lying(node).tell(path_of(1), tsfile(), wire.ProofEntry(root="../x"))


# -- how long they are kept ------------------------------------------------------------------------


def test_tables_go_with_the_last_file_of_their_task(tmp_path):
    clock = Clock()
    world = World(tmp_path, clock=clock, keep_deleted=100.0, metadata={"history": 0.0})
    with world.still_node() as node:
        edge = Edge(node)
        edge.round(FILES)
        edge.round({path_of(3): tsfile(first=300)})
        first, second = kept(world)
        for path in FILES:
            assert len(kept(world)) == 2
            edge.round({}, [path], propagate=wire.Propagate.ALL)
            clock.now += 101
            node.load.reaper.run_once()
        (left,) = kept(world)
        assert left in (first, second)
        assert table_of(node, path_of(3)) is not None


def test_tables_that_a_death_left_behind_go_at_the_next_start(tmp_path):
    clock = Clock()
    world = World(tmp_path, clock=clock, keep_deleted=100.0, metadata={"history": 0.0})
    with world.still_node() as node:
        edge = Edge(node)
        edge.round(FILES)
        edge.round({}, FILES, propagate=wire.Propagate.ALL)
        clock.now += 101

        def die(point):
            if point == "reaper.forgotten":
                raise crash.SimulatedCrash(point)

        with crash.arm(die), pytest.raises(crash.SimulatedCrash):
            node.load.reaper.run_once()
    assert len(kept(world)) == 1
    (world.folder() / "manifests" / "notes.txt").write_text("an operator's")
    with world.still_node() as node:
        node.load.reaper.run_once()
    assert kept(world) == ["notes.txt"]


def test_tables_of_a_task_that_is_being_loaded_stay(tmp_path):
    world = World(tmp_path)
    with world.still_node() as node:

        def die(point):
            if point == "load.tables":
                raise crash.SimulatedCrash(point)

        edge = Edge(node)
        with crash.arm(die), pytest.raises(crash.SimulatedCrash):
            edge.round(FILES)
        assert len(kept(world)) == 1
        node.load.reaper.run_once()
        assert len(kept(world)) == 1
    with world.still_node() as node:
        node.load.reaper.run_once()
        assert {path: table_of(node, path) is not None for path in FILES} == {
            path_of(1): True,
            path_of(2): True,
        }


@pytest.mark.parametrize("point", ["load.tables", "load.decided", "placing.synced",
                                   "load.committed", "finish.staged"])  # fmt: skip
def test_a_death_at_any_step_of_a_load_leaves_the_tables_of_what_is_loaded(tmp_path, point):
    world = World(tmp_path)
    with world.still_node() as node:

        def die(here):
            if here == point:
                raise crash.SimulatedCrash(here)

        with crash.arm(die), pytest.raises(crash.SimulatedCrash):
            Edge(node).round(FILES)
    with world.still_node() as node:
        assert len(list_files(node.operator).files) == 2
        for path, content in FILES.items():
            assert table_of(node, path) == series_proofs(content, read_tail(content))


# -- damage ----------------------------------------------------------------------------------------


def test_every_changed_byte_of_kept_tables_is_found_and_none_is_believed(node, world):
    Edge(node).round(FILES)
    row, directory = row_of(node, path_of(2))
    file = world.data / tables_path(directory, row.task)
    good = file.read_bytes()
    wanted = table_of(node, path_of(2))
    for at in range(len(good)):
        file.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        found = None
        with suppress(DamagedError):
            found = read_table(node.config.data_dirs, directory, row)
        assert found in (None, wanted)
    file.write_bytes(good[: len(good) // 2])
    with pytest.raises(DamagedError, match="too early"):
        read_table(node.config.data_dirs, directory, row)
    os.unlink(file)
    assert read_table(node.config.data_dirs, directory, row) is None


def test_fsck_names_damaged_tables_and_sets_them_aside(world):
    with world.node() as node:
        Edge(node).round(FILES)
        row, directory = row_of(node, path_of(1))
    assert fsck(world.config).found == []
    rel = tables_path(directory, row.task)
    file = world.data / rel
    good = file.read_bytes()
    for bad in (good[:-1], good + b"x", good[:30] + b"\xff" + good[31:], good[:-3] + b"\0\0\0"):
        file.write_bytes(bad)
        found = fsck(world.config).found
        assert {each.kind for each in found} == {"manifest"}
        assert (found[0].path, found[0].sender) == (rel, A)
    report = fsck(world.config, repair=True)
    assert report.good
    assert not file.exists()
    assert (world.data / "stray" / rel).read_bytes() == bad
    with world.node() as node:
        assert table_of(node, path_of(1)) is None
        assert len(list_files(node.operator).files) == 2
