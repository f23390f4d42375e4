"""A file on the list of what is loaded at a receiver, and the local file that it was."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from sender.select.found import LocalFile, Span

if TYPE_CHECKING:
    from pathlib import Path

    from common.names import FilePath

__all__ = ["Entry", "EntryState"]


class EntryState(StrEnum):
    """How sure an entry is."""

    LOADED = "loaded"
    """This sender sent it, or found it loaded with the same content."""
    LISTED = "listed"
    """Only the receiver's inventory says so; no local file was compared with it yet."""
    ENDED = "ended"
    """The receiver let it go by itself (TTL, its operator, another owner): not to come again."""
    SENT = "sent"
    """Sent in a task whose outcome is not known yet."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A file as the receiver has it, and the local file that it was.

    Attributes:
        path: its path.
        data_dir: the data directory whose list has it.
        size: bytes.
        mtime_ns: of the local file with this content; 0 where it is not known.
        inode: the same.
        md5: in hex; empty where it is not known (the state file was lost).
        first_time: of its data; None where it is not known.
        last_time: the same.
        state: how sure it is.
        resource_mark: of the local file when it was sent, or told of; None where it is not known.
    """

    path: FilePath
    data_dir: Path
    size: int
    mtime_ns: int
    inode: int
    md5: str
    first_time: int | None = None
    last_time: int | None = None
    state: EntryState = EntryState.LOADED
    resource_mark: tuple[int, int] | None = None

    @classmethod
    def of(
        cls, file: LocalFile, md5: str, span: Span | None, mark: tuple[int, int] | None = None
    ) -> Entry:
        """What is to be listed once `file` is loaded with this content and resource."""
        first, last = span or (None, None)
        numbers = (file.size, file.mtime_ns, file.inode)
        return cls(file.path, file.data_dir, *numbers, md5, first, last, EntryState.LOADED, mark)

    @classmethod
    def unknown(cls, path: FilePath, data_dir: Path) -> Entry:
        """Listed, and nothing else is known of it."""
        return cls(path, data_dir, 0, 0, 0, "", state=EntryState.LISTED)

    @property
    def identity(self) -> tuple[int, int, int]:
        """(size, mtime_ns, inode), as of `LocalFile`."""
        return (self.size, self.mtime_ns, self.inode)

    @property
    def span(self) -> Span | None:
        """The data times, where they are known."""
        if self.first_time is None or self.last_time is None:
            return None
        return Span(self.first_time, self.last_time)

    def is_of(self, file: LocalFile) -> bool:
        """Whether the local file is the one that it was, as far as its numbers tell."""
        return (
            self.inode == file.inode and self.mtime_ns == file.mtime_ns and self.size == file.size
        )

    def same_facts(self, other: Entry) -> bool:
        """Whether both speak of the same file with the same content."""
        return (self.identity, self.md5, self.data_dir) == (
            other.identity,
            other.md5,
            other.data_dir,
        )
