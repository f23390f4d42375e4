"""The digests of a large file's blocks go into the store beside its object, for who reads it there.

They are a help and no copy of anything: where they cannot be put, who reads the object reads all of
it, and nothing waits for them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from common.digests import xxh3_128
from receiver.storage.reading.block_digests import (
    BLOCK_BYTES,
    WHOLE_BYTES,
    BlockDigests,
    blocks_key,
)
from receiver.storage.stores.confirming import put_confirmed
from receiver.storage.stores.object_content import BytesContent, ContentChangedError, checked_blocks

if TYPE_CHECKING:
    from receiver.storage.stores.object_content import ObjectContent
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["BLOCKS", "ReadContent", "digest_object", "put_block_digests"]

log = logging.getLogger(__name__)

_RUN = 8 << 20
"""Bytes of one request."""
BLOCKS = "blocks"
"""The word for them in `FileUploaded.digests`."""


@dataclass
class ReadContent:
    """Content whose blocks are digested while it is read for another purpose.

    Attributes:
        content: that is read.
    """

    content: ObjectContent
    _found: list[bytes] = field(default_factory=list)
    _end: int = 0

    @property
    def size(self) -> int:
        """See `ObjectContent`."""
        return self.content.size

    @property
    def md5(self) -> str:
        """See `ObjectContent`."""
        return self.content.md5

    def read(self, offset: int, length: int) -> bytes:
        """See `ObjectContent.read`."""
        data = self.content.read(offset, length)
        if offset == 0:
            self._found, self._end = [], 0
        if self.size > WHOLE_BYTES and offset == self._end and not offset % BLOCK_BYTES:
            view = memoryview(data)
            self._found += [
                xxh3_128(view[at : at + BLOCK_BYTES]) for at in range(0, length, BLOCK_BYTES)
            ]
            self._end = offset + length
        return data

    def blocks(self) -> BlockDigests:
        """Digests of the blocks of what was read, or is read now; see `BlockDigests.of`.

        Whoever read it all has judged its MD5.
        """
        if self._end != self.size:
            return BlockDigests.of(self.content)
        return BlockDigests(self.size, self.md5, BLOCK_BYTES, b"".join(self._found))


@dataclass(frozen=True)
class _Stored:
    """An object in the store, as `ObjectContent`."""

    store: ObjectStore
    key: str
    size: int
    md5: str

    def read(self, offset: int, length: int) -> bytes:
        data = self.store.read(self.key, offset, length)
        if len(data) != length:
            raise ContentChangedError(f"{self.store.url}: {self.key}: it ends early")
        return data


def digest_object(store: ObjectStore, key: str, size: int, digest: str) -> dict[str, str]:
    """Read all of an object, and have the digests of its blocks beside it.

    Args:
        store: has the object.
        key: of the object.
        size: bytes that it should have.
        digest: MD5 that it should have, in hex.

    Returns:
        as `put_block_digests`.

    Raises:
        ContentChangedError: it has other bytes; nothing was put.
        ObjectMissingError: it is not there.
        StoreAwayError, StoreRefusedError: of the store.
    """
    content = ReadContent(_Stored(store, key, size, digest))
    for _ in checked_blocks(content, block=_RUN):
        pass
    return put_block_digests(store, key, content)


def put_block_digests(store: ObjectStore, key: str, content: ReadContent) -> dict[str, str]:
    """Have the digests of an object's blocks in the store.

    Args:
        store: has the object.
        key: of the object.
        content: its bytes, as they were read to be put.

    Returns:
        what the row of the file says of them: nothing of a small file, which needs none.

    Raises:
        StoreAwayError, StoreRefusedError: of the store.
    """
    if content.size <= WHOLE_BYTES:
        return {}
    try:
        packed = BytesContent.of(content.blocks().pack())
        put_confirmed(store, blocks_key(key), packed, {})
    except ContentChangedError as error:
        extra = {"object": f"{store.url}: {key}", "problem": error.message}
        log.warning("an object stays without the digests of its blocks", extra=extra)
        return {}
    return {BLOCKS: packed.md5}
