"""The schema as plain dictionaries: every rule of the metadata engine, written down once more.

Nothing here is fast, and nothing is shared with the engine but the records themselves. A `Tree` is
what is true at one moment; `Versions` keeps a whole copy of it for each commit, so a question about
the past is a question to an older copy.

    versions = Versions()
    versions.commit(450, [StorageGroupSet("root.a")])      # Rejected: the engine must refuse it too
    versions.at(450).show(pattern("root.**"))
"""

from __future__ import annotations

import copy
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from receiver.metadata.model import records

Nodes = tuple[str, ...]
Level = str | tuple[str]
"""Of a pattern: a glob ("s*", "*", "**"), or a literal in a tuple of one (("*",))."""
Pattern = tuple[Level, ...]

LEGAL = [(0, 0, 1), (1, 2, 1), (2, 4, 7), (3, 8, 1), (4, 0, 0), (5, 0, 2), (5, 1, 1)]
"""(type, encoding, compression) that go together, in codes of the TsFile format."""
ILLEGAL = [(0, 8, 1), (5, 8, 1), (3, 1, 1), (1, 99, 1), (99, 0, 1), (1, 0, 99)]


class Rejected(Exception):
    """The engine has to refuse this, and nothing of its commit may be seen."""


def need(holds: object, why: str) -> None:
    if not holds:
        raise Rejected(why)


@dataclass(frozen=True)
class Series:
    type: int
    encoding: int
    compression: int
    created: int
    aligned: bool = False
    alias: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    props: dict[str, str] = field(default_factory=dict)
    heat: int | None = None


@dataclass(frozen=True)
class Group:
    created: int
    ttl: int | None = None


# -- text ----------------------------------------------------------------------------------------

_BARE = re.compile(r"[A-Za-z0-9_\u2e80-\u9fff]+\Z")
_NUMBER = re.compile(r"[0-9]+([eE][0-9]+)?[fFdDlL]?\Z")


def text(nodes: Sequence[Level]) -> str:
    """The one text of a path, or of a pattern."""
    return ".".join(map(_level, nodes))


def _level(node: Level) -> str:
    if isinstance(node, tuple):
        return quote(node[0])
    return node if "*" in node else quote(node)


def quote(node: str) -> str:
    if _BARE.match(node) and not _NUMBER.match(node):
        return node
    return "`" + node.replace("`", "``") + "`"


def nodes_of(path: str) -> Nodes:
    """The bare nodes of a canonical text."""
    found = re.findall(r"(?:^|\.)(`(?:[^`]|``)*`|[^.`]+)", path)
    return tuple(node[1:-1].replace("``", "`") if node.startswith("`") else node for node in found)


def pattern_of(path: str) -> Pattern:
    """A pattern of its text: what stands in back-ticks is a literal."""
    found = re.findall(r"(?:^|\.)(`(?:[^`]|``)*`|[^.`]+)", path)
    return tuple(
        (node[1:-1].replace("``", "`"),) if node.startswith("`") else node for node in found
    )


def matches(pattern: Sequence[Level], nodes: Sequence[str]) -> bool:
    """`*` stands for one level, or for part of one; `**` for one level or more."""
    if not pattern or not nodes:
        return not pattern and not nodes
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        return any(matches(rest, nodes[count:]) for count in range(1, len(nodes) + 1))
    return _fits(first, nodes[0]) and matches(rest, nodes[1:])


def _fits(level: Level, node: str) -> bool:
    if isinstance(level, tuple):
        return level[0] == node
    parts = [re.escape(part) for part in level.split("*")]
    return re.fullmatch(".*".join(parts), node, re.DOTALL) is not None


def has_wildcard(pattern: Sequence[Level]) -> bool:
    return any(isinstance(level, str) and "*" in level for level in pattern)


# -- one moment ----------------------------------------------------------------------------------


class Tree:
    """What is true at one moment; a refused operation leaves it in disorder: copy before."""

    def __init__(self, tag_bytes: int = 700) -> None:
        self.tag_bytes = tag_bytes
        self.groups: dict[Nodes, Group] = {}
        self.series: dict[Nodes, Series] = {}
        self.keys: dict[str, str] = {}
        self.aligned: dict[Nodes, bool] = {}

    # -- operations --

    def take(self, op: records.Op, ts: int) -> None:
        if not isinstance(op, records.SenderSeen | records.FileLoaded):  # of no interest here
            getattr(self, type(op).__name__)(op, ts)

    def StorageGroupSet(self, op: records.StorageGroupSet, ts: int) -> None:
        path = _path(op.path)
        if op.if_missing and self.group_of(path) is not None:
            return
        need(self.group_of(path) is None, "lies in a storage group")
        need(not any(_is_in(other, path) for other in self.groups), "has a storage group below")
        self.groups[path] = Group(ts)

    def StorageGroupDeleted(self, op: records.StorageGroupDeleted, ts: int) -> None:
        path = _path(op.path)
        need(path in self.groups, "is no storage group")
        del self.groups[path]
        self.series = {nodes: row for nodes, row in self.series.items() if not _is_in(nodes, path)}
        self._prune()

    def TtlSet(self, op: records.TtlSet, ts: int) -> None:
        path = _path(op.path)
        need(path in self.groups, "is no storage group")
        need(op.ttl is None or 0 < op.ttl < 1 << 63, "is no time to live")
        self.groups[path] = replace(self.groups[path], ttl=op.ttl)

    def SeriesCreated(self, op: records.SeriesCreated, ts: int) -> None:
        device = _path(op.device)
        count = len(op.names)
        need(count, "no names")
        for column in (op.types, op.encodings, op.compressions):
            need(len(column) == count, "columns of different length")
        for optional in (op.aliases, op.tags, op.attributes, op.props):
            need(optional is None or len(optional) == count, "columns of different length")
        self._need_device(device)
        need(self.aligned.get(device, op.aligned) == op.aligned, "is aligned, or is not")
        self.aligned[device] = op.aligned
        for at, name in enumerate(op.names):
            need(name, "an empty name")
            codes = (op.types[at], op.encodings[at], op.compressions[at])
            need(codes in LEGAL, "types that do not go together")
            self._need_free(device, name)
            self.series[(*device, name)] = Series(*codes, created=ts, aligned=op.aligned)
            self._set_alias((*device, name), op.aliases[at] if op.aliases else None)
            self._describe(
                (*device, name),
                op.tags[at] if op.tags else {},
                op.attributes[at] if op.attributes else {},
            )
            if op.props and op.props[at]:
                row = self.series[(*device, name)]
                self.series[(*device, name)] = replace(row, props=dict(op.props[at]))

    def SeriesDeleted(self, op: records.SeriesDeleted, ts: int) -> None:
        pattern = pattern_of(op.pattern)
        found = [nodes for nodes in self.series if matches(pattern, nodes)]
        need(found, "no series matches")
        for nodes in found:
            del self.series[nodes]
        self._prune()

    def AliasSet(self, op: records.AliasSet, ts: int) -> None:
        path = _path(op.path)
        need(path in self.series, "is no series")
        self._set_alias(path, op.alias)

    def TagsSet(self, op: records.TagsSet, ts: int) -> None:
        path = _path(op.path)
        need(path in self.series, "is no series")
        self._describe(path, op.tags, op.attributes)

    def SeriesLoaded(self, op: records.SeriesLoaded, ts: int) -> None:
        for loaded in op.devices:
            device = _path(loaded.device)
            self._need_device(device)
            for at, name in enumerate(loaded.names):
                codes = (loaded.types[at], loaded.encodings[at], loaded.compressions[at])
                row = self.series.get((*device, name))
                if row is None:
                    self._need_free(device, name)
                    aligned = self.aligned.setdefault(device, loaded.aligned)
                    row = Series(*codes, created=ts, aligned=aligned)
                need(row.type == codes[0], "exists with another type")
                last = loaded.lasts[at]
                times = [each for each in (row.heat, last) if each is not None]
                self.series[(*device, name)] = replace(row, heat=max(times, default=None))

    def KeysWritten(self, op: records.KeysWritten, ts: int) -> None:
        for prefix in op.removals:
            self.keys = {
                key: value for key, value in self.keys.items() if not key.startswith(prefix)
            }
        self.keys |= op.saves

    # -- rules --

    def _need_device(self, device: Nodes) -> None:
        need(self.group_of(device) is not None, "lies in no storage group")
        for end in range(2, len(device) + 1):
            need(device[:end] not in self.series, "a series has none below it")
            need(not self._is_alias(device[:end]), "a series has none below it")

    def _need_free(self, device: Nodes, name: str) -> None:
        path = (*device, name)
        need(path not in self.series, "is there")
        need(not self._is_alias(path), "is the alias of another series")
        need(not any(_is_in(other, path) for other in self.series), "has series below it")
        need(path not in self.groups, "is a storage group")

    def _set_alias(self, path: Nodes, alias: str | None) -> None:
        row = self.series[path]
        if alias == row.alias:
            return
        if alias is not None:
            need(alias, "an empty alias")
            self.series[path] = replace(row, alias=None)
            self._need_free(path[:-1], alias)
        self.series[path] = replace(row, alias=alias)

    def _describe(self, path: Nodes, tags: dict[str, str], attributes: dict[str, str]) -> None:
        need(not set(tags) & set(attributes), "a tag and an attribute of one name")
        need(slot_size(tags, attributes) <= self.tag_bytes, "too many bytes")
        self.series[path] = replace(self.series[path], tags=dict(tags), attributes=dict(attributes))

    def _is_alias(self, path: Nodes) -> bool:
        device, name = path[:-1], path[-1]
        return any(row.alias == name for nodes, row in self.series.items() if nodes[:-1] == device)

    def _prune(self) -> None:
        devices = {nodes[:-1] for nodes in self.series}
        self.aligned = {path: how for path, how in self.aligned.items() if path in devices}

    # -- questions --

    def group_of(self, path: Nodes) -> Nodes | None:
        return next(
            (path[:end] for end in range(2, len(path) + 1) if path[:end] in self.groups), None
        )

    def find(self, path: Nodes) -> Nodes | None:
        """The series of a path, by its name or its alias."""
        if path in self.series:
            return path
        for nodes, row in self.series.items():
            if nodes[:-1] == path[:-1] and row.alias == path[-1]:
                return nodes
        return None

    def nodes(self) -> set[Nodes]:
        """Every node that there is: root, all on the way to something, and the series."""
        ends = [*self.groups, *self.series]
        return {("root",)} | {path[:end] for path in ends for end in range(1, len(path) + 1)}

    def selected(self, pattern: Pattern) -> list[Nodes]:
        """Series that a question for `pattern` means, in path order."""
        if not has_wildcard(pattern):
            path = tuple(each if isinstance(each, str) else each[0] for each in pattern)
            exact = self.find(path)
            if exact is not None:
                return [exact]
            return sorted(nodes for nodes in self.series if nodes[: len(path)] == path)
        return sorted(nodes for nodes in self.series if matches(pattern, nodes))

    def show(
        self,
        pattern: Pattern,
        where: tuple[str, str, str] | None = None,
        *,
        heat: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Nodes]:
        """`where`: (tag, "=" or "contains", value)."""
        found = self.selected(pattern)
        if where is not None:
            key, how, value = where
            need(key in self.tag_keys(), "is no tag")
            found = [nodes for nodes in found if _has(self.series[nodes].tags.get(key), how, value)]
        if heat:
            found.sort(key=lambda nodes: _heat_order(self.series[nodes].heat))
        return found[offset : None if limit is None else offset + limit]

    def devices(self, pattern: Pattern) -> list[Nodes]:
        devices = {nodes[:-1] for nodes in self.series}
        if has_wildcard(pattern):
            return sorted(device for device in devices if matches(pattern, device))
        path = tuple(each if isinstance(each, str) else each[0] for each in pattern)
        return sorted(device for device in devices if device[: len(path)] == path)

    def count_by_level(self, pattern: Pattern, level: int) -> dict[Nodes, int]:
        counted: dict[Nodes, int] = {}
        for nodes in self.selected(pattern):
            if len(nodes) > level:
                counted[nodes[: level + 1]] = counted.get(nodes[: level + 1], 0) + 1
        return counted

    def children(self, pattern: Pattern) -> list[Nodes]:
        """One level below whatever matches."""
        return sorted(path for path in self.nodes() if matches(pattern, path[:-1]))

    def tag_keys(self) -> set[str]:
        return {key for row in self.series.values() for key in row.tags}

    def tag_values(self, key: str) -> set[str]:
        return {row.tags[key] for row in self.series.values() if key in row.tags}


def slot_size(tags: dict[str, str], attributes: dict[str, str]) -> int:
    """Bytes in a tlog: a count and (length, UTF-8) twice a pair, for both."""
    strings = [each for kind in (tags, attributes) for pair in kind.items() for each in pair]
    return 8 + sum(4 + len(each.encode()) for each in strings)


def _path(path: str) -> Nodes:
    nodes = nodes_of(path)
    need(len(nodes) >= 2 and nodes[0] == "root", "is no path")
    return nodes


def _is_in(path: Nodes, other: Nodes) -> bool:
    """Whether `path` lies below `other`."""
    return len(path) > len(other) and path[: len(other)] == other


def _has(found: str | None, how: str, value: str) -> bool:
    if found is None:
        return False
    return found == value if how == "=" else value in found


def _heat_order(heat: int | None) -> tuple[bool, int]:
    return (heat is None, 0 if heat is None else -heat)


# -- alterations ---------------------------------------------------------------------------------


def rename(row: Series, old: str, new: str) -> Series:
    for kind in ("tags", "attributes"):
        pairs = getattr(row, kind)
        if old in pairs:
            need(new not in row.tags and new not in row.attributes, "is there")
            changed = {new if key == old else key: value for key, value in pairs.items()}
            return replace(row, **{kind: changed})
    raise Rejected("has no such tag or attribute")


def set_values(row: Series, values: dict[str, str]) -> Series:
    for key in values:
        need(key in row.tags or key in row.attributes, "has no such tag or attribute")
    return replace(
        row,
        tags={key: values.get(key, value) for key, value in row.tags.items()},
        attributes={key: values.get(key, value) for key, value in row.attributes.items()},
    )


def drop(row: Series, keys: Sequence[str]) -> Series:
    return replace(
        row,
        tags={key: value for key, value in row.tags.items() if key not in keys},
        attributes={key: value for key, value in row.attributes.items() if key not in keys},
    )


def add(row: Series, kind: str, values: dict[str, str]) -> Series:
    for key in values:
        need(key not in row.tags and key not in row.attributes, "is there")
    return replace(row, **{kind: getattr(row, kind) | values})


def upsert(
    row: Series, alias: str | None, tags: dict[str, str], attributes: dict[str, str]
) -> Series:
    need(not set(tags) & set(attributes), "a tag and an attribute of one name")
    need(not set(tags) & set(row.attributes), "is an attribute")
    need(not set(attributes) & set(row.tags), "is a tag")
    return replace(
        row,
        alias=row.alias if alias is None else alias,
        tags=row.tags | tags,
        attributes=row.attributes | attributes,
    )


# -- all moments ---------------------------------------------------------------------------------


class Versions:
    """A copy of the tree for each commit, the empty one first."""

    def __init__(self, ts: int = 0, tag_bytes: int = 700) -> None:
        self.stamps = [ts]
        self._trees = [Tree(tag_bytes)]

    @property
    def newest(self) -> Tree:
        return self._trees[-1]

    def after(self, ops: Sequence[records.Op], ts: int) -> Tree:
        """The tree as these operations would leave it.

        Raises:
            Rejected: they break a rule.
        """
        tree = copy.deepcopy(self.newest)
        for op in ops:
            tree.take(op, ts)
        return tree

    def commit(self, ts: int, ops: Sequence[records.Op]) -> None:
        self.append(ts, self.after(ops, ts))

    def append(self, ts: int, tree: Tree) -> None:
        assert ts > self.stamps[-1]
        self.stamps.append(ts)
        self._trees.append(tree)

    def at(self, ts: int) -> Tree:
        """As of the newest commit that is not after `ts`; before the first there is nothing."""
        return self._trees[max(bisect_right(self.stamps, ts) - 1, 0)]

    def cut_after(self, ts: int) -> None:
        """Forget what came after a commit: the log lost its end."""
        keep = bisect_right(self.stamps, ts)
        del self.stamps[keep:], self._trees[keep:]

    def __iter__(self) -> Iterator[tuple[int, Tree]]:
        return iter(list(zip(self.stamps, self._trees, strict=True)))
