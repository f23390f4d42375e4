"""Flushing, and what a failed flush means for the rest of this process's life."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from common.errors import DiskError, FailedSyncError, NoSpaceError, ReadOnlyError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["failed_sync", "flush", "flush_names", "may_write", "meaning"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DISK = frozenset({errno.EIO, errno.EUCLEAN, errno.ENODEV})
_failure: str | None = None


def failed_sync() -> str | None:
    """Why this process takes no writes any more, or None while all is well."""
    return _failure


def may_write() -> None:
    """Refuse, with `ReadOnlyError`, whatever would change the disk after a failed flush."""
    if _failure is not None:
        raise ReadOnlyError(f"no more writes after a failed sync: {_failure}; restart the process")


def flush(fd: int, what: str, *, data_only: bool = False) -> None:
    """Flush a file.

    Raises:
        NoSpaceError: it does not fit; the caller writes it again or gives it up.
        FailedSyncError: what is on the disk is unknown; this process writes no more.
    """
    may_write()
    try:
        if data_only:
            os.fdatasync(fd)
        else:
            os.fsync(fd)
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpaceError(f"no space to flush {what}") from error
        raise _poison(error, what) from error


def flush_names(fd: int, what: str) -> None:
    """Flush a directory. There is nothing to write again here, so any failure is final."""
    may_write()
    try:
        os.fsync(fd)
    except OSError as error:
        raise _poison(error, what) from error


def _poison(error: OSError, what: str) -> FailedSyncError:
    global _failure
    if _failure is None:
        _failure = f"{what}: {error.strerror}"
    return FailedSyncError(f"flushing {what} to disk failed: {error.strerror}")


@contextmanager
def meaning(what: str) -> Iterator[None]:
    """Turn what an `OSError` says about the disk into an error of ours that names the file."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpaceError(f"no space to write {what}") from error
        if error.errno == errno.EROFS:
            raise ReadOnlyError(f"the file system of {what} is read-only") from error
        if error.errno == errno.EFBIG:
            raise TooLargeError(
                f"{what}: larger than its file system or this process (RLIMIT_FSIZE) may write"
            ) from error
        if error.errno in _DISK:
            raise DiskError(
                f"{what}: {error.strerror}; the kernel's log (dmesg) says more"
            ) from error
        raise
