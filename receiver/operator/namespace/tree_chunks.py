"""The chunks of a file, as the index at its end has them: the second tier of the tree.

It is read where the file lies; of one that is in the object store only, by ranges.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from common.errors import DamagedError, NotFoundError, UsageError
from common.text_numbers import whole_number
from common.tsfile.primitives import Corrupt
from receiver.metadata.query.row_source import Look
from receiver.metadata.query.seen_files import seen_files
from receiver.metadata.sql.executing import moment
from receiver.operator.views.tree_views import ChunksPage, ChunkView
from receiver.transfer.said_lists.listing import page_limit

if TYPE_CHECKING:
    from receiver.metadata.state.table_rows import FileRow
    from receiver.operator.directories import ReceiverDirectories

__all__ = ["list_chunks"]


def list_chunks(
    there: ReceiverDirectories,
    *,
    path: str | None,
    at: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> ChunksPage:
    """A page of the chunks of a file that readers see.

    Args:
        there: what to look at.
        path: the physical one of the file.
        at: a commit timestamp or a time; now, if left out.
        after: the cursor of the page before.
        limit: chunks of the page; as many as the configuration allows, if left out.

    Raises:
        NotFoundError: readers see no such file then, or its bytes have gone since.
        DamagedError: its index cannot be read.
        HistoryGoneError: the time is before the kept history.
        StoreAwayError, StoreRefusedError: it is in the store only, and that of the store.
        UsageError: no path, no time, or no cursor.
    """
    if not path:
        raise UsageError("path: expected the physical path of a file")
    begin = whole_number(after or "0")
    if begin is None:
        raise UsageError(f"after = {after}: expected the cursor of a page")
    limit = page_limit(limit, there.config.limits.max_page_items)
    look = Look(there.engine, there.engine.at(moment(at)))
    seen = next(seen_files(look, path[:-1]), None)
    if seen is None or seen.row.physical != path:
        raise NotFoundError(f"{path}: no such file is seen by readers at {look.ts}")
    rows = _rows(there, seen.row)
    return ChunksPage(
        commit=look.ts,
        path=path,
        chunks=[_chunk(each) for each in rows[begin : begin + limit]],
        next=str(begin + limit) if len(rows) > begin + limit else None,
    )


def _rows(there: ReceiverDirectories, row: FileRow) -> list[tuple[Any, ...]]:
    from receiver.storage.tree.chunk_rows import chunk_rows

    for tree in there.trees:
        try:
            fd = tree.open_read(row.physical)
        except FileNotFoundError:
            continue
        try:
            return _whole(chunk_rows(fd, row), row.physical)
        finally:
            os.close(fd)
    with there.engine.reading() as state:
        stored = state.uploaded_table.rows.get(row.physical)
    if stored is None or there.config.storage.url is None:
        raise NotFoundError(f"{row.physical} is in no data directory: its bytes have gone")
    from receiver.storage.copying import store_of
    from receiver.storage.stores.object_keys import stored_key
    from receiver.storage.tree.object_bytes import ObjectBytes

    store, key = store_of(there.config.storage), stored_key(there.engine.uuid, stored)
    try:
        return _whole(chunk_rows(ObjectBytes(store, key, row.size), row), row.physical)
    except Corrupt as error:
        raise DamagedError(f"{store.url}/{key}: {error}") from error
    finally:
        store.close()


def _whole(rows: list[tuple[Any, ...]], physical: str) -> list[tuple[Any, ...]]:
    if not rows:
        raise DamagedError(f"{physical} has no index of chunks: it is no whole TsFile")
    return rows


def _chunk(row: tuple[Any, ...]) -> ChunkView:
    device, measurement, data_type, chunk, offset, length, count, start, end = row[4:13]
    lows, highs, total = row[13:19:2], row[14:19:2], row[19]
    return ChunkView(
        device=device,
        measurement=measurement,
        data_type=data_type,
        chunk=chunk,
        offset=offset,
        length=length,
        count=count,
        start_time=start,
        end_time=end,
        minimum=_said(lows),
        maximum=_said(highs),
        sum=total,
    )


def _said(found: tuple[Any, ...]) -> int | float | str | None:
    """The bound of the kind that the value has."""
    said = next((each for each in found if each is not None), None)
    return said.decode(errors="replace") if isinstance(said, bytes) else said
