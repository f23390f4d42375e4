from __future__ import annotations

import pytest

from common.errors import NotATsFileError, NotFoundError
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileRow
from receiver.node import Node
from receiver.operator.stored.files import list_files
from receiver.operator.stored.quarantine import drop_quarantined, list_quarantine, retry_quarantined
from tests.support.copy_nodes import place_tablets
from tests.support.node_world import (
    A,
    B,
    Edge,
    World,
    path_of,
    results,
    tsfile,
)


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    return edge


def refused(edge: Edge) -> tuple[str, str]:
    with pytest.raises(NotATsFileError):
        edge.upload(edge.start(), path_of(1), b"x" * 100)
    (entry,) = list_quarantine(edge.node.engine)
    return entry.path, entry.digest


def test_a_dropped_entry_takes_its_bytes_along(edge: Edge, world: World) -> None:
    path, digest = refused(edge)
    drop_quarantined(edge.node.operator, A, path, digest)
    assert list_quarantine(edge.node.engine) == []
    assert list((world.folder() / "quarantine").iterdir()) == []


def test_a_retry_of_bytes_that_are_still_bad_says_why(edge: Edge) -> None:
    path, digest = refused(edge)
    with pytest.raises(NotATsFileError):
        retry_quarantined(edge.node.operator, A, path, digest)
    assert len(list_quarantine(edge.node.engine)) == 1


def test_a_retry_of_bytes_that_are_readable_by_now_makes_them_ready(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    import receiver.transfer.intake as intake

    def too_new(fd: int, path: object) -> None:
        raise NotATsFileError("a version of tomorrow")

    with monkeypatch.context() as broken:
        broken.setattr(intake, "check_content", too_new)
        with pytest.raises(NotATsFileError):
            edge.upload(edge.start(), path_of(1), tsfile())
    (entry,) = list_quarantine(edge.node.engine)
    retry_quarantined(edge.node.operator, A, entry.path, entry.digest)
    assert list_quarantine(edge.node.engine) == []
    assert results(edge.round({path_of(1): tsfile()})) == {path_of(1): "loaded"}


def test_a_retry_without_bytes_lets_the_next_round_try(edge: Edge) -> None:
    Edge(edge.node, B).round({path_of(9): tsfile()})
    edge.round({path_of(1): tsfile(first=60)})
    (entry,) = list_quarantine(edge.node.engine)
    assert "next round" in retry_quarantined(edge.node.operator, A, entry.path, entry.digest)
    assert list_quarantine(edge.node.engine) == []


def bad(edge: Edge) -> str:
    edge.round({path_of(1): tsfile()})
    (row,) = list_files(edge.node.operator).files
    edge.node.engine.commit([records.FileQuarantined(row.physical, "md5: other")])
    return row.physical


def test_a_loaded_file_that_is_good_after_all_is_visible_again(edge: Edge) -> None:
    physical = bad(edge)
    assert list_files(edge.node.operator).files == []
    (entry,) = list_quarantine(edge.node.engine)
    assert (entry.digest, entry.loaded) == (physical, True)
    assert "visible again" in retry_quarantined(edge.node.operator, A, path_of(1), physical)
    assert len(list_files(edge.node.operator).files) == 1
    assert edge.check().wanted == []


def test_a_loaded_file_that_is_still_bad_stays_wanted(edge: Edge, world: World) -> None:
    physical = bad(edge)
    (world.data / physical).write_bytes(b"garbage")
    assert "still bad" in retry_quarantined(edge.node.operator, A, path_of(1), physical)
    (world.data / physical).unlink()
    assert "gone" in retry_quarantined(edge.node.operator, A, path_of(1), physical)
    assert len(edge.check().wanted) == 1


def test_a_bad_loaded_file_can_be_given_up(edge: Edge) -> None:
    physical = bad(edge)
    drop_quarantined(edge.node.operator, A, path_of(1), physical)
    assert edge.check().wanted == []
    assert list_quarantine(edge.node.engine) == []


def test_an_entry_that_is_not_there_is_not_found(node: Node) -> None:
    for call in (
        lambda: drop_quarantined(node.operator, A, path_of(1), "x"),
        lambda: retry_quarantined(node.operator, A, path_of(1), "x"),
    ):
        with pytest.raises(NotFoundError):
            call()


def test_a_retry_has_a_loaded_file_brought_from_a_storage_node_that_gives_it_by_now(
    edge: Edge, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge.round({path_of(1): tsfile()})
    node = edge.node
    (found,) = list_files(node.operator).files
    here = world.data / found.physical
    good = here.read_bytes()
    here.write_bytes(b"damaged")
    node.engine.commit([records.FileQuarantined(found.physical, "page 3")])

    def mend(row: FileRow) -> bool:
        here.write_bytes(good)
        return True

    monkeypatch.setattr(node.copies.back, "mend", mend)
    said = retry_quarantined(node.operator, A, path_of(1), found.physical)
    assert said.startswith("the bytes are still bad")  # no node is to have it
    place_tablets(node.engine)
    said = retry_quarantined(node.operator, A, path_of(1), found.physical)
    assert said == "the bytes are good; the file is visible again"
