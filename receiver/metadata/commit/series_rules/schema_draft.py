"""The committed schema with the changes of one commit over it, for the rules.

Committed things are looked up when they are needed. What the commit deletes by pattern is kept as
the pattern, for it may be a million series.

Changes that are on trial can be given back, at the cost of them alone. Nothing is ever taken out of
what a draft holds, so what is new in it is its end; only of what takes the place of something else
it is noted how it is undone.
"""

from __future__ import annotations

from functools import partial
from operator import eq
from typing import TYPE_CHECKING, Any, Final

from receiver.metadata.commit.series_rules.storage_groups import StorageGroups
from receiver.metadata.model.paths import MANY, ONE, Nodes, Pattern, PatternStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from receiver.metadata.schema import NodeKind, Schema

__all__ = ["Savepoint", "SchemaDraft", "truncate"]


_Entry = tuple[str, int]
"""A child of a device: the name of its series, and the series' type; under its name or alias."""

Children = dict[str, _Entry | None]
"""What a commit has put under names of a device; None: what was there is gone."""

_NONE: Final[Children] = {}
_NO_CHILDREN: Final[dict[Nodes, Children]] = {}
_ABSENT: Final = object()

Savepoint = tuple[int, ...]
"""How many changes can be undone, and the sizes of all that is held."""


class SchemaDraft:
    """See the module.

    Attributes:
        schema: as committed.
        undo: what undoes the changes that are on trial and took the place of others, the last one
            last; None while nothing is on trial.
    """

    __slots__ = (
        "_aligned",
        "_changed_groups",
        "_children",
        "_deleted",
        "_deleted_below",
        "_deleted_paths",
        "_deletes",
        "_groups",
        "_inner",
        "_is_changed",
        "_thinned",
        "schema",
        "undo",
    )

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.undo: list[Callable[[], object]] | None = None
        self._is_changed = False
        self._deletes = False
        self._groups: StorageGroups | None = None
        self._children = _NO_CHILDREN

    def _begin(self) -> None:
        """Make room for changes; most commits have one operation, and need none."""
        if self._is_changed:
            return
        self._is_changed = True
        self._children = {}
        self._changed_groups: dict[Nodes, None] = {}
        self._inner: dict[Nodes, None] = {}
        self._aligned: dict[Nodes, bool | None] = {}
        self._deleted: dict[str, Pattern] = {}
        self._deleted_paths: dict[Nodes, None] = {}
        self._deleted_below: dict[Nodes, None] = {}
        self._thinned: dict[Nodes, None] = {}

    # -- on trial ----------------------------------------------------------------------------

    def _held(self) -> Sequence[dict[Any, Any]]:
        if not self._is_changed:
            return ()
        return (
            self._children,
            self._changed_groups,
            self._inner,
            self._aligned,
            self._deleted,
            self._deleted_paths,
            self._deleted_below,
            self._thinned,
        )

    def savepoint(self) -> Savepoint:
        """What `roll_back` needs to give back all that follows; `undo` is a list until then."""
        return len(self.undo or ()), *map(len, self._held())

    def roll_back(self, savepoint: Savepoint) -> None:
        """Give back what was changed since."""
        undo = self.undo or []
        while len(undo) > savepoint[0]:
            undo.pop()()
        held = self._held()
        for each, size in zip(held, savepoint[1:] or [0] * len(held), strict=True):
            truncate(each, size)
        self._is_changed = any(held)
        self._deletes = self._is_changed and bool(self._deleted or self._deleted_paths)
        if not self._is_changed:
            self._children, self._groups = _NO_CHILDREN, None

    def put(self, held: dict[Any, Any], key: object, value: object) -> None:
        """Hold something under a key."""
        if self.undo is not None and key in held:
            self.undo.append(partial(held.__setitem__, key, held[key]))
        held[key] = value

    def _put_children(self, children: Children, entries: Children) -> None:
        if self.undo is not None:
            before = {name: children.get(name, _ABSENT) for name in entries}
            self.undo.append(partial(_put_back, children, before))
        children.update(entries)

    # -- changes -----------------------------------------------------------------------------

    def add_group(self, nodes: Nodes) -> None:
        """A storage group is made."""
        groups = self._change_groups(nodes)
        groups.add(nodes)
        if self.undo is not None:
            self.undo.append(partial(groups.remove, nodes))

    def remove_group(self, nodes: Nodes) -> None:
        """A storage group goes, with all below it."""
        groups = self._change_groups(nodes)
        groups.remove(nodes)
        if self.undo is not None:
            self.undo.append(partial(groups.add, nodes))
        self.delete(Pattern.of(nodes).below())

    def add(
        self, device: Nodes, names: Sequence[str], types: Sequence[int], *, aligned: bool
    ) -> None:
        """Series are made."""
        self._begin()
        entries: Children = dict(zip(names, zip(names, types, strict=True), strict=True))
        if device in self._children:
            self._put_children(self._children[device], entries)
        else:
            self._children[device] = entries
        if self._aligned.get(device) is None:
            self.put(self._aligned, device, aligned)
        for end in range(len(device), 0, -1):
            if device[:end] in self._inner:
                break
            self._inner[device[:end]] = None

    def set_alias(self, nodes: Nodes, before: str | None, alias: str | None) -> None:
        """A series has another alias, or none; `before` is the one it had."""
        self._begin()
        children = self._children.setdefault(nodes[:-1], {})
        entry = children.get(nodes[-1]) or (nodes[-1], self.type_of(nodes))
        entries: Children = {} if before is None else {before: None}
        entries[nodes[-1]] = entry
        if alias is not None:
            entries[alias] = entry
        self._put_children(children, entries)

    def delete(self, pattern: Pattern) -> None:
        """All series that match go."""
        self._begin()
        if pattern.is_path:
            self._delete_path(pattern.prefix)
            return
        for device, children, name in list(self._own_matches(pattern)):
            self._take_away(device, children, name)
        self._deletes = True
        self._deleted[pattern.text] = pattern

    def _delete_path(self, nodes: Nodes) -> None:
        device, name = nodes[:-1], nodes[-1]
        children = self._children.get(device)
        if children is not None and _is_series(children, name):
            self._take_away(device, children, name)
        self._deletes = True
        self._deleted_paths[nodes] = None
        if device not in self._deleted_below:
            self._deleted_below[device] = None
            self._thinned.update((device[:end], None) for end in range(1, len(nodes)))

    def _take_away(self, device: Nodes, children: Children, name: str) -> None:
        """A series of this commit goes, with its alias; the device too, if it was the last one."""
        gone = [key for key, entry in children.items() if entry and entry[0] == name]
        self._put_children(children, dict.fromkeys(gone))
        if device in self._aligned and not any(children.values()):
            self.put(self._aligned, device, None)

    def _change_groups(self, nodes: Nodes) -> StorageGroups:
        self._begin()
        self._changed_groups[nodes] = None
        if self._groups is None:
            self._groups = StorageGroups(row.nodes for row in self.schema.groups.rows())
        return self._groups

    # -- what is there now -------------------------------------------------------------------

    def touches(self, device: Nodes) -> bool:
        """Whether what is above, at, or right below a device may be other than committed.

        Most devices of a commit are touched by nothing else in it, and are looked up as a whole.
        """
        if not self._is_changed:
            return False
        children, changed = self._children, self._changed_groups
        if device in children or device in self._inner or device in self._thinned:
            return True
        for end in range(2, len(device) + 1):
            path = device[:end]
            # A series that goes takes its alias along, which may be a node of this path.
            if path in changed or path[:-1] in self._deleted_below:
                return True
            if path[-1] in children.get(path[:-1], _NONE):
                return True
        return any(_reaches(pattern, device) for pattern in self._deleted.values())

    def taken(self, device: Nodes, names: Sequence[str]) -> Sequence[int]:
        """Positions of names under which a device has anything: series, alias or node."""
        if not self.touches(device):
            return self.schema.devices.taken(device, names)
        return [at for at, name in enumerate(names) if self.kind((*device, name)) is not None]

    def has_made(self, device: Nodes, names: Sequence[str], types: Sequence[int]) -> bool:
        """Whether these series were all made, with these types, by the changes."""
        children = self._children.get(device, _NONE)
        return all(map(eq, map(children.get, names), zip(names, types, strict=True)))

    def group_of(self, nodes: Nodes) -> Nodes | None:
        """The storage group that a path is or lies in."""
        if self._groups is None:
            return self.schema.groups.of(nodes)
        return self._groups.of(nodes)

    def group_below(self, nodes: Nodes) -> Nodes | None:
        """A storage group strictly below a path."""
        if self._groups is not None:
            return self._groups.below(nodes)
        if not self.schema.groups.is_any_below(nodes):
            return None
        return StorageGroups(row.nodes for row in self.schema.groups.rows()).below(nodes)

    def kind(self, nodes: Nodes) -> NodeKind | None:
        """What stands at a path that lies in a storage group, None for nothing."""
        gone = False
        if self._children:
            children = self._children.get(nodes[:-1], _NONE)
            own = children.get(nodes[-1])
            if own is not None:
                return "leaf" if own[0] == nodes[-1] else "alias"
            if nodes in self._inner and (not self._deletes or self._has_own_below(nodes)):
                return "internal"
            gone = nodes[-1] in children
        if self._groups is not None and self._groups.of(nodes) == nodes:
            return "storage_group"
        kind = None if gone else self.schema.nodes.kind_at(nodes)
        if kind is None or not self._deletes:
            return kind
        return kind if self._is_left(nodes, kind) else None

    def has_series(self, steps: Sequence[PatternStep]) -> bool:
        """Whether a series matches."""
        pattern = Pattern(steps)
        if pattern.is_path:
            return self.has_path(pattern.prefix)
        if any(True for _ in self._own_matches(pattern)):
            return True
        if not self._deletes:
            return bool(self.schema.series.match(pattern, limit=1))
        return any(
            not self._is_deleted(self.schema.tree.nodes(row))
            for row in self.schema.series.walk(pattern)
        )

    def has_path(self, nodes: Nodes) -> bool:
        """Whether a series has this path, by its name."""
        if self._children and _is_series(self._children.get(nodes[:-1], _NONE), nodes[-1]):
            return True
        if self.schema.series.find(nodes, alias=False) < 0:
            return False
        return not self._deletes or not self._is_deleted(nodes)

    def aligned(self, device: Nodes) -> bool | None:
        """Whether the series of a device share one time column; None if it has none."""
        known = self._aligned.get(device) if self._is_changed else None
        if known is not None or (self._deletes and not self.has_series((*device, ONE))):
            return known
        depth, _, _, committed = self.schema.nodes.reach(device)
        return committed if depth == len(device) else None

    def type_of(self, nodes: Nodes) -> int:
        """The data type of a series that is there."""
        own = self._children.get(nodes[:-1], _NONE).get(nodes[-1])
        if own is not None:
            return own[1]
        return self.schema.series.type_of(self.schema.series.find(nodes, alias=False))

    def alias_of(self, nodes: Nodes) -> str | None:
        """The alias of a series that is there."""
        children = self._children.get(nodes[:-1], _NONE)
        if children.get(nodes[-1]) is not None:
            for alias, entry in children.items():
                if entry is not None and entry[0] == nodes[-1] != alias:
                    return alias
        row = self.schema.series.find(nodes, alias=False)
        if row < 0 or (self._deletes and self._is_deleted(nodes)):
            return None
        committed = self.schema.series.describe(row).alias
        return None if committed in children else committed

    def _is_left(self, nodes: Nodes, kind: NodeKind) -> bool:
        """Whether something committed outlasts the deletions of this commit."""
        if kind in ("leaf", "alias"):
            row = self.schema.series.find(nodes)
            return not self._is_deleted(self.schema.tree.nodes(row))
        return self.has_series((*nodes, MANY))

    def _has_own_below(self, nodes: Nodes) -> bool:
        return any(
            device[: len(nodes)] == nodes and any(children.values())
            for device, children in self._children.items()
        )

    def _own_matches(self, pattern: Pattern) -> Iterator[tuple[Nodes, Children, str]]:
        for device, children in self._children.items():
            for name in children:
                if _is_series(children, name) and pattern.matches((*device, name)):
                    yield device, children, name

    def _is_deleted(self, nodes: Nodes) -> bool:
        return nodes in self._deleted_paths or any(
            pattern.matches(nodes) for pattern in self._deleted.values()
        )


def truncate(held: dict[Any, Any], size: int) -> None:
    """Drop what was put in last."""
    while len(held) > size:
        held.popitem()


def _put_back(held: dict[Any, Any], before: dict[Any, Any]) -> None:
    for key, value in before.items():
        if value is _ABSENT:
            held.pop(key, None)
        else:
            held[key] = value


def _is_series(children: Children, name: str) -> bool:
    """Whether a commit has made, or changed, a series of this name, and left it."""
    entry = children.get(name)
    return entry is not None and entry[0] == name


def _reaches(pattern: Pattern, device: Nodes) -> bool:
    """Whether a pattern may match a path above, at, or below a device, or beside one of those."""
    state = Pattern.START
    for node in device:
        if pattern.takes_child(state):
            return True
        state = pattern.advance(state, node)
        if not state:
            return False
    return True
