"""The files of a running task, held by hard links so that nobody can delete them meanwhile.

    <data dir>/sync-sender/<host>_<port>/snapshot/sequence/root.a/0/0/1-1-0.tsfile[.resource]

A link shares its inode with the file, so a write into the file is seen through it: size, mtime and
inode are compared after linking, and again when the last byte was read. Where the file system has
no links (or the file has too many) a copy stands in, with a warning, checked against the source
before and after. A link may be the last copy of a file whose source was deleted since; the file is
flushed before it is linked, so that this copy has its bytes after a power cut too.
"""

from __future__ import annotations

import errno
import logging
import os
import stat as modes
from contextlib import ExitStack, contextmanager
from copy import copy
from typing import TYPE_CHECKING

import msgspec

from common import crash
from common.durable import is_temporary, staying
from common.errors import NameRefusedError, UnsafePathError
from common.names import RESOURCE, FilePath
from sender.kept.loaded_list.ledger import sender_dir, sender_dirs
from sender.select.found import LocalFile, ResourceStat, stat_identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from common.durable import Tree
    from sender.select.data_dirs import DataDirs

__all__ = ["DroppedFile", "LinkedFiles", "Snapshot", "SnapshotFile", "still_same"]

_log = logging.getLogger(__name__)
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
_UNREADABLE = frozenset({errno.EACCES, errno.EIO, errno.ESTALE})
_CHANGED = "changed between selection and opening"
_Identity = tuple[int, int, int]


class SnapshotFile(msgspec.Struct, frozen=True):
    """A file that is safe in the snapshot.

    Attributes:
        file: what was selected.
        rel: where it lies beneath its data directory.
        identity: (size, mtime_ns, inode) of what lies there; a copy has its own.
        copied: whether it is a copy.
    """

    file: LocalFile
    rel: str
    identity: _Identity
    copied: bool = False

    @property
    def path(self) -> FilePath:
        """The path that it travels under."""
        return self.file.path

    @property
    def resource_rel(self) -> str | None:
        """Where its resource lies, if it has one."""
        return self.rel + RESOURCE if self.file.resource is not None else None


class DroppedFile(msgspec.Struct, frozen=True):
    """A file that cannot be in the task after all."""

    path: FilePath
    reason: str


class LinkedFiles(msgspec.Struct, frozen=True):
    """What `Snapshot.take` made of a list of files."""

    files: tuple[SnapshotFile, ...]
    dropped: tuple[DroppedFile, ...] = ()


def still_same(fd: int, file: SnapshotFile) -> bool:
    """Whether an open snapshot file is what it was when it was taken (before the last byte)."""
    return stat_identity(os.fstat(fd)) == file.identity


class Snapshot:
    """The snapshot directories of one receiver in all mounted data directories."""

    def __init__(self, dirs: DataDirs, endpoint: str) -> None:
        self._trees = dict(dirs.trees)
        self._base = f"{sender_dir(endpoint)}/snapshot"
        self._looked_at = {
            path: f"{base}/snapshot" for path, base in sender_dirs(dirs, endpoint).items()
        }
        self._warned: set[Path] = set()

    def rel(self, path: FilePath) -> str:
        """Where a file lies in the snapshot, beneath its data directory."""
        return f"{self._base}/{path.text}"

    @contextmanager
    def staying(self) -> Iterator[Snapshot]:
        """The same for one thread and many files, with the directories that it used last open."""
        here = copy(self)
        with ExitStack() as left:
            here._trees = {
                path: left.enter_context(staying(tree)) for path, tree in self._trees.items()
            }
            yield here

    def take(self, files: Iterable[LocalFile]) -> LinkedFiles:
        """Link files (with their resources) into the snapshot; synced once at the end.

        What is not any more as it was scanned is dropped, with the reason. Taking a file twice is
        harmless. A file that lives in the snapshot already is only checked.
        """
        with self.staying() as here:
            return here._take_all(files)

    def _take_all(self, files: Iterable[LocalFile]) -> LinkedFiles:
        taken: list[SnapshotFile] = []
        dropped: list[DroppedFile] = []
        touched: dict[tuple[Path, str], set[str]] = {}
        for file in files:
            where = file.data_dir, f"{self._base}/{file.path.directory}"
            try:
                if where not in touched:
                    touched[where] = self._names(*where)
                taken.append(self._take(file, touched[where]))
            except FileNotFoundError:
                dropped.append(DroppedFile(file.path, "was deleted between selection and opening"))
            except (_ChangedError, UnsafePathError) as error:
                dropped.append(DroppedFile(file.path, str(error)))
            else:
                crash.point("snapshot.taken")
                continue
            if file.rel != self.rel(file.path):  # a last copy is nobody's to remove
                self._unlink(file.data_dir, file.path)
        for data_dir, directory in sorted(touched):
            self._trees[data_dir].sync_dir(directory)
            crash.point("snapshot.synced")
        return LinkedFiles(tuple(taken), tuple(dropped))

    def open(self, file: SnapshotFile) -> int:
        """A descriptor of a file in the snapshot; the caller closes it."""
        return self._trees[file.file.data_dir].open_read(file.rel)

    def open_resource(self, file: SnapshotFile) -> int:
        """A descriptor of its resource; `FileNotFoundError` if it has none."""
        return self._trees[file.file.data_dir].open_read(file.rel + RESOURCE)

    def drop(self, links: Iterable[LocalFile]) -> None:
        """Remove what `leftovers` found, with its resources; what is missing by now is fine.

        Not synced: a link that comes back after a power cut is found and dropped again.
        """
        with self.staying() as here:
            for link in links:
                tree = here._trees[link.data_dir]
                if link.resource is not None:
                    tree.unlink(link.rel + RESOURCE, sync=False)
                tree.unlink(link.rel, sync=False)
                crash.point("snapshot.dropped")

    def leftovers(self) -> list[LocalFile]:
        """What lies in the snapshot: TsFiles with their resources."""
        found = []
        for data_dir, tree in self._trees.items():
            base = self._looked_at[data_dir]
            stats = dict(tree.files(base))
            for rel, stat in stats.items():
                path = _path(rel.removeprefix(f"{base}/"))
                if is_temporary(rel.rpartition("/")[2]):
                    continue
                if path is None:
                    _log.warning("%s: not of a snapshot, left alone", tree.path / rel)
                elif not path.is_resource:
                    resource = stats.get(rel + RESOURCE)
                    size, mtime_ns, inode = stat_identity(stat)
                    beside = None if resource is None else ResourceStat(*stat_identity(resource))
                    found.append(LocalFile(path, data_dir, rel, size, mtime_ns, inode, beside))
        return found

    def sweep(self) -> None:
        """Remove temporaries, stray resources and empty directories, the snapshot's own too."""
        for tree in self._trees.values():
            tree.sweep_temporaries(self._base)
            rels = {rel for rel, _ in tree.files(self._base)}
            for rel in rels:
                if rel.endswith(RESOURCE) and rel.removesuffix(RESOURCE) not in rels:
                    tree.unlink(rel, sync=False)
            _prune(tree, self._base)

    # -- inside ----------------------------------------------------------------------------

    def _names(self, data_dir: Path, directory: str) -> set[str]:
        """Make a directory of the snapshot; what is in it."""
        tree = self._trees[data_dir]
        tree.make_dirs(directory)
        return {name for name, _ in tree.listing(directory)}

    def _take(self, file: LocalFile, there: set[str]) -> SnapshotFile:
        """Bring a file in; `there` are the names in its directory."""
        tree = self._trees[file.data_dir]
        rel = self.rel(file.path)
        if file.rel == rel:
            return self._check_last_copy(tree, file)
        name = file.path.name
        identity, copied = self._bring(tree, file.rel, rel, file.identity, name in there)
        there.add(name)
        crash.point("snapshot.linked")
        beside = file.resource
        if beside is not None:
            wanted = (beside.size, beside.mtime_ns, beside.inode)
            resource = rel + RESOURCE
            try:
                self._bring(tree, file.rel + RESOURCE, resource, wanted, name + RESOURCE in there)
                there.add(name + RESOURCE)
            except FileNotFoundError:
                raise _ChangedError(_CHANGED) from None
        elif name + RESOURCE in there:
            tree.unlink(rel + RESOURCE, sync=False)
        return SnapshotFile(file, rel, identity, copied)

    def _check_last_copy(self, tree: Tree, file: LocalFile) -> SnapshotFile:
        return SnapshotFile(file, file.rel, _expect(tree, file.rel, file.identity))

    def _bring(
        self, tree: Tree, source: str, target: str, wanted: _Identity, there: bool
    ) -> tuple[_Identity, bool]:
        """Link (or copy) one file, of which something may be there: what it is, if it is a copy."""
        if there:
            found = tree.stat(target)
            if found is not None and stat_identity(found) == wanted:
                return wanted, False
            tree.unlink(target, sync=False)
        with _reading():
            tree.sync_file(source)  # whoever wrote it may not have: the link would come back empty
        try:
            made = tree.link(source, target, sync=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._warn(tree.path, error)
            _expect(tree, source, wanted)
            with _reading():
                tree.copy(source, target)
            _expect(tree, source, wanted)
            return stat_identity(_stat(tree, target)), True
        return _expected(made, wanted), False

    def _warn(self, data_dir: Path, error: OSError) -> None:
        if data_dir not in self._warned:
            self._warned.add(data_dir)
            _log.warning(
                "%s: hard links are not possible here (%s); files are copied into the snapshot",
                data_dir,
                error.strerror,
            )

    def _unlink(self, data_dir: Path, path: FilePath) -> None:
        self._trees[data_dir].unlink(self.rel(path) + RESOURCE, sync=False)
        self._trees[data_dir].unlink(self.rel(path), sync=False)


class _ChangedError(Exception):
    """The file is not what was selected, or cannot be read any more."""


@contextmanager
def _reading() -> Iterator[None]:
    """What one file or its disk refuses concerns that file alone."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
        raise _ChangedError(f"cannot be read: {error.strerror}") from error


def _stat(tree: Tree, rel: str) -> os.stat_result:
    found = tree.stat(rel)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "vanished", rel)
    return found


def _expect(tree: Tree, rel: str, wanted: _Identity) -> _Identity:
    return _expected(_stat(tree, rel), wanted)


def _expected(found: os.stat_result, wanted: _Identity) -> _Identity:
    if stat_identity(found) != wanted:
        raise _ChangedError(_CHANGED)
    return wanted


def _path(text: str) -> FilePath | None:
    try:
        return FilePath.parse(text)
    except NameRefusedError:
        return None


def _prune(tree: Tree, rel: str) -> None:
    for name, stat in tree.listing(rel):
        if modes.S_ISDIR(stat.st_mode):
            _prune(tree, f"{rel}/{name}")
    if tree.exists(rel):
        tree.remove_empty(rel)
