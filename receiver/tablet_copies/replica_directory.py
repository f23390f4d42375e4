"""What one directory of a node has of a replica: its journal, and files under physical names.

<directory>/tablets/<id>/copies.log                        see `copy_journal`
<directory>/tablets/<id>/sequence/<sg>/<vsg>/<partition>/  files under their physical names
<directory>/tablets/<id>/pulling/                          files that are coming
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Final

from common import crash
from common.durable import temporary_name
from common.errors import DigestError, NoSpaceError
from receiver.tablet_copies.copy_journal import (
    COPIES_LOG,
    JournalLine,
    JournalState,
    append_lines,
    read_journal,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from common.durable import Tree
    from receiver.tablet_copies.copies_wire import CopiedFile, CopyOrder

__all__ = ["TABLETS", "ReplicaDirectory", "roomiest"]

TABLETS: Final = "tablets"
"""Directory of all replicas."""
_PULLING: Final = "pulling"


class ReplicaDirectory:
    """A replica's part in a directory; one thread at a time changes its journal.

    Attributes:
        tree: the directory of the node.
        journal: what its lines come to.
    """

    def __init__(self, tree: Tree, tablet: str) -> None:
        """Nothing is touched yet.

        Args:
            tree: the directory of the node.
            tablet: id of the replica's tablet.
        """
        self.tree = tree
        self.journal = JournalState()
        self._below = f"{TABLETS}/{tablet}"
        self._log = self.rel(COPIES_LOG)

    def rel(self, name: str) -> str:
        """Where a file of the replica lies in the tree."""
        return f"{self._below}/{name}"

    # -- its journal -------------------------------------------------------------------------

    def open(self) -> bool:
        """Take what an earlier life left, but for what was coming; whether it left anything."""
        if not self.tree.exists(self._log):
            return False
        self.journal = read_journal(self.tree, self._log)
        self.tree.sweep_temporaries(self.rel(_PULLING), deep=False)
        if not self.journal.is_unlisted and self._may_lack_lines():
            self.note(JournalLine(unlisted=True))
        return True

    def _may_lack_lines(self) -> bool:
        """Whether bytes lie here that a line may have named which says nothing now.

        A file that had gone may have come again; and none is here before the first line.
        """
        journal, here = self.journal, self.tree.files(self._below)
        if journal.made is None and any(rel != self._log for rel, _ in here):
            return True
        return journal.is_doubtful and any(self.size(each) is not None for each in journal.going)

    def begin(self, order: CopyOrder) -> None:
        """Be there, by an order."""
        self.tree.make_dirs(self._below)
        crash.point("copies.directory_made")
        self.note(JournalLine(made=order))

    def note(self, line: JournalLine) -> None:
        """Write a line, and go by it."""
        self.write_line(line)
        self.journal.take(line)

    def write_line(self, line: JournalLine) -> None:
        """Write a line only."""
        append_lines(self.tree, self._log, line)

    # -- its files ---------------------------------------------------------------------------

    def size(self, name: str) -> int | None:
        """Bytes of a file, None if it is not there."""
        found = self.tree.stat(self.rel(name))
        return None if found is None else found.st_size

    def unlink(self, name: str) -> None:
        """Take the bytes of a file away; not flushed, for a line says that they go."""
        self.tree.unlink(self.rel(name), sync=False)

    def take_whole(self, file: CopiedFile, blocks: Iterable[bytes]) -> None:
        """Have a file there, checked and on the disk: as an earlier life left it, or of blocks.

        Raises:
            DigestError: they are others; nothing is left of them.
            NoSpaceError: the disk is full; nothing is left of them.
        """
        target = self.rel(file.physical)
        if self._is_whole(target, file):
            return
        self.tree.make_dirs(self.rel(_PULLING))
        beside = self.rel(f"{_PULLING}/{temporary_name()}")
        try:
            with self.tree.create(beside) as into:
                crash.point("copies.pull_begun")
                other = into.write_exactly(blocks, file.size, file.md5)
            if other is not None:
                raise DigestError(
                    f"{file.physical}: {other} came, {file.size} with {file.md5} are listed"
                )
            crash.point("copies.pull_written")
            self.tree.make_dirs(target.rpartition("/")[0])
            self.tree.rename(beside, target)
        except BaseException as error:
            if not isinstance(error, crash.SimulatedCrash):
                self.tree.unlink(beside, sync=False)
            raise
        crash.point("copies.pull_named")

    def _is_whole(self, target: str, file: CopiedFile) -> bool:
        """Whether an earlier life has named the file, and died before its line."""
        if not self.tree.has_bytes(target, file.size, file.md5):
            return False
        self.tree.sync_file(target)
        self.tree.sync_dir(target.rpartition("/")[0])
        return True

    def move_in(self, rel: str, file: CopiedFile) -> None:
        """Give a file of the node its name here."""
        target = self.rel(file.physical)
        self.tree.make_dirs(target.rpartition("/")[0])
        self.tree.rename(rel, target)
        crash.point("copies.adopted")

    def remove(self) -> None:
        """Remove all of it; the journal goes last: until then it says that it is going."""
        for rel, _ in list(self.tree.files(self._below)):
            if rel != self._log:
                self.tree.unlink(rel, sync=False)
                crash.point("copies.drop_unlinked")
        for rel in _directories(self.tree, self._below):
            self.tree.remove_empty(rel)
        self.tree.unlink(self._log)
        crash.point("copies.drop_forgotten")
        self.tree.remove_empty(self._below)


def _directories(tree: Tree, below: str) -> list[str]:
    """Directories beneath one, the deepest first."""
    found: list[str] = []
    pending = [below]
    while pending:
        here = pending.pop()
        for name, entry in tree.listing(here):
            if stat.S_ISDIR(entry.st_mode):
                pending.append(f"{here}/{name}")
                found.append(f"{here}/{name}")
    return found[::-1]


def roomiest(
    trees: Sequence[Tree],
    room: Callable[[int], int],
    wanted: int,
    avoided: Collection[int] = (),
) -> int:
    """Number of the directory that a file goes to: the roomiest with room for it.

    Args:
        trees: the directories of the node.
        room: free bytes of a directory, by its number.
        wanted: bytes.
        avoided: directories that take it only if no other one has room.

    Raises:
        NoSpaceError: none has room.
    """
    if not trees:
        raise NoSpaceError("no data directory of this node is there for a copy to come to")
    numbers = range(len(trees))
    better = [each for each in numbers if each not in avoided and room(each) >= wanted]
    number = max(better or numbers, key=room)
    if room(number) < wanted:
        where = trees[number].path
        raise NoSpaceError(f"{wanted} bytes are to come, and {where} has most room: too little")
    return number
