"""The paths of storage groups, of which none lies in another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.model.paths import Nodes, is_below

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["StorageGroups"]


class StorageGroups:
    """A set of them in which what lies above or below a path is found without a look at all."""

    def __init__(self, paths: Iterable[Nodes]) -> None:
        self._paths: set[Nodes] = set()
        self._below: dict[Nodes, int] = {}
        for nodes in paths:
            self.add(nodes)

    def add(self, nodes: Nodes) -> None:
        """Take one in that is not there."""
        self._paths.add(nodes)
        for end in range(1, len(nodes)):
            self._below[nodes[:end]] = self._below.get(nodes[:end], 0) + 1

    def remove(self, nodes: Nodes) -> None:
        """Drop one that is there."""
        self._paths.remove(nodes)
        for end in range(1, len(nodes)):
            self._below[nodes[:end]] -= 1

    def of(self, nodes: Nodes) -> Nodes | None:
        """The storage group that a path is or lies in."""
        for end in range(2, len(nodes) + 1):
            if nodes[:end] in self._paths:
                return nodes[:end]
        return None

    def below(self, nodes: Nodes) -> Nodes | None:
        """A storage group strictly below a path."""
        if not self._below.get(nodes):
            return None
        return min(each for each in self._paths if is_below(each, nodes))
