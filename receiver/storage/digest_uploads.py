"""The digests of a large file's blocks go into the store beside its object, for who reads it there.

They are a help and no copy of anything: where they cannot be put, who reads the object reads all of
it, and nothing waits for them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.digests import md5
from receiver.storage.confirming import put_confirmed
from receiver.storage.object_content import ContentChangedError
from receiver.storage.reading.block_digests import WHOLE_BYTES, BlockDigests, blocks_key

if TYPE_CHECKING:
    from receiver.storage.object_content import ObjectContent
    from receiver.storage.object_store import ObjectStore

__all__ = ["BLOCKS", "put_block_digests"]

log = logging.getLogger(__name__)

BLOCKS = "blocks"
"""The word for them in `FileUploaded.digests`."""


@dataclass(frozen=True)
class _Packed:
    """Bytes that are in memory, as `ObjectContent`."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def md5(self) -> str:
        return md5(self.data).hexdigest()

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def put_block_digests(store: ObjectStore, key: str, content: ObjectContent) -> dict[str, str]:
    """Have the digests of an object's blocks in the store.

    Args:
        store: has the object.
        key: of the object.
        content: its bytes.

    Returns:
        what the row of the file says of them: nothing of a small file, which needs none.

    Raises:
        StoreAwayError, StoreRefusedError: of the store.
    """
    if content.size <= WHOLE_BYTES:
        return {}
    try:
        packed = _Packed(BlockDigests.of(content).pack())
        put_confirmed(store, blocks_key(key), packed, {})
    except ContentChangedError as error:
        extra = {"object": f"{store.url}: {key}", "problem": error.message}
        log.warning("an object stays without the digests of its blocks", extra=extra)
        return {}
    return {BLOCKS: packed.md5}
