"""The tree of a storage group, a node at a time: what stands below it, and its series.

A page of a node looks at so many of its children and at nothing else, however large the tree is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from common.errors import NotFoundError
from receiver.metadata.model.paths import (
    ONE,
    Pattern,
    device_name,
    directory_nodes,
    format_path,
    is_below,
    parse_path,
)
from receiver.metadata.query.answers import Answer
from receiver.metadata.query.questions import CountTimeseries
from receiver.metadata.query.row_source import Look
from receiver.metadata.schema.looked_up.pattern_walk import has_leaves, walk
from receiver.metadata.schema.tree_columns.node_tree import KIND, LEAF
from receiver.metadata.sql.executing import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.engine import Engine
    from receiver.metadata.schema import SeriesRow
    from receiver.metadata.schema.tree_columns.node_tree import NodeTree
    from receiver.metadata.state.state import State

__all__ = ["TreeChild", "TreeLevel", "count_series", "tree_level"]

_SERIES: Final = 500_000
"""More of all groups are not counted for one: a tenth of a second."""


@dataclass(frozen=True)
class TreeChild:
    """A node right below another.

    Attributes:
        name: of it.
        path: in the stored form.
        kind: a series; a device, which has series; or a node above those.
        nodes: children that live; None of a series, and of the past.
        series: of these, series; None likewise.
        row: of a series.
        tags: of a series.
        attributes: of a series.
    """

    name: str
    path: str
    kind: Literal["series", "device", "node"]
    nodes: int | None = None
    series: int | None = None
    row: SeriesRow | None = None
    tags: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TreeLevel:
    """What stands right below a node.

    Attributes:
        above: (name, path) from the storage group down to the node itself.
        device: its name as owners and files have it; None where it has no series.
        owner: the sender that has this device; None for nobody, and of the past.
        count: how many children live; None of the past.
        children: of this page, by name.
        next: the name to go on behind; None at the end.
    """

    above: tuple[tuple[str, str], ...]
    device: str | None
    owner: str | None
    count: int | None
    children: tuple[TreeChild, ...]
    next: str | None


def tree_level(
    engine: Engine,
    group: str,
    node: str | None = None,
    *,
    at: str | None = None,
    after: str | None = None,
    limit: int,
) -> TreeLevel | None:
    """A page of what stands right below a node; None where the tree has nothing of the group.

    That is so of groups without a schema.

    Args:
        engine: that knows it.
        group: as its directory is called.
        node: path of the node; the storage group itself, if left out.
        at: a commit timestamp or a time; now, if left out.
        after: the name behind which the page begins.
        limit: children of the page.

    Raises:
        NotFoundError: there was no such node in the group.
        IllegalPathError: that is no path.
        HistoryGoneError: the time is before the kept history.
        UsageError: it is no time.
    """
    top = directory_nodes(group)
    nodes = top if node is None else parse_path(node)
    look = Look(engine, engine.at(moment(at)))
    with look as (state, past):
        tree = state.schema.tree
        row = tree.find(nodes, past) if nodes == top or is_below(nodes, top) else -1
        if row < 0 or tree.kind[row] & KIND == LEAF:
            if node is None:
                return None
            raise NotFoundError(f"no node {node[:200]!a} with anything below it is in {group}")
        below = Pattern((*Pattern.of(nodes).steps, ONE))
        behind = None if after is None else (*nodes, after)
        rows = [each for each, _ in zip(walk(tree, below, past, "node", behind), range(limit + 1))]  # noqa: B905  # so many at most
        described = _described(state, rows[:limit], past)
        is_device = has_leaves(tree, row, past)
        owner = state.owners.get(device_name(nodes)) if is_device and past is None else None
        count = tree.live[tree.ref[row]] if past is None else None
    return TreeLevel(
        above=tuple(
            (nodes[depth - 1] if depth > len(top) else group, format_path(nodes[:depth]))
            for depth in range(len(top), len(nodes) + 1)
        ),
        device=device_name(nodes) if is_device else None,
        owner=None if owner is None else owner.sender,
        count=count,
        children=tuple(_child(engine, each) for each in described),
        next=described[-1].name if len(rows) > limit else None,
    )


def _described(state: State, rows: Sequence[int], at: int | None) -> list[TreeChild]:
    tree = state.schema.tree
    leaves = [row for row in rows if tree.kind[row] & KIND == LEAF]
    series = dict(zip(leaves, state.schema.series.describe_many(leaves, at), strict=True))
    return [
        TreeChild(found.nodes[-1], found.path, "series", row=found)
        if (found := series.get(row)) is not None
        else _inner(tree, row, at)
        for row in rows
    ]


def _inner(tree: NodeTree, row: int, at: int | None) -> TreeChild:
    nodes, ref = tree.nodes(row), tree.ref[row]
    return TreeChild(
        nodes[-1],
        format_path(nodes),
        "device" if has_leaves(tree, row, at) else "node",
        nodes=tree.live[ref] if at is None else None,
        series=tree.leaves[ref] if at is None else None,
    )


def _child(engine: Engine, child: TreeChild) -> TreeChild:
    """With its labels, which are read of the tag log."""
    if child.row is None or child.row.tags_at < 0:
        return child
    tags, attributes = engine.tags_of(child.row.tags_at)
    return TreeChild(
        child.name, child.path, child.kind, row=child.row, tags=tags, attributes=attributes
    )


def count_series(engine: Engine, group: str) -> int | None:
    """Series that live in a storage group; None where there are too many of all to be counted."""
    with engine.reading() as state:
        known = state.schema.columns.series_count
    if known > _SERIES:
        return None
    below = Pattern.of(directory_nodes(group)).below()
    (row,) = Answer(engine, CountTimeseries(pattern=below)).fetch(1)
    return int(row[-1])
