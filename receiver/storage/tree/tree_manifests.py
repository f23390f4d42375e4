"""Which tables the tree is made of: numbered manifests, each put if its number is free.

    <engine>/tree/manifests/<incarnation, 8 digits>-<number, 12 digits>.json
    <engine>/tree/tables/<incarnation>/<number>-<what>.<MD5>.parquet

As with those of the log (`store_manifests`): what one names was in the store before it, and a table
that one has left behind none names again.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from common.errors import ConflictError, DamagedError
from receiver.storage.object_store import ObjectExistsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.storage.incarnation import Incarnation
    from receiver.storage.object_store import ObjectStore, StoredObject

__all__ = [
    "TreeManifest",
    "TreeTable",
    "forget_tree",
    "newest_tree",
    "put_tree",
    "read_tree",
    "table_key",
    "tree_manifests",
]

_VERSION = 1
_MOST = 64 << 20


class TreeTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table, as an object.

    Attributes:
        key: of the object.
        size: bytes.
        md5: of them, hex.
        rows: in it.
        level: of a difference or of chunks, how often it was put together of smaller ones.
        until: kind and path of the last row of a table of the checkpoint.
        ended: rows of a table of the checkpoint that go when the history is over.
    """

    key: str
    size: int
    md5: str
    rows: int
    level: int = 0
    until: tuple[str, str] = ("", "")
    ended: int = 0


class TreeManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The tree as of a commit, with its past.

    Attributes:
        engine: uuid of the metadata engine.
        incarnation: that put it.
        number: from 1 up, within the incarnation.
        ident: random; tells a put whose answer was lost from another's.
        parent: key of the manifest before it; empty for the first of all.
        since: the earliest timestamp that the tables are complete for.
        ts: the newest commit that is in them.
        checkpoint: tables of the first tier that have no entry in common, in the order of paths.
        differences: what has changed since, the oldest first.
        chunks: tables of the second tier.
        begun: the commit that this incarnation's tables begin with.
        done: of the files that had been uploaded before `begun`, the path up to which their chunks
            are there; None for all.
        version: of this form.
    """

    engine: str
    incarnation: int
    number: int
    ident: str
    parent: str
    since: int
    ts: int
    checkpoint: list[TreeTable]
    differences: list[TreeTable]
    chunks: list[TreeTable]
    begun: int = 0
    done: str | None = None
    version: int = _VERSION

    @property
    def key(self) -> str:
        """Of its object."""
        return f"{_folder(self.engine)}{self.incarnation:08}-{self.number:012}.json"

    @property
    def tables(self) -> list[TreeTable]:
        """All that it names."""
        return [*self.checkpoint, *self.differences, *self.chunks]


def table_key(engine: str, incarnation: int, number: int, what: str, digest: str) -> str:
    """Of a table's object; it tells who put it for which manifest, and its content."""
    return f"{engine}/tree/tables/{incarnation:08}/{number:012}-{what}.{digest}.parquet"


def put_tree(store: ObjectStore, made: TreeManifest) -> None:
    """Put a manifest.

    Raises:
        ConflictError: its number has another one; this owner is not alone.
    """
    try:
        store.put(made.key, msgspec.json.encode(made))
    except ObjectExistsError:
        if read_tree(store, made.key).ident != made.ident:
            raise ConflictError(
                f"{store.url}/{made.key} is there, and is not of this process"
            ) from None


def newest_tree(store: ObjectStore, engine: str) -> TreeManifest | None:
    """The newest one of the highest incarnation; None if there is none.

    One that cannot be read is given without tables, and with `ts` 0: the next begins anew.
    """
    newest = ""
    for found in tree_manifests(store, engine):
        newest = found.key
    if not newest:
        return None
    try:
        return read_tree(store, newest)
    except DamagedError:
        incarnation, _, number = newest.rpartition("/")[2].removesuffix(".json").partition("-")
        if not (incarnation.isdecimal() and number.isdecimal()):
            raise
        return _nothing(engine, int(incarnation), int(number))


def forget_tree(store: ObjectStore, owner: Incarnation) -> None:
    """Have the tree made anew, by a manifest that names nothing.

    Raises:
        ConflictError: another process puts manifests.
    """
    newest = newest_tree(store, owner.engine)
    is_own = newest is not None and newest.incarnation == owner.number
    number = newest.number + 1 if newest is not None and is_own else 1
    put_tree(store, _nothing(owner.engine, owner.number, number))


def _nothing(engine: str, incarnation: int, number: int) -> TreeManifest:
    return TreeManifest(
        engine=engine,
        incarnation=incarnation,
        number=number,
        ident=uuid.uuid4().hex,
        parent="",
        since=0,
        ts=0,
        checkpoint=[],
        differences=[],
        chunks=[],
    )


def tree_manifests(store: ObjectStore, engine: str) -> Iterator[StoredObject]:
    """All manifests of an engine's tree as the store lists them, the oldest first."""
    return store.objects(_folder(engine))


def read_tree(store: ObjectStore, key: str) -> TreeManifest:
    """Read a manifest.

    Raises:
        DamagedError: it is none.
        ObjectMissingError: it is not there.
    """
    data = store.read(key, 0, _MOST)
    try:
        found = from_json(data, TreeManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(f"{store.url}/{key} is no manifest of a tree: {error}") from None
    if found.version != _VERSION or found.key != key:
        raise DamagedError(
            f"{store.url}/{key} is {found.key} of version {found.version}; this program reads "
            f"{_VERSION}"
        )
    return found


def _folder(engine: str) -> str:
    return f"{engine}/tree/manifests/"
