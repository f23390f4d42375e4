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

__all__ = ["Digested", "SchemaMemory", "SchemaNotes", "Shipping"]

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


class SchemaMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is remembered.

    Attributes:
        version: of this format.
        position: as the receiver gave it last.
        shipping: what was begun.
        tlog: what the tlog was, when it was last read as a whole.
        problem: why the last round did not ship it, None if it did.
    """

    version: int = _VERSION
    position: SchemaPosition | None = None
    shipping: Shipping | None = None
    tlog: Digested | None = None
    problem: str | None = None


class SchemaNotes:
    """The file and its content.

    Attributes:
        now: what is remembered.
    """

    def __init__(self, sync: Tree, endpoint: str, *, keep: bool = True) -> None:
        self._tree = sync
        self._rel = f"{endpoint}/{_FILE}"
        self._keep = keep
        self.now = SchemaMemory()

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
        if new != self.now and self._keep:
            self._tree.make_dirs(self._rel.rpartition("/")[0])
            self._tree.write_atomic(self._rel, msgspec.json.encode(new))
        self.now = new
