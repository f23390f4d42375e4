"""The nodes of the tree: a row each, in columns, with their lifetimes.

A row is one life of a node: a node that is made again is a new row, with the older ones behind it,
and what was below the old one stays below the old one. So a row's kind never changes, and all that
a question about the past needs to compare is `created` and `deleted`. Aliases are rows too: they
share the names of their device with its series.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from common.errors import DamagedError
from receiver.metadata.model.paths import ROOT, Nodes
from receiver.metadata.schema.tree_columns.growing_columns import (
    BATCH,
    Ints,
    Section,
    grow,
    reach,
    restore,
    view,
)
from receiver.metadata.schema.tree_columns.hashindex import PairIndex
from receiver.metadata.schema.tree_columns.name_table import NameTable
from receiver.metadata.schema.tree_columns.order import Order

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ALIAS",
    "ALIGNED",
    "FREE",
    "INTERNAL",
    "KIND",
    "LEAF",
    "ROOT_ROW",
    "STORAGE_GROUP",
    "NodeTree",
]

FREE: Final = 0
INTERNAL: Final = 1
STORAGE_GROUP: Final = 2
LEAF: Final = 3
ALIAS: Final = 4
KIND: Final = 7
"""The bits of `kind` that say what a row is; with them may stand:"""
ALIGNED: Final = 8
"""A leaf of a device that is aligned; a device whose next leaves will be."""
ROOT_ROW: Final = 0
_ROOT: Final = (ROOT,)
_CACHED: Final = 1 << 14
"""Inner nodes whose row is at hand: the devices of a large load, met twice."""

_ROWS: Final = ("parent", "name", "kind", "depth", "created", "deleted", "ref", "next", "prev")
_INNER: Final = ("first", "live", "leaves")
_OTHERS: Final = ("alias", "alias_after", "free", "free_inner")


class NodeTree:
    """Rows of nodes.

    Columns by row: `parent` (row), `name` (number), `kind`, `depth` (root is 0), `created`,
    `deleted` (0: lives), `next` and `prev` (rows beside it below the same parent, -1), and `ref`:
    of a leaf its codes (type, encoding, compression: a byte each, from the lowest), of an alias its
    leaf, of another its place in the columns of inner nodes: `first` (child row, -1), `live`
    (children that live, aliases not counted), `leaves` (of these, series).
    """

    __slots__ = (
        "_devices", "_newer", "_older", "alias", "alias_after", "created", "deleted",
        "depth", "first", "free", "free_inner", "index", "kind", "leaves", "live", "name", "names",
        "next", "order", "parent", "prev", "ref",
    )  # fmt: skip

    def __init__(self) -> None:
        self._empty()
        self.names = NameTable()
        self.order = Order(self.name, self.names, self.children)
        self.index = PairIndex(self.parent, self.name)
        root = {"parent": -1, "name": self.names.intern(ROOT), "kind": INTERNAL, "next": -1}
        root |= {"prev": -1, "ref": self._new_inner()}
        for name in _ROWS:
            getattr(self, name).append(root.get(name, 0))

    def _empty(self) -> None:
        self.parent: Ints = array("i")
        self.name: Ints = array("i")
        self.kind: Ints = array("B")
        self.depth: Ints = array("B")
        self.created: Ints = array("q")
        self.deleted: Ints = array("q")
        self.ref: Ints = array("i")
        self.next: Ints = array("i")
        self.prev: Ints = array("i")
        self.first: Ints = array("i")
        self.live: Ints = array("i")
        self.leaves: Ints = array("i")
        # Of a leaf its newest alias row, of an alias the one before it; `alias_after`: of an alias
        # the one after it. Both are filled as far as needed.
        self.alias: Ints = array("i")
        self.free: Ints = array("i")
        self.free_inner: Ints = array("i")
        self.alias_after: Ints = array("i")
        self._older: dict[int, int] = {}
        self._newer: dict[int, int] = {}
        self._devices: dict[Nodes, int] = {}

    def __len__(self) -> int:
        return len(self.parent)

    # -- making rows --

    def add(self, parent: int, name: int, kind: int, ref: int, ts: int) -> int:
        """A new row; `ref` is made for what is neither leaf nor alias."""
        if kind < LEAF:
            ref = self._new_inner()
        if self.free:
            row = self.free.pop()
            self.parent[row], self.name[row], self.kind[row] = parent, name, kind
            self.depth[row], self.created[row] = self.depth[parent] + 1, ts
            self.deleted[row], self.ref[row] = 0, ref
        else:
            row = len(self.parent)
            self.parent.append(parent)
            self.name.append(name)
            self.kind.append(kind)
            self.depth.append(self.depth[parent] + 1)
            self.created.append(ts)
            self.deleted.append(0)
            self.ref.append(ref)
            self.next.append(-1)
            self.prev.append(-1)
        before = self.index.put(parent, name, row)
        if before >= 0:
            self._follow(before, row)
        inner = self.ref[parent]
        head = self.first[inner]
        self.next[row], self.prev[row] = head, -1
        if head >= 0:
            self.prev[head] = row
        self.first[inner] = row
        if kind != ALIAS:
            self.live[inner] += 1
            if kind & KIND == LEAF:
                self.leaves[inner] += 1
        self.order.added(parent, (row,))
        return row

    def add_leaves(
        self, parent: int, names: list[int], kind: int, refs: Sequence[int], ts: int
    ) -> list[int]:
        """Many leaves of one parent; gives their rows."""
        if len(names) < BATCH:
            return [
                self.add(parent, name, kind, ref, ts) for name, ref in zip(names, refs, strict=True)
            ]
        numbers = np.array(names, np.int32)
        # Nothing may be made again.
        fresh_names = self.has_none(parent, names)
        before = None if fresh_names else self.index.find_many(parent, numbers)
        rows, there = self.take_rows(len(names))
        view(self.parent)[there] = parent
        view(self.name)[there] = numbers
        view(self.kind)[there] = kind
        view(self.depth)[there] = self.depth[parent] + 1
        view(self.created)[there] = ts
        view(self.deleted)[there] = 0
        view(self.ref)[there] = refs
        self._link(parent, rows)
        if before is not None and (again := before >= 0).any():
            for old, row in zip(before[again].tolist(), rows[again].tolist(), strict=True):
                self.index.replace(old, row)
                self._follow(old, row)
            fresh = ~again
            self.index.put_new(parent, numbers[fresh], rows[fresh])
        else:
            self.index.put_new(parent, numbers, rows)
        found: list[int] = rows.tolist()
        self.order.added(parent, found)
        return found

    def _link(self, parent: int, rows: NDArray[np.int32]) -> None:
        inner = self.ref[parent]
        head = self.first[inner]
        after, before = view(self.next), view(self.prev)
        after[rows[:-1]] = rows[1:]
        before[rows[1:]] = rows[:-1]
        first, last = int(rows[0]), int(rows[-1])
        after[last], before[first] = head, -1
        if head >= 0:
            before[head] = last
        self.first[inner] = first
        self.live[inner] += len(rows)
        self.leaves[inner] += len(rows)

    def take_rows(self, count: int) -> tuple[NDArray[np.int32], NDArray[np.int32] | slice]:
        """Rows to be filled, also as numpy takes them: new ones are a slice, which is quicker."""
        if len(self.free) >= count:
            rows = view(self.free)[-count:].astype(np.int32)
            del self.free[-count:]
            return rows, rows
        begin = len(self.parent)
        for name in _ROWS:
            grow(getattr(self, name), count)
        return np.arange(begin, begin + count, dtype=np.int32), slice(begin, begin + count)

    def _new_inner(self) -> int:
        if self.free_inner:
            inner = self.free_inner.pop()
            self.first[inner], self.live[inner], self.leaves[inner] = -1, 0, 0
            return inner
        self.first.append(-1)
        self.live.append(0)
        self.leaves.append(0)
        return len(self.first) - 1

    def new_inners(self, count: int) -> Ints:
        """So many places among inner nodes, to be filled."""
        made = self.free_inner[-count:]
        del self.free_inner[-count:]
        begin = len(self.first)
        for name in _INNER:
            grow(getattr(self, name), count - len(made))
        made.extend(range(begin, len(self.first)))
        return made

    def _follow(self, old: int, row: int) -> None:
        self._older[row] = old
        self._newer[old] = row

    def set_alias(self, leaf: int, alias: int) -> None:
        """Let an alias row be the newest of a leaf."""
        reach(self.alias, max(leaf, alias) + 1, -1)
        reach(self.alias_after, max(leaf, alias) + 1, -1)
        before = self.alias[leaf]
        self.alias[alias], self.alias_after[alias] = before, -1
        if before >= 0:
            self.alias_after[before] = alias
        self.alias[leaf] = alias

    # -- finding rows --

    def child(self, parent: int, name: int, at: int | None = None) -> int:
        """The row below a parent that is there at a time, -1 for none."""
        row = self.index.find(parent, name)
        if row < 0:
            return -1
        if at is None:
            return -1 if self.deleted[row] else row
        if self.created[row] <= at:
            deleted = self.deleted[row]
            return row if not deleted or deleted > at else -1
        return self._older_child(row, at)

    def _older_child(self, row: int, at: int) -> int:
        found: int | None = row
        while found is not None and self.created[found] > at:
            found = self._older.get(found)
        if found is None or 0 < self.deleted[found] <= at:
            return -1
        return found

    def find(self, nodes: Nodes, at: int | None = None) -> int:
        """The row at a path, of any kind, -1 for none."""
        if not nodes or nodes[0] != ROOT:
            return -1
        row = ROOT_ROW
        find = self.names.find
        for node in nodes[1:]:
            name = find(node)
            if name < 0 or (row := self.child(row, name, at)) < 0:
                return -1
        return row

    def find_inner(self, nodes: Nodes, at: int | None = None) -> int:
        """`find` of what has children: what lives now is remembered."""
        row = self._devices.get(nodes, -1)
        if row >= 0 and (at is None or self.created[row] <= at):
            return row
        if len(nodes) < 2:
            return ROOT_ROW if nodes == _ROOT else -1
        name = self.names.find(nodes[-1])
        if name < 0 or (parent := self.find_inner(nodes[:-1], at)) < 0:
            return -1
        row = self.child(parent, name, at)
        if row < 0 or self.kind[row] & KIND >= LEAF:
            return -1
        if not self.deleted[row]:
            self.remember(nodes, row)
        return row

    def known(self, nodes: Nodes) -> int:
        """The inner node that lives at a path, -1 if none is remembered."""
        return ROOT_ROW if nodes == _ROOT else self._devices.get(nodes, -1)

    def remember(self, nodes: Nodes, row: int) -> None:
        """The inner node at this path lives: `find_inner` need not look for it."""
        if len(self._devices) >= _CACHED:
            self._devices.clear()
        self._devices[nodes] = row

    def forget_places(self) -> None:
        """Inner nodes were deleted: what `find_inner` remembers may be among them."""
        self._devices.clear()

    def _lives(self, parent: int, name: int) -> Iterator[int]:
        """The newest row of a place, and all older ones."""
        found: int | None = self.index.find(parent, name)
        while found is not None and found >= 0:
            yield found
            found = self._older.get(found)

    def lives_at(self, nodes: Nodes, kind: int) -> list[int]:
        """All rows that ever stood at a path and were of a kind."""
        rows = [ROOT_ROW] if nodes[0] == ROOT else []
        for node in nodes[1:]:
            name = self.names.find(node)
            inner = [row for row in rows if self.kind[row] & KIND < LEAF]
            rows = [life for row in inner for life in self._lives(row, name)]
        return [row for row in rows if self.kind[row] & KIND == kind]

    def is_visible(self, row: int, at: int | None) -> bool:
        """Whether a row is there at a time."""
        deleted = self.deleted[row]
        if at is None:
            return not deleted
        return self.created[row] <= at and (not deleted or deleted > at)

    def visible(self, rows: NDArray[Any] | slice, at: int | None) -> NDArray[np.bool_]:
        """Which of many rows are there at a time."""
        deleted: NDArray[np.int64] = view(self.deleted)[rows]
        there: NDArray[np.bool_] = deleted == 0
        if at is not None:
            there |= deleted > at
            there &= view(self.created)[rows] <= at
        return there

    def nodes(self, row: int) -> Nodes:
        """The path of a row."""
        text, parent, name = self.names.text, self.parent, self.name
        found = []
        while row >= 0:
            found.append(text(name[row]))
            row = parent[row]
        return tuple(found[::-1])

    def storage_group(self, row: int) -> int:
        """The storage group that a row is or lies in, -1 for none."""
        while row >= 0 and self.kind[row] & KIND != STORAGE_GROUP:
            row = self.parent[row]
        return row

    # -- children --

    def children(self, parent: int) -> list[int]:
        """All rows below a parent, in no order, from all times."""
        after = self.next
        row = self.first[self.ref[parent]]
        found = []
        while row >= 0:
            found.append(row)
            row = after[row]
        return found

    def has_none(self, parent: int, names: list[int]) -> bool:
        """Whether no child of any time has one of these names; False: it would take long to see.

        The children of a device lie together, where a look-up of each name meets memory at random.
        """
        after, name = self.next, self.name
        row, left = self.first[self.ref[parent]], 2 * len(names)
        if row < 0:  # most often: a device that is made with its series
            return True
        different = set(names)
        while row >= 0:
            if name[row] in different or not left:
                return False
            row, left = after[row], left - 1
        return True

    # -- letting rows go --

    def drop(self, row: int) -> None:
        """A dead row, without anything below it, is no more; it may be used again."""
        parent = self.parent[row]
        newer = self._newer.pop(row, None)
        if newer is None:
            self.index.remove(row)
        else:
            del self._older[newer]
        self._unlink(parent, row)
        kind = self.kind[row] & KIND
        if kind in (INTERNAL, STORAGE_GROUP):
            self.free_inner.append(self.ref[row])
            self.order.forget(row)
        elif row < len(self.alias):
            self._drop_alias(row, kind)
        self.kind[row] = FREE
        self.free.append(row)

    def _unlink(self, parent: int, row: int) -> None:
        self.order.dropped(parent, row)
        before, after = self.prev[row], self.next[row]
        if before >= 0:
            self.next[before] = after
        else:
            self.first[self.ref[parent]] = after
        if after >= 0:
            self.prev[after] = before

    def _drop_alias(self, row: int, kind: int) -> None:
        if kind == ALIAS:
            # It is the oldest of its leaf: those before it went before it.
            after = self.alias_after[row]
            self.alias[self.ref[row] if after < 0 else after] = -1
        self.alias[row] = -1

    # -- checkpoint --

    def sections(self) -> list[Section]:
        """The columns by the names of their sections."""
        columns = (*_ROWS, *_INNER, *_OTHERS)
        parts: list[Section] = [(f"tree.{name}", getattr(self, name)) for name in columns]
        parts.append(("tree.slots", self.index.slots))
        count = len(self._older)
        older = np.empty((count, 2), np.int32)
        older[:, 0] = np.fromiter(self._older.keys(), np.int32, count)
        older[:, 1] = np.fromiter(self._older.values(), np.int32, count)
        parts.append(("tree.older", older.tobytes()))
        return parts + self.names.sections()

    @classmethod
    def thaw(cls, sections: Mapping[str, memoryview | bytes], *, swap: bool) -> NodeTree:
        """What was frozen."""
        made = cls.__new__(cls)
        made._empty()
        for name in (*_ROWS, *_INNER, *_OTHERS):
            restore(sections, f"tree.{name}", getattr(made, name), swap=swap)
        slots = restore(sections, "tree.slots", array("i"), swap=swap)
        older = restore(sections, "tree.older", array("i"), swap=swap)
        lengths = {len(getattr(made, name)) for name in _ROWS}
        inner = {len(getattr(made, name)) for name in _INNER}
        whole = len(slots) >= 2 and not len(slots) & len(slots) - 1 and not len(older) & 1
        if not whole or len(lengths) != 1 or len(inner) != 1 or not made.parent:
            raise DamagedError("the schema's sections tree.* do not fit together")
        made._older = dict(zip(older[::2], older[1::2], strict=True))
        made._newer = dict(zip(older[1::2], older[::2], strict=True))
        made.names = NameTable.thaw(sections, swap=swap)
        made.order = Order(made.name, made.names, made.children)
        used = int(np.count_nonzero(view(slots) >= 0))
        made.index = PairIndex(made.parent, made.name, slots, used)
        return made
