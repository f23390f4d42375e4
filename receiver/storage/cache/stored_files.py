"""Files as a store has them: where one is, whether it is there as told, and its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.errors import TsferryError
from receiver.storage.reading.stored_place import StoredPlace
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_keys import resource_key, stored_key
from receiver.storage.stores.object_store import Fingerprint, ObjectMissingError
from receiver.storage.uploading.digest_uploads import BLOCKS

if TYPE_CHECKING:
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.uploaded_rows import UploadedRow
    from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["StoredContent", "place_of", "stands_in"]


def place_of(
    store: StoreAddress | None,
    engine: str,
    there: UploadedRow,
    digest: str,
    receiver: ReceiverAddress | None = None,
) -> StoredPlace:
    """Where a file is for who reads it from the store.

    Args:
        store: that it was uploaded to, where whoever reads is to know it.
        engine: uuid of the metadata engine.
        there: what the commit said that told of the upload.
        digest: MD5 of the file, in hex.
        receiver: that gives it to whom the store does not.
    """
    blocks = _digests(there).get(BLOCKS, "")
    key = stored_key(engine, there)
    return StoredPlace(store, key, there.size, digest, blocks, receiver, there.physical, engine)


def _digests(there: UploadedRow) -> dict[str, str]:
    return {word: digest for word, _, digest in (e.partition("=") for e in there.digests.split())}


def stands_in(store: ObjectStore, engine: str, row: FileRow, there: UploadedRow) -> bool | None:
    """Whether the store says now that it has a file as it is, with its resource.

    None: as far as it knows, which is its size and no digest. What it took was read back then.
    """
    key = stored_key(engine, there)
    try:
        agrees = store.head(key).agrees(Fingerprint(row.size, _digests(there)))
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
