"""The schema as plain dictionaries: a whole copy of all for every commit."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from receiver.metadata.model.paths import Nodes, Pattern

Path = tuple[str, ...]


@dataclass
class Series:
    type: int
    encoding: int
    compression: int
    aligned: bool
    created: int
    alias: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    offset: int = -1
    heat: int | None = None
    props: dict[str, str] = field(default_factory=dict)
    changed: int = 0


@dataclass
class Group:
    created: int
    changed: int
    ttl: int | None = None


class Model:
    """`groups` and `series` are those of now; `at(ts)` gives a model of the past."""

    def __init__(self) -> None:
        self.groups: dict[Nodes, Group] = {}
        self.series: dict[Nodes, Series] = {}
        self.ended: dict[Nodes, int] = {}
        self._past: list[tuple[int, Model]] = []

    def keep(self, ts: int) -> None:
        """The commit `ts` is complete."""
        now = Model()
        now.groups, now.series = copy.deepcopy(self.groups), copy.deepcopy(self.series)
        self._past.append((ts, now))

    def at(self, ts: int | None) -> Model:
        if ts is None:
            return self
        found = Model()
        for kept, state in self._past:
            if kept <= ts:
                found = state
        return found

    # -- questions --

    def nodes(self) -> dict[Nodes, str]:
        kinds: dict[Nodes, str] = {("root",): "root"}
        for path in [*self.groups, *self.series]:
            for depth in range(2, len(path)):
                kinds.setdefault(path[:depth], "internal")
        kinds.update(dict.fromkeys(self.groups, "storage_group"))
        kinds.update(dict.fromkeys(self.series, "leaf"))
        return kinds

    def kind(self, path: Nodes) -> str | None:
        found = self.nodes().get(path)
        if found is None and self.by_alias(path) is not None:
            return "alias"
        return found

    def by_alias(self, path: Nodes) -> Nodes | None:
        for each, series in self.series.items():
            if each[:-1] == path[:-1] and series.alias == path[-1]:
                return each
        return None

    def group_of(self, path: Nodes) -> Nodes | None:
        for depth in range(2, len(path) + 1):
            if path[:depth] in self.groups:
                return path[:depth]
        return None

    def devices(self) -> dict[Nodes, list[Nodes]]:
        found: dict[Nodes, list[Nodes]] = {}
        for path in self.series:
            found.setdefault(path[:-1], []).append(path)
        return found

    def match(self, pattern: Pattern) -> list[Nodes]:
        return sorted(path for path in self.series if pattern.matches(path))

    # -- questions as users put them: a path means itself, or what is below it --

    def meant(self, pattern: Pattern) -> list[Nodes]:
        """Series; a path may be an alias."""
        if not pattern.is_path:
            return self.match(pattern)
        path = self.by_alias(pattern.prefix) or pattern.prefix
        return [path] if path in self.series else self.match(pattern.below())

    def meant_devices(self, pattern: Pattern) -> list[Nodes]:
        return sorted(path for path in self.devices() if _is_meant(path, pattern))

    def meant_groups(self, pattern: Pattern) -> list[Nodes]:
        return sorted(path for path in self.groups if _is_meant(path, pattern))

    def children(self, pattern: Pattern) -> list[tuple[Nodes, str]]:
        """One level below what matches, and what each is called."""
        return [
            (path, self._called(path, kind))
            for path, kind in sorted(self.nodes().items())
            if pattern.matches(path[:-1])
        ]

    def _called(self, path: Nodes, kind: str) -> str:
        if kind != "internal":
            return {"leaf": "TIMESERIES", "storage_group": "STORAGE GROUP"}[kind]
        if self.group_of(path) is None:
            return "SG INTERNAL"
        return "DEVICE" if path in self.devices() else "INTERNAL"

    def passed(self, pattern: Pattern, level: int) -> set[Nodes]:
        """The nodes at a level that the nodes which match lie in, or are."""
        pattern = pattern.below() if pattern.is_path else pattern
        found = [path for path in self.nodes() if pattern.matches(path)]
        return {path[: level + 1] for path in found if len(path) > level}

    def taken(self, path: Nodes) -> bool:
        """Whether a series cannot be made here: something is there, or above or below it."""
        if path in self.nodes() or self.by_alias(path) is not None:
            return True
        return any(path[:depth] in self.series for depth in range(2, len(path)))


def _is_meant(path: Nodes, pattern: Pattern) -> bool:
    return pattern.matches(path) or (pattern.is_path and pattern.below().matches(path))
