"""Digests of the blocks of large objects that came without: from an earlier version, or adopted.

They are made of the copy here, whose bytes have the MD5 that the object was confirmed with; of what
is in the store only they are made when it has been fetched. A little at a time, and in the thread
that uploads: two that tell of one file might each take back what the other said.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from common import crash
from receiver.metadata.model import records
from receiver.storage.reading.block_digests import WHOLE_BYTES
from receiver.storage.stores.incarnation import check_owner
from receiver.storage.stores.object_content import ContentChangedError, FileContent, checked_blocks
from receiver.storage.stores.object_keys import digests_text, stored_key
from receiver.storage.uploading.digest_uploads import BLOCKS, ReadContent, put_block_digests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from common.durable import Tree
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.uploaded_rows import UploadedRow
    from receiver.storage.stores.incarnation import Incarnation
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["DigestBacklog"]

log = logging.getLogger(__name__)

_AWAY = 60.0
"""Seconds until files that were not here are looked for again."""


class DigestBacklog:
    """Makes them when it is called; one thread at a time."""

    def __init__(
        self,
        engine: Engine,
        store: ObjectStore,
        owner: Incarnation,
        trees: Callable[[], Sequence[Tree]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; what is due is looked for at the first call.

        Args:
            engine: the metadata engine.
            store: has the objects.
            owner: as whom the digests are put.
            trees: gives the data directories that count now.
            monotonic: seconds.
        """
        self._engine = engine
        self._store = store
        self._owner = owner
        self._trees = trees
        self._monotonic = monotonic
        self._due: list[str] | None = None
        self._away: list[str] = []
        self._look_again = 0.0
        self._under_way: tuple[str, Iterator[bool]] | None = None

    def work(self, seconds: float) -> int:
        """Go on for about so long; returns of how many files it was told.

        Raises:
            FencedError: another receiver has taken over.
            StoreAwayError, StoreRefusedError: of the store.
        """
        if self._due is None:
            with self._engine.reading() as state:
                lacking = (row for row in state.uploaded_table.rows.values() if _lacks(row))
                self._due = [row.physical for row in lacking]
        made, until = 0, self._monotonic() + seconds
        while self._monotonic() < until:
            if self._under_way is None:
                physical = self._next()
                if physical is None:
                    break
                self._under_way = physical, self._make(physical)
            physical, steps = self._under_way
            try:
                told = next(steps, None)
            except BaseException:
                self._under_way = None
                self._away.append(physical)  # the store is away, say
                raise
            if told is None:
                self._under_way = None
            else:
                made += told
        return made

    def _next(self) -> str | None:
        assert self._due is not None
        if not self._due and self._away and self._monotonic() >= self._look_again:
            self._due, self._away = self._away, []
        while self._due:
            physical = self._due.pop()
            if any(tree.seems_there(physical) for tree in self._trees()):
                return physical
            self._away.append(physical)
            self._look_again = self._monotonic() + _AWAY
        return None

    def _make(self, physical: str) -> Iterator[bool]:
        """A step each time; the one that told gives True."""
        with self._engine.reading() as state:
            found = _found(state, physical)
        fd = None if found is None else self._open(physical)
        if found is None or fd is None:
            return
        row, there = found
        try:
            content = ReadContent(FileContent(fd, row.size, row.md5))
            for _ in checked_blocks(content):
                yield False
            check_owner(self._store, self._owner)
            blocks = put_block_digests(self._store, stored_key(self._owner.engine, there), content)
        except ContentChangedError as error:
            extra = {"physical": physical, "problem": error.message}
            log.warning("an object stays without the digests of its blocks", extra=extra)
            return
        finally:
            os.close(fd)
        crash.point("storage.backlog.put")
        if blocks:
            yield self._tell(row, there, blocks)

    def _tell(self, row: FileRow, there: UploadedRow, blocks: dict[str, str]) -> bool:
        check_owner(self._store, self._owner)
        with self._engine.reading() as state:
            now = _found(state, row.physical)
        if now is None or (now[1].incarnation, now[1].again) != (there.incarnation, there.again):
            return False  # it was deleted meanwhile, or put there once more
        place = now[1]
        known = dict(each.split("=", 1) for each in place.digests.split())
        digests = digests_text({**known, **blocks})
        self._engine.commit(
            [
                records.FileUploaded(
                    row.physical,
                    place.incarnation,
                    place.size,
                    digests,
                    place.resource,
                    place.again,
                )
            ]
        )
        crash.point("storage.backlog.told")
        return True

    def _open(self, physical: str) -> int | None:
        for tree in self._trees():
            try:
                return tree.open_read(physical)
            except FileNotFoundError:
                continue
        return None


def _lacks(row: UploadedRow) -> bool:
    return row.size > WHOLE_BYTES and not row.ended and f"{BLOCKS}=" not in row.digests


def _found(state: State, physical: str) -> tuple[FileRow, UploadedRow] | None:
    """A file that readers may see, and its object without digests of blocks."""
    row, there = state.files.get(physical), state.uploaded_table.rows.get(physical)
    if row is None or there is None or not state.uploaded_table.parts(row).file:
        return None
    return (row, there) if _lacks(there) else None
