"""The files that are read, from what a user wrote: files, directories, globs."""

from __future__ import annotations

import glob
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from receiver.metadata.state.ranges import Devices

__all__ = ["SUFFIX", "SourceFile", "database_of", "kind_of", "list_files"]

SUFFIX: Final = ".tsfile"
_KINDS: Final = ("sequence", "unsequence")
_NOT_DATA: Final = frozenset({"sync-receiver", "sync-sender"})
"""Directories of tsferry within a data directory: files on their way, and links to files."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A TsFile that may be read.

    Attributes:
        locations: where it may be, absolute; the first that exists counts.
        name: as messages and the file column call it.
        size: bytes; another size means that it was replaced.
        database: that its tables are in, where its directory tells.
        created: the commit that loaded it; 0 for a file that no catalogue has.
        devices: with their ranges of time, where a catalogue has them. Not for workers.
        first: time of its first point, where a catalogue has it.
        last: of its last.
        is_known: whether `first` and `last` are from a catalogue; None means no points then.
    """

    locations: tuple[str, ...]
    name: str
    size: int
    database: str | None = None
    created: int = 0
    devices: Devices | None = None
    first: int | None = None
    last: int | None = None
    is_known: bool = False

    def for_worker(self) -> SourceFile:
        """What of it travels."""
        return SourceFile(self.locations, self.name, self.size, self.database, self.created)


def list_files(paths: Sequence[str], kind: str = "all") -> list[SourceFile]:
    """The TsFiles that paths lead to, each once, in order of their names.

    A directory means all files below it whose names end with ``.tsfile``, but for hidden ones and
    those of tsferry's own directories; links to directories are followed. A glob may lead to files
    and directories. A file that is named is taken whatever its name is.

    Raises:
        UsageError: a path leads to nothing, or to another file system.
    """
    found: dict[str, int] = {}
    for text in paths:
        expanded = _expand(text)
        if not expanded:
            raise UsageError(f"option path = {text!r}: expected TsFiles there, there are none")
        for path in expanded:
            found.update(_below(path) if os.path.isdir(path) else _one(path, text))
    return [
        SourceFile((path,), _shown(path), size, database_of(path))
        for path, size in sorted(found.items())
        if kind == "all" or kind_of(path) == kind
    ]


def _shown(path: str) -> str:
    """A path as text, which Spark and Arrow take; names of files need not be UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def kind_of(path: str) -> str | None:
    """``sequence`` or ``unsequence``, by the directories that a file is in; None for neither."""
    return next((each for each in reversed(path.split("/")[:-1]) if each in _KINDS), None)


def database_of(path: str) -> str | None:
    """The directory below ``sequence`` or ``unsequence``, which is a database's name."""
    parts = path.split("/")[:-1]
    at = max((n for n, each in enumerate(parts) if each in _KINDS), default=None)
    return parts[at + 1] if at is not None and at + 1 < len(parts) else None


def _local(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return os.path.abspath(unquote(parts.path))
    if "://" in text:
        raise UsageError(
            f"option path = {text!r}: expected a path on this machine (or mounted on it, and on "
            "every worker)"
        )
    return os.path.abspath(os.path.expanduser(text))


def _expand(text: str) -> list[str]:
    path = _local(text)
    if os.path.lexists(path) or not glob.has_magic(path):
        return [path]
    return sorted(glob.glob(path, recursive=True))


def _one(path: str, text: str) -> dict[str, int]:
    try:
        found = os.stat(path)
    except OSError as error:
        raise UsageError(f"option path = {text!r}: {error.strerror or error}") from error
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"option path = {text!r}: expected a file, it is something else")
    return {path: found.st_size}


def _is_new(folder: str, seen: set[tuple[int, int]]) -> bool:
    """Whether a directory was not gone into yet: a link may lead to one that was."""
    try:
        found = os.stat(folder)
    except FileNotFoundError:
        return False
    here = found.st_dev, found.st_ino
    new = here not in seen
    seen.add(here)
    return new


def _below(directory: str) -> Iterator[tuple[str, int]]:
    def unreadable(error: OSError) -> None:
        raise UsageError(f"option path: {error.filename}: {error.strerror}") from error

    seen: set[tuple[int, int]] = set()
    for folder, folders, names in os.walk(directory, onerror=unreadable, followlinks=True):
        if not _is_new(folder, seen):
            folders.clear()
            continue
        folders[:] = sorted(
            each for each in folders if not each.startswith((".", "_")) and each not in _NOT_DATA
        )
        for name in names:
            if name.endswith(SUFFIX) and not name.startswith((".", "_")):
                path = os.path.join(folder, name)
                try:
                    found = os.stat(path)
                except FileNotFoundError:
                    continue  # a compaction has removed it since it was listed
                if stat.S_ISREG(found.st_mode):
                    yield path, found.st_size
