"""The schema directory of a node that follows: a mark, and the copy that is read now.

    follower.json     {"engine": ..., "incarnation": 3, "copy": 7}     also says that nobody writes
    copy-7/           an engine's files, with a mark of their own

A copy that does not go on is replaced: the next one is made beside it, and the mark names it when
it is whole. So whoever is killed has the old copy or the new one, and never some of each. Other
copies are removed at a start.
"""

from __future__ import annotations

import re
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import msgspec

from common import crash
from common.durable import Closing, Tree, is_temporary
from common.errors import ConfigError
from receiver.metadata.log.follower_mark import (
    FOLLOWER_MARK,
    FollowerMark,
    copy_name,
    read_mark,
)
from receiver.metadata.log.frames import LOCK_NAME

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NodeDirectory"]

_COPY = re.compile(r"copy-([1-9][0-9]{0,8})\Z")


class NodeDirectory(Closing):
    """See the module.

    Attributes:
        engine: uuid of the engine that is followed; empty before the first contact.
        incarnation: the highest of its owners that was ever seen.
        ident: random; who follows a node that follows this one meets it again.
    """

    def __init__(self, tree: Tree, mark: FollowerMark) -> None:
        self.ident = uuid.uuid4().hex
        self._tree = tree
        self._mark = mark
        self._resources = ExitStack()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open it, or make one of an empty directory.

        Raises:
            ConfigError: something else is in it.
            LockedError: another process has it open.
        """
        with ExitStack() as stack:
            tree = stack.enter_context(Tree(path, create=True))
            if not tree.exists(FOLLOWER_MARK):
                there = [name for name, _ in tree.listing() if not _is_nothing(name)]
                if there:
                    raise ConfigError(
                        f"schema_dir: {path} holds {there[0]} and was not made by --follow; a node "
                        "that follows has a directory of its own"
                    )
                tree.write_atomic(FOLLOWER_MARK, msgspec.json.encode(FollowerMark()))
            lock = tree.lock(LOCK_NAME)
            stack.callback(lock.release)
            tree.sweep_temporaries(deep=False)
            found = cls(tree, read_mark(tree) or FollowerMark())
            found._resources = stack.pop_all()
        found._sweep()
        return found

    @property
    def engine(self) -> str:
        """See the class."""
        return self._mark.engine

    @property
    def incarnation(self) -> int:
        """See the class."""
        return self._mark.incarnation

    @property
    def copy(self) -> Path | None:
        """The copy that is read now, None before the first."""
        return self._place(self._mark.copy) if self._mark.copy else None

    def next_copy(self) -> Path:
        """A new directory for the copy after this one."""
        self._sweep()
        number = self._mark.copy + 1
        with Tree(self._place(number), create=True) as tree:
            tree.write_atomic(FOLLOWER_MARK, b"{}")
        return self._place(number)

    def take(self, engine: str, incarnation: int) -> None:
        """Let the copy that `next_copy` gave be the one that is read from the next start on."""
        self._note(engine, incarnation, self._mark.copy + 1)
        crash.point("follow.copy_taken")

    def _note(self, engine: str, incarnation: int, copy: int) -> None:
        self._mark = FollowerMark(engine=engine, incarnation=incarnation, copy=copy)
        self._tree.write_atomic(FOLLOWER_MARK, msgspec.json.encode(self._mark))

    def _place(self, number: int) -> Path:
        return self._tree.path / copy_name(number)

    def _sweep(self) -> None:
        """Remove what is no copy that is read."""
        for found in self._tree.matching(_COPY):
            if int(found[1]) == self._mark.copy:
                continue
            for name, _ in list(self._tree.files(found.string)):
                self._tree.unlink(name, sync=False)
            self._tree.remove_empty(found.string)

    def close(self) -> None:
        """Let another process have it; closing twice is harmless."""
        self._resources.close()


def _is_nothing(name: str) -> bool:
    """Whether a name is of a start that did not come far."""
    return name == LOCK_NAME or is_temporary(name)
