"""Digests of a file's blocks: what is read of a large object is checked without reading all of it.

They are an object of their own beside the file's, ``<key>.blocks``. Its MD5 is in the row of the
file (`FileUploaded.digests`, word ``blocks``), so a reader of the catalogue knows that they are the
right ones. Layout: 8 bytes ``TSFBLK`` and the version (uint16), then the block's size (uint32) and
the file's size (uint64), big-endian; 16 bytes MD5 of the file; then xxh3-128 of each block, 16
bytes, in order.

A file of up to `WHOLE_BYTES` has none: it is read whole and compared with its MD5. Blocks are
small, since that costs little (16 bytes a MiB): who wants more asks for several at once.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.digests import md5, xxh3_128
from common.errors import DamagedError
from receiver.storage.stores.object_content import checked_blocks

if TYPE_CHECKING:
    from receiver.storage.stores.object_content import ObjectContent

__all__ = ["BLOCK_BYTES", "WHOLE_BYTES", "BlockDigests", "blocks_key", "packed_size"]

BLOCK_BYTES = 1 << 20
WHOLE_BYTES = 4 << 20
"""A request takes as long as about so many bytes."""
_HEAD = struct.Struct(">6sHIQ16s")
_MAGIC, _VERSION = b"TSFBLK", 1
_DIGEST = 16


def blocks_key(key: str) -> str:
    """Of the object with the digests of an object's blocks."""
    return f"{key}.blocks"


def packed_size(size: int) -> int:
    """Bytes of the object with the digests of a file of so many bytes."""
    return _HEAD.size + -(-size // BLOCK_BYTES) * _DIGEST


@dataclass(frozen=True, slots=True)
class BlockDigests:
    """What the blocks of a file must be; those of a small one are one block, checked by its MD5.

    Attributes:
        size: bytes of the file.
        md5: of the file, in hex.
        block: bytes of each block but the last.
        digests: of all blocks, one behind the other; empty for a file that is one block.
    """

    size: int
    md5: str
    block: int = 0
    digests: bytes = b""

    @classmethod
    def of(cls, content: ObjectContent) -> BlockDigests:
        """Compute them.

        Raises:
            ContentChangedError: the content has another MD5.
        """
        found = b"".join(map(xxh3_128, checked_blocks(content, block=BLOCK_BYTES)))
        return cls(content.size, content.md5, BLOCK_BYTES, found)

    @classmethod
    def unpack(cls, packed: bytes) -> BlockDigests:
        """Undo `pack`.

        Raises:
            DamagedError: it is something else.
        """
        if len(packed) < _HEAD.size:
            raise DamagedError(f"{len(packed)} bytes are no digests of blocks")
        magic, version, block, size, digest = _HEAD.unpack_from(packed)
        found = packed[_HEAD.size :]
        if (magic, version) != (_MAGIC, _VERSION) or not block:
            raise DamagedError(f"no digests of blocks of version {_VERSION}: {packed[:8]!r}")
        if len(found) != -(-size // block) * _DIGEST:
            raise DamagedError(f"{len(found)} bytes of digests for {size} bytes")
        return cls(size, digest.hex(), block, found)

    def pack(self) -> bytes:
        """As an object."""
        head = _HEAD.pack(_MAGIC, _VERSION, self.block, self.size, bytes.fromhex(self.md5))
        return head + self.digests

    def bounds(self, number: int) -> tuple[int, int]:
        """Offsets where a block begins and ends."""
        if not self.digests:
            return 0, self.size
        return number * self.block, min(self.size, (number + 1) * self.block)

    def is_block(self, number: int, data: bytes) -> bool:
        """Whether these are the bytes of a block."""
        begin, end = self.bounds(number)
        if len(data) != end - begin:
            return False
        if not self.digests:
            return md5(data).hexdigest() == self.md5
        return xxh3_128(data) == self.digests[number * _DIGEST : (number + 1) * _DIGEST]
