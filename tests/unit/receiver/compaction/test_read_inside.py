"""Who looks at one file is told inside of which merged file it is read, for now or for good."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.wire import InventoryEntry
from receiver.load.merge_verdicts import ProvedMerge, record_merges
from receiver.metadata.model import records
from receiver.metadata.sql.executing import execute
from receiver.node import Node
from receiver.operator.namespace.tree import list_tree
from receiver.operator.stored.file_search import FileSearch, search_files
from receiver.operator.stored.files import list_files
from receiver.operator.stored.retired import show_retired
from tests.support.merging_node import compactions, merge_here, small_files, with_interval
from tests.support.node_world import A, Clock, World
from tests.support.proving import Site, in_this_process

OTHER = "sequence/root.sg/0/9/99-99-0-0.tsfile"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def node(tmp_path: Path, clock: Clock) -> Iterator[Node]:
    merge = {"quiet": 0.0, "final_after": 5.0}
    with World(tmp_path, clock=clock, merge=merge).still_node() as node:
        merge_here(node)
        in_this_process(node)
        yield node


@pytest.fixture
def site(node: Node) -> Site:
    """Four files, two of which fit into each of two merged files; and one beside them."""
    with_interval(node, 25)
    site = Site(node)
    small_files(site, 4)
    site.round({OTHER: {"a": {900: 9}}})
    node.compactor.compact("root.sg")
    node.compactor.run_once()
    return site


def inputs(node: Node) -> list[str]:
    with node.engine.reading() as state:
        return sorted(each for each, row in state.files.items() if row.path != OTHER)[:4]


def told(node: Node) -> dict[str, list[str]]:
    return {each.physical: each.inside for each in list_files(node.operator).files}


def in_sql(node: Node, text: str = "") -> dict[str, list[str]]:
    rows = execute(node.engine, f"show files {text}")
    return {str(row[0]): str(row[-1]).split(" ") if row[-1] else [] for row in rows}


def test_each_place_names_the_merged_file_that_has_its_points(node: Node, site: Site) -> None:
    (row,) = compactions(node)
    one, two = (each.physical for each in row.outputs)
    wanted = dict(zip(inputs(node), ([one], [one], [two], [two]), strict=True))
    wanted[site.row(OTHER).physical] = []
    assert told(node) == wanted
    assert in_sql(node) == wanted
    page = list_tree(node.operator, files=True)
    assert {each.path: list(each.inside) for each in page.nodes} == wanted
    found = search_files(node.operator, FileSearch())
    assert {each.physical: each.inside for each in found.files} == wanted


def test_it_is_as_readers_of_the_moment_read_it(node: Node, site: Site) -> None:
    (row,) = compactions(node)
    before = in_sql(node, f"at {row.created - 1}")
    then = in_sql(node)
    node.engine.commit([records.CompactionDissolved(row.id, "for a test")])
    assert set(before) == set(then)
    assert [each for each in before.values() if each] == []
    assert in_sql(node, f"at {row.created}") == then
    assert in_sql(node) == before
    assert told(node) == before


def test_of_what_was_merged_for_good_it_is_told_too(node: Node, clock: Clock, site: Site) -> None:
    (row,) = compactions(node)
    names = inputs(node)
    with node.engine.reading() as state:
        paths = [state.files[each].path for each in names]
    site.round({}, gone=paths)
    node.prover.run_once()
    site.round({OTHER.replace("99-99", "98-98"): {"a": {901: 9}}})
    assert show_retired(node.operator, names[0]).inside == [row.outputs[0].physical]
    clock.now += 60.0
    node.engine.collect()
    assert node.final_merges.run_once() == 1
    gone = list_files(node.operator, state="superseded").files
    assert {each.physical: each.inside for each in gone} == {
        name: show_retired(node.operator, name).rests for name in names
    }
    assert show_retired(node.operator, names[0]).inside == [row.outputs[0].physical]
    assert told(node)[row.outputs[0].physical] == [], "the merged file is a file by now"


def test_what_was_merged_again_is_read_inside_of_that_and_what_expired_inside_of_nothing(
    node: Node, clock: Clock, site: Site
) -> None:
    (row,) = compactions(node)
    names = inputs(node)
    with node.engine.reading() as state:
        paths = [state.files[each].path for each in names]
    site.round({}, gone=paths)
    node.prover.run_once()
    site.round({OTHER.replace("99-99", "98-98"): {"a": {901: 9}}})
    clock.now += 60.0
    node.engine.collect()
    assert node.final_merges.run_once() == 1
    one, two = (each.physical for each in row.outputs)
    with_interval(node, 0)
    site.round({"sequence/root.sg/0/0/50-50-0-0.tsfile": {"a": {12: 5, 31: 5}}})
    node.prover.run_once()
    node.compactor.compact("root.sg", "0")
    node.compactor.run_once()
    (again,) = compactions(node)

    def inside() -> list[list[str]]:
        return [show_retired(node.operator, each).inside for each in names]

    merged = [again.outputs[0].physical]
    assert inside() == [merged] * 4
    assert told(node)[one] == told(node)[two] == merged
    node.engine.commit([records.FileDeleted(one, "expired")])
    assert inside() == [[], [], [two], [two]]


def test_an_edge_is_told_of_its_file_and_never_of_the_merged_one_in_its_place(
    node: Node, site: Site
) -> None:
    """What may go at the edge rests on the file's own bytes and its own verdict."""

    def entries(*, look: bool = True) -> dict[str, InventoryEntry]:
        page = node.listing.inventory(site.edge.who, A, None, None, look=look)
        return {each.path: each for each in page.entries}

    (row,) = compactions(node)
    first, *others = inputs(node)
    with node.engine.reading() as state:
        path, rest = state.files[first].path, [state.files[each].path for each in others]
    assert record_merges(node.engine, [ProvedMerge.of(row)], by="verification") == 1
    found = entries()
    assert (found[path].state, found[path].inside) == ("loaded", [row.outputs[0].physical])
    assert found[OTHER].inside == entries(look=False)[path].inside == []
    assert [each.verified for each in found.values()] == [0] * 5, "that is said of the merged file"
    commit = node.engine.commit([records.FileVerified([first])])
    (node.load.disks.trees[0].path / others[0]).unlink()
    found = entries()
    assert (found[path].verified, found[path].stands) == (commit, True)
    assert [found[each].verified for each in rest] == [0] * 3
    assert [found[each].stands for each in rest] == [False, True, True], "the merged file is there"
