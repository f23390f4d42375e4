"""A schema of one's own, as it was at a time: what a transaction has written is played on it.

So every question is answered over it by the same code as over committed state. It costs a copy of
the schema (as a checkpoint makes it, commits wait for that alone) and work for what was committed
since that time, once for a transaction that looks at what it wrote.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from receiver.metadata.model.paths import Nodes
from receiver.metadata.schema import Schema
from receiver.metadata.schema.tree_columns.growing_columns import view
from receiver.metadata.schema.tree_columns.heat import COLD
from receiver.metadata.schema.tree_columns.node_tree import (
    ALIAS,
    FREE,
    INTERNAL,
    KIND,
    LEAF,
    STORAGE_GROUP,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from receiver.metadata.engine import Engine
    from receiver.metadata.schema import SeriesRow

__all__ = ["LabelsOf", "schema_as_of"]

LabelsOf = Callable[[int], tuple[dict[str, str], dict[str, str]]]
"""Tags and attributes, by their place in the tlog."""


def schema_as_of(engine: Engine, ts: int) -> Schema:
    """A copy of the schema in which what was committed after a time has not happened.

    Questions to it leave out `at`; what they say of creation is as it was then.

    Raises:
        HistoryGoneError: the time is before the kept history.
    """
    with engine.reading() as state:
        engine.check_answerable(ts)
        frozen = state.schema.freeze()
        newest = state.newest
    schema = Schema.thaw(dict(frozen.sections()))
    if newest > ts:
        _Rewinding(schema, ts, newest, engine.tags_of).run()
    return schema


class _Then(NamedTuple):
    """What differs from now, as it was; told of before anything is changed."""

    new_series: list[Nodes]
    new_groups: list[Nodes]
    series: list[SeriesRow]
    groups: list[Nodes]
    aliases: dict[Nodes, str | None]
    tags: dict[Nodes, int]
    ttls: dict[Nodes, int | None]
    heats: dict[Nodes, int]
    created: dict[Nodes, int]


class _Rewinding:
    """Takes back what a schema has gained since a time."""

    def __init__(self, schema: Schema, ts: int, newest: int, labels: LabelsOf) -> None:
        self._schema = schema
        self._ts = ts
        self._now = newest
        self._labels = labels
        tree = schema.tree
        self._kinds = view(tree.kind) & KIND
        lives = self._kinds != FREE
        deleted, created = view(tree.deleted), view(tree.created)
        self._are = lives & (deleted == 0)
        self._were = lives & (created <= ts) & ((deleted == 0) | (deleted > ts))

    def run(self) -> None:
        """Do it."""
        then = self._look()
        del self._kinds, self._are, self._were  # a column that is looked at cannot grow
        self._delete(then)
        self._make(then)
        self._alter(then)

    # -- what there was ----------------------------------------------------------------------

    def _rows(self, mask: NDArray[np.bool_], kind: int) -> NDArray[np.int64]:
        return np.flatnonzero(mask & (self._kinds == kind))

    def _look(self) -> _Then:
        schema, tree = self._schema, self._schema.tree
        gone, new = self._were & ~self._are, self._are & ~self._were
        heats: dict[Nodes, int] = {}
        created = {
            tree.nodes(row): tree.created[row]
            for kind in (INTERNAL, STORAGE_GROUP)
            for row in self._rows(gone, kind).tolist()
        }
        groups = [tree.nodes(row) for row in self._rows(gone, STORAGE_GROUP).tolist()]
        series = schema.series.describe_many(self._rows(gone, LEAF).tolist(), self._ts)
        heats |= {row.nodes: row.heat for row in series if row.heat is not None}
        tags = self._altered(heats)
        return _Then(
            [tree.nodes(row) for row in self._rows(new, LEAF).tolist()],
            [tree.nodes(row) for row in self._rows(new, STORAGE_GROUP).tolist()],
            series,
            groups,
            self._aliases(gone | new),
            tags,
            self._ttls(groups),
            heats,
            created,
        )

    def _altered(self, heats: dict[Nodes, int]) -> dict[Nodes, int]:
        """Where the tags were of series whose tags were altered; heats that were lower."""
        columns, tree = self._schema.columns, self._schema.tree
        stayed = self._rows(self._were & self._are, LEAF)
        before = columns.heats.get_many(stayed, self._ts)
        cooler = np.flatnonzero(before != columns.heats.get_many(stayed, None))
        for each in cooler.tolist():
            heats[tree.nodes(int(stayed[each]))] = int(before[each])
        places = columns.offsets.get_many(stayed, self._ts, -1)
        moved = np.flatnonzero(places != columns.offsets.get_many(stayed, None, -1))
        return {tree.nodes(int(stayed[each])): int(places[each]) for each in moved.tolist()}

    def _aliases(self, changed: NDArray[np.bool_]) -> dict[Nodes, str | None]:
        """Of series that stayed, and have another alias now."""
        schema, tree = self._schema, self._schema.tree
        stayed = self._were & self._are
        found: dict[Nodes, str | None] = {}
        for alias in self._rows(changed, ALIAS).tolist():
            row = tree.ref[alias]
            if stayed[row]:
                described = schema.series.describe(row, self._ts)
                found[described.nodes] = described.alias
        return found

    def _ttls(self, gone: list[Nodes]) -> dict[Nodes, int | None]:
        """Of all storage groups that there were, where they are not as they are now.

        One that is gone is made anew and has none then, whatever the one in its place has.
        """
        made_anew = set(gone)
        groups = self._schema.groups
        now = {row.nodes: row.ttl for row in groups.rows()}
        then = {row.nodes: row.ttl for row in groups.rows(self._ts)}
        return {
            nodes: ttl for nodes, ttl in then.items() if nodes in made_anew or now.get(nodes) != ttl
        }

    # -- making it so ------------------------------------------------------------------------

    def _delete(self, then: _Then) -> None:
        changes = self._schema.changes
        changes.delete_paths(then.new_series, self._now)
        for nodes in then.new_groups:
            changes.delete_storage_group(nodes, self._now)

    def _make(self, then: _Then) -> None:
        changes = self._schema.changes
        for nodes in then.groups:
            if self._schema.groups.of(nodes) != nodes:
                changes.set_storage_group(nodes, self._now)
        devices: dict[Nodes, list[SeriesRow]] = defaultdict(list)
        for row in sorted(then.series, key=lambda each: each.created):
            devices[row.device].append(row)
        for device, rows in devices.items():
            tags = [self._labels(row.tags_at)[0] if row.tags_at >= 0 else {} for row in rows]
            changes.create_series(
                device,
                [row.nodes[-1] for row in rows],
                bytes(row.type for row in rows),
                bytes(row.encoding for row in rows),
                bytes(row.compression for row in rows),
                self._now,
                aligned=rows[0].aligned,
                tags=tags,
                props=[row.props for row in rows],
                offsets=[row.tags_at for row in rows],
                stamps=[row.created for row in rows],
            )
        tree = self._schema.tree
        for nodes, created in then.created.items():
            node = tree.find(nodes)
            if node >= 0:
                tree.created[node] = created

    def _alter(self, then: _Then) -> None:
        schema, changes = self._schema, self._schema.changes
        for nodes in then.aliases:  # first all go: two series may have exchanged theirs
            changes.set_alias(nodes, None, self._now)
        aliases = then.aliases | {row.nodes: row.alias for row in then.series}
        for nodes, alias in aliases.items():
            if alias is not None:
                changes.set_alias(nodes, alias, self._now)
        for nodes, place in then.tags.items():
            tags = self._labels(place)[0] if place >= 0 else {}
            changes.set_tags(nodes, tags, place, self._now)
        for nodes, ttl in then.ttls.items():
            changes.set_ttl(nodes, ttl, self._now)
        heats = schema.columns.heats
        for nodes, heat in then.heats.items():
            leaf = schema.tree.find(nodes)
            if leaf < len(heats.now) or heat != COLD:
                heats.now.extend([COLD] * (leaf + 1 - len(heats.now)))
                heats.now[leaf] = heat
