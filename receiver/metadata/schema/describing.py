"""Rows of the tree as values: what a series is, and its path."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import numpy as np

from receiver.metadata.model.paths import ROOT, Nodes, format_path, quote_node
from receiver.metadata.schema.changes import BATCH, Changes
from receiver.metadata.schema.columns import Ints, view
from receiver.metadata.schema.heat import COLD
from receiver.metadata.schema.rows import SeriesRow
from receiver.metadata.schema.tree import ALIGNED, KIND, STORAGE_GROUP

__all__ = ["Describing"]

_Place = tuple[Nodes, Nodes, str]
"""Nodes of an inner node and of its storage group, and its path with a dot behind."""
_NOWHERE: Final[_Place] = ((), (), "")


class Describing(Changes):
    """Questions about rows that were found."""

    def series(self, row: int, at: int | None = None) -> SeriesRow:
        """All of a series whose row was found at that time."""
        return self._row(row, at, {})

    def _row(self, row: int, at: int | None, places: dict[int, _Place]) -> SeriesRow:
        tree = self.tree
        parent, code = tree.parent[row], tree.ref[row]
        device, group, above = places.get(parent) or self._place(parent, places)
        node, heat = tree.names.text(tree.name[row]), self.heats.get(row, at)
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
            self.offsets.get(row, at, -1),
            None if heat == COLD else heat,
            self._props(row),
            above + quote_node(node),
        )

    def series_rows(self, rows: Iterable[int], at: int | None = None) -> list[SeriesRow]:
        """`series` of many, cheaper where they share devices."""
        tree, listed = self.tree, list(rows)
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
            self.heats.get_many(many, at).tolist(),
            self.offsets.get_many(many, at, -1).tolist(),
            strict=True,
        )
        aliased, told = len(tree.alias), len(self.props)
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
                        self._props(row) if row < told else {},
                        above + quoted,
                    ),
                )
            )
        return found

    def _place(self, row: int, known: dict[int, _Place]) -> _Place:
        """What stands above series, from an inner node on; those above it are remembered."""
        found = known.get(row)
        if found is None:
            tree = self.tree
            nodes, group, path = self._place(tree.parent[row], known) if row else _NOWHERE
            node = tree.names.text(tree.name[row])
            nodes = (*nodes, node)
            if tree.kind[row] & KIND == STORAGE_GROUP:
                group = nodes
            found = known[row] = (nodes, group, f"{path}{quote_node(node)}.")
        return found

    def _places(self, rows: Iterable[int]) -> dict[int, _Place]:
        """`_place` of many, by row."""
        tree, listed = self.tree, list(set(rows))
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
        texts = self.tree.names.texts(numbers)
        return dict(zip(numbers, zip(texts, _quoted(texts), strict=True), strict=True))

    def nodes_of(self, row: int) -> Nodes:
        """The path of a row."""
        return self.tree.nodes(row)

    def paths_of(self, rows: Iterable[int]) -> list[str]:
        """The paths of many rows in their stored form, cheaper where they share devices."""
        tree, listed = self.tree, list(rows)
        names, parents = _values(tree.name, listed), _values(tree.parent, listed)
        places, nodes = self._places(parents), self._nodes(names)
        return [
            places[parent][2] + nodes[name][1] for parent, name in zip(parents, names, strict=True)
        ]

    def _alias(self, row: int, at: int | None) -> str | None:
        tree = self.tree
        found = tree.alias[row] if row < len(tree.alias) else -1
        while found >= 0:
            if tree.is_visible(found, at):
                return tree.names.text(tree.name[found])
            found = tree.alias[found]
        return None

    def _props(self, row: int) -> dict[str, str]:
        if row >= len(self.props) or not self.props[row]:
            return {}
        props: dict[str, str] = json.loads(self.tree.names.text(self.props[row] - 1))
        return props


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
