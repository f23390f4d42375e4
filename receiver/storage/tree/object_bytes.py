"""An object as a source of TsFiles: read by ranges, as a file is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.tsfile.primitives import Corrupt

if TYPE_CHECKING:
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["ObjectBytes"]


class ObjectBytes:
    """See the module.

    Attributes:
        size: bytes.
    """

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        self._store = store
        self._key = key
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of it.

        Raises:
            Corrupt: it ends before.
        """
        data = self._store.read(self._key, offset, length)
        if len(data) != length:
            raise Corrupt(f"the object ends at offset {offset + len(data)}")
        return data
