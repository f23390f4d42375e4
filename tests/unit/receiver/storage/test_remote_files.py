"""A file that is in no data directory and in the object store is neither lost nor missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from receiver.datadirs.directory_markers import RECEIVER_MARKER
from receiver.load.upkeep.fsck import fsck
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.node import Node
from receiver.operator.status import running_status
from receiver.operator.stored.files import list_files
from receiver.operator.stored.storage import running_storage
from receiver.spark.local_catalogue import LocalCatalogue
from receiver.spark.report.results import Severity
from receiver.spark.verify.committed import CommittedFiles
from receiver.spark.verify.file_scope import FileScope
from receiver.storage.stores.object_store import StoreAwayError
from receiver.transfer.said_lists.listing import Listing
from tests.support.node_world import (
    READER,
    A,
    Clock,
    Edge,
    World,
    fsck_of,
    path_of,
    results,
    tsfile,
)
from tests.support.proving import Site, in_this_process

FILES = {path_of(1): tsfile(first=100), path_of(2): tsfile(first=200)}
RESOURCES = {path_of(1): b"resource"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    return World(tmp_path, clock=clock, keep_deleted=100.0, metadata={"history": 1000.0})


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    with world.still_node() as node:
        yield node


@pytest.fixture
def edge(node: Node) -> Edge:
    """Its first file is in the object store only, with its resource; the second is here only."""
    edge = Edge(node)
    edge.round(FILES, resources=RESOURCES)
    evict(node, row_of(node, path_of(1)))
    return edge


def row_of(node: Node, path: str) -> FileRow:
    with node.engine.reading() as state:
        (row,) = (each for each in state.files.values() if each.path == path)
    return row


def store(engine: Engine, row: FileRow) -> None:
    resource = row.resource.md5 if row.resource else ""
    engine.commit([records.FileUploaded(row.physical, 1, row.size, "", resource)])


def evict(node: Node, row: FileRow) -> None:
    store(node.engine, row)
    for tree in node.load.disks.trees:
        tree.unlink(row.physical)
        tree.unlink(f"{row.physical}.resource")


def state_of(node: Node, path: str) -> FileState:
    return row_of(node, path).state


def test_a_check_of_the_disks_misses_nothing_and_a_repair_takes_nothing_out_of_sight(
    node: Node, edge: Edge, world: World
) -> None:
    report = fsck_of(node)
    assert (report.found, report.remote, report.files) == ([], 1, 2)
    node.close()
    assert fsck(world.config, repair=True).good
    with world.still_node() as after:
        assert state_of(after, path_of(1)) is FileState.LIVE


def test_a_receiver_whose_store_was_taken_out_of_its_configuration_says_what_it_cannot_read(
    node: Node, edge: Edge, world: World
) -> None:
    assert node.concerns() == []  # all was here when it was opened
    node.close()
    with world.still_node() as after:
        (found,) = running_status(after.operator, None).concerns
        assert found.startswith("1 file is in an object store only, and none is configured")
        assert after.concerns() == ["Files are in an object store only, and none is configured."]
        view = running_storage(after.operator)
        assert (view.url, view.uploaded_files, view.problem) == (None, 1, found)
        physical = row_of(after, path_of(1)).physical
        (world.data / physical).parent.mkdir(parents=True, exist_ok=True)
        (world.data / physical).write_bytes(FILES[path_of(1)])
    with world.still_node() as again:
        assert again.concerns() == []


def test_a_resource_alone_may_be_in_the_store_if_it_is_the_one_that_is_meant(
    node: Node, edge: Edge, world: World
) -> None:
    row = row_of(node, path_of(1))
    (world.data / row.physical).write_bytes(FILES[path_of(1)])
    assert fsck_of(node).found == []
    meta = records.ResourceMeta(5, "5e" * 16)
    node.engine.commit([records.ResourceNoted(row.physical, meta)])
    assert [each.kind for each in fsck_of(node).found] == ["resource"]


def test_what_is_in_no_store_is_missing_as_it_was(node: Node, edge: Edge, world: World) -> None:
    (world.data / row_of(node, path_of(2)).physical).unlink()
    assert [each.kind for each in fsck_of(node).found] == ["missing"]


def test_a_damaged_copy_here_counts_as_damaged_though_the_store_has_the_file(
    node: Node, edge: Edge, world: World
) -> None:
    row = row_of(node, path_of(1))
    (world.data / row.physical).write_bytes(b"short")
    assert [each.kind for each in fsck_of(node).found] == ["size"]
    entry = edge.node.listing.inventory(edge.who, A, None, None, look=True).entries[0]
    assert not entry.stands


def test_it_is_not_asked_for_again_and_counts_as_already_loaded(node: Node, edge: Edge) -> None:
    before = row_of(node, path_of(1))
    said = edge.round(FILES, resources=RESOURCES)
    assert set(results(said).values()) == {"already"}
    moved = {path_of(7): FILES[path_of(1)]}
    assert set(results(edge.round(moved)).values()) == {"already"}
    assert row_of(node, path_of(7)).created == before.created


def test_it_may_be_given_up_at_the_edge_if_the_store_says_at_that_time_that_it_has_it(
    node: Node, edge: Edge, world: World
) -> None:
    asked: list[str] = []

    def stands(answer: bool) -> dict[str, bool]:
        def in_store(rows: list[FileRow]) -> frozenset[str]:
            asked.extend(row.path for row in rows)
            return frozenset(row.physical for row in rows if answer)

        listing = Listing(node.config, node.engine, node.load.disks, in_store)
        found = listing.inventory(edge.who, A, None, None, look=True).entries
        return {each.path: each.stands for each in found}

    assert stands(True) == {path_of(1): True, path_of(2): True}
    assert stands(False) == {path_of(1): False, path_of(2): True}
    assert asked == [path_of(1)] * 2
    world.config.schema_dir.joinpath(RECEIVER_MARKER).unlink()
    shutil.move(world.config.schema_dir, world.root / "elsewhere")
    assert stands(True) == {path_of(1): False, path_of(2): False}


def test_readers_and_operators_are_told_where_it_is(node: Node, edge: Edge, world: World) -> None:
    entries = node.listing.catalogue(READER, None, None).entries
    assert {each.original: each.stored for each in entries} == {
        path_of(1): True,
        path_of(2): False,
    }
    shown = {each.path: each for each in list_files(node.operator).files}
    assert (shown[path_of(1)].data_dir, shown[path_of(1)].stored) == (None, True)
    with LocalCatalogue(world.config.schema_dir) as catalogue:
        files = {each.name: each for each in catalogue.files(catalogue.newest)}
    physical = row_of(node, path_of(1)).physical
    assert "expected option store" in files[physical].for_worker().why_absent()
    other = row_of(node, path_of(2)).physical
    assert "not there any more" in files[other].why_absent()


def test_a_verification_that_does_not_find_it_calls_it_unproved_and_not_bad(
    node: Node, edge: Edge, world: World
) -> None:
    (world.data / row_of(node, path_of(2)).physical).unlink()
    with CommittedFiles(world.config, FileScope()) as found:
        told = {each.row.path: found.absences.of_file(each.row) for each in found.files}
    assert told[path_of(1)].severity is Severity.UNPROVED
    assert "it is in the object store only, and storage.url names none" in told[path_of(1)].detail
    assert told[path_of(2)].severity is Severity.BAD


def test_a_file_that_came_to_the_store_while_it_was_verified_is_not_bad_either(
    node: Node, edge: Edge, world: World
) -> None:
    with CommittedFiles(world.config, FileScope()) as found:
        evict(node, row_of(node, path_of(2)))
        (file,) = (each for each in found.files if each.row.path == path_of(2))
        assert found.absences.of_file(file.row).severity is Severity.UNPROVED


def test_a_new_resource_of_it_lies_where_the_file_was(node: Node, edge: Edge, world: World) -> None:
    edge.round(FILES, resources={path_of(1): b"another"})
    row = row_of(node, path_of(1))
    assert (world.data / f"{row.physical}.resource").read_bytes() == b"another"
    assert fsck_of(node).found == []


def test_directories_without_markers_are_taken_though_their_files_are_away(
    node: Node, edge: Edge, world: World
) -> None:
    evict(node, row_of(node, path_of(2)))
    node.close()
    for place in (*world.config.data_dirs, world.config.schema_dir):
        (place / RECEIVER_MARKER).unlink()
    with world.still_node() as after:
        assert after.problem() is None


def test_one_whose_disk_is_away_can_be_read_all_the_same(
    node: Node, edge: Edge, world: World
) -> None:
    store(node.engine, row_of(node, path_of(2)))
    (world.data / RECEIVER_MARKER).unlink()
    entries = node.listing.catalogue(READER, None, None).entries
    assert all(each.stored for each in entries)


# -- what makes room ---------------------------------------------------------------------------


def compacted(node: Node) -> Site:
    """Four files that a fifth gives all points of."""
    site = Site(node)
    old = [path_of(number) for number in range(1, 5)]
    site.round({path: {"a": {at: at}} for at, path in enumerate(old)})
    product = path_of(1, inner=1)
    site.round({product: {"a": {at: at for at in range(4)}}}, old)
    return site


def test_short_space_takes_no_history_of_what_takes_no_room(
    node: Node, world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(node)
    site = compacted(node)
    clock.now += 5
    assert node.prover.run_once() == 4
    evict(node, site.row(path_of(1)))
    clock.now += 150
    monkeypatch.setattr(node.load.reaper, "_is_pressed", lambda: True)
    node.load.reaper.run_once()
    with node.engine.reading() as state:
        left = [row.path for row in state.files.values() if row.state is FileState.SUPERSEDED]
    assert left == [path_of(1)]


def test_what_was_deleted_without_a_proof_is_kept_until_it_can_be_fetched(
    node: Node, edge: Edge, clock: Clock, world: World
) -> None:
    row = row_of(node, path_of(1))
    node.engine.commit([records.FileDeleted(row.physical, "superseded")])
    clock.now += 10_000
    is_away = True

    @contextmanager
    def pinned(rows: Sequence[FileRow]) -> Iterator[None]:
        if is_away:
            raise StoreAwayError("away")
        (world.data / row.physical).write_bytes(FILES[path_of(1)])
        yield

    node.load.disks.pinned = pinned
    node.load.reaper.run_once()
    assert state_of(node, path_of(1)) is FileState.DELETED
    is_away = False
    node.load.reaper.run_once()
    assert state_of(node, path_of(1)) is FileState.RETIRED
