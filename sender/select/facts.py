"""Reading what a plan must know of files: contents and data times. Each is read once."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from common.digests import md5_of_fd
from common.errors import UnsafePathError
from sender.select.found import Span, stat_identity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sender.select.data_dirs import DataDirs
    from sender.select.found import LocalFile
    from sender.select.stat_cache import StatCache

__all__ = ["ContentFacts", "FileFacts", "read_span"]


class ContentFacts(Protocol):
    """What must be read from files to decide; files are read, or a catalogue is asked."""

    def md5(self, file: LocalFile) -> str | None:
        """MD5 of a whole file; None if it changed, vanished, or cannot be read."""
        ...

    def span(self, file: LocalFile) -> Span | None:
        """First and last time in a file; None if it has none or cannot be read."""
        ...


class FileFacts:
    """`ContentFacts` from the files themselves."""

    def __init__(self, dirs: DataDirs, cache: StatCache) -> None:
        self._trees = dirs.trees
        self._cache = cache

    def md5(self, file: LocalFile) -> str | None:
        """MD5 of a whole file; None if it changed, vanished, or cannot be read."""
        known_file = self._cache.of(file)
        if not known_file.md5:
            try:
                with self._opened(file) as fd:
                    digest = None if fd is None else md5_of_fd(fd)
                    if fd is None or stat_identity(os.fstat(fd)) != file.identity:
                        return None
            except OSError:
                return None
            known_file.md5 = digest or ""
        return known_file.md5

    def span(self, file: LocalFile) -> Span | None:
        """First and last time in a file; None if it has none or cannot be read."""
        known_file = self._cache.of(file)
        if not known_file.timed:
            try:
                with self._opened(file) as fd:
                    if fd is None:
                        return None
                    known_file.span, _ = read_span(fd)
            except OSError:
                return None
            known_file.timed = True
        return known_file.span

    @contextmanager
    def _opened(self, file: LocalFile) -> Iterator[int | None]:
        """The file if it still is what was scanned, else None."""
        try:
            fd = self._trees[file.data_dir].open_read(file.rel)
        except (OSError, UnsafePathError):
            yield None
            return
        try:
            yield fd if stat_identity(os.fstat(fd)) == file.identity else None
        finally:
            os.close(fd)


def read_span(fd: int) -> tuple[Span | None, str | None]:
    """The data times of an open TsFile, and what is wrong with its index, if anything."""
    from common.tsfile import read_tail

    tail = read_tail(fd, structure=False)
    if not tail.complete:
        return None, f"{tail.status}: {tail.reason}"
    if tail.first_time is None or tail.last_time is None:
        return None, None
    return Span(tail.first_time, tail.last_time), None
