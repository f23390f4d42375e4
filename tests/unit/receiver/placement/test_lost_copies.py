"""What a node has lost is counted no more, and comes again, whenever it was found to be gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import NotFoundError
from receiver.heartbeats.node_reports import ReportNews
from receiver.placement.copies_there.doubted_copies import DoubtedCopies
from receiver.placement.copies_there.held_copies import HeldCopiesBook
from tests.support.copy_nodes import CopyCentre, Machine


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[CopyCentre]:
    made = CopyCentre(tmp_path, lost_after=60.0)
    yield made
    made.close()


def remove(node: Machine, physical: str) -> None:
    """A file goes, and who reads it finds out."""
    [tablet] = node.store.tablets()
    for path in node.paths:
        (path / "tablets" / tablet / physical).unlink(missing_ok=True)
    with pytest.raises(NotFoundError):
        node.store.replica(tablet).open_file(physical)


def heard_changes(centre: CopyCentre, node: Machine, sequence: int) -> int:
    """The node reports what changed since; returns up to where."""
    changed = node.store.changed_since(sequence, 100)
    assert changed is not None
    known = centre.reports.setdefault(node.uuid, {})
    known.update({each.id: each for each in changed.tablets})
    for each in changed.removed:
        known.pop(each, None)
    centre.assignment.heard(
        ReportNews(node.uuid, False, tuple(changed.tablets), tuple(changed.removed))
    )
    return changed.sequence


def test_a_file_that_a_reader_does_not_find_is_reported_and_comes_again(centre: CopyCentre):
    node = centre.add()
    physical = centre.load()
    centre.settle()
    sequence = heard_changes(centre, node, 0)
    assert centre.has(physical) == [node.uuid]
    remove(node, physical)
    sequence = heard_changes(centre, node, sequence)
    assert centre.has(physical) == []
    centre.pull()
    heard_changes(centre, node, sequence)
    assert centre.has(physical) == [node.uuid]
    assert node.names() == [physical]


def test_a_file_that_is_gone_while_the_list_is_read_is_not_told_to_be_there(
    centre: CopyCentre, monkeypatch: pytest.MonkeyPatch
):
    node = centre.add()
    first = centre.load()
    centre.settle()
    second = centre.load()
    page = node.page

    def gone_meanwhile(*arguments: object):
        found = page(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(node, "page", page)
        remove(node, first)
        return found

    monkeypatch.setattr(node, "page", gone_meanwhile)
    centre.pull()
    assert centre.has(second) == []
    [held] = node.store.held().tablets
    assert held.state == "damaged"
    centre.pull()
    assert node.names() == sorted([first, second])
    assert centre.has(first) == centre.has(second) == [node.uuid]


def test_a_file_that_is_gone_before_it_is_told_to_be_there_is_not_told(
    centre: CopyCentre, monkeypatch: pytest.MonkeyPatch
):
    node = centre.add()
    physical = centre.load()
    tell = node.puller._tell

    def gone_before() -> None:
        if node.names():
            remove(node, physical)
        tell()

    for _ in range(2):
        centre.assignment.run_once()
        centre.report()
    monkeypatch.setattr(node.puller, "_tell", gone_before)
    centre.pull()
    assert centre.has(physical) == []


def test_what_was_said_before_a_loss_and_is_heard_behind_it_does_not_count(centre: CopyCentre):
    book = HeldCopiesBook(DoubtedCopies(centre.engine))
    book.gave("n", "t", 1, 7)
    book.not_complete("n", ["t"])
    assert not book.said("n", "t", 1, 7)
    assert book.commit("n", "t", 1) == 0
    assert book.again("n") == ["t"]
    book.gave("n", "t", 1, 9)
    assert book.said("n", "t", 1, 9)


def test_a_replica_that_is_over_stays_while_one_that_took_its_place_is_silent(centre: CopyCentre):
    nodes = [centre.add(), centre.add()]
    physical = centre.load()
    centre.settle()
    away = nodes[0]
    away.is_silent = True
    centre.silence[away.uuid] = 100.0
    third = centre.add()
    centre.settle()
    assert centre.placed() == (nodes[1].uuid, third.uuid)
    third.is_silent = True
    away.is_silent = False
    centre.silence[away.uuid] = 0.0
    centre.settle()
    assert away.names() == [physical]
    third.is_silent = False
    centre.settle()
    assert away.names() == []
