"""An object's bytes, brought into a data directory and checked before they get a name there.

They are written in a directory of their own, `.fetching`, so that what was cut off is found by
looking at one directory; from there they are renamed to their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common import crash
from common.durable import temporary_name
from receiver.storage.stores.object_content import ContentChangedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from common.durable import Tree
    from receiver.storage.reading.file_tiers import BlockOrigin

__all__ = ["fetch_beside", "settle_fetched", "sweep_fetched"]

_FOLDER = ".fetching"
_BLOCK = 8 << 20


def fetch_beside(store: BlockOrigin, tree: Tree, key: str, size: int, digest: str) -> str:
    """Fetch an object; it is on the disk when this returns, under a name that nobody reads.

    Args:
        store: has the object.
        tree: the data directory.
        key: of the object.
        size: bytes that it has.
        digest: its MD5, in hex.

    Returns:
        where it lies; whoever asked for it renames or removes it.

    Raises:
        ObjectMissingError: there is none.
        ContentChangedError: it has other bytes. Nothing is left of it.
        StoreAwayError, StoreRefusedError: of the store.
        NoSpaceError: the disk is full.
    """
    tree.make_dirs(_FOLDER)
    rel = f"{_FOLDER}/{temporary_name()}"
    try:
        with tree.create(rel) as file:
            crash.point("storage.fetch.begun")
            other = file.write_exactly(_blocks(store, key, size), size, digest)
        if other is not None:
            raise ContentChangedError(f"{store.url}: {key}: other bytes than were uploaded")
    except BaseException:
        tree.unlink(rel, sync=False)
        raise
    crash.point("storage.fetch.written")
    return rel


def _blocks(store: BlockOrigin, key: str, size: int) -> Iterator[bytes]:
    at = 0
    while at < size and (block := store.read(key, at, min(_BLOCK, size - at))):
        yield block
        at += len(block)


def settle_fetched(tree: Tree) -> None:
    """Make it last that what was fetched has gone to its place from here."""
    if tree.exists(_FOLDER):
        tree.sync_dir(_FOLDER)


def sweep_fetched(tree: Tree) -> None:
    """Remove what an earlier life had fetched and not named; for who holds the engine's lock."""
    tree.sweep_temporaries(_FOLDER, deep=False)
