"""Merged files are compared with what they stand for in a process that merged nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.background.side_process import SideProcess
from receiver.compaction.worth_merging.merge_asked import ComparisonReply
from receiver.node import Node
from tests.support.merging_node import ComparedHere, compactions, merge_here, small_files
from tests.support.node_world import World
from tests.support.proving import Site


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, merge={"quiet": 0.0})


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    """Three files are merged into one; the second has deletions, and a late file lies over all."""
    with world.still_node() as node:
        merge_here(node)
        site = Site(node)
        paths = small_files(site, 3)
        site.round({"unsequence/root.sg/0/0/9-9-0-0.tsfile": {"a": {10: 99, 32: 98}}})
        site.note(paths[1], "a", 20, 22, floor=0)
        node.compactor.compact("root.sg")
        node.compactor.run_once()
        yield node


def why(node: Node) -> str | None:
    (row,) = compactions(node)
    return node.merge_comparer.why_unverified(row)


def compared(node: Node) -> ComparedHere:
    process = node.merge_comparer._process
    assert isinstance(process, ComparedHere)
    return process


def test_what_was_merged_is_what_is_merged_anew(node: Node) -> None:
    assert why(node) is None
    (row,) = compactions(node)
    assert (row.verified, row.verifier) == (node.engine.newest_commit, "receiver")


@pytest.mark.parametrize("damage", ["rot", "loss"])
def test_a_merged_file_that_is_not_what_was_made_is_read_no_more(
    node: Node, world: World, damage: str
) -> None:
    (row,) = compactions(node)
    place = world.data / row.outputs[0].physical
    if damage == "rot":
        place.write_bytes(place.read_bytes()[:-9] + b"123456789")
    else:
        place.unlink()
    assert node.merge_comparer.why_unverified(row) == ""
    assert compactions(node) == []


def test_what_is_not_deleted_any_more_or_was_never_shows(node: Node) -> None:
    """The question is asked with the deletions as readers apply them: without, it is another."""
    assert why(node) is None
    (asked,) = compared(node).asked
    assert asked.merge.notes
    reply = ComparedHere().ask(
        type(asked)(type(asked.merge)(asked.merge.files, (), "root.sg", "", "", 0), asked.outputs),
        lambda: False,
    )
    assert "readers get 15 of the files" in reply.apart


def test_one_that_is_dissolved_meanwhile_gets_no_verdict(node: Node, world: World) -> None:
    (row,) = compactions(node)
    site = Site(node, look=9)
    process = compared(node)
    ask = process.ask

    def meanwhile(*args: object) -> ComparisonReply:
        site.note("sequence/root.sg/0/0/1-1-0-0.tsfile", "a", 10, 12, floor=0)
        return ask(*args)  # type: ignore[arg-type]

    process.ask = meanwhile  # type: ignore[method-assign]
    assert node.merge_comparer.why_unverified(row) == ""
    with node.engine.reading() as state:
        assert state.compacted_table.rows[row.id].verified == 0


@pytest.mark.slow
def test_a_process_of_its_own_compares(node: Node) -> None:
    node.merge_comparer._process = SideProcess(
        "receiver.compaction.making.comparing_worker", ComparisonReply, memory=1 << 30
    )
    assert why(node) is None
