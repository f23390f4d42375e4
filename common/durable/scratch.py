"""Directories for what nobody needs after this process; what killed processes left is swept."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.durable.open_files import Closing

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ScratchDirectory", "write_scratch"]

_LOCK: Final = ".held"
_YOUNG: Final = 3600.0
"""Seconds in which a directory without a lock may be one that a process is just making."""


class ScratchDirectory(Closing):
    """A directory of this process, into which no other user can look.

    It is held by a lock that ends with the process, however that ends; the next one that is made
    under the same name takes away all that nobody holds.

    Attributes:
        name: its path.
    """

    def __init__(self, name: str) -> None:
        """Make it, where the system has such directories.

        Args:
            name: that its own begins with, for what is of one kind.

        Raises:
            OSError: it cannot be made.
        """
        _sweep(name)
        while True:
            made = tempfile.mkdtemp(prefix=f"{name}-")
            fd = _locked(Path(made), os.O_RDWR | os.O_CREAT)
            if fd is not None:
                break
        self.name: Final = made
        self._fd = fd

    def close(self) -> None:
        """Remove it, as far as that can be done now."""
        shutil.rmtree(self.name, ignore_errors=True)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def write_scratch(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file into such a directory; nothing of it is flushed. What fails is taken away.

    Raises:
        OSError: there is no room for it.
    """
    try:
        with path.open("xb") as file:
            file.writelines(pieces)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _locked(directory: Path, flags: int) -> int | None:
    """The lock of a directory that is still there; None if another process has it."""
    try:
        fd = os.open(directory / _LOCK, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(directory / _LOCK)):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(fd)
    return None


def _sweep(name: str) -> None:
    """Remove what processes of this user left that are no more."""
    ours = re.compile(re.escape(name) + r"-[a-z0-9_]{8}\Z")
    for found in os.scandir(tempfile.gettempdir()):
        with suppress(OSError):
            if not ours.match(found.name) or not found.is_dir(follow_symlinks=False):
                continue
            there = found.stat(follow_symlinks=False)
            if there.st_uid != os.geteuid():
                continue
            if not os.path.lexists(Path(found.path) / _LOCK):
                if time.time() - there.st_mtime > _YOUNG:
                    shutil.rmtree(found.path, ignore_errors=True)
                continue
            fd = _locked(Path(found.path), os.O_RDWR)
            if fd is not None:
                shutil.rmtree(found.path, ignore_errors=True)
                os.close(fd)
