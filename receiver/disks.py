"""The receiver's own directories: their markers, and which of them count now.

`.tsferry-receiver` in each data directory and in the schema directory says whose they are:

    tsferry receiver directory 1
    engine 5d3f0c1b8a9e4f7296b1c0d4e8a7f352

It is written once, in the data directories before the schema directory: one there says that all
have had theirs. From then on a data directory without it is *away* (not mounted, exchanged for an
empty disk, lost): nothing is written there, nothing that it should hold is called lost or safe,
and nothing but `init --adopt` makes it count again. The marker is what is compared; under which
path a disk is mounted says nothing. Where the schema directory goes from its path while the server
runs, what is committed from then on, and what was before, is not there at the next start: nothing
is taken, and nothing is safe.

Directories that have no marker yet are those of a first start, or of tsferry 0.1.0, which made
none. There is one proof that such a directory is not an empty disk in the place of the real one:
files of the catalogue lie in it. Where nothing is missing, nothing has to be proved.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from common import crash
from common.durable import Closing, Tree, free_bytes
from common.errors import (
    ConfigError,
    NoSpaceError,
    Permanent,
    TooLargeError,
    Transient,
    TsferryError,
)
from common.names import FilePath, Kind, is_sender_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from receiver.config import ReceiverConfig
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.uploaded import InStore

__all__ = [
    "NAMING",
    "RECEIVER_MARKER",
    "Away",
    "AwayError",
    "DamagedMarkerError",
    "Disk",
    "Disks",
    "adopt",
    "check_first_start",
    "check_restored",
    "device_of",
    "disk_room",
    "engine_of",
    "home_of",
    "place_of",
    "whole_in",
]

_BLOCK = 4096
log = logging.getLogger(__name__)

RECEIVER_MARKER = ".tsferry-receiver"
_HEAD = "tsferry receiver directory 1"
_LIMIT = 4096
_PAUSE = 60.0
_WAY_OUT = (
    "is its disk mounted? If it is new, or its files are lost, `tsferry-receiver init --adopt` "
    "takes it as it is"
)


NAMING = threading.Lock()
"""Held while the name of a loaded file, or of its `.resource`, is taken away from a data directory
for what the catalogue says, or given there behind a commit: who does one sees the other."""


class AwayError(Transient):
    """A data directory is away: not mounted, exchanged, or without its marker."""

    slug = "directory-away"


class DamagedMarkerError(Permanent):
    """A marker says nothing that could be read."""

    slug = "damaged-marker"


@dataclass(frozen=True, slots=True)
class Away:
    """A directory that does not count now, and why."""

    path: Path
    reason: str
    kind: str = "data"

    def __str__(self) -> str:
        return f"the {self.kind} directory {self.path} is away: {self.reason}"


# -- markers -------------------------------------------------------------------------------------


def engine_of(tree: Tree) -> str | None:
    """The uuid in a directory's marker, None if it has none.

    Raises:
        DamagedMarkerError: the marker is none.
        OSError: it cannot be read.
    """
    try:
        content = tree.read(RECEIVER_MARKER, limit=_LIMIT)
    except FileNotFoundError:
        return None
    except TooLargeError:
        content = b""
    lines = content.decode("utf-8", "replace").splitlines()
    uuid = lines[1].removeprefix("engine ") if len(lines) == 2 else ""
    if lines[:1] != [_HEAD] or not is_sender_uuid(uuid):  # of the same form
        raise DamagedMarkerError(f"its marker {RECEIVER_MARKER} is damaged")
    return uuid


def _mark(tree: Tree, uuid: str) -> None:
    tree.write_atomic(RECEIVER_MARKER, f"{_HEAD}\nengine {uuid}\n".encode())


def _problem(tree: Tree, uuid: str) -> str | None:
    """Why a directory is not this engine's, None if it is."""
    try:
        found = engine_of(tree)
    except DamagedMarkerError as error:
        return error.message
    except (OSError, TsferryError) as error:
        return f"its marker {RECEIVER_MARKER} cannot be read: {error}"
    if found is None:
        return f"it has no marker {RECEIVER_MARKER}: {_WAY_OUT}"
    if found != uuid:
        return f"its marker names the engine {found}, this one is {uuid}: {_WAY_OUT}"
    return None


# -- directories ---------------------------------------------------------------------------------


class Disk(Closing):
    """A directory as it was found at the start, and whether it still is that.

    Attributes:
        path: of the configuration.
        tree: held open; None if it was away at the start.
        is_marked: whether it has the marker, which it then has to keep.
    """

    def __init__(
        self, path: Path, uuid: str, tree: Tree | None, *, reason: str = "", marked: bool = True
    ) -> None:
        """Take it as it was found.

        Args:
            path: of the configuration.
            uuid: of the engine.
            tree: of the path, None if the directory is away.
            reason: why it is.
            marked: whether it has a marker; one that could get none counts as long as it is there.
        """
        self.path = path
        self.tree = tree
        self.is_marked = marked and tree is not None
        self._uuid = uuid
        self._reason = reason

    def why_away(self) -> str | None:
        """Why it does not count now, None while it does; the disk is asked."""
        if self.tree is None:
            return self._reason
        try:
            with Tree(self.path) as now:
                if not _is_same(now, self.tree):
                    return "at its path is another directory than at the start: start anew"
                return _problem(now, self._uuid) if self.is_marked else None
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
    """

    def __init__(self, disks: Sequence[Disk], schema: Disk) -> None:
        self._disks = disks
        self._schema = schema
        self.pinned: Callable[[Sequence[FileRow]], AbstractContextManager[None]] = _as_they_are

    @classmethod
    def open(cls, config: ReceiverConfig, engine: Engine) -> Self:
        """Open them, and mark those that have never been marked.

        Raises:
            ConfigError: the schema directory is another engine's.
        """
        with ExitStack() as stack:
            found, all_marked = _find(config, engine, stack)
            disks = [_made(each, engine.uuid, stack) for each in found]
            crash.point("disks.marked")
            if not all_marked and all(each.is_marked for each in disks):
                with Tree(config.schema_dir) as schema:
                    _mark(schema, engine.uuid)
                all_marked = True
            home = _schema(config, engine, stack, marked=all_marked)
            stack.pop_all()
        return cls(disks, home)

    @classmethod
    def look(cls, config: ReceiverConfig, engine: Engine) -> Self:
        """Open them beside a server that may be running, and write nothing.

        Raises:
            ConfigError: the schema directory is another engine's.
        """
        with ExitStack() as stack:
            found, all_marked = _find(config, engine, stack)
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
            found = [_see(path, engine.uuid, stack) for path in config.data_dirs]
            home = stack.enter_context(Tree(config.schema_dir))
            schema = Disk(config.schema_dir, engine.uuid, home, marked=False)
            stack.pop_all()
        for each in found:
            if each.reason is not None and each.tree is not None:
                each.tree.close()
        return cls([_disk(each, engine.uuid) for each in found if each.reason is None], schema)

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
            AwayError: all are away, or the schema directory is.
        """
        for away in self._schema_away():
            raise AwayError(f"{away}", retry_after=_PAUSE)
        standing = self.standing()
        if not standing:
            raise AwayError(f"{self.away()[0]}", retry_after=_PAUSE)
        disks: dict[int, Tree] = {}
        for tree in standing:
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


@dataclass
class _Seen:
    """What is at the path of a data directory.

    Attributes:
        path: of the configuration.
        tree: open, if there is a directory.
        reason: why it is not this engine's, None if it is.
        is_new: whether it has no marker, not even a foreign one.
        is_taken: whether it is this engine's all the same, and is to get its marker.
    """

    path: Path
    tree: Tree | None
    reason: str | None
    is_new: bool = False
    is_taken: bool = False


def _find(config: ReceiverConfig, engine: Engine, stack: ExitStack) -> tuple[list[_Seen], bool]:
    """The data directories, judged; and whether all of them have had their markers."""
    with Tree(config.schema_dir) as schema:
        known = engine_of(schema)
    if known not in (None, engine.uuid):
        raise ConfigError(
            f"schema_dir: {config.schema_dir} belongs to the engine {known}, and the log is that "
            f"of {engine.uuid}: which of the two is in the wrong place?"
        )
    found = [_see(path, engine.uuid, stack) for path in config.data_dirs]
    if known is None:
        _take_unmarked(engine, found)
    return found, known is not None


def _see(path: Path, uuid: str, stack: ExitStack) -> _Seen:
    try:
        tree = stack.enter_context(Tree(path))
    except FileNotFoundError:
        return _Seen(path, None, f"it is not there: {_WAY_OUT}", is_new=True)
    except OSError as error:
        return _Seen(path, None, f"it cannot be opened: {error.strerror}")
    reason = _problem(tree, uuid)
    return _Seen(path, tree, reason, is_new=reason is not None and not tree.exists(RECEIVER_MARKER))


def _take_unmarked(engine: Engine, found: Sequence[_Seen]) -> None:
    """Find out which directories without a marker are this engine's: see the module."""
    with engine.reading() as state:
        parts = state.uploaded_table.parts
        rows = [row for row in state.files.values() if row.visible]
        remote = {row.physical for row in rows if parts(row).file}
    homes = [each.tree for each in found if each.tree is not None and each.reason is None]
    for each in found:
        if each.is_new and each.tree is not None and _holds_one(each.tree, rows):
            each.is_taken = True
            homes.append(each.tree)
    # A file that is missing where others of its directory are was not on a disk that is away.
    known = {str(tree.path) for tree in homes}
    nothing_missing = all(
        row.data_dir in known
        or row.physical in remote
        or any(tree.exists(row.physical) for tree in homes)
        for row in rows
    )
    for each in found:
        each.is_taken = each.is_taken or (each.is_new and nothing_missing)
        if each.is_new and not each.is_taken:
            each.reason = f"files were loaded into it, and none of them is there: {_WAY_OUT}"


def _holds_one(tree: Tree, rows: Sequence[FileRow]) -> bool:
    return any(tree.exists(kind) for kind in Kind) and any(
        tree.exists(row.physical) for row in rows
    )


def _made(found: _Seen, uuid: str, stack: ExitStack) -> Disk:
    """The directory, with its marker if it is to get one."""
    if found.is_taken:
        if found.tree is None:
            found.tree = stack.enter_context(Tree(found.path, create=True))
        try:
            _mark(found.tree, uuid)
        except NoSpaceError as error:  # it counts as it did without one; the next start tries again
            log.warning("a data directory gets no marker now: %s", error.message)
        else:
            found.is_new = found.is_taken = False
            found.reason = None
    return _disk(found, uuid)


def _schema(config: ReceiverConfig, engine: Engine, stack: ExitStack, *, marked: bool) -> Disk:
    tree = stack.enter_context(Tree(config.schema_dir))
    return Disk(config.schema_dir, engine.uuid, tree, marked=marked)


def _disk(found: _Seen, uuid: str) -> Disk:
    counts = found.tree is not None and (found.reason is None or found.is_taken)
    if found.tree is not None and not counts:
        found.tree.close()
    return Disk(
        found.path,
        uuid,
        found.tree if counts else None,
        reason=found.reason or "",
        marked=not found.is_taken,
    )


def device_of(tree: Tree) -> int:
    """Which file system a directory is on."""
    return os.stat(tree.path).st_dev


def disk_room(size: int) -> int:
    """Bytes that a file of a size takes on the disk, by the blocks of most file systems."""
    return -(-size // _BLOCK) * _BLOCK


def check_first_start(config: ReceiverConfig) -> None:
    """See that an engine may be made: the directories are no other engine's.

    Raises:
        ConfigError: they are. Then the schema directory is lost, or its disk is not mounted.
    """
    for path in (config.schema_dir, *config.data_dirs):
        try:
            with Tree(path) as tree:
                trace = _trace(tree)
        except OSError:
            continue
        if trace is not None:
            raise ConfigError(
                f"schema_dir: {config.schema_dir} has no engine, but {path} {trace}: is the disk "
                "of the schema directory mounted? Restore it from a copy; if there is none, "
                "`tsferry-receiver init --adopt` begins a new engine, and senders bring their "
                "files again"
            )


def check_restored(config: ReceiverConfig, uuid: str) -> None:
    """See that an engine may be restored: no data directory is another engine's.

    Raises:
        ConfigError: one is.
    """
    for path in config.data_dirs:
        try:
            with Tree(path) as tree:
                found = engine_of(tree)
        except (OSError, TsferryError):
            continue  # not there yet, or its marker is damaged and is written anew
        if found not in (None, uuid):
            raise ConfigError(
                f"data_dirs: {path} belongs to the engine {found}, not to {uuid}; restore into "
                f"another directory, or remove {path / RECEIVER_MARKER} if that engine is no more"
            )


def _trace(tree: Tree) -> str | None:
    """What an engine that was here has left."""
    try:
        uuid = engine_of(tree)
    except (OSError, TsferryError) as error:
        return f"has a marker: {error}"
    if uuid is not None:
        return f"belongs to the engine {uuid}"
    if any(next(tree.files(kind), None) for kind in Kind):
        return "holds files"
    return None


def adopt(config: ReceiverConfig, uuid: str) -> list[Path]:
    """Make all directories this engine's, as they are; returns the data directories that were not.

    Raises:
        NoSpaceError, DiskError: a marker could not be written.
    """
    marked = []
    for path in config.data_dirs:
        with Tree(path, create=True) as tree:
            if _problem(tree, uuid) is not None:
                _mark(tree, uuid)
                marked.append(path)
    with Tree(config.schema_dir) as schema:
        if _problem(schema, uuid) is not None:
            _mark(schema, uuid)
    return marked


# -- bytes ---------------------------------------------------------------------------------------


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
    tree = next((each for each in trees if each.exists(row.physical)), None)
    return None if tree is None else str(tree.path / row.physical)


def home_of(trees: Sequence[Tree], row: FileRow) -> Tree | None:
    """The data directory that a file was loaded into, None if it is not among these."""
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
