"""Loads at the centre where ranges of time overlap: the points decide, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.node import Node
from receiver.operator.centre import load_carrier, point_overlaps
from receiver.operator.stored.files import list_files
from receiver.operator.views.write_wire import StagedPart
from receiver.shared_points.common_points import compare
from receiver.shared_points.compare_asked import CompareAnswer, CompareAsked
from receiver.shared_points.compare_process import CompareProcess
from tests.support.node_world import A, Edge, path_of, tsfile
from tests.support.tsfile_bytes import build
from tests.unit.receiver.operator.centre.test_centre_loading import lay, load, points_of, said
from tests.unit.receiver.operator.centre.test_centre_writes import commit, opened, put

GAPS = build({"root.sg.d1": {"s1": [(2, 21), (4, 41), (9, 91)]}})
"""Between the points of `ODD`."""
ODD = build({"root.sg.d1": {"s1": [(1, 10), (3, 30), (5, 50)]}})


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[CompareAsked]:
    """What is asked of the process, which works in this one."""
    found: list[CompareAsked] = []

    def ask(_: object, question: CompareAsked, __: object) -> CompareAnswer:
        found.append(question)
        return compare(question)

    monkeypatch.setattr(CompareProcess, "ask", ask)
    return found


def test_points_between_points_that_are_there_are_loaded(
    node: Node, tmp_path: Path, asked: list[CompareAsked]
) -> None:
    Edge(node).round({path_of(1): ODD})
    old = lay(tmp_path / "old", {path_of(2): GAPS})
    dry = said(load(node, old, owner=A, dry_run=True), old)
    assert said(load(node, old, owner=A), old) == dry == {path_of(2): "loaded"}
    assert points_of(node, tmp_path) == {1: 10, 2: 21, 3: 30, 4: 41, 5: 50, 9: 91}
    assert said(load(node, old, owner=A), old) == {path_of(2): "already"}
    assert len(asked) == 2, "what is here already is not compared"


def test_one_point_in_common_refuses_the_load_and_is_named(node: Node, tmp_path: Path) -> None:
    Edge(node).round({path_of(1): ODD})
    again = build({"root.sg.d1": {"s1": [(2, 21), (3, 31)]}})
    old = lay(tmp_path / "old", {path_of(2): again, path_of(3): tsfile("root.sg.d1", first=50)})
    for dry in (True, False):
        answer = load(node, old, owner=A, dry_run=dry)
        assert set(said(answer, old).values()) == {"refused"}
        (named,) = [each for each in answer.files if each.device is not None]
        assert "device root.sg.d1, series s1: time 3 is in sequence/root.sg" in (named.reason or "")
        assert "--on-duplicate keep" in (named.reason or "")
    assert len(list_files(node.operator).files) == 1


def test_other_series_of_the_device_are_other_points(node: Node, tmp_path: Path) -> None:
    Edge(node).round({path_of(1): ODD})
    other = build({"root.sg.d1": {"s2": [(1, 1), (3, 3)]}})
    old = lay(tmp_path / "old", {path_of(2): other})
    assert said(load(node, old, owner=A), old) == {path_of(2): "loaded"}


def test_what_came_since_the_comparison_counts_by_its_range(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = Edge(node)
    edge.round({path_of(1): ODD})
    old = lay(tmp_path / "old", {path_of(2): GAPS})
    copied = load_carrier.LoadCarrier._copied

    def overtaken(*given: object) -> object:
        done = copied(*given)  # type: ignore[arg-type]
        edge.round({path_of(3): build({"root.sg.d1": {"s1": [(4, 0), (6, 0)]}})})
        return done

    monkeypatch.setattr(load_carrier.LoadCarrier, "_copied", overtaken)
    assert said(load(node, old, owner=A), old) == {path_of(2): "refused"}
    monkeypatch.undo()
    assert {each.sender for each in list_files(node.operator).files} == {A}


def test_points_that_cannot_be_compared_count_by_their_range(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Edge(node).round({path_of(1): ODD})
    old = lay(tmp_path / "old", {path_of(2): GAPS})
    monkeypatch.setattr(CompareProcess, "ask", lambda *_: CompareAnswer(None, "numba missing"))
    (refused,) = load(node, old, owner=A).files
    assert refused.result == "refused"
    assert "from 2 to 9 here" in (refused.reason or "")
    assert "(numba missing)" in (refused.reason or "")
    monkeypatch.setattr(point_overlaps, "_MOST", 1)
    (refused,) = load(node, old, owner=A).files
    assert "2 devices of files, at most 1" in (refused.reason or "")


def test_of_points_that_lie_where_no_reader_merges_them_only_the_same_are_refused(
    node: Node, tmp_path: Path
) -> None:
    Edge(node).round({path_of(1, sg="root.sg.d1"): ODD})
    one = lay(tmp_path / "one", {path_of(2): build({"root.sg.d1": {"s1": [(3, 31)]}})})
    two = lay(tmp_path / "two", {path_of(3): GAPS})
    (refused,) = load(node, one, owner=A, on_duplicate="keep").files
    assert refused.result == "refused"
    assert said(load(node, two, owner=A, on_duplicate="keep"), two) == {path_of(3): "loaded"}


def test_a_point_that_two_tasks_wrote_refuses_the_write(node: Node) -> None:
    def write(*contents: bytes, **given: str) -> list[str]:
        opened(node, **given)
        parts: list[StagedPart] = [put(node, each) for each in contents]
        return [each.reason or each.result for each in commit(node, *parts).files]

    twice = build({"root.sg.d1": {"s1": [(5, 51), (7, 70)]}})
    said = write(ODD, GAPS, twice)
    assert list_files(node.operator).files == []
    assert sum("series s1: time 5 is in" in each for each in said) == 3
    assert sum(each.startswith("nothing of this load is taken") for each in said) == 2


def test_files_of_a_database_may_have_points_of_each_other(node: Node, tmp_path: Path) -> None:
    old = lay(tmp_path / "old", {path_of(1): ODD, "un" + path_of(2): tsfile(first=3, salt=1)})
    assert set(said(load(node, old), old).values()) == {"loaded"}
    assert points_of(node, tmp_path)[3] == 31
