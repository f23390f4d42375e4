"""What is loaded at one receiver, as this sender knows it.

    <data dir>/sync-sender/<host>_<port>/last_local_files.txt      one path a line: it is loaded
                                         current_local_files.txt   only while that is replaced
                                         local_files.state         facts beside it
                                         (`sender.kept.loaded_list.list_state`)

Each data directory keeps the list of its own files; a `Ledger` is their union. A list is replaced
in the order of the seed's algorithm, with each step synced before the next:

1. current_local_files.txt, the new list
2. local_files.state, with the facts of the old list and of the new one
3. last_local_files.txt is deleted
4. current_local_files.txt is renamed to it

A crash leaves both lists (the old one counts, the new one is made again), or the new one alone
(it is renamed). Nothing here trusts a list that is missing, cut off or edited: that is a *doubt*,
and the caller rebuilds the ledger from the receiver's inventory before it plans. The state names
the new list first; that it was written for the old one as well counts only while both are there.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from common import crash
from common.formats.linelog import parse_paths
from sender.kept.loaded_list.list_state import (
    ListFacts,
    list_digest,
    list_pieces,
    read_state,
    state_pieces,
)
from sender.kept.loaded_list.rebuilt import Rebuilt
from sender.select.entry import Entry, EntryState
from sender.select.listed_table import LISTED_FILES
from sender.select.path_table import PathTable, have_same_paths, joined, lacking

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from common.durable import Tree
    from common.names import FilePath
    from sender.select.data_dirs import DataDirs

__all__ = ["SENDER_DIRS", "Ledger", "sender_dir", "sender_dirs"]

SENDER_DIRS = "sync-sender"
"""Where a data directory keeps what concerns its receivers."""

_LAST = "last_local_files.txt"
_CURRENT = "current_local_files.txt"
_STATE = "local_files.state"
_PIECE = 1 << 20


def sender_dir(endpoint: str) -> str:
    """Where a data directory keeps what concerns one receiver."""
    return f"{SENDER_DIRS}/{endpoint}"


def sender_dirs(dirs: DataDirs, endpoint: str) -> dict[Path, str]:
    """The same for each data directory that counts."""
    return {path: sender_dir(dirs.elsewhere.get(path, endpoint)) for path in dirs.trees}


class Ledger:
    """The list of loaded files of all mounted data directories, for one receiver.

    Attributes:
        entries: path -> what is loaded.
        pending: path -> what was sent, in a task whose outcome is not folded in yet.
        doubts: why the lists cannot be trusted as they are, in words; empty if they can.
    """

    def __init__(self, dirs: DataDirs, endpoint: str) -> None:
        self._trees = dict(dirs.trees)
        self._bases = sender_dirs(dirs, endpoint)
        self._lists = {data_dir: _nothing() for data_dir in self._trees}
        self.entries = _nothing()
        self.pending: dict[FilePath, Entry] = {}
        self.doubts: tuple[str, ...] = ()

    @classmethod
    def open(cls, dirs: DataDirs, endpoint: str, *, repair: bool = True) -> Ledger:
        """Read the lists of all mounted data directories.

        Args:
            dirs: the data directories; they stay the caller's to close.
            endpoint: `<host>_<port>`.
            repair: finish an interrupted replacement first; False writes nothing (dry run,
                status beside a running daemon).
        """
        ledger = cls(dirs, endpoint)
        for data_dir, tree in ledger._trees.items():
            base = ledger._bases[data_dir]
            names = (f"{base}/{_LAST}", f"{base}/{_CURRENT}")
            interrupted = all(map(tree.exists, names))
            if repair:
                ledger._repair(tree, base)
            ledger._load(data_dir, tree, interrupted)
        return ledger

    # -- changing --------------------------------------------------------------------------

    def sent(self, entries: Iterable[Entry]) -> None:
        """Record, before the end of a task is announced, exactly what was sent under each path.

        Only with this can a recovery know later which content the receiver's outcome speaks of.
        Replaces what an earlier task left here.
        """
        self.pending = {each.path: replace(each, state=EntryState.SENT) for each in entries}
        homes = {each.data_dir for each in self.pending.values()}
        for data_dir in self._trees:
            if data_dir in homes or self._tree_has_state(data_dir):
                self._write_state(data_dir, self._lists[data_dir])
        crash.point("ledger.sent")

    def fold(self, added: Iterable[Entry] = (), removed: Iterable[FilePath] = ()) -> None:
        """Put loaded files on the list, take others off; doing it twice changes nothing.

        A path in both is replaced. Directories that gain files are written before those that only
        lose some, so that a file which moved is never on no list.
        """
        gone = set(removed)
        come = {each.path: _surely_loaded(each) for each in added}
        gone -= come.keys()
        if not gone and not come:
            return
        before = self.entries
        self.entries = before.changed(come.values(), gone)
        wanted = self._changed_lists(gone, come)
        changed = {each.data_dir for each in come.values() if before.get(each.path) != each}
        self._replace_lists(wanted, changed)
        # On disk they stay until the next writing: a fold that is cut off needs them again.
        self.pending = {path: each for path, each in self.pending.items() if path not in come}

    def refresh(self, entries: Iterable[Entry]) -> None:
        """Take in new facts of files that are loaded already: touched, moved, looked at again."""
        self.fold(added=entries)

    def become(self, new: Rebuilt) -> None:
        """Make the list what it was found to be against the inventory; clears all doubts."""
        self.entries = PathTable.of(LISTED_FILES, new.entries.values())
        wanted = dict.fromkeys(self._trees, self.entries)
        if len(self._trees) > 1:
            wanted = {data_dir: self._of(data_dir) for data_dir in self._trees}
        self._replace_lists(wanted, set(self._trees), every=True)
        self.doubts = ()

    def _of(self, data_dir: Path) -> PathTable[Entry]:
        """What of the list is of one data directory."""
        blocks = (each for each in self.entries.blocks() if each.data_dir == data_dir)
        return PathTable(LISTED_FILES, blocks)

    def _changed_lists(
        self, gone: set[FilePath], come: Mapping[FilePath, Entry]
    ) -> Mapping[Path, PathTable[Entry]]:
        """What is to be on the list of each data directory."""
        if len(self._trees) == 1:
            return dict.fromkeys(self._trees, self.entries)
        return {
            data_dir: listed.changed(
                (each for each in come.values() if each.data_dir == data_dir), gone | come.keys()
            )
            for data_dir, listed in self._lists.items()
        }

    @property
    def home(self) -> Path | None:
        """The data directory whose list has what is in none; None if no directory counts."""
        return next(iter(self._trees), None)

    def forget(self) -> None:
        """Throw the lists away (`resync`): all is compared anew with the receiver's inventory."""
        for data_dir, tree in self._trees.items():
            for name in (_STATE, _CURRENT, _LAST):
                tree.unlink(f"{self._bases[data_dir]}/{name}")
                crash.point("ledger.forget")
        self.entries, self.pending = _nothing(), {}
        self._lists = {data_dir: _nothing() for data_dir in self._trees}
        self.doubts = ("the list was thrown away for a resync",)

    # -- inside: reading -------------------------------------------------------------------

    @staticmethod
    def _repair(tree: Tree, base: str) -> None:
        if not tree.exists(base):
            return
        tree.sync_dir(base)  # what a killed process left may be in memory only
        tree.sweep_temporaries(base, deep=False)
        last, current = f"{base}/{_LAST}", f"{base}/{_CURRENT}"
        if not tree.exists(current):
            return
        crash.point("ledger.repair")
        if tree.exists(last):
            tree.unlink(current)
        else:
            tree.rename(current, last)
        crash.point("ledger.repaired")

    def _load(self, data_dir: Path, tree: Tree, interrupted: bool) -> None:
        base = self._bases[data_dir]
        content = _opened(tree, f"{base}/{_LAST}") or _opened(tree, f"{base}/{_CURRENT}")
        if content is None:
            self._doubt(f"{data_dir}: there is no {_LAST} yet, or it was lost")
            return
        with content, _opened(tree, f"{base}/{_STATE}") or io.BytesIO() as state:
            facts, trouble = read_state(state, data_dir)
            digest = list_digest(iter(lambda: content.read(_PIECE), b""))
            if facts.is_exact and digest in facts.lists[:1]:
                listed = facts.listed  # just these: not each of its lines has to be looked at
            else:
                content.seek(0)
                listed = self._parsed(content.read(), data_dir, facts)
        if trouble:
            self._doubt(f"{data_dir}: {_STATE} is unusable: {trouble}")
        elif digest not in (facts.lists if interrupted else facts.lists[:1]):
            self._doubt(f"{data_dir}: {_LAST} is not as it was written")
        self._take(data_dir, listed, facts.pending)

    def _parsed(self, content: bytes, data_dir: Path, facts: ListFacts) -> PathTable[Entry]:
        """A list that is not the one that the facts were written for, line by line."""
        paths, problem = parse_paths(content)
        if problem:
            self._doubt(f"{data_dir}: {_LAST} is damaged: {problem}")

        def entry(path: FilePath) -> Entry | None:
            return facts.listed.get(path) or facts.leaving.get(path)

        if facts.lists and not all(map(entry, paths)):
            self._doubt(f"{data_dir}: {_STATE} lacks files of the list")
        found = (entry(path) or Entry.unknown(path, data_dir) for path in paths)
        return PathTable.of(LISTED_FILES, found)

    def _take(
        self, data_dir: Path, listed: PathTable[Entry], pending: Mapping[FilePath, Entry]
    ) -> None:
        self._lists[data_dir] = listed
        # On two lists after a crash while it moved, or taken from the inventory while its disk was
        # away: the facts that were seen here are the better ones.
        self.entries = joined(
            self.entries, listed, lambda other, new: other.state is EntryState.LISTED
        )
        for path, entry in pending.items():
            known = self.entries.get(path)
            if known is None or not known.same_facts(entry):
                self.pending[path] = entry

    def _doubt(self, reason: str) -> None:
        self.doubts = (*self.doubts, reason)

    # -- inside: writing -------------------------------------------------------------------

    def _replace_lists(
        self,
        wanted: Mapping[Path, PathTable[Entry]],
        changed: set[Path],
        *,
        every: bool = False,
    ) -> None:
        """Write what differs; `changed` are the directories whose facts do."""

        def only_loses(data_dir: Path) -> bool:
            return not any(lacking(wanted[data_dir], self._lists[data_dir]))

        for data_dir in sorted(self._trees, key=only_loses):
            new = wanted[data_dir]
            if every or not have_same_paths(new, self._lists[data_dir]):
                self._replace_list(data_dir, new)
            elif data_dir in changed:
                self._write_state(data_dir, new)
                self._lists[data_dir] = new

    def _replace_list(self, data_dir: Path, new: PathTable[Entry]) -> None:
        tree = self._trees[data_dir]
        last, current = f"{self._bases[data_dir]}/{_LAST}", f"{self._bases[data_dir]}/{_CURRENT}"
        tree.make_dirs(self._bases[data_dir])
        tree.write_atomic(current, list_pieces(new))
        crash.point("ledger.current_written")
        self._write_state(data_dir, new)
        crash.point("ledger.state_written")
        tree.unlink(last)
        crash.point("ledger.last_deleted")
        tree.rename(current, last)
        crash.point("ledger.renamed")
        self._lists[data_dir] = new

    def _write_state(self, data_dir: Path, new: PathTable[Entry]) -> None:
        """Write the facts, good for the old and for the new list."""
        tree, old = self._trees[data_dir], self._lists[data_dir]
        tree.make_dirs(self._bases[data_dir])
        lists = [list_digest(list_pieces(new))]
        if not have_same_paths(new, old):
            lists.append(list_digest(list_pieces(old)))
        leaving = (entry for _, entry in lacking(old, new))
        pending = (each for each in self.pending.values() if each.data_dir == data_dir)
        facts = ListFacts(
            tuple(lists),
            new,
            PathTable.of(LISTED_FILES, leaving),
            PathTable.of(LISTED_FILES, pending),
        )
        tree.write_atomic(f"{self._bases[data_dir]}/{_STATE}", state_pieces(facts))

    def _tree_has_state(self, data_dir: Path) -> bool:
        return self._trees[data_dir].exists(f"{self._bases[data_dir]}/{_STATE}")


def _surely_loaded(entry: Entry) -> Entry:
    if entry.state in (EntryState.LOADED, EntryState.ENDED):
        return entry
    return replace(entry, state=EntryState.LOADED)


def _nothing() -> PathTable[Entry]:
    return PathTable(LISTED_FILES)


def _opened(tree: Tree, rel: str) -> BinaryIO | None:
    try:
        return os.fdopen(tree.open_read(rel), "rb")
    except (FileNotFoundError, NotADirectoryError):
        return None
