"""`schema.stage`: blocks of a sender's schema log that no task has brought to its end yet.

The file has the blocks as they travelled (`common.formats.schemawire`), one behind the other; each
is on the disk before it is acknowledged. A torn last block never happened. A block at the beginning
of its log takes the place of all that is here: another log, or the same once more.

It stays when a task is dropped, as verified files do: the next task goes on behind it, if the
sender finds its own bytes again by their digest.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import xxhash

from common import crash
from common.errors import DigestError, OffsetError, ProtocolError
from common.formats.schemawire import SchemaLogBlock, decode_block
from common.wire import SchemaEnd, SchemaKind, SchemaStaged

if TYPE_CHECKING:
    from common.durable import Tree

__all__ = ["SchemaStage", "StagedLog"]

log = logging.getLogger(__name__)

_LIMIT = 1 << 36
_Key = tuple[SchemaKind, str, int]


class StagedLog:
    """All blocks, joined.

    Attributes:
        data: of the log.
        slots: offset in the tlog -> trimmed slot.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.slots: dict[int, bytes] = {}

    def add(self, block: SchemaLogBlock) -> None:
        """One more, behind the others."""
        self.data += block.data
        self.slots.update((offset, bytes(slot)) for offset, slot in block.slots.items())


class SchemaStage:
    """The stage of one sender; its folder's lock guards every call.

    Attributes:
        bytes: that it takes on the disk, as far as this process has looked.
    """

    def __init__(self, tree: Tree, rel: str) -> None:
        self._tree = tree
        self._rel = rel
        self._opened = False
        self._forget()

    def _forget(self) -> None:
        self.bytes = 0
        self._key: _Key | None = None
        self._size = 0
        self._digest = xxhash.xxh3_128()
        self._taken: tuple[int, str] | None = None

    def staged(self) -> SchemaStaged | None:
        """What is here, None for nothing."""
        self._open()
        if self._key is None:
            return None
        kind, identity, base = self._key
        return SchemaStaged(
            kind=kind,
            identity=identity,
            base=base,
            size=self._size,
            digest=self._digest.hexdigest(),
        )

    def add(self, body: bytes) -> int:
        """Take a block in; returns the bytes of the log that are here for good.

        Raises:
            ProtocolError, DigestError: it is none.
            OffsetError: it does not begin where those before it end (`extra["offset"]`).
        """
        self._open()
        block = decode_block(body)
        if block.end != len(body):
            raise ProtocolError(f"schema: {len(body) - block.end} stray bytes behind the block")
        head = block.head
        if self._has(block):
            return self._size
        if head.at == 0:
            self._tree.write_atomic(self._rel, body)
            self._forget()
        elif (head.kind, head.identity, head.base) != self._key or head.at != self._size:
            there = self._size if (head.kind, head.identity, head.base) == self._key else 0
            raise OffsetError(
                f"schema: the block begins at {head.at}, {there} bytes of this log are here",
                extra={"offset": there},
            )
        else:
            with self._tree.append_file(self._rel) as file:
                file.append(body)
        crash.point("schemastage.added")
        self._count(block)
        self.bytes += len(body)
        return self._size

    def _has(self, block: SchemaLogBlock) -> bool:
        """Whether it is the last block once more, whose answer was lost."""
        head = block.head
        same = (head.kind, head.identity, head.base) == self._key
        last = head.at + head.size == self._size
        return same and last and self._taken == (head.at, head.xxh3)

    def read(self, end: SchemaEnd) -> StagedLog | str:
        """The log that a task's end names, or in words why it is not here.

        Raises:
            OSError: it cannot be read now.
        """
        self._open()
        if end.size == 0:
            return StagedLog()  # nothing changed up to where it ends
        if (end.kind, end.identity, end.base) != self._key or end.size != self._size:
            found = 0 if self._key is None else self._size
            return f"{end.size} bytes of the log were to come, {found} are here; they come again"
        joined = StagedLog()
        for block in _blocks(self._tree.read(self._rel, limit=_LIMIT))[0]:
            joined.add(block)
        return joined

    def clear(self) -> None:
        """Nothing of it is needed any more."""
        self._open()
        if self._key is not None:
            self._tree.unlink(self._rel, sync=False)
            self._forget()

    def _open(self) -> None:
        if self._opened:
            return
        self._forget()
        if self._tree.exists(self._rel):
            with self._tree.append_file(self._rel) as file:  # flushes what a killed process left
                data = self._tree.read(self._rel, limit=_LIMIT)
                blocks, good = _blocks(data)
                for block in blocks:
                    self._count(block)
                self.bytes = good
                if good != len(data):
                    log.warning("the torn end of a staged schema is cut", extra={"at": good})
                    file.truncate(good)
        self._opened = True

    def _count(self, block: SchemaLogBlock) -> None:
        head = block.head
        self._key = (head.kind, head.identity, head.base)
        self._taken = (head.at, head.xxh3)
        self._size += head.size
        self._digest.update(block.data)


def _blocks(data: bytes) -> tuple[list[SchemaLogBlock], int]:
    """The sound blocks that follow each other, and where the last ends."""
    found: list[SchemaLogBlock] = []
    at = size = 0
    while at < len(data):
        try:
            block = decode_block(data, at)
        except (ProtocolError, DigestError):
            break
        head = block.head
        first = found[0].head if found else head
        follows = (head.kind, head.identity, head.base) == (first.kind, first.identity, first.base)
        if head.at != size or not follows:
            break
        found.append(block)
        size += head.size
        at = block.end
    return found, at
