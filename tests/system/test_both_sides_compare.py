"""Edges and centres that differ notice it in the next round, and put it right."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.centre import Centre, centre
from tests.support.edge import Edge


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Centre]:
    with centre(tmp_path) as there:
        yield there


@pytest.fixture
def edge(tmp_path: Path, there: Centre) -> Edge:
    return Edge(tmp_path / "edge", there.start())


def settled(edge: Edge, most: int = 4) -> list[int]:
    """Rounds until one has nothing to do; what each sent."""
    sent = []
    for _ in range(most):
        report = edge.round()
        assert report.error is None, report.error
        sent.append(report.sent)
        if not (report.sent or report.retired or report.held or report.already):
            return sent
    raise AssertionError(f"{most} rounds were not enough: {sent}")


def same(edge: Edge, there: Centre) -> None:
    """The edge's files are listed at both ends, and nothing else."""
    assert there.loaded(edge.uuid) == edge.files
    assert edge.listed == sorted(edge.files)


def kept_of(edge: Edge) -> list[Path]:
    return [edge.data / "sync-sender", edge.schema]


def copied(there: Centre, to: Path) -> None:
    there.stop()
    shutil.copytree(there.root / "schema", to / "schema", symlinks=True)
    shutil.copytree(there.data, to / "data", symlinks=True)
    there.start()


def restored(there: Centre, source: Path) -> None:
    there.stop()
    for name in ("schema", "data"):
        shutil.rmtree(there.root / name)
        shutil.copytree(source / name, there.root / name, symlinks=True)
    there.start()


def test_a_round_with_nothing_new_compares_by_one_small_call(edge: Edge, there: Centre) -> None:
    for number in range(1, 6):
        edge.write(number)
    assert settled(edge) == [5, 0]
    same(edge, there)


def test_a_restored_centre_gets_what_it_lacks_and_the_edge_has(
    edge: Edge, there: Centre, tmp_path: Path
) -> None:
    edge.write(1)
    settled(edge)
    copied(there, tmp_path / "copy")
    for number in (2, 3):
        edge.write(number)
    settled(edge)
    restored(there, tmp_path / "copy")
    assert sum(settled(edge)) == 2
    same(edge, there)


def test_what_a_restored_centre_lacks_and_the_edge_has_no_more_is_lost(
    edge: Edge, there: Centre, tmp_path: Path
) -> None:
    edge.write(1)
    settled(edge)
    copied(there, tmp_path / "copy")
    gone, _ = edge.write(2), edge.write(3)
    settled(edge)
    edge.remove(gone)
    restored(there, tmp_path / "copy")
    report = edge.round()
    assert report.error is None
    assert [each.file for each in report.lost] == [gone]
    assert report.exit_code == 3
    settled(edge)
    same(edge, there)
    report = edge.round()
    assert [each.file for each in report.lost] == [gone]
    assert report.complete_until == 2000  # the hole begins there
    assert report.exit_code == 3
    view = there.call("lost", "list")["files"]
    assert [(each["path"], each["first"]) for each in view] == [(gone, 2000)]
    assert there.call("lost", "acknowledge", "--sender", edge.uuid, gone)["files"]
    report = edge.round()
    assert (report.lost, report.exit_code) == ([], 0)
    assert report.complete_until == 3009


def test_a_list_from_an_older_copy_is_put_right(edge: Edge, there: Centre, tmp_path: Path) -> None:
    """Only the lists come from a copy; what is remembered of the receiver is the newest."""
    edge.write(1)
    gone = edge.write(2)
    settled(edge)
    shutil.copytree(edge.data / "sync-sender", tmp_path / "lists")
    edge.remove(gone)
    edge.write(3)
    settled(edge)
    shutil.rmtree(edge.data / "sync-sender")
    shutil.copytree(tmp_path / "lists", edge.data / "sync-sender")
    assert sum(settled(edge)) == 0
    same(edge, there)
    assert there.call("lost", "list")["files"] == []
