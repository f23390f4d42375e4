"""Reads the indexes of files whose objects are in the store, each once.

A file is read where it lies; one that is in the store only, by the ranges that its index takes.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from common.errors import TsferryError
from common.tsfile.primitives import Corrupt
from receiver.metadata.state.table_rows import FileState
from receiver.storage.stores.object_store import ObjectMissingError
from receiver.storage.tree.chunk_rows import chunk_rows
from receiver.storage.tree.object_bytes import ObjectBytes
from receiver.storage.tree.tree_rows import EngineFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["ChunkGatherer"]

_PAGE = 200
"""Files of one look at the engine."""


class ChunkGatherer:
    """Gathers rows of the second tier."""

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        trees: Callable[[], Sequence[Tree]],
        go_on: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            engine: the metadata engine.
            store: where the objects are.
            trees: gives the data directories that count now.
            go_on: called before each file; may raise to stop.
            monotonic: seconds.
        """
        self._engine = engine
        self._store = store
        self._trees = trees
        self._go_on = go_on
        self._monotonic = monotonic

    def rows(self, known: EngineFile) -> list[tuple[Any, ...]]:
        """The rows of a file; none where it is nowhere, deleted, or no whole TsFile.

        Raises:
            StoreAwayError, StoreRefusedError: it is in the store only, and that of the store.
        """
        self._go_on()
        if known.row.state is FileState.DELETED or known.key is None:
            return []
        for tree in self._trees():
            try:
                fd = tree.open_read(known.row.physical)
            except (OSError, TsferryError):
                continue  # what is wrong there others tell of; the store has it too
            try:
                return chunk_rows(fd, known.row)
            except OSError:
                continue
            finally:
                os.close(fd)
        try:
            return chunk_rows(ObjectBytes(self._store, known.key, known.row.size), known.row)
        except (ObjectMissingError, Corrupt):
            return []  # `fsck --storage` tells of it

    def before(
        self, begun: int, after: str, most: int, until: float
    ) -> tuple[list[tuple[Any, ...]], str | None]:
        """Rows of files that had been uploaded before a commit, in order of their paths.

        Args:
            begun: the commit; of those uploaded later the log tells.
            after: the path behind which to go on.
            most: rows that are enough.
            until: when to end, as `monotonic` has it; one file is read at least.

        Returns:
            rows, and the path up to which they are; None behind the last.
        """
        found: list[tuple[Any, ...]] = []
        while len(found) < most:
            self._go_on()
            with self._engine.reading() as state:
                rows = state.file_table.catalogue(after or None, _PAGE)
                known = [EngineFile(state, row) for row in rows]
            for each in known:
                if 0 < each.uploaded <= begun:
                    found += self.rows(each)
                after = each.row.physical
                if len(found) >= most or self._monotonic() >= until:
                    return found, after
            if len(rows) < _PAGE:
                return found, None
        return found, after
