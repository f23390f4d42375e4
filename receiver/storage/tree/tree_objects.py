"""Puts tables of the tree into the store and reads them back; what was put last is kept in memory.

Small differences are put together soon after they were put: from memory they cost no request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from common.digests import md5
from common.errors import DamagedError
from receiver.storage.stores.confirming import put_confirmed
from receiver.storage.stores.object_content import BytesContent
from receiver.storage.stores.object_store import ObjectMissingError
from receiver.storage.tree.tree_manifests import TreeTable, table_key
from receiver.storage.tree.tree_tables import as_parquet, from_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore
    from receiver.storage.tree.tree_tables import ArrowTable
    from receiver.storage.tree.unnamed_tables import UnnamedTables

__all__ = ["TreeObjects"]

_KEPT = 16 << 20
"""Bytes of tables, as they were put, that are kept in memory."""
_LARGEST = 1 << 20
"""Bytes of one that is kept."""


class TreeObjects:
    """The tables of one owner."""

    def __init__(self, store: ObjectStore, owner: Incarnation, unnamed: UnnamedTables) -> None:
        """Prepare; nothing is read yet.

        Args:
            store: where they are.
            owner: as whom they are put.
            unnamed: is told before they are.
        """
        self._unnamed = unnamed
        self._store = store
        self._owner = owner
        self._kept: dict[str, bytes] = {}
        self._made: dict[str, bytes] = {}

    def make(self, number: int, what: str, table: ArrowTable, **said: Any) -> TreeTable:
        """Make a table that is put when a manifest names it: it may be merged before.

        Args:
            number: of the manifest that is to name it.
            what: a word for its name.
            table: its rows.
            said: further members of `TreeTable`.
        """
        data = as_parquet(table)
        digest = md5(data).hexdigest()
        key = table_key(self._owner.engine, self._owner.number, number, what, digest)
        self._made[key] = data
        return TreeTable(key=key, size=len(data), md5=digest, rows=table.num_rows, **said)

    def put(self, tables: Iterable[TreeTable]) -> None:
        """Put those of some tables that are not there yet.

        Raises:
            StoreAwayError, StoreRefusedError: of the store.
        """
        waiting = [each for each in tables if each.key in self._made]
        if waiting:
            self._unnamed.begin(each.key for each in waiting)
        for each in waiting:
            content = BytesContent(self._made[each.key], each.md5)
            put_confirmed(self._store, each.key, content, {})
            self._keep(each.key, self._made.pop(each.key))

    def drop_others(self) -> None:
        """Forget what was made and not put: nothing names it."""
        self._made.clear()

    def _keep(self, key: str, data: bytes) -> None:
        if len(data) > _LARGEST:
            return
        self._kept[key] = data
        room = _KEPT - sum(map(len, self._kept.values()))
        while room < 0:
            room += len(self._kept.pop(next(iter(self._kept))))

    def read(self, each: TreeTable, schema: Any, columns: list[str] | None = None) -> ArrowTable:
        """Read a table.

        Raises:
            DamagedError: it is not there, or not what was put.
            StoreAwayError, StoreRefusedError: of the store.
        """
        data = self._made.get(each.key) or self._kept.get(each.key)
        if data is None:
            try:
                data = self._store.read(each.key, 0, each.size)
            except ObjectMissingError as error:
                raise DamagedError(f"{error.message}; the tree needs it") from error
            if md5(data).hexdigest() != each.md5:
                raise DamagedError(f"{self._store.url}/{each.key} is not what was put there")
        return from_parquet(data, schema, columns)
