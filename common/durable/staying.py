"""A tree for who uses many files of few directories in a row."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from common.beneath import open_beneath, open_regular, parts
from common.durable.flushing import may_write
from common.durable.open_files import WriteFile
from common.durable.reading_tree import ParentDir
from common.durable.temporaries import new_file
from common.durable.tree import Tree

__all__ = ["staying"]

_OPEN = 8
"""Directories that stay open at a time; a rename has two at once."""


@contextmanager
def staying(tree: Tree) -> Iterator[Tree]:
    """The same directory, of which those beneath that were used last stay open within the block.

    One thread uses it. A directory that is open is not looked up by its name again: nobody may move
    or remove one meanwhile but through what this gives.
    """
    here = _StayingTree(tree)
    try:
        yield here
    finally:
        here.leave()


class _StayingTree(Tree):
    def __init__(self, tree: Tree) -> None:
        self.path = tree.path
        self._fd = tree._fd
        self._lasting = tree._lasting
        self._open: dict[str, int] = {}

    def leave(self) -> None:
        """Close what stayed open; the tree that this was made of stays."""
        while self._open:
            os.close(self._open.popitem()[1])

    def open_read(self, rel: str) -> int:
        with self._reading_parent(rel) as (parent, name):
            return open_regular(parent, name)

    def create(self, rel: str, *, mode: int = 0o644) -> WriteFile:
        may_write()
        with self._parent(rel) as (parent, name):
            return new_file(parent, name, self._what(rel), mode)

    def remove_empty(self, rel: str) -> bool:
        self.leave()
        return super().remove_empty(rel)

    def _reading_parent(self, rel: str) -> ParentDir:
        directory, _, name = rel.rpartition("/")
        if not (directory and parts(name)):
            return super()._reading_parent(rel)
        fd = self._open.pop(directory, None)
        if fd is None:
            fd = open_beneath(self._fd, directory, os.O_RDONLY | os.O_DIRECTORY)
            if len(self._open) >= _OPEN:
                os.close(self._open.pop(next(iter(self._open))))
        self._open[directory] = fd  # as the last: the two of a rename are never the first
        return ParentDir(fd, name, ours=False)
