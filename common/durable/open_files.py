"""Open files: one being written, a log being appended to, a lock being held."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from common import crash
from common.digests import md5
from common.durable.flushing import begin_flush, flush, may_write, meaning
from common.errors import (
    FailedSyncError,
    NoSpaceError,
    ReadOnlyError,
    TsferryError,
)

if TYPE_CHECKING:
    from types import TracebackType

    from _typeshed import ReadableBuffer

__all__ = ["AppendFile", "Closing", "Lock", "WriteFile", "memory_file"]


_AT_ONCE = 1 << 17
"""Bytes of one write. ext4 (Linux 6.18) makes pieces of its cache as large as a write, and large
ones of memory that was not used lately; a virtual machine may have given that back to its host, and
asks for it again page by page: 192 MiB took 0.1 s of CPU in writes of up to 128 KiB, 0.4 to 0.8 of
512 KiB and more (runs by turns, behind 600 MiB that were used and let go)."""


def write_all(fd: int, data: ReadableBuffer, what: str, *, at: int | None = None) -> int:
    view = memoryview(data).cast("B")
    done = 0
    with meaning(what):
        while done < len(view):  # a write may be short: a limit, a full disk
            piece = view[done : done + _AT_ONCE]
            done += os.write(fd, piece) if at is None else os.pwrite(fd, piece, at + done)
    return done


class Closing:
    """Something that a `with` block closes at its end."""

    def close(self) -> None:
        """Close; closing twice is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()


class _Descriptor(Closing):
    """What has an open descriptor of its own."""

    _fd: int

    def fileno(self) -> int:
        """The descriptor, open for reading as well."""
        return self._fd

    def close(self) -> None:
        """Close; closing twice is harmless."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class WriteFile(_Descriptor):
    """A file being written; nothing of it counts before `sync`."""

    def __init__(self, fd: int, what: str) -> None:
        self._fd = fd
        self._what = what
        self._lost = False

    def write(self, data: ReadableBuffer, *, at: int | None = None) -> int:
        """Write all of `data` at the end, or at offset `at` bytes; returns the bytes written.

        Raises:
            NoSpaceError: the disk is full; part of `data` may be in the file.
        """
        self._may_change()
        if at is None:
            at = os.fstat(self._fd).st_size
        return write_all(self._fd, data, self._what, at=at)

    def truncate(self, size: int) -> None:
        """Cut (or extend) the file to `size` bytes."""
        self._may_change()
        with meaning(self._what):
            os.ftruncate(self._fd, size)

    def begin_sync(self) -> None:
        """Let the disk begin with what was written; only `sync` waits for it, and tells."""
        begin_flush(self._fd)

    def sync(self) -> None:
        """Flush content and size to the disk.

        Raises:
            NoSpaceError: nothing written since the last sync counts, and this object takes no
                more until `begin_again`; or open the file afresh, cut it to what counts, and write
                the rest again.
            FailedSyncError: as in `common.durable`.
        """
        self._may_change()
        crash.point("durable.sync_file.before")
        try:
            flush(self._fd, self._what)
        except NoSpaceError:
            self._lost = True
            raise
        crash.point("durable.sync_file.after")

    def write_exactly(self, blocks: Iterable[bytes], size: int, digest: str) -> str | None:
        """Write what is to be so many bytes with an MD5, and flush it if it is that.

        Args:
            blocks: of it; no more than are wanted are taken.
            size: bytes of all.
            digest: their MD5, in hex.

        Returns:
            what came instead, in words; None where the bytes are on the disk.

        Raises:
            NoSpaceError, FailedSyncError: as `write` and `sync`.
        """
        found, at = md5(), 0
        for block in blocks:
            found.update(block)
            at += len(block)
            if at > size:
                break
            self.write(block)
        if at != size or found.hexdigest() != digest:
            return f"{at} bytes with MD5 {found.hexdigest()}"
        self.sync()
        return None

    @property
    def lost(self) -> bool:
        """Whether a flush did not find room, so that the file may be without what was written."""
        return self._lost

    def begin_again(self) -> None:
        """After such a flush: take writes again. The caller writes all that was not flushed."""
        self._lost = False

    def _may_change(self) -> None:
        may_write()
        if self._lost:
            raise NoSpaceError(f"{self._what} was not flushed before and is to be written afresh")


class AppendFile(_Descriptor):
    """A log: what `append` returned from is on the disk, whole; a failed append leaves no trace.

    After a failed write the log is cut back to its last good length, so a later append never
    follows half a record; where even that fails it is tried again before the next append, which
    fails as long as it does. After a failed sync it takes nothing more.
    """

    def __init__(self, fd: int, what: str) -> None:
        self._fd = fd
        self._what = what
        self._lock = threading.Lock()
        self._good = os.fstat(fd).st_size
        self._torn = False
        self._dead = False

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
        with self._lock:
            self._may_append()
            begin = self._good
            crash.point("durable.append.before")
            try:
                written = write_all(self._fd, data, self._what)
                crash.point("durable.append.written")
                flush(self._fd, self._what, data_only=True)
                self._good = begin + written
            except (FailedSyncError, crash.SimulatedCrash):
                self._dead = True
                raise
            except BaseException:
                self._torn = True
                with suppress(OSError, TsferryError):
                    self._cut_back()
                raise
            crash.point("durable.append.after")
            return begin

    def settle(self) -> None:
        """See that nothing of a failed append is left, before the log goes on in another file.

        Raises:
            ReadOnlyError: it takes nothing more after a failed sync.
        """
        with self._lock:
            self._may_append()

    def _may_append(self) -> None:
        may_write()
        if self._dead:
            raise ReadOnlyError(f"{self._what} takes no more entries after a failed sync")
        if self._torn:
            self._cut_back()

    def _cut_back(self) -> None:
        with meaning(self._what):
            os.ftruncate(self._fd, self._good)
        # Synced, or a power cut could bring back a record whose append was reported as failed.
        flush(self._fd, self._what)
        self._torn = False

    def truncate(self, size: int) -> None:
        """Cut a torn tail: keep the first `size` bytes, and flush that."""
        with self._lock:
            may_write()
            if size > self._good:
                raise ValueError(f"{self._what} has {self._good} bytes, cannot keep {size}")
            with meaning(self._what):
                os.ftruncate(self._fd, size)
            flush(self._fd, self._what)
            self._good = size


class Lock(_Descriptor):
    """An flock held for as long as this object (or its process) lives.

    A process forked from the holder holds it as well, until both have closed it.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Give the lock back; releasing twice is harmless."""
        self.close()


def memory_file(pieces: Iterable[bytes]) -> int:
    """A descriptor whose bytes are in memory only; it is the caller's to close."""
    descriptor = os.memfd_create("tsferry")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.writelines(pieces)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
