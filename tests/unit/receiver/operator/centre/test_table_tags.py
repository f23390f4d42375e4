"""A table whose tags have another order than here is not loaded at the centre."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.node import Node
from receiver.operator.stored.files import list_files
from tests.support.node_world import Edge, World, path_of
from tests.support.tsfile_bytes import build
from tests.unit.receiver.operator.centre.test_centre_loading import lay, load, said


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with World(tmp_path / "world").node() as node:
        yield node


def of_table(*tags: str, time: int = 1, turned: bool = False) -> bytes:
    """A file of one device of a table; its tags are tag1, tag2, or the other way round."""
    content = build({("wind", *tags): {"h": [(time, 1.5)]}})
    if not turned:
        return content
    return b"tag2".join(part.replace(b"tag2", b"tag1") for part in content.split(b"tag1"))


def place(number: int, sg: str = "plant") -> str:
    return path_of(number, sg=sg)


@pytest.mark.parametrize("policy", ["error", "keep", "skip"])
def test_a_table_whose_tags_have_another_order_is_refused_by_the_names_of_both(
    node: Node, tmp_path: Path, policy: str
) -> None:
    Edge(node).round({place(1): of_table("a", "b")})
    old = lay(tmp_path / "old", {place(2): of_table("c", "d", time=9, turned=True)})
    answer = load(node, old, on_duplicate=policy)
    assert said(answer, old) == {place(2): "refused"}
    (file,) = answer.files
    for each in ("table wind", "tags tag2, tag1", "tag1, tag2 in sequence/plant/0/0/1"):
        assert each in (file.reason or "")
    assert len(list_files(node.operator).files) == 1


def test_so_are_two_files_of_a_load_and_nothing_of_it_is_taken(node: Node, tmp_path: Path) -> None:
    files = {place(1): of_table("a", "b"), place(2): of_table("c", "d", time=9, turned=True)}
    old = lay(tmp_path / "old", files)
    assert set(said(load(node, old), old).values()) == {"refused"}


def test_tags_that_were_added_at_the_end_and_tables_of_other_databases_are_no_contradiction(
    node: Node, tmp_path: Path
) -> None:
    first = lay(tmp_path / "first", {place(1): of_table("a")})
    assert said(load(node, first), first) == {place(1): "loaded"}
    more = {place(2): of_table("c", "d", time=9),
            place(3, "other"): of_table("c", "d", time=9, turned=True)}  # fmt: skip
    old = lay(tmp_path / "old", more)
    assert set(said(load(node, old), old).values()) == {"loaded"}
    last = lay(tmp_path / "last", {place(4): of_table("e", "f", time=12, turned=True)})
    assert said(load(node, last), last) == {place(4): "refused"}


def test_what_cannot_be_read_here_is_no_reason(node: Node, tmp_path: Path) -> None:
    first = lay(tmp_path / "first", {place(1): of_table("a", "b")})
    load(node, first)
    (row,) = list_files(node.operator).files
    (node.load.disks.roomiest().path / row.physical).unlink()
    old = lay(tmp_path / "old", {place(2): of_table("c", "d", time=9, turned=True)})
    assert said(load(node, old), old) == {place(2): "loaded"}
