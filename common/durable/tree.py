"""The durable operations beneath a directory: each change of names and bytes, in its order."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from common import crash
from common.beneath import exclusive_rename, open_beneath, open_regular, parts, require_regular
from common.digests import read_blocks
from common.durable.flushing import flush, flush_names, may_write, meaning
from common.durable.locking import take_lock
from common.durable.open_files import AppendFile, Lock, WriteFile
from common.durable.reading_tree import DIRECTORY_FLAGS, ParentDir, ReadingTree
from common.durable.temporaries import is_temporary, new_file, temporary
from common.errors import (
    UnsafePathError,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["Tree", "free_bytes", "is_read_only"]

_PIECE = 1 << 20


def free_bytes(path: Path) -> int:
    """Bytes that an unprivileged process may still write on the file system of `path`."""
    at = os.statvfs(path)
    return at.f_bavail * at.f_frsize


def is_read_only(path: Path) -> bool:
    """Whether the file system of `path` takes no writes, as it stands mounted here."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


class Tree(ReadingTree):
    """A directory held by descriptor, and everything durable that may be done beneath it.

    `rel` is always a POSIX path relative to the directory. Methods that change names sync the
    directories concerned unless told `sync=False`; then the caller owes a `sync_dir`.

    The path of the directory itself may lead through symlinks (an operator's mount points); it is
    resolved once, here, and what is planted there later is not followed any more.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if create:
            _make_root(path)
        super().__init__(path)
        self._lasting: set[str] = set()

    # -- writing ---------------------------------------------------------------------------

    def make_dirs(self, rel: str) -> None:
        """Make a directory and those above it, each synced into its parent.

        One that is there already is synced as well, once: who made it may have died before it was.
        """
        may_write()
        pieces = parts(rel)
        if rel in self._lasting and self._is_directory(rel):
            return
        for depth in range(len(pieces)):
            here = "/".join(pieces[: depth + 1])
            with self._parent(here) as (parent, name), meaning(self._what(here)):
                try:
                    os.mkdir(name, 0o755, dir_fd=parent)
                except FileExistsError:
                    if here in self._lasting:
                        continue
                crash.point("durable.make_dirs.made")
                flush_names(parent, self._what(here))
                self._lasting.add(here)
        if pieces:
            with meaning(self._what(rel)):
                os.close(open_beneath(self._fd, rel, DIRECTORY_FLAGS))

    def _is_directory(self, rel: str) -> bool:
        try:
            os.close(self.open_dir(rel))
        except (OSError, UnsafePathError):
            return False
        return True

    def write_atomic(
        self, rel: str, data: ReadableBuffer | Iterator[bytes], *, mode: int = 0o644
    ) -> None:
        """Replace `rel` by `data`: after this returns it is there whole, before it the old one is.

        Order: temporary file, fsync, rename, fsync of the directory. What is long may come in
        pieces.
        """
        may_write()
        what = self._what(rel)
        with self._parent(rel) as (parent, name):
            with temporary(parent, what, mode) as (unfinished, file):
                for each in _gathered(data) if isinstance(data, Iterator) else (data,):
                    file.write(each)
                file.sync()
                crash.point("durable.write_atomic.written")
                with meaning(what):
                    os.rename(unfinished, name, src_dir_fd=parent, dst_dir_fd=parent)
            crash.point("durable.write_atomic.renamed")
            flush_names(parent, what)
            crash.point("durable.write_atomic.after")

    def create(self, rel: str, *, mode: int = 0o644) -> WriteFile:
        """A new file, `FileExistsError` if the name is taken. Its name lasts after `sync_dir`."""
        may_write()
        return new_file(self._fd, rel, self._what(rel), mode)

    def open_write(self, rel: str) -> WriteFile:
        """An existing regular file, to go on writing.

        Raises:
            UnsafePathError: it is no regular file, or has a second name: what is written here
                would change under that one too.
        """
        may_write()
        what = self._what(rel)
        with meaning(what):
            fd = open_regular(self._fd, rel, os.O_RDWR)
        if os.fstat(fd).st_nlink > 1:
            os.close(fd)
            raise UnsafePathError(f"{what} has another name (hard link) and is not written to")
        return WriteFile(fd, what)

    def append_file(self, rel: str, *, mode: int = 0o644, settled: bool = False) -> AppendFile:
        """A log to append to; made if it is not there. Its name, and what it holds, are synced.

        Args:
            rel: its path.
            mode: of a new file, less the umask.
            settled: this process has had it open through `append_file` before, and nobody has
                touched it since, so the two syncs are not needed again.
        """
        may_write()
        what = self._what(rel)
        flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
        with meaning(what):
            fd = open_beneath(self._fd, rel, flags if settled else flags | os.O_CREAT, mode)
        try:
            require_regular(fd, what)
            if not settled:
                flush(fd, what)
                with self._parent(rel) as (parent, _):
                    flush_names(parent, what)
            return AppendFile(fd, what)
        except BaseException:
            os.close(fd)
            raise

    def rename(self, source: str, target: str, *, replace: bool = True, sync: bool = True) -> None:
        """Move a file within the tree; the caller has synced its content.

        Raises:
            FileExistsError: `replace` is False and another file is there. The same file under
                both names is a move that was cut off in the middle, and is completed.
        """
        may_write()
        with self._parent(source) as (source_dir, old), self._parent(target) as (target_dir, new):
            crash.point("durable.rename.before")
            with meaning(self._what(target)):
                if replace:
                    os.rename(old, new, src_dir_fd=source_dir, dst_dir_fd=target_dir)
                else:
                    exclusive_rename(source_dir, old, target_dir, new)
            crash.point("durable.rename.renamed")
            if sync:
                # The new name before the end of the old one: no moment has neither on the disk.
                flush_names(target_dir, self._what(target))
                if not os.path.samestat(os.fstat(source_dir), os.fstat(target_dir)):
                    flush_names(source_dir, self._what(source))
                crash.point("durable.rename.after")

    def link(
        self, source: str, target: str, *, sync: bool = True, of: Tree | None = None
    ) -> os.stat_result:
        """A second name for a file, and what is under it; `FileExistsError` if the name is taken.

        Args:
            source: the file.
            target: its second name.
            sync: make that last.
            of: the tree that the file is in, if that is another one of this file system.

        Raises:
            UnsafePathError: the source is no regular file.
        """
        may_write()
        from_tree = self if of is None else of
        with (
            from_tree._parent(source) as (source_dir, old),
            self._parent(target) as (target_dir, new),
        ):
            with meaning(self._what(target)):
                os.link(
                    old, new, src_dir_fd=source_dir, dst_dir_fd=target_dir, follow_symlinks=False
                )
                made = os.stat(new, dir_fd=target_dir, follow_symlinks=False)
                if not stat.S_ISREG(made.st_mode):
                    os.unlink(new, dir_fd=target_dir)
                    raise UnsafePathError(f"{from_tree._what(source)} is no regular file")
            crash.point("durable.link.linked")
            if sync:
                flush_names(target_dir, self._what(target))
                crash.point("durable.link.after")
        return made

    def copy(self, source: str, target: str) -> None:
        """A synced copy under a name that must be free (where links are impossible).

        Raises:
            FileExistsError: the name is taken.
        """
        may_write()
        what = self._what(target)
        fd = self.open_read(source)
        try:
            with self._parent(target) as (parent, name):
                with temporary(parent, what, 0o644) as (unfinished, out):
                    for block in read_blocks(fd):
                        out.write(block)
                    out.sync()
                    crash.point("durable.copy.written")
                    with meaning(what):
                        exclusive_rename(parent, unfinished, parent, name)
                crash.point("durable.copy.renamed")
                flush_names(parent, what)
        finally:
            os.close(fd)

    def unlink(
        self, rel: str, *, sync: bool = True, identity: tuple[int, int, int] | None = None
    ) -> bool:
        """Remove a file; False if there was none.

        Args:
            rel: its path.
            sync: make that last.
            identity: (size, mtime_ns, inode) of a regular file: another one stays. Looked at in the
                same open directory just before; no call of the system does both at once, so who
                puts another file there in between loses it.
        """
        may_write()
        try:
            with self._parent(rel) as (parent, name):
                if identity is not None and not _is_same(parent, name, identity):
                    return False
                with meaning(self._what(rel)):
                    os.unlink(name, dir_fd=parent)
                crash.point("durable.unlink.unlinked")
                if sync:
                    flush_names(parent, self._what(rel))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def sweep_temporaries(self, rel: str = "", *, deep: bool = True) -> list[str]:
        """Remove what unfinished writes left in `rel` and beneath it; returns the paths.

        Args:
            rel: a directory; it may be missing.
            deep: in all directories beneath it too.

        Only for who holds the lock under which all writers here work: a write that is still going
        on would lose its file.
        """
        found = self.files(rel) if deep else self._files_in(rel)
        swept = [at for at, _ in list(found) if is_temporary(at.rpartition("/")[2])]
        return [at for at in swept if self.unlink(at, sync=False)]

    def remove_empty(self, rel: str) -> bool:
        """Remove a directory if nothing is in it; whether it is gone."""
        may_write()
        self._lasting.discard(rel)
        try:
            with self._parent(rel) as (parent, name):
                with meaning(self._what(rel)):
                    os.rmdir(name, dir_fd=parent)
                flush_names(parent, self._what(rel))
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY):
                return False
            raise
        return True

    def sync_dir(self, rel: str = "") -> None:
        """Make the names in a directory last."""
        with meaning(self._what(rel)):
            fd = open_beneath(self._fd, rel, DIRECTORY_FLAGS)
        try:
            flush_names(fd, self._what(rel))
        finally:
            os.close(fd)
        crash.point("durable.sync_dir.after")

    def sync_file(self, rel: str) -> None:
        """Flush a file that somebody else wrote, or an earlier process of ours."""
        with meaning(self._what(rel)):
            fd = self.open_read(rel)
        try:
            flush(fd, self._what(rel))
        finally:
            os.close(fd)

    def lock(self, rel: str) -> Lock:
        """Take the lock file `rel`, for one process at a time; it names its holder's pid.

        Raises:
            LockedError: another process holds it; `extra["pid"]` says which, where known.
        """
        return take_lock(self, self._fd, rel, self._what(rel))

    def _parent(self, rel: str) -> ParentDir:
        with meaning(self._what(rel)):
            return self._reading_parent(rel)


def _is_same(parent: int, name: str, identity: tuple[int, int, int]) -> bool:
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    same = (found.st_size, found.st_mtime_ns, found.st_ino) == identity
    return same and stat.S_ISREG(found.st_mode)


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same in fewer pieces: each is written by a call."""
    gathered = bytearray()
    for each in pieces:
        gathered += each
        if len(gathered) >= _PIECE:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


def _make_root(path: Path) -> None:
    if path.is_dir():
        return
    may_write()
    _make_root(path.parent)
    with suppress(FileExistsError), meaning(str(path)):
        path.mkdir()
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flush_names(fd, str(path))
    finally:
        os.close(fd)
