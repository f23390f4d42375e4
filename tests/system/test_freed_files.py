"""What was freed at an edge is remembered there, until its centre needs nobody to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.durable import Tree
from sender.kept.freed import FreedList
from tests.support.centre import Centre, centre
from tests.support.edge import Edge
from tests.support.hurrying import hurry
from tests.system.sender.test_free import freed_lines, late
from tests.system.sender.test_rounds import call
from tests.system.test_both_sides_compare import copied, restored, settled


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Centre]:
    with centre(tmp_path) as there:
        yield there


@pytest.fixture
def edge(tmp_path: Path, there: Centre) -> Edge:
    return Edge(tmp_path / "edge", there.start())


def known(edge: Edge) -> dict:
    (memory,) = edge.schema.glob("sync/*/receiver.json")
    return json.loads(memory.read_text())


def lost_at(there: Centre) -> list[str]:
    return sorted(each["path"] for each in there.call("lost", "list")["files"])


def lost_in(report) -> list[str]:
    return sorted(each.file for each in report.lost)


def test_what_a_restored_centre_lacks_of_what_was_freed_is_lost_at_both_ends(
    edge: Edge, there: Centre, tmp_path: Path
) -> None:
    old = edge.write(1)
    settled(edge)
    assert len(edge.free().freed) == 1
    settled(edge)
    copied(there, tmp_path / "copy")
    new, stays = edge.write(2), edge.write(3)
    settled(edge)
    assert len(edge.free(patterns=(new,)).freed) == 1
    settled(edge)
    until = edge.round().complete_until
    restored(there, tmp_path / "copy")

    report = edge.round()
    assert (report.exit_code, lost_in(report)) == (3, [new])
    assert "was freed at its sender" in report.lost[0].reason
    assert lost_at(there) == [new]
    assert report.complete_until < 2010 < until
    assert freed_lines(edge).keys() == {old, new}
    edge.round()
    assert there.loaded(edge.uuid).keys() >= {stays}  # the edge had that still

    there.call("lost", "acknowledge", "--sender", edge.uuid, "--all")
    report = edge.round()
    assert (report.exit_code, report.lost, report.complete_until) == (0, [], until)
    assert freed_lines(edge).keys() == {old}


def test_a_fresh_centre_is_told_of_all_that_was_freed(
    edge: Edge, there: Centre, tmp_path: Path
) -> None:
    paths = [edge.write(number) for number in range(5)]
    settled(edge)
    edge.free(patterns=tuple(paths[:3]))
    settled(edge)
    there.stop()
    for name in ("schema", "data"):
        shutil.rmtree(there.root / name)
        (there.root / name).mkdir()
    there.start()
    assert lost_in(edge.round()) == paths[:3]
    edge.round()
    assert there.loaded(edge.uuid).keys() == set(paths[3:])
    assert lost_at(there) == paths[:3]
    assert freed_lines(edge).keys() == set(paths[:3])


def test_after_a_restore_the_list_is_of_the_other_past(
    edge: Edge, there: Centre, tmp_path: Path
) -> None:
    path = edge.write(1)
    settled(edge)
    copied(there, tmp_path / "copy")
    edge.write(2)
    edge.round()
    edge.free(patterns=(path,))
    edge.round()
    before = known(edge)["settled"]
    restored(there, tmp_path / "copy")
    edge.round()
    mark = known(edge)["settled"]
    assert 0 < mark != before
    with Tree(edge.schema / "sync") as sync:
        (folder,) = (name for name, _ in sync.listing() if "_" in name)
        (line,) = FreedList(sync, folder)
    assert (line.path, line.commit) == (path, mark)


def test_what_a_second_restore_takes_is_lost_though_no_task_came_between(
    edge: Edge, there: Centre, tmp_path: Path
) -> None:
    """A newer commit proves nothing: an older copy has made some of its own since."""
    edge.write(1)
    settled(edge)
    copied(there, tmp_path / "older")
    gone = edge.write(2)
    settled(edge)
    assert len(edge.free(patterns=(gone,)).freed) == 1
    settled(edge)
    copied(there, tmp_path / "copy")
    newest = edge.write(3)
    settled(edge)
    assert len(edge.free(patterns=(newest,)).freed) == 1
    settled(edge)
    restored(there, tmp_path / "copy")
    for _ in range(2):
        assert lost_in(edge.round()) == [newest]
    restored(there, tmp_path / "older")
    there.call("token", "create", "--role", "reader")
    assert lost_in(edge.round()) == [gone, newest]


def test_of_a_file_that_was_noted_and_not_removed_nothing_is_lost(
    edge: Edge, there: Centre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(there, tmp_path / "copy")
    path = edge.write(1)
    settled(edge)
    monkeypatch.setattr("sender.round.freed_files.freeing._FRESH", -1.0)
    edge.free()
    assert freed_lines(edge).keys() == {path}
    assert path in edge.files
    restored(there, tmp_path / "copy")
    report = edge.round()
    assert report.lost == []
    edge.round()
    assert there.loaded(edge.uuid) == edge.files


def test_a_line_goes_when_the_file_is_given_up_at_the_centre(edge: Edge, there: Centre) -> None:
    first, second = edge.write(1), edge.write(2)
    settled(edge)
    edge.free()
    settled(edge)
    assert freed_lines(edge).keys() == {first, second}
    (physical,) = (
        each["physical"] for each in there.call("retired", "list")["files"] if each["path"] == first
    )
    there.call("retired", "drop", physical)
    edge.round()
    assert freed_lines(edge).keys() == {second}
    mark = known(edge)["settled"]
    edge.round()
    assert known(edge)["settled"] >= mark


def test_a_line_goes_when_the_file_is_superseded(edge: Edge, there: Centre) -> None:
    low, above = edge.write(1), late(edge, 2, 1, points=10)
    settled(edge)
    assert len(edge.free().freed) == 2
    settled(edge)

    def superseded() -> bool:
        hurry(there.server.pid)
        return bool(there.call("retired", "list", "--superseded")["files"])

    there.server.until(superseded, "a proof")
    edge.round()
    assert freed_lines(edge).keys() == {above}
    assert low not in freed_lines(edge)


def test_a_file_that_came_back_and_was_freed_again_keeps_its_line(
    edge: Edge, there: Centre
) -> None:
    path = edge.write(1)
    content = edge.content(path)
    settled(edge)
    edge.free()
    settled(edge)
    (row,) = there.call("retired", "list")["files"]
    there.call("retired", "drop", row["physical"])
    edge.put(path, content)
    assert (edge.round().sent, freed_lines(edge)) == (0, {})  # it was given up
    assert call(edge.write_config(), "quarantine", "retry", path).returncode == 0
    assert edge.round().sent == 1
    assert freed_lines(edge) == {}
    edge.free()
    edge.round()
    edge.round()
    assert freed_lines(edge).keys() == {path}


def test_a_line_goes_where_the_edge_was_silent_for_longer_than_the_centre_remembers(
    tmp_path: Path,
) -> None:
    """Else it stays for good, and is told as lost once the centre is restored from a copy."""
    with centre(tmp_path, '[load]\nkeep_deleted = "0s"\n[metadata]\nhistory = "0s"\n') as there:
        edge = Edge(tmp_path / "edge", there.start())
        first, second = edge.write(1), edge.write(2)
        settled(edge)
        edge.free()
        settled(edge)
        (physical,) = (
            each["physical"]
            for each in there.call("retired", "list")["files"]
            if each["path"] == first
        )
        there.call("retired", "drop", physical)
        assert there.server is not None
        there.server.until(
            lambda: not there.call("files", "--state", "deleted")["files"], "it is forgotten"
        )
        edge.round()
        assert freed_lines(edge).keys() == {second}
        copied(there, tmp_path / "copy")
        edge.write(3)
        assert edge.round().sent == 1
        restored(there, tmp_path / "copy")
        for _ in range(2):
            assert edge.round().lost == []
        assert lost_at(there) == []
