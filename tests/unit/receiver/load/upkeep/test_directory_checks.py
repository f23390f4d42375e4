"""A round over the names in the data directories, against the catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common import crash
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.places.node_lists import list_nodes
from receiver.operator.status import running_status
from receiver.operator.views.node_views import CheckView
from tests.support.node_world import B, Edge, World, path_of, tsfile

FILES = {path_of(number): tsfile(f"root.sg.d{number}") for number in range(3)}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    node = world.still_node()
    Edge(node).round(FILES, resources={path_of(0): b"resource"})
    yield node
    node.close()


def checked(node: Node, name: str = "data") -> CheckView:
    node.load.checks.run_once()
    (found,) = (each for each in list_nodes(node.operator).nodes if Path(each.name).name == name)
    assert found.check is not None
    return found.check


def physical(node: Node, path: str) -> str:
    with node.engine.reading() as state:
        return next(row.physical for row in state.files.values() if row.path == path)


def test_directories_as_the_catalogue_has_them_are_good(node: Node):
    view = checked(node)
    assert (view.files, view.missing, view.wrong, view.foreign) == (4, 0, 0, 0)
    assert checked(node, "data2").files == 0
    assert running_status(node.operator, None).concerns == ()


def test_what_is_missing_foreign_or_of_another_size_is_shown_and_left(node: Node, world: World):
    missing, wrong = physical(node, path_of(1)), physical(node, path_of(2))
    (world.data / missing).unlink()
    (world.data / wrong).write_bytes(b"short")
    foreign = "unsequence/root.sg/0/0/5-5-0-0.tsfile"
    place = world.root / "data2" / foreign
    place.parent.mkdir(parents=True)
    place.write_bytes(b"whose?")
    view = checked(node)
    assert (view.missing, view.wrong, view.foreign) == (1, 1, 0)
    assert {(each.why, each.file) for each in view.some} == {
        ("missing", missing),
        ("wrong", wrong),
    }
    other = checked(node, "data2")
    assert [(each.why, each.file) for each in other.some] == [("foreign", foreign)]
    assert place.read_bytes() == b"whose?"
    assert (world.data / wrong).read_bytes() == b"short"
    concerns = running_status(node.operator, None).concerns
    assert sum("not in the catalogue" in each for each in concerns) == 2
    place.unlink()
    assert checked(node, "data2").foreign == 0


def test_what_a_load_is_about_to_commit_is_not_foreign(node: Node):
    seen: list[int] = []

    def looked(point: str) -> None:
        if point == "placing.synced":
            seen.append(checked(node).foreign)

    with crash.arm(looked):
        Edge(node, B).round({path_of(8): tsfile("root.sg.d8")})
    assert seen == [0]


def test_what_is_deleted_during_a_round_is_not_missing(node: Node, world: World):
    gone = physical(node, path_of(1))
    (world.data / gone).unlink()
    paced = node.load.checks._paced

    def slow(things):  # type: ignore[no-untyped-def]
        for each in paced(things):
            with node.engine.reading() as state:
                row = state.files.get(gone)
            if row is not None and row.visible and getattr(each[0], "physical", "") == gone:
                node.engine.commit([records.FileDeleted(gone, "operator")])
            yield each

    node.load.checks._paced = slow  # type: ignore[method-assign]
    assert checked(node).missing == 0


def test_nothing_is_called_missing_while_a_directory_is_away(node: Node, world: World):
    (world.root / "data2" / ".tsferry-receiver").unlink()
    (world.data / physical(node, path_of(1))).unlink()
    assert checked(node).missing == 0


def test_a_round_takes_its_time_and_ends_when_it_is_told_to(world: World, node: Node):
    waits: list[float] = []
    checks = node.load.checks
    checks._rate = 2

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return False

    checks._thread.stopping.wait = wait  # type: ignore[method-assign]
    checked(node)
    assert sum(waits) == pytest.approx(7 / 2), "four names, and three files of the catalogue"
