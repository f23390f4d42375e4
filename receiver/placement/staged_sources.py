"""Files that edges have sent to nodes, and that no replica there has yet.

A node moves such a file into its replica when it reads the list that has it: one that is full, or
has much to pull before, gets to that late. Until then the master may have nothing but these bytes,
as a stand-by that has taken over. Bytes decide: they are compared with the catalogue like any
others, and a file of which other bytes came counts as not being there.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from common.errors import DISK_ERRORS, NotFoundError, TsferryError, UnreachableError
from receiver.tablet_copies.upload_tickets import upload_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from common.durable import Tree
    from receiver.metadata.state.table_rows import FileRow
    from receiver.placement.node_orders import NodeOrders
    from receiver.placement.placeable_nodes import PlaceableNode
    from receiver.tablet_copies.copies_wire import FilePlace

__all__ = ["StagedSources"]

log = logging.getLogger(__name__)

_TRIES: Final = 5
"""After so many an upload that does not come counts as not being there: its edge has it still."""


class _StagedSource:
    """An upload at a node, as `fetch_beside` reads it."""

    def __init__(self, orders: NodeOrders, node: PlaceableNode, upload: str) -> None:
        self.url = node.url
        self.upload = upload
        self._orders = orders
        self._node = node

    def read(self, key: str, offset: int, length: int) -> bytes:
        """So many bytes of it; the key says nothing here.

        Raises:
            UnreachableError: the upload has not so many, or the node gives none of it.
        """
        try:
            block = self._orders.staged(self._node, self.upload, offset, length)
        except (NotFoundError, *DISK_ERRORS) as error:  # of the node's disk, and not of ours
            raise UnreachableError(f"{self.url}: {error.message}") from error
        if len(block) != length:
            raise UnreachableError(f"{self.url}: {len(block)} bytes of {length} came")
        return block

    def reaches(self, size: int) -> bool:
        """Whether as many bytes have come.

        Raises:
            NotFoundError: there is no such upload.
            TsferryError: the node does not say.
        """
        return bool(self._orders.staged(self._node, self.upload, size - 1, 1))


class StagedSources:
    """Names them; any thread may call."""

    def __init__(
        self, nodes: Callable[[], Mapping[str, PlaceableNode]], orders: NodeOrders
    ) -> None:
        """Prepare.

        Args:
            nodes: as they are now, by uuid.
            orders: calls them.
        """
        self._nodes = nodes
        self._orders = orders
        self._failed: Counter[tuple[str, str]] = Counter()

    def beside(self, row: FileRow, tree: Tree, places: Iterable[FilePlace]) -> str | None:
        """Fetch a file into a directory as `CopiesBack.beside` does; None where no node gives it.

        Raises:
            NoSpaceError, DiskError, ReadOnlyError, OSError: of the disk that it was to come to.
        """
        from receiver.storage.cache.object_fetching import fetch_beside
        from receiver.storage.stores.object_content import ContentChangedError

        for place in places:
            source = self._at(place.url, row)
            if source is None or not self.has(place.url, row):
                continue
            told = {"file": row.physical, "node": place.url}
            try:
                rel = fetch_beside(source, tree, row.physical, row.size, row.md5)
            except DISK_ERRORS:
                raise  # ours: it says nothing of the upload
            except TsferryError as error:
                known = source.url, source.upload
                self._failed[known] += 1 if not isinstance(error, ContentChangedError) else _TRIES
                log.warning("an upload does not come", extra=told | {"error": str(error)})
                continue
            log.info("a file came of an upload at a node", extra=told)
            return rel
        return None

    def _at(self, url: str, row: FileRow) -> _StagedSource | None:
        """What a node may have of a file; None where that had other bytes, or cannot be read."""
        upload = upload_id(row.sender, row.path, row.size, row.tail)
        if self._failed[url, upload] >= _TRIES:
            return None
        for node in self._nodes().values():
            if node.url == url:
                return _StagedSource(self._orders, node, upload)
        return None

    def has(self, url: str, row: FileRow) -> bool | None:
        """Whether a node has a file to its end; None where it does not say."""
        source = self._at(url, row)
        if source is None:
            return False
        try:
            return source.reaches(row.size)
        except NotFoundError:
            return False
        except (TsferryError, OSError):
            return None
