"""Files as a store has them: whether one is there as its commit says, and its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.errors import TsferryError
from receiver.storage.object_content import ContentChangedError
from receiver.storage.object_store import Fingerprint, ObjectMissingError
from receiver.storage.uploader import resource_key, stored_key

if TYPE_CHECKING:
    from receiver.metadata.state.table_rows import FileRow, UploadedRow
    from receiver.storage.object_store import ObjectStore

__all__ = ["StoredContent", "stands_in"]


def stands_in(store: ObjectStore, engine: str, row: FileRow, there: UploadedRow) -> bool | None:
    """Whether the store says now that it has a file as it is, with its resource.

    None: as far as it knows, which is its size and no digest. What it took was read back then.
    """
    key = stored_key(engine, there)
    digests = dict(each.partition("=")[::2] for each in there.digests.split())
    try:
        agrees = store.head(key).agrees(Fingerprint(row.size, digests))
        if agrees is False or row.resource is None:
            return agrees
        if row.resource.md5 != there.resource:
            return False
        found = store.head(resource_key(key, there.resource))
    except ObjectMissingError:
        return False
    return agrees if found.size == row.resource.size else False


@dataclass(frozen=True)
class StoredContent:
    """The bytes of an object, for another store; see `ObjectContent`.

    Attributes:
        store: that has it.
        key: of the object.
        size: bytes, as the catalogue has them.
        md5: hex, as the catalogue has it.
    """

    store: ObjectStore
    key: str
    size: int
    md5: str

    def read(self, offset: int, length: int) -> bytes:
        """See `ObjectContent.read`."""
        try:
            found = self.store.read(self.key, offset, length)
        except TsferryError as error:
            raise ContentChangedError(f"it is in {self.store.url} only: {error}") from error
        if len(found) != length:
            raise ContentChangedError(f"{self.store.url}: {self.key} ends before its end")
        return found
