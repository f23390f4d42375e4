"""`sync_schema_pos`: what this sender remembers of its schema at one receiver.

How far the log is applied is the receiver's word, given at each check; this file is a cache of it,
for `status`, and of what is expensive to find out again. Losing it loses nothing.

Format, version 1: one JSON object, `SchemaMemory`; replaced as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from common.decoders import from_json
from common.wire import SchemaPosition

if TYPE_CHECKING:
    from common.durable import Tree

__all__ = ["Digested", "SchemaMemory", "SchemaNotes", "ServerAsked", "Shipping"]

_FILE = "sync_schema_pos"
_VERSION = 1


class Digested(msgspec.Struct, frozen=True, kw_only=True):
    """A digest of the first bytes of a file, and the file that it was taken of.

    Attributes:
        size: bytes that it covers.
        digest: xxh3-128 (hex).
        inode: of the file.
        whole: its size then.
        mtime_ns: its time then.
    """

    size: int
    digest: str
    inode: int
    whole: int
    mtime_ns: int


class Shipping(msgspec.Struct, frozen=True, kw_only=True):
    """A log that is on its way: what its first block was sent with.

    Attributes:
        identity: of the log.
        base: where it begins.
        tags: bytes of the tlog and their digest, before its first slot was read.
    """

    identity: str
    base: int
    tags: tuple[int, str] = (0, "")


class ServerAsked(msgspec.Struct, frozen=True, kw_only=True):
    """When a database was asked for its schema, and what that came to.

    Attributes:
        at: seconds since the epoch.
        mark: of what was told then.
    """

    at: float
    mark: str


class SchemaMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is remembered.

    Attributes:
        version: of this format.
        position: as the receiver gave it last.
        shipping: what was begun.
        tlogs: what each tlog was, when it was last read as a whole.
        tag_sizes: by the digest of several tlogs, the size of each.
        asked: when the database was asked last.
        missing: series that it does not show any more, and since when (seconds since the boot).
        missing_boot: that boot; no clock that is set counts, for what is gone is told to be.
        problem: why the last round did not ship it, None if it did.
        unread: what of the schema is not read here, in words.
    """

    version: int = _VERSION
    position: SchemaPosition | None = None
    shipping: Shipping | None = None
    tlogs: dict[str, Digested] = {}
    tag_sizes: dict[str, list[int]] = {}
    asked: ServerAsked | None = None
    missing: dict[str, float] = {}
    missing_boot: str = ""
    problem: str | None = None
    unread: list[str] = []


class SchemaNotes:
    """The file and its content.

    Attributes:
        tree: that they are in.
        folder: where, beneath it.
        keeps: whether changes go to the disk.
        now: what is remembered.
    """

    def __init__(self, sync: Tree, endpoint: str, *, keep: bool = True) -> None:
        self.tree = sync
        self.folder = endpoint
        self.keeps = keep
        self.now = SchemaMemory()

    @property
    def _rel(self) -> str:
        return f"{self.folder}/{_FILE}"

    @classmethod
    def open(cls, sync: Tree, endpoint: str, *, keep: bool = True) -> SchemaNotes:
        """Read them; a file that is not there, or unusable, is as good as none.

        Args:
            sync: `<schema dir>/sync`; stays the caller's to close.
            endpoint: `<host>_<port>`.
            keep: whether changes go to the disk; without, this is only a look.
        """
        notes = cls(sync, endpoint, keep=keep)
        try:
            found = from_json(sync.read(notes._rel), SchemaMemory)
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return notes
        if found.version == _VERSION:
            notes.now = found
        return notes

    def update(self, **changes: Any) -> None:
        """Change members, on disk before this returns; nothing new writes nothing."""
        new = msgspec.structs.replace(self.now, **changes)
        if new != self.now and self.keeps:
            self.tree.make_dirs(self.folder)
            self.tree.write_atomic(self._rel, msgspec.json.encode(new))
        self.now = new
