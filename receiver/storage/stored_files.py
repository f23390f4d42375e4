"""Whether the store has a file now, as the commit says that told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.storage.object_store import Fingerprint, ObjectMissingError
from receiver.storage.uploader import resource_key, stored_key

if TYPE_CHECKING:
    from receiver.metadata.state.table_rows import FileRow, UploadedRow
    from receiver.storage.object_store import ObjectStore

__all__ = ["stands_in"]


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
