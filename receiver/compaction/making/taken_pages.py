"""Pages that a merge takes over as they stand, and how those of its output are compared with them.

A page was decoded once, from the bytes that are written again, and found to be what its file says
of it. So in the output it need not be decoded: its bytes are the same, it stands under the same
type, encoding and compression, and the same is said of it; then it decodes to the same points.
Texts are decoded all the same: what a file says of those is not all that is written of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from common.digests import xxh3_128
from receiver.compaction.making.point_sums import PointSum, add_points, add_times, join_sum, new_sum
from receiver.compaction.worth_merging.merge_asked import MergeDiffersError
from receiver.points.columns import BINARY
from receiver.points.page_data.page_checks import Checker
from receiver.points.page_data.stored_pages import StoredChunk, StoredPage
from receiver.points.summaries import ROW_COUNT, ROW_WIDTH, SummaryRows, as_row
from receiver.writing.device_writers import TakenPage
from receiver.writing.page_cuts import part_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from receiver.points.columns import Column
    from receiver.points.decoding import Times
    from receiver.points.page_data.chunk_window import DataPage, Pages

__all__ = ["PageMark", "sum_of_same", "taken_pages", "taken_rows"]

_NO_VALUES = StoredPage(b"", 0, np.zeros(ROW_WIDTH, np.int64))


class PageMark(NamedTuple):
    """What a page must be in the output.

    Attributes:
        form: encoding and compression; None of a page without a value.
        digest: of its bytes.
        size: bytes that they become.
        row: what is said of it.
        total: of its points.
    """

    form: tuple[int, int] | None
    digest: bytes
    size: int
    row: SummaryRows
    total: PointSum

    def is_of(self, pages: Pages, page: DataPage) -> bool:
        """Whether this is a page of a chunk, the one that was given last."""
        if self.form not in (None, (pages.encoding, pages.compression)):
            return False
        if page.uncompressed != self.size or xxh3_128(pages.stored(page)) != self.digest:
            return False
        if not page.uncompressed:
            return True
        row = as_row(pages.code, pages.statistics) if page.row is None else page.row
        return bool((row == self.row).all())


def taken_pages(
    chunk: StoredChunk, times: Times, column: Column, total: PointSum
) -> list[TakenPage]:
    """The pages of a series whose times are its own, with their marks.

    Args:
        chunk: has them.
        times: of all its points.
        column: their values.
        total: the points are added to it.
    """
    found, low = [], 0
    for page in chunk.pages:
        high = low + int(page.row[ROW_COUNT])
        found.append(_marked(chunk, page, times[low:high], part_of(column, low, high), total))
        low = high
    return found


def taken_rows(
    chunks: Sequence[StoredChunk],
    times: Times,
    columns: Sequence[Column],
    totals: Sequence[PointSum],
) -> Iterator[tuple[TakenPage, list[TakenPage]]]:
    """The same of a device whose series share their times; those stand first."""
    stamps, low = chunks[0], 0
    for number, page in enumerate(stamps.pages):
        high = low + int(page.row[ROW_COUNT])
        here = times[low:high]
        cells = [
            _marked(
                chunk,
                chunk.pages[number] if chunk.pages else _NO_VALUES,
                here,
                part_of(column, low, high),
                total,
            )
            for chunk, column, total in zip(chunks[1:], columns, totals[1:], strict=True)
        ]
        yield _marked(stamps, page, here, None, totals[0]), cells
        low = high


def _marked(
    chunk: StoredChunk, page: StoredPage, times: Times, column: Column | None, total: PointSum
) -> TakenPage:
    own = new_sum()
    if column is None:
        add_times(own, times)
    else:
        add_points(own, times, column)
    join_sum(total, own)
    if column is not None and column.data_type in BINARY:
        return TakenPage(page, None)
    form = (chunk.encoding, chunk.compression) if page.size else None
    return TakenPage(page, PageMark(form, xxh3_128(page.content), page.size, page.row, own))


def sum_of_same(pages: Pages, marks: Sequence[PageMark]) -> PointSum:
    """What the points of a chunk come to, all of whose pages were taken over.

    Args:
        pages: as a reader finds them.
        marks: of what was written.

    Raises:
        MergeDiffersError: they are not those.
        DamagedData: the chunk is not what its index says.
    """
    total, checker = new_sum(), Checker(pages)
    for mark in marks:
        page = pages.next()
        if page is None or not mark.is_of(pages, page):
            raise MergeDiffersError(f"{pages.place}: a page is not the one that was taken over")
        checker.skip(page)
        join_sum(total, mark.total)
    if pages.next() is not None:
        raise MergeDiffersError(f"{pages.place}: more pages than were taken over")
    checker.finish()
    return total
