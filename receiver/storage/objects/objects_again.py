"""Puts the object of a file once more, under a key of its own, and has a commit say so.

What is there under the keys of before is neither replaced nor trusted.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from common import crash
from common.digests import md5_of_fd
from common.names import FilePath
from receiver.metadata.model import records
from receiver.storage.cache.file_restore import stands
from receiver.storage.cache.stored_files import StoredContent
from receiver.storage.stores.confirming import put_confirmed
from receiver.storage.stores.object_content import ContentChangedError, FileContent
from receiver.storage.stores.object_keys import data_key, digests_text, resource_key, stored_key
from receiver.storage.uploading.digest_uploads import ReadContent, put_block_digests

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.uploaded_rows import UploadedRow
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["put_once_more", "resource_here"]

_TRIES = 100


def put_once_more(
    engine: Engine,
    store: ObjectStore,
    owner: Incarnation,
    trees: Sequence[Tree],
    row: FileRow,
    there: UploadedRow,
    fd: int,
) -> None:
    """Put a file and its resource, and commit where they are.

    Args:
        engine: open for writing.
        store: where the objects are.
        owner: as whom they are put.
        trees: the data directories that may have its resource.
        row: of the file.
        there: where it was put before.
        fd: of its bytes.

    Raises:
        ContentChangedError: these are not the file's.
        StoreAwayError, StoreRefusedError: of the store.
    """
    again, digests = _put_again(store, owner, fd, row, there)
    resource = _put_resource(store, owner, again, row, there, trees)
    crash.point("storage.repair.put")
    engine.commit(
        [
            records.FileUploaded(
                row.physical, owner.number, row.size, digests_text(digests), resource, again
            )
        ]
    )


def resource_here(row: FileRow, trees: Sequence[Tree]) -> Tree | None:
    """The data directory that has the resource of a file whole; None for none."""
    if row.resource is None:
        return None
    rel, known = FilePath.parse(row.physical).resource.text, row.resource
    return next((each for each in trees if stands(each, rel, known.size, known.md5)), None)


def _put_again(
    store: ObjectStore, owner: Incarnation, fd: int, row: FileRow, there: UploadedRow
) -> tuple[int, Mapping[str, str]]:
    """Put a file under the first number that is free, or has it already; with its digests."""
    about = {"sender": row.sender, "path": row.path, "md5": row.md5}
    begin = there.again + 1 if there.incarnation == owner.number else 1
    for again in range(begin, begin + _TRIES):
        key = data_key(owner.engine, owner.number, row.physical, again)
        content = ReadContent(FileContent(fd, row.size, row.md5))
        try:
            found = put_confirmed(store, key, content, about)
            return again, {**found.digests, **put_block_digests(store, key, content)}
        except ContentChangedError:
            if md5_of_fd(fd) != row.md5:
                raise
    raise ContentChangedError(f"{store.url}: {row.physical} was damaged there {_TRIES} times")


def _put_resource(
    store: ObjectStore,
    owner: Incarnation,
    again: int,
    row: FileRow,
    there: UploadedRow,
    trees: Sequence[Tree],
) -> str:
    """Put the resource beside it, if it is whole here, or beside its object of before.

    Returns:
        Its MD5, empty for none.
    """
    if row.resource is None:
        return ""
    known = row.resource
    key = data_key(owner.engine, owner.number, row.physical, again)
    place, tree = resource_key(key, known.md5), resource_here(row, trees)
    if tree is None:
        before = resource_key(stored_key(owner.engine, there), known.md5)
        try:
            put_confirmed(store, place, StoredContent(store, before, known.size, known.md5), {})
        except ContentChangedError:
            return ""
        return known.md5
    fd = tree.open_read(FilePath.parse(row.physical).resource.text)
    try:
        put_confirmed(store, place, FileContent(fd, known.size, known.md5), {})
    finally:
        os.close(fd)
    return known.md5
