"""Series: found by their paths, in the order of these, and described."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from receiver.metadata.model.paths import ROOT, Nodes, Pattern, format_path, quote_node
from receiver.metadata.schema.looked_up.pattern_walk import walk
from receiver.metadata.schema.looked_up.schemarows import SeriesRow
from receiver.metadata.schema.tree_columns.growing_columns import BATCH, Ints, view
from receiver.metadata.schema.tree_columns.heat import COLD
from receiver.metadata.schema.tree_columns.node_tree import (
    ALIAS,
    ALIGNED,
    KIND,
    LEAF,
    STORAGE_GROUP,
)

if TYPE_CHECKING:
    from receiver.metadata.schema.tree_columns.schemacolumns import SchemaColumns

__all__ = ["SeriesLookup"]

_Place = tuple[Nodes, Nodes, str]
"""Nodes of an inner node and of its storage group, and its path with a dot behind."""
_NOWHERE: Final[_Place] = ((), (), "")


class SeriesLookup:
    """Questions about series; `row` is always one that was found at that time."""

    __slots__ = ("_columns", "_tree")

    def __init__(self, columns: SchemaColumns) -> None:
        self._columns = columns
        self._tree = columns.tree

    def find(self, nodes: Nodes, at: int | None = None, *, alias: bool = True) -> int:
        """The row of a series by its path, or (`alias`) by its alias in place of the last node.

        -1: there is none.
        """
        tree = self._tree
        name = tree.names.find(nodes[-1])
        parent = tree.find_inner(nodes[:-1], at)
        if name < 0 or parent < 0:
            return -1
        row = tree.child(parent, name, at)
        if row < 0:
            return -1
        kind = tree.kind[row] & KIND
        if kind == LEAF:
            return row
        return tree.ref[row] if alias and kind == ALIAS else -1

    def walk(
        self, pattern: Pattern, at: int | None = None, after: Nodes | None = None
    ) -> Iterator[int]:
        """Rows of series that match, in path order, from behind `after`; not across a commit."""
        if pattern.is_path:
            row = self.find(pattern.prefix, at, alias=False)
            if row >= 0 and (after is None or pattern.prefix > after):
                yield row
            return
        yield from walk(self._tree, pattern, at, "leaf", after)

    def match(
        self,
        pattern: Pattern,
        at: int | None = None,
        after: Nodes | None = None,
        limit: int | None = None,
    ) -> list[int]:
        """So many of `walk`."""
        return list(islice(self.walk(pattern, at, after), limit))

    def heat(self, row: int, at: int | None = None) -> int | None:
        """The newest timestamp loaded of a series, None before the first."""
        found = self._columns.heats.get(row, at)
        return None if found == COLD else found

    def type_of(self, row: int) -> int:
        """TSDataType code of a series."""
        return self._tree.ref[row] & 0xFF

    def changed(self, nodes: Nodes) -> int:
        """The newest commit that made, altered or deleted the series of this path; 0 for never.

        A deletion that history has collected counts as never.
        """
        row = self.find(nodes, alias=False)
        if row >= 0:
            return self._changed(row)
        if self._tree.names.find(nodes[-1]) < 0:
            return 0
        return max((self._changed(life) for life in self._tree.lives_at(nodes, LEAF)), default=0)

    def _changed(self, row: int) -> int:
        tree = self._tree
        newest = max(tree.created[row], tree.deleted[row], self._columns.offsets.changed(row))
        if row < len(tree.alias) and (alias := tree.alias[row]) >= 0:
            newest = max(newest, tree.created[alias], tree.deleted[alias])
        return newest

    # -- described --------------------------------------------------------------------------------

    def describe(self, row: int, at: int | None = None) -> SeriesRow:
        """All of a series."""
        return self._row(row, at, {})

    def _row(self, row: int, at: int | None, places: dict[int, _Place]) -> SeriesRow:
        tree = self._tree
        parent, code = tree.parent[row], tree.ref[row]
        device, group, above = places.get(parent) or self._place(parent, places)
        node, heat = tree.names.text(tree.name[row]), self._columns.heats.get(row, at)
        return SeriesRow(
            row,
            (*device, node),
            self._alias(row, at),
            group,
            device,
            tree.kind[row] & ALIGNED != 0,
            code & 0xFF,
            code >> 8 & 0xFF,
            code >> 16 & 0xFF,
            tree.created[row],
            0,
            self._columns.offsets.get(row, at, -1),
            None if heat == COLD else heat,
            self._columns.props.get(row),
            above + quote_node(node),
        )

    def describe_many(self, rows: Iterable[int], at: int | None = None) -> list[SeriesRow]:
        """`describe` of many, cheaper where they share devices."""
        tree, listed = self._tree, list(rows)
        if len(listed) < BATCH:
            known: dict[int, _Place] = {}
            return [self._row(row, at, known) for row in listed]
        names, parents = _values(tree.name, listed), _values(tree.parent, listed)
        many = np.array(listed, np.int64)
        columns = zip(
            listed,
            names,
            parents,
            _values(tree.kind, listed),
            _values(tree.ref, listed),
            _values(tree.created, listed),
            self._columns.heats.get_many(many, at).tolist(),
            self._columns.offsets.get_many(many, at, -1).tolist(),
            strict=True,
        )
        props, told = self._columns.props.get, len(self._columns.props)
        aliased = len(tree.alias)
        places, nodes = self._places(parents), self._nodes(names)
        # Without the call of the class: it takes a third of the time, and a page has thousands.
        new = tuple.__new__
        found = []
        for row, name, parent, kind, code, created, heat, offset in columns:
            device, group, above = places[parent]
            node, quoted = nodes[name]
            found.append(
                new(
                    SeriesRow,
                    (
                        row,
                        (*device, node),
                        self._alias(row, at) if row < aliased else None,
                        group,
                        device,
                        kind & ALIGNED != 0,
                        code & 0xFF,
                        code >> 8 & 0xFF,
                        code >> 16 & 0xFF,
                        created,
                        0,
                        offset,
                        None if heat == COLD else heat,
                        props(row) if row < told else {},
                        above + quoted,
                    ),
                )
            )
        return found

    def _place(self, row: int, known: dict[int, _Place]) -> _Place:
        """What stands above series, from an inner node on; those above it are remembered."""
        found = known.get(row)
        if found is None:
            tree = self._tree
            nodes, group, path = self._place(tree.parent[row], known) if row else _NOWHERE
            node = tree.names.text(tree.name[row])
            nodes = (*nodes, node)
            if tree.kind[row] & KIND == STORAGE_GROUP:
                group = nodes
            found = known[row] = (nodes, group, f"{path}{quote_node(node)}.")
        return found

    def _places(self, rows: Iterable[int]) -> dict[int, _Place]:
        """`_place` of many, by row."""
        tree, listed = self._tree, list(set(rows))
        above = _values(tree.parent, listed)
        # Not all are equally deep: the root, which has none above it, is met before the others end.
        further = [row for row in above if row >= 0]
        known = self._places(further) if further else {}
        known[-1] = _NOWHERE
        numbers = _values(tree.name, listed)
        texts = self._nodes(numbers)
        kinds = _values(tree.kind, listed)
        for row, up, name, kind in zip(listed, above, numbers, kinds, strict=True):
            nodes, group, path = known[up]
            node, quoted = texts[name]
            nodes = (*nodes, node)
            if kind & KIND == STORAGE_GROUP:
                group = nodes
            known[row] = (nodes, group, f"{path}{quoted}.")
        return known

    def _nodes(self, names: Iterable[int]) -> dict[int, tuple[str, str]]:
        """Each name as it is, and as it stands in a path, by its number."""
        numbers = list(set(names))
        texts = self._tree.names.texts(numbers)
        return dict(zip(numbers, zip(texts, _quoted(texts), strict=True), strict=True))

    def _alias(self, row: int, at: int | None) -> str | None:
        tree = self._tree
        found = tree.alias[row] if row < len(tree.alias) else -1
        while found >= 0:
            if tree.is_visible(found, at):
                return tree.names.text(tree.name[found])
            found = tree.alias[found]
        return None


def _values(column: Ints, rows: list[int]) -> list[int]:
    """A column's values of some rows."""
    if len(rows) < BATCH:
        return [column[row] for row in rows]
    found: list[int] = view(column)[rows].tolist()
    return found


def _quoted(nodes: list[str]) -> list[str]:
    """Nodes as they stand in a path; mostly as they are, which is seen of all of them at once."""
    if len(nodes) >= BATCH and format_path((ROOT, *nodes)) == ".".join((ROOT, *nodes)):
        return nodes
    return list(map(quote_node, nodes))
