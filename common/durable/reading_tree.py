"""A directory held by descriptor, and what is read beneath it."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from common.beneath import open_beneath, open_regular, parts
from common.digests import md5, read_blocks
from common.durable.open_files import Closing
from common.errors import StoppedError, TooLargeError, TsferryError
from common.system_errors import with_path

__all__ = ["DIRECTORY_FLAGS", "ParentDir", "ReadingTree"]

DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY
"""Flags that a directory is opened with."""


class ReadingTree(Closing):
    """A directory held by descriptor: the half of `Tree` that changes nothing.

    `rel` is always a POSIX path relative to the directory; none can leave it (`common.beneath`).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the descriptor; closing twice is harmless."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def open_read(self, rel: str) -> int:
        """A descriptor of a regular file, for reading; the caller closes it."""
        try:
            return open_regular(self._fd, rel)
        except OSError as error:
            with_path(error, self._what(rel))
            raise

    def open_dir(self, rel: str = "") -> int:
        """A descriptor of a directory, for listing what is in it; the caller closes it."""
        try:
            return open_beneath(self._fd, rel, DIRECTORY_FLAGS)
        except OSError as error:
            with_path(error, self._what(rel))
            raise

    def read(self, rel: str, *, limit: int = 1 << 30) -> bytes:
        """The whole content of a regular file of at most `limit` bytes.

        Raises:
            TooLargeError: it has more.
        """
        fd = self.open_read(rel)
        try:
            content = b"".join(read_blocks(fd, end=limit + 1))
        finally:
            os.close(fd)
        if len(content) > limit:
            raise TooLargeError(f"{self._what(rel)} is larger than {limit} bytes")
        return content

    def has_bytes(
        self,
        rel: str,
        size: int,
        digest: str,
        *,
        anew: bool = False,
        pace: Callable[[int], None] = lambda _: None,
    ) -> bool:
        """Whether a regular file of these bytes is there: all of them are read.

        One that cannot be read is none.

        Args:
            rel: of the file.
            size: of them.
            digest: their MD5, in hex.
            anew: read from the disk, whatever the kernel remembers of them.
            pace: is told of bytes that were read, and may wait.

        Raises:
            StoppedError: of `pace`.
        """
        found = md5()
        try:
            fd = self.open_read(rel)
            try:
                if anew:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                if os.fstat(fd).st_size != size:
                    return False
                for block in read_blocks(fd):
                    found.update(block)
                    pace(len(block))
            finally:
                os.close(fd)
        except StoppedError:
            raise
        except (OSError, TsferryError):
            return False
        return found.hexdigest() == digest

    def stat(self, rel: str) -> os.stat_result | None:
        """What is at `rel` itself (a symlink is not followed), or None."""
        if not parts(rel):
            return os.fstat(self._fd)
        try:
            with self._reading_parent(rel) as (parent, name):
                return os.stat(name, dir_fd=parent, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, rel: str) -> bool:
        """Whether anything is at `rel`."""
        return self.stat(rel) is not None

    def seems_there(self, rel: str) -> bool:
        """Whether anything is at `rel`, as a checked name; by one call of the system.

        A symlink on the way is followed: only who opens it by another call, which refuses that,
        goes by this.
        """
        try:
            os.stat(rel, dir_fd=self._fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

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

    def _files_in(self, rel: str) -> Iterator[tuple[str, os.stat_result]]:
        for name, found in self.listing(rel):
            if stat.S_ISREG(found.st_mode):
                yield f"{rel}/{name}" if rel else name, found

    def listing(self, rel: str = "") -> list[tuple[str, os.stat_result]]:
        """Name and lstat of each entry of a directory, in name order; what vanishes is left out."""
        try:
            fd = open_beneath(self._fd, rel, DIRECTORY_FLAGS)
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

    def matching(self, pattern: re.Pattern[str]) -> list[re.Match[str]]:
        """The names at the root that a pattern matches, in order, as two looks in a row saw them.

        One look alone may miss a file that stands for another: its name is not there yet, and then
        that of the other is not there any more.
        """
        fd = open_beneath(
            self._fd, "", DIRECTORY_FLAGS
        )  # one that moves as it is read is not shared
        try:
            before = None
            while before != (names := sorted(filter(pattern.match, os.listdir(fd)))):
                before = names
        finally:
            os.close(fd)
        return [match for match in map(pattern.match, names) if match]

    def _what(self, rel: str) -> str:
        return f"{self.path}/{rel}" if rel else str(self.path)

    def _reading_parent(self, rel: str) -> ParentDir:
        if not parts(rel):
            raise IsADirectoryError(errno.EISDIR, "the directory itself", str(self.path))
        directory, _, name = rel.rpartition("/")
        fd = open_beneath(self._fd, directory, DIRECTORY_FLAGS) if directory else self._fd
        return ParentDir(fd, name, ours=bool(directory))


class ParentDir:
    """The directory of a file, open within the block, and the file's name in it."""

    __slots__ = ("_fd", "_name", "_ours")

    def __init__(self, fd: int, name: str, *, ours: bool) -> None:
        self._fd = fd
        self._name = name
        self._ours = ours

    def __enter__(self) -> tuple[int, str]:
        return self._fd, self._name

    def __exit__(self, *raised: object) -> None:
        if self._ours:
            os.close(self._fd)
