"""The receiver's own directories: which of them count now, and which take files.

Each data directory and the schema directory has a marker (`receiver.datadirs.directory_markers`)
that says whose it is. It is written in the data directories before the schema directory: one there
says that all have had theirs. From then on a data directory without it is *away* (not mounted,
exchanged for an empty disk, lost): nothing is written there, nothing that it should hold is called
lost or safe, and nothing but `init --adopt` makes it count again. The marker is what is compared;
under which path a disk is mounted says nothing. Where the schema directory goes from its path while
the server runs, what is committed from then on, and what was before, is not there at the next
start: nothing is taken, and nothing is safe.

Each start raises the number in the marker of a data directory, before the catalogue hears of it.
One that is *draining* is there for all who read, and nothing new comes to it.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self
from uuid import uuid4

from common import crash
from common.durable import Closing, Tree, free_bytes
from common.errors import NoSpaceError, Transient, TsferryError
from common.names import FilePath
from receiver.datadirs.directory_finding import find_directories, marker_problem, see_directory
from receiver.datadirs.directory_markers import DirectoryMarker, write_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from receiver.config import ReceiverConfig
    from receiver.datadirs.directory_finding import FoundDirectory
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedOutput
    from receiver.metadata.state.tables.file_tables.uploaded import InStore

__all__ = [
    "NAMING",
    "Away",
    "AwayError",
    "Disk",
    "Disks",
    "device_of",
    "disk_room",
    "has_resource_in",
    "home_of",
    "is_whole_in",
    "place_of",
    "whole_in",
]

_BLOCK = 4096
log = logging.getLogger(__name__)

_PAUSE: Final = 60.0


NAMING = threading.Lock()
"""Held while the name of a loaded file, or of its `.resource`, is taken away from a data directory
for what the catalogue says, or given there behind a commit: who does one sees the other."""


class AwayError(Transient):
    """A data directory is away: not mounted, exchanged, or without its marker."""

    slug = "directory-away"


@dataclass(frozen=True, slots=True)
class Away:
    """A directory that does not count now, and why."""

    path: Path
    reason: str
    kind: str = "data"

    def __str__(self) -> str:
        return f"the {self.kind} directory {self.path} is away: {self.reason}"


# -- directories ---------------------------------------------------------------------------------


class Disk(Closing):
    """A directory as it was found at the start, and whether it still is that.

    Attributes:
        path: of the configuration.
        tree: held open; None if it was away at the start.
        is_marked: whether it has the marker, which it then has to keep.
        marker: what that says; None in a schema directory, and where there is none.
    """

    def __init__(
        self,
        path: Path,
        uuid: str,
        tree: Tree | None,
        *,
        reason: str = "",
        marked: bool = True,
        marker: DirectoryMarker | None = None,
    ) -> None:
        """Take it as it was found.

        Args:
            path: of the configuration.
            uuid: of the engine.
            tree: of the path, None if the directory is away.
            reason: why it is.
            marked: whether it has a marker; one that could get none counts as long as it is there.
            marker: of a data directory.
        """
        self.path = path
        self.tree = tree
        self.is_marked = marked and tree is not None
        self.marker = marker
        self._uuid = uuid
        self._reason = reason

    @property
    def uuid(self) -> str:
        """Of its node in the catalogue; empty where it has none."""
        return "" if self.marker is None else self.marker.directory

    def why_away(self) -> str | None:
        """Why it does not count now, None while it does; the disk is asked."""
        if self.tree is None:
            return self._reason
        try:
            with Tree(self.path) as now:
                if not _is_same(now, self.tree):
                    return "at its path is another directory than at the start: start anew"
                if not self.is_marked:
                    return None
                return marker_problem(now, self._uuid, self.uuid)
        except OSError as error:
            return f"it cannot be opened: {error.strerror}"

    def close(self) -> None:
        """Let it go; closing twice is harmless."""
        if self.tree is not None:
            self.tree.close()


def _is_same(one: Tree, other: Tree) -> bool:
    here, there = one.stat(""), other.stat("")
    return here is not None and there is not None and os.path.samestat(here, there)


class Disks(Closing):
    """The data directories of a receiver, in the order of the configuration, and the schema's.

    Attributes:
        pinned: while it is entered, these files lie in the data directories and stay there: what is
            in the object store only is fetched. Without a store there is nothing that it could do.
        draining: uuids of those that take no new files; whoever commits that sets it.
        leaving: held by whoever takes the bytes of deleted files off the disk, until their rows are
            gone, and by whoever brings such a file back, from the look at its bytes to the commit.
    """

    def __init__(self, disks: Sequence[Disk], schema: Disk) -> None:
        self._disks = disks
        self._schema = schema
        self.pinned: Callable[[Sequence[FileRow]], AbstractContextManager[None]] = _as_they_are
        self.draining: frozenset[str] = frozenset()
        self.leaving = threading.Lock()

    @classmethod
    def open(cls, config: ReceiverConfig, engine: Engine) -> Self:
        """Open them, and mark those that have never been marked.

        Raises:
            ConfigError: the schema directory is another engine's.
        """
        with ExitStack() as stack:
            found, all_marked = find_directories(config, engine, stack)
            disks = [_made(each, engine.uuid, stack) for each in found]
            crash.point("disks.marked")
            if not all_marked and all(each.is_marked for each in disks):
                with Tree(config.schema_dir) as schema:
                    write_marker(schema, DirectoryMarker(engine.uuid))
                all_marked = True
            home = _schema(config, engine, stack, marked=all_marked)
            stack.pop_all()
        opened = cls(disks, home)
        opened.hear(engine)
        return opened

    @classmethod
    def look(cls, config: ReceiverConfig, engine: Engine) -> Self:
        """Open them beside a server that may be running, and write nothing.

        Raises:
            ConfigError: the schema directory is another engine's.
        """
        with ExitStack() as stack:
            found, all_marked = find_directories(config, engine, stack)
            home = _schema(config, engine, stack, marked=all_marked)
            stack.pop_all()
        return cls([_disk(each, engine.uuid) for each in found], home)

    @classmethod
    def lent(cls, config: ReceiverConfig, engine: Engine) -> Self:
        """Those of another receiver that can be read here, for a node that follows its engine.

        A node need not reach any: of files that are in none of these, the catalogue tells where its
        own receiver has them.
        """
        with ExitStack() as stack:
            found = [see_directory(path, engine.uuid, stack) for path in config.data_dirs]
            home = stack.enter_context(Tree(config.schema_dir))
            schema = Disk(config.schema_dir, engine.uuid, home, marked=False)
            stack.pop_all()
        for each in found:
            if each.reason is not None and each.tree is not None:
                each.tree.close()
        return cls([_disk(each, engine.uuid) for each in found if each.reason is None], schema)

    def hear(self, engine: Engine) -> None:
        """Heed what the catalogue says of them: which are draining."""
        with engine.reading() as state:
            rows = state.node_table.rows.values()
            self.draining = frozenset(row.uuid for row in rows if not row.takes_files)

    def every(self) -> list[Disk]:
        """All of the configuration, those too that are away."""
        return list(self._disks)

    def is_draining(self, tree: Tree) -> bool:
        """Whether nothing new is to come to a data directory."""
        if not self.draining:
            return False
        return any(each.tree is tree and each.uuid in self.draining for each in self._disks)

    @property
    def trees(self) -> list[Tree]:
        """Those that were there at the start."""
        return [each.tree for each in self._disks if each.tree is not None]

    def standing(self) -> list[Tree]:
        """Those that count now."""
        return [tree for each in self._disks if (tree := each.tree) and each.why_away() is None]

    def holding(self) -> list[Tree]:
        """Those of which it can be said that files in them are kept: none without the catalogue."""
        return [] if self._schema.why_away() is not None else self.standing()

    def away(self) -> list[Away]:
        """Those that do not count, and why; the schema directory is one of them."""
        reasons = [(each.path, each.why_away()) for each in self._disks]
        away = [Away(path, reason) for path, reason in reasons if reason is not None]
        return [*self._schema_away(), *away]

    def _schema_away(self) -> list[Away]:
        reason = self._schema.why_away()
        return [] if reason is None else [Away(self._schema.path, reason, "schema")]

    def roomiest(self) -> Tree:
        """The one with the most free bytes, if files may be put there now.

        Of several on one file system it is the first: they have the same room.

        Raises:
            AwayError: all are away or draining, or the schema directory is away.
        """
        for away in self._schema_away():
            raise AwayError(f"{away}", retry_after=_PAUSE)
        standing = self.standing()
        taking = [tree for tree in standing if not self.is_draining(tree)]
        if not taking:
            why = next(map(str, self.away()), "each data directory is being drained")
            raise AwayError(why, retry_after=_PAUSE)
        disks: dict[int, Tree] = {}
        for tree in taking:
            disks.setdefault(device_of(tree), tree)
        return max(disks.values(), key=lambda tree: free_bytes(tree.path))

    def check(self, tree: Tree) -> None:
        """See that files may be put into a directory now.

        Raises:
            AwayError: it is away, or the schema directory is.
        """
        for away in self._schema_away():
            raise AwayError(f"{away}", retry_after=_PAUSE)
        for each in self._disks:
            reason = each.why_away() if each.tree is tree else None
            if reason is not None:
                raise AwayError(f"{Away(each.path, reason)}", retry_after=_PAUSE)

    def check_all(self) -> None:
        """See that what no directory has is nowhere.

        Raises:
            AwayError: one is away.
        """
        for away in self.away():
            raise AwayError(f"{away}", retry_after=_PAUSE)

    def close(self) -> None:
        """Let all go; closing twice is harmless."""
        for each in (*self._disks, self._schema):
            each.close()


def _as_they_are(_: Sequence[FileRow]) -> AbstractContextManager[None]:
    return nullcontext()


# -- at the start --------------------------------------------------------------------------------


def _made(found: FoundDirectory, uuid: str, stack: ExitStack) -> Disk:
    """The directory, with the marker of this start if it counts."""
    if not found.is_taken and found.marker is None:
        return _disk(found, uuid)
    if found.is_taken and found.tree is None:
        found.tree = stack.enter_context(Tree(found.path, create=True))
    if found.tree is None or (found.reason is not None and not found.is_taken):
        return _disk(found, uuid)
    before = found.marker or DirectoryMarker(uuid)
    now = DirectoryMarker(uuid, before.directory or uuid4().hex, before.instance + 1)
    try:
        write_marker(found.tree, now)
    except (OSError, TsferryError) as error:
        if found.marker is None and not isinstance(error, NoSpaceError):
            raise
        # It counts as it did without one, or by that of the last start; the next tries again.
        log.warning("a data directory gets no marker of this start: %s", error)
    else:
        found.marker = now
        found.is_new = found.is_taken = False
        found.reason = None
    return _disk(found, uuid)


def _schema(config: ReceiverConfig, engine: Engine, stack: ExitStack, *, marked: bool) -> Disk:
    tree = stack.enter_context(Tree(config.schema_dir))
    return Disk(config.schema_dir, engine.uuid, tree, marked=marked)


def _disk(found: FoundDirectory, uuid: str) -> Disk:
    counts = found.tree is not None and (found.reason is None or found.is_taken)
    if found.tree is not None and not counts:
        found.tree.close()
    return Disk(
        found.path,
        uuid,
        found.tree if counts else None,
        reason=found.reason or "",
        marked=not found.is_taken,
        marker=found.marker if counts else None,
    )


def device_of(tree: Tree) -> int:
    """Which file system a directory is on."""
    return os.stat(tree.path).st_dev


def disk_room(size: int) -> int:
    """Bytes that a file of a size takes on the disk, by the blocks of most file systems."""
    return -(-size // _BLOCK) * _BLOCK


# -- bytes ---------------------------------------------------------------------------------------


def is_whole_in(trees: Sequence[Tree], row: FileRow) -> bool:
    """Whether a file lies in one of these directories, with the size that was committed."""
    return any(_has(tree, row.physical, row.size) for tree in trees)


def has_resource_in(trees: Sequence[Tree], row: FileRow) -> bool:
    """Whether the resource of a file lies in one of these directories; also where it has none."""
    rel = FilePath.parse(row.physical).resource.text
    told = row.resource
    return told is None or any(_has(tree, rel, told.size) for tree in trees)


def whole_in(trees: Sequence[Tree], row: FileRow, stored: InStore) -> bool:
    """Whether a file lies in one of these directories, with its resource if it has one.

    Each must be a regular file that opens and has the size that was committed; or be in none of
    them, and in the object store.
    """
    physical = FilePath.parse(row.physical)
    wanted = [(physical.text, row.size, stored.file)]
    if row.resource is not None:
        wanted.append((physical.resource.text, row.resource.size, stored.resource))
    if any(all(_has(tree, rel, size) for rel, size, _ in wanted) for tree in trees):
        return True
    return stored.file and all(
        any(_has(tree, rel, size) for tree in trees)
        or (in_store and not any(_is_at(tree, rel) for tree in trees))
        for rel, size, in_store in wanted
    )


def place_of(trees: Sequence[Tree], row: FileRow) -> str | None:
    """Where the bytes of a file are, None if they are in none of these directories."""
    home = home_of(trees, row)
    if home is not None and home.exists(row.physical):
        return str(home.path / row.physical)
    tree = next((each for each in trees if each.exists(row.physical)), None)
    return None if tree is None else str(tree.path / row.physical)


def home_of(trees: Sequence[Tree], row: FileRow | CompactedOutput) -> Tree | None:
    """The data directory that a file was loaded into, or moved to; None if it is not here."""
    return next((tree for tree in trees if str(tree.path) == row.data_dir), None)


def _is_at(tree: Tree, rel: str) -> bool:
    """Whether anything is there, as far as can be told."""
    try:
        return tree.exists(rel)
    except (OSError, TsferryError):
        return True


def _has(tree: Tree, rel: str, size: int) -> bool:
    try:
        fd = tree.open_read(rel)
    except (OSError, TsferryError):
        return False
    try:
        return os.fstat(fd).st_size == size
    finally:
        os.close(fd)
