"""The one door to the disk: every write, rename, link and directory sync that must last.

The order behind each promise is write, fsync the file, rename, fsync the directory; each step is
needed. Without the first sync a power cut leaves the final name with no bytes behind it; without
the second it leaves no name. Appending to a log is write, fdatasync. Only then may a caller tell
anybody. What is *not* promised: that a file which was being written when the power went is gone;
leftovers have names of their own (`.*.tmp`) and the start-up of each program sweeps them.

A failed sync is never retried: the kernel may have dropped the dirty pages and would report success
the second time. `Tree` and `AppendFile` then raise `FailedSyncError`, and every later write of this
process is refused with `ReadOnlyError` (`failed_sync()` says why) until it is started again.

All paths are relative to a `Tree`, a directory held open by descriptor; none can leave it
(`common.beneath`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from common import crash
from common.beneath import exclusive_rename, open_beneath, open_regular, parts
from common.digests import read_blocks
from common.errors import FailedSyncError, LockedError, NoSpaceError, ReadOnlyError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from _typeshed import ReadableBuffer

__all__ = ["AppendFile", "Lock", "Tree", "WriteFile", "failed_sync", "free_bytes", "is_temporary"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_failure: str | None = None


def failed_sync() -> str | None:
    """Why this process takes no writes any more, or None while all is well."""
    return _failure


def is_temporary(name: str) -> bool:
    """Whether a file name is one of ours for a write that has not been finished."""
    return name.startswith(".") and name.endswith(".tmp")


def free_bytes(path: Path) -> int:
    """Bytes that an unprivileged process may still write on the file system of `path`."""
    at = os.statvfs(path)
    return at.f_bavail * at.f_frsize


def _may_write() -> None:
    if _failure is not None:
        raise ReadOnlyError(f"no more writes after a failed sync: {_failure}; restart the process")


def _sync(fd: int, what: str, *, data_only: bool = False) -> None:
    global _failure
    try:
        if data_only:
            os.fdatasync(fd)
        else:
            os.fsync(fd)
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpaceError(f"no space to flush {what}") from error
        _failure = f"{what}: {error.strerror}"
        raise FailedSyncError(f"flushing {what} to disk failed: {error.strerror}") from error


def _write_all(fd: int, data: ReadableBuffer, what: str, *, at: int | None = None) -> int:
    view = memoryview(data).cast("B")
    done = 0
    while done < len(view):
        try:
            if at is None:
                done += os.write(fd, view[done:])
            else:
                done += os.pwrite(fd, view[done:], at + done)
        except OSError as error:
            raise _explained(error, what) from error
    return done


def _explained(error: OSError, what: str) -> Exception:
    if error.errno in _FULL:
        return NoSpaceError(f"no space to write {what}")
    if error.errno == errno.EROFS:
        return ReadOnlyError(f"the file system of {what} is read-only")
    return error


class WriteFile:
    """A file being written; nothing of it counts before `sync`."""

    def __init__(self, fd: int, what: str) -> None:
        self._fd = fd
        self._what = what

    def write(self, data: ReadableBuffer, *, at: int | None = None) -> int:
        """Write all of `data` at the end, or at offset `at` bytes; returns the bytes written."""
        _may_write()
        return _write_all(self._fd, data, self._what, at=at)

    def truncate(self, size: int) -> None:
        """Cut (or extend) the file to `size` bytes."""
        _may_write()
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Flush content and size to the disk."""
        crash.point("durable.sync_file.before")
        _sync(self._fd, self._what)
        crash.point("durable.sync_file.after")

    def fileno(self) -> int:
        """The descriptor, open for reading as well."""
        return self._fd

    def close(self) -> None:
        """Close; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()


class AppendFile:
    """A log: what `append` returned from is on the disk, whole; a failed append leaves no trace.

    After a failed write the log is cut back to its last good length, so a later append never
    follows half a record. After a failed sync it takes nothing more.
    """

    def __init__(self, fd: int, what: str) -> None:
        self._fd = fd
        self._what = what
        self._good = os.fstat(fd).st_size
        self._broken = False

    @property
    def size(self) -> int:
        """Bytes that are known to be on the disk."""
        return self._good

    def append(self, data: ReadableBuffer) -> int:
        """Write `data` at the end and flush it; returns the offset at which it begins.

        Raises:
            NoSpaceError: the disk is full; the log is as it was.
            FailedSyncError: the flush failed; the log, and this process, take no more writes.
        """
        _may_write()
        if self._broken:
            raise ReadOnlyError(f"{self._what} takes no more entries after a failed write")
        begin = self._good
        crash.point("durable.append.before")
        try:
            written = _write_all(self._fd, data, self._what)
            crash.point("durable.append.written")
            _sync(self._fd, self._what, data_only=True)
        except BaseException as error:
            self._cut_back(error)
            raise
        crash.point("durable.append.after")
        self._good = begin + written
        return begin

    def _cut_back(self, error: BaseException) -> None:
        if isinstance(error, FailedSyncError):
            self._broken = True
            return
        try:
            os.ftruncate(self._fd, self._good)
        except OSError:
            self._broken = True

    def truncate(self, size: int) -> None:
        """Cut a torn tail: keep the first `size` bytes, and flush that."""
        _may_write()
        os.ftruncate(self._fd, size)
        _sync(self._fd, self._what)
        self._good = size

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def close(self) -> None:
        """Close; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Lock:
    """An flock held for as long as this object (or its process) lives."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Give the lock back; releasing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Tree:
    """A directory held by descriptor, and everything durable that may be done beneath it.

    `rel` is always a POSIX path relative to the directory. Methods that change names sync the
    directories concerned unless told `sync=False`; then the caller owes a `sync_dir`.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        if create:
            _make_root(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the descriptor; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    # -- reading ---------------------------------------------------------------------------

    def open_read(self, rel: str) -> int:
        """A descriptor of a regular file, for reading; the caller closes it."""
        return open_regular(self._fd, rel)

    def read(self, rel: str, *, limit: int = 1 << 30) -> bytes:
        """The whole content of a regular file of at most `limit` bytes."""
        fd = self.open_read(rel)
        try:
            if os.fstat(fd).st_size > limit:
                raise OSError(errno.EFBIG, f"larger than {limit} bytes", rel)
            return b"".join(read_blocks(fd))
        finally:
            os.close(fd)

    def stat(self, rel: str) -> os.stat_result | None:
        """What is at `rel` itself (a symlink is not followed), or None."""
        try:
            with self._parent(rel) as (parent, name):
                return os.stat(name, dir_fd=parent, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, rel: str) -> bool:
        """Whether anything is at `rel`."""
        return self.stat(rel) is not None

    def files(self, rel: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """Every regular file beneath `rel`, depth first in name order, with its lstat."""
        pending = [rel]
        while pending:
            here = pending.pop()
            below: list[str] = []
            for name, found in self.listing(here):
                at = f"{here}/{name}" if here else name
                if stat.S_ISDIR(found.st_mode):
                    below.append(at)
                elif stat.S_ISREG(found.st_mode):
                    yield at, found
            pending.extend(reversed(below))

    def listing(self, rel: str = "") -> list[tuple[str, os.stat_result]]:
        """Name and lstat of each entry of a directory, in name order; what vanishes is left out."""
        try:
            fd = open_beneath(self._fd, rel, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = []
        try:
            for name in sorted(os.listdir(fd)):
                with suppress(FileNotFoundError):
                    found.append((name, os.stat(name, dir_fd=fd, follow_symlinks=False)))
        finally:
            os.close(fd)
        return found

    # -- writing ---------------------------------------------------------------------------

    def make_dirs(self, rel: str) -> None:
        """Make a directory and those above it, each synced into its parent."""
        _may_write()
        pieces = parts(rel)
        for depth in range(len(pieces)):
            here = "/".join(pieces[: depth + 1])
            with self._parent(here) as (parent, name):
                try:
                    os.mkdir(name, 0o755, dir_fd=parent)
                except FileExistsError:
                    continue
                except OSError as error:
                    raise _explained(error, self._what(here)) from error
                _sync(parent, self._what(here))
        if pieces:
            os.close(open_beneath(self._fd, rel, os.O_RDONLY | os.O_DIRECTORY))

    def write_atomic(self, rel: str, data: ReadableBuffer, *, mode: int = 0o644) -> None:
        """Replace `rel` by `data`: after this returns it is there whole, before it the old one is.

        Order: temporary file, fsync, rename, fsync of the directory.
        """
        with self._parent(rel) as (parent, name):
            temporary = f".{name[:200]}.{secrets.token_hex(4)}.tmp"
            where = f"{rel[: len(rel) - len(name)]}{temporary}"
            try:
                with self.create(where, mode=mode) as file:
                    file.write(data)
                    file.sync()
                crash.point("durable.write_atomic.written")
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except Exception:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=parent)
                raise
            crash.point("durable.write_atomic.renamed")
            _sync(parent, self._what(rel))
            crash.point("durable.write_atomic.after")

    def create(self, rel: str, *, mode: int = 0o644) -> WriteFile:
        """A new file, `FileExistsError` if the name is taken. Its name lasts after `sync_dir`."""
        return self._open_write(rel, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def open_write(self, rel: str) -> WriteFile:
        """An existing regular file, to go on writing."""
        os.close(self.open_read(rel))  # no FIFO, no device
        return self._open_write(rel, os.O_RDWR, 0)

    def _open_write(self, rel: str, flags: int, mode: int) -> WriteFile:
        _may_write()
        try:
            return WriteFile(open_beneath(self._fd, rel, flags, mode), self._what(rel))
        except OSError as error:
            raise _explained(error, self._what(rel)) from error

    def append_file(self, rel: str, *, mode: int = 0o644) -> AppendFile:
        """A log to append to; made, and its name synced, if it is not there."""
        _may_write()
        try:
            fd = open_beneath(self._fd, rel, os.O_RDWR | os.O_APPEND | os.O_NONBLOCK)
        except FileNotFoundError:
            try:
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
                fd = open_beneath(self._fd, rel, flags, mode)
            except OSError as error:
                raise _explained(error, self._what(rel)) from error
            with self._parent(rel) as (parent, _):
                _sync(parent, self._what(rel))
        return AppendFile(fd, self._what(rel))

    def rename(self, source: str, target: str, *, replace: bool = True, sync: bool = True) -> None:
        """Move a file within the tree; the caller has synced its content.

        Raises:
            FileExistsError: `replace` is False and the target is there.
        """
        _may_write()
        with self._parent(source) as (source_dir, old), self._parent(target) as (target_dir, new):
            crash.point("durable.rename.before")
            try:
                if replace:
                    os.rename(old, new, src_dir_fd=source_dir, dst_dir_fd=target_dir)
                else:
                    exclusive_rename(source_dir, old, target_dir, new)
            except OSError as error:
                raise _explained(error, self._what(target)) from error
            crash.point("durable.rename.renamed")
            if sync:
                _sync(target_dir, self._what(target))
                if not os.path.samestat(os.fstat(source_dir), os.fstat(target_dir)):
                    _sync(source_dir, self._what(source))
                crash.point("durable.rename.after")

    def link(self, source: str, target: str, *, sync: bool = True) -> None:
        """A second name for a file; `FileExistsError` if the name is taken."""
        _may_write()
        with self._parent(source) as (source_dir, old), self._parent(target) as (target_dir, new):
            try:
                os.link(
                    old, new, src_dir_fd=source_dir, dst_dir_fd=target_dir, follow_symlinks=False
                )
            except OSError as error:
                raise _explained(error, self._what(target)) from error
            crash.point("durable.link.linked")
            if sync:
                _sync(target_dir, self._what(target))

    def copy(self, source: str, target: str) -> None:
        """A synced copy under a name that must be free (where links are impossible)."""
        fd = self.open_read(source)
        try:
            with self.create(target) as out:
                for block in read_blocks(fd):
                    out.write(block)
                out.sync()
        except BaseException:
            self.unlink(target, sync=False)
            raise
        finally:
            os.close(fd)
        self.sync_dir(target.rpartition("/")[0])

    def unlink(self, rel: str, *, sync: bool = True) -> bool:
        """Remove a file; False if there was none."""
        try:
            with self._parent(rel) as (parent, name):
                os.unlink(name, dir_fd=parent)
                crash.point("durable.unlink.unlinked")
                if sync:
                    _sync(parent, self._what(rel))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def remove_tree(self, rel: str) -> None:
        """Remove a directory with all that is in it; missing is fine, symlinks are not followed."""
        for name, found in self.listing(rel):
            if stat.S_ISDIR(found.st_mode):
                self.remove_tree(f"{rel}/{name}")
            else:
                self.unlink(f"{rel}/{name}", sync=False)
        self.remove_empty(rel)

    def remove_empty(self, rel: str) -> bool:
        """Remove a directory if nothing is in it; whether it is gone."""
        try:
            with self._parent(rel) as (parent, name):
                os.rmdir(name, dir_fd=parent)
                _sync(parent, self._what(rel))
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY):
                return False
            raise
        return True

    def sync_dir(self, rel: str = "") -> None:
        """Make the names in a directory last."""
        fd = open_beneath(self._fd, rel, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync(fd, self._what(rel))
        finally:
            os.close(fd)
        crash.point("durable.sync_dir.after")

    def sync_file(self, rel: str) -> None:
        """Flush a file that somebody else wrote."""
        fd = self.open_read(rel)
        try:
            _sync(fd, self._what(rel))
        finally:
            os.close(fd)

    def lock(self, rel: str) -> Lock:
        """Take the lock file `rel`, for one process at a time; it names its holder's pid.

        Raises:
            LockedError: another process holds it; `extra["pid"]` says which, where known.
        """
        fd = open_beneath(self._fd, rel, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise LockedError(
                f"{self._what(rel)} is held by process {pid or 'unknown'}", extra={"pid": pid}
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return Lock(fd)

    # -- inside ----------------------------------------------------------------------------

    def _what(self, rel: str) -> str:
        return str(self.path / rel)

    @contextmanager
    def _parent(self, rel: str) -> Iterator[tuple[int, str]]:
        pieces = parts(rel)
        if not pieces:
            raise IsADirectoryError(errno.EISDIR, "the directory itself", str(self.path))
        if len(pieces) == 1:
            yield self._fd, pieces[0]
            return
        fd = open_beneath(self._fd, "/".join(pieces[:-1]), os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield fd, pieces[-1]
        finally:
            os.close(fd)


def _make_root(path: Path) -> None:
    if path.is_dir():
        return
    _make_root(path.parent)
    with suppress(FileExistsError):
        path.mkdir()
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _sync(fd, str(path))
    finally:
        os.close(fd)
