"""Brings the files of a restored engine back from the store into its data directory.

A file comes under a temporary name, is compared with the MD5 of its row, flushed, and moved to its
own. What stands whole already is left, so a restore that was cut off goes on. A file that was never
uploaded is not invented: it goes to quarantine with the reason, where its sender is asked for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from common.digests import md5_of_fd
from common.errors import TsferryError
from common.names import FilePath
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState
from receiver.storage.confirming import resource_key
from receiver.storage.object_content import ContentChangedError
from receiver.storage.object_fetching import fetch_beside, settle_fetched
from receiver.storage.object_store import ObjectMissingError

if TYPE_CHECKING:
    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow, UploadedRow
    from receiver.storage.object_store import ObjectStore

__all__ = ["RestoredFiles", "restore_files"]

_BATCH = 1000
_NEVER = "it was not in the object store when this receiver was restored from there"


class RestoredFiles(NamedTuple):
    """What became of the files.

    Attributes:
        fetched: that came from the store.
        bytes: of them.
        there: that stood in the data directory already.
        lacking: paths at their senders, of those that were not in the store.
        left: that stay in the store only.
    """

    fetched: int
    bytes: int
    there: int
    lacking: list[tuple[str, str]]
    left: int = 0


class _Due(NamedTuple):
    row: FileRow
    object: UploadedRow


def restore_files(
    store: ObjectStore,
    engine: Engine,
    tree: Tree,
    *,
    most: int | None = None,
    parallel: int = 8,
    told: Callable[[int, int], None] = lambda files, size: None,
) -> RestoredFiles:
    """Fetch all that the engine knows and the store has.

    Args:
        store: where the objects are.
        engine: open for writing.
        tree: the data directory that they go to.
        most: bytes that are fetched, those that were loaded last first; None for all. The others
            are fetched when they are needed.
        parallel: files at once.
        told: called with the files and bytes that have come, now and then.

    Raises:
        StoreAwayError, StoreRefusedError: of the store; calling again goes on.
        NoSpaceError: the disk is full; calling again goes on.
    """
    with engine.reading() as state:
        uploaded = state.uploaded_table.rows
        rows = list(state.files.values())
        due = [_Due(row, uploaded[row.physical]) for row in rows if row.physical in uploaded]
    lacking = [
        row
        for row in rows
        if row.physical not in uploaded and row.state in (FileState.LIVE, FileState.RETIRED)
    ]
    whole = len(due)
    if most is not None:
        due = list(_fitting(due, most))
    fetched = size = there = 0
    with ThreadPoolExecutor(parallel, thread_name_prefix="restore") as pool:
        for batch in _batches(due):
            results = pool.map(lambda each: _bring(store, tree, each), batch)
            for each, came in zip(batch, results, strict=True):
                if came is None:
                    lacking.append(each.row)
                elif came:
                    fetched, size = fetched + 1, size + each.row.size
                else:
                    there += 1
            for folder in sorted({each.row.physical.rpartition("/")[0] for each in batch}):
                if tree.exists(folder):
                    tree.sync_dir(folder)
            settle_fetched(tree)
            told(fetched, size)
    _ask_again(engine, lacking)
    named = [(row.sender, row.path) for row in lacking]
    return RestoredFiles(fetched, size, there, named, whole - len(due))


def _fitting(due: list[_Due], most: int) -> Iterator[_Due]:
    for each in sorted(due, key=lambda each: each.row.created, reverse=True):
        resource = each.row.resource
        most -= each.row.size + (0 if resource is None else resource.size)
        if most < 0:
            return
        yield each


def _batches(due: list[_Due]) -> Iterator[list[_Due]]:
    rest = iter(due)
    while batch := list(islice(rest, _BATCH)):
        yield batch


def _bring(store: ObjectStore, tree: Tree, due: _Due) -> bool | None:
    """Fetch a file and its resource; False if it stands there, None if the store lost it."""
    row = due.row
    physical = FilePath.parse(row.physical)
    wanted = [(physical.text, due.object.key, row.size, row.md5)]
    if row.resource is not None and row.resource.md5 == due.object.resource:
        key = resource_key(due.object.key, row.resource.md5)
        wanted.insert(0, (physical.resource.text, key, row.resource.size, row.resource.md5))
    came = False
    try:
        for rel, key, size, digest in wanted:
            if not _stands(tree, rel, size, digest):
                _fetch(store, tree, rel, key, size, digest)
                came = True
    except (ObjectMissingError, ContentChangedError):
        return None
    return came


def _stands(tree: Tree, rel: str, size: int, digest: str) -> bool:
    try:
        fd = tree.open_read(rel)
    except (OSError, TsferryError):
        return False
    try:
        return os.fstat(fd).st_size == size and md5_of_fd(fd) == digest
    finally:
        os.close(fd)


def _fetch(store: ObjectStore, tree: Tree, rel: str, key: str, size: int, digest: str) -> None:
    tree.make_dirs(rel.rpartition("/")[0])
    tree.rename(fetch_beside(store, tree, key, size, digest), rel, sync=False)


def _ask_again(engine: Engine, lacking: list[FileRow]) -> None:
    """Quarantine what is nowhere here: its senders are asked for it, and readers are not misled."""
    for begin in range(0, len(lacking), _BATCH):
        engine.commit(
            [
                records.FileQuarantined(row.physical, _NEVER)
                for row in lacking[begin : begin + _BATCH]
                if row.state in (FileState.LIVE, FileState.RETIRED)
            ]
        )
