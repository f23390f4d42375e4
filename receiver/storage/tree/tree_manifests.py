"""Which tables the tree is made of: numbered manifests of its own, and the names of tables.

    <engine>/tree/tables/<incarnation>/<number>-<what>.<MD5>.parquet

A table that one manifest has left behind none names again.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, ClassVar

import msgspec

from common.errors import DamagedError
from common.text_numbers import whole_number
from receiver.storage.stores.numbered_manifest import NumberedManifest

if TYPE_CHECKING:
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["TreeManifest", "TreeTable", "forget_tree", "newest_tree", "table_key"]


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


class TreeManifest(NumberedManifest, frozen=True, kw_only=True):
    """The tree as of a commit, with its past.

    Attributes:
        since: the earliest timestamp that the tables are complete for.
        checkpoint: tables of the first tier that have no entry in common, in the order of paths.
        differences: what has changed since, the oldest first.
        chunks: tables of the second tier.
        begun: the commit that this incarnation's tables begin with.
        done: of the files that had been uploaded before `begun`, the path up to which their chunks
            are there; None for all.
    """

    FOLDER: ClassVar[str] = "tree/manifests"
    ENDING: ClassVar[str] = ".json"

    since: int
    checkpoint: list[TreeTable]
    differences: list[TreeTable]
    chunks: list[TreeTable]
    begun: int = 0
    done: str | None = None

    @property
    def tables(self) -> list[TreeTable]:
        """All that it names."""
        return [*self.checkpoint, *self.differences, *self.chunks]


def table_key(engine: str, incarnation: int, number: int, what: str, digest: str) -> str:
    """Of a table's object; it tells who put it for which manifest, and its content."""
    return f"{engine}/tree/tables/{incarnation:08}/{number:012}-{what}.{digest}.parquet"


def newest_tree(store: ObjectStore, engine: str) -> TreeManifest | None:
    """The newest one of the highest incarnation; None if there is none.

    One that cannot be read is given without tables, and with `ts` 0: the next begins anew.
    """
    newest = TreeManifest.newest_key(store, engine)
    if not newest:
        return None
    try:
        return TreeManifest.read(store, newest)
    except DamagedError:
        named = newest.rpartition("/")[2].removesuffix(TreeManifest.ENDING).partition("-")
        incarnation, number = whole_number(named[0]), whole_number(named[2])
        if incarnation is None or number is None:
            raise
        return _nothing(engine, incarnation, number)


def forget_tree(store: ObjectStore, owner: Incarnation) -> None:
    """Have the tree made anew, by a manifest that names nothing.

    Raises:
        ConflictError: another process puts manifests.
    """
    newest = newest_tree(store, owner.engine)
    is_own = newest is not None and newest.incarnation == owner.number
    number = newest.number + 1 if newest is not None and is_own else 1
    _nothing(owner.engine, owner.number, number).put(store)


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
