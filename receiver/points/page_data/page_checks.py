"""Decoded points against what the file says of them: each page, then the whole chunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from common.tsfile import DataType, Statistics
from common.tsfile.primitives import Malformed
from common.tsfile.statistics import read_body
from receiver.points import summaries
from receiver.points.chunks import Int64s
from receiver.points.columns import BINARY
from receiver.points.encodings import Binaries, Values, is_rounded
from receiver.points.page_data.chunk_window import DataPage, Pages
from receiver.points.page_data.rounding import far

__all__ = ["CheckedChunk", "Checker", "check_times"]


class Checker:
    """Adds up what the pages of one chunk hold and compares it with what the file says.

    A page that was left out (``skip``) counts with what its header says. So the chunk is compared
    with the index whatever part of it was wanted: a header or an index that lies about its times
    cannot make points disappear.

    Attributes:
        exact: whether all values were the file's to the last bit as far as sums can tell. Some
            writers add up in an order that nobody can know, some encodings lose something.
    """

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._known = pages.statistics
        self._code = pages.code
        self._rows: list[summaries.SummaryRows] = []
        self._parts: list[Statistics] = []
        self._reached: int | None = None
        self.exact = True

    def add(
        self,
        group: Sequence[DataPage],
        values: Values | None,
        bounds: Int64s,
        starts: Int64s,
        ends: Int64s,
    ) -> None:
        """Take in several pages and compare each with what is said of it.

        Args:
            group: the pages.
            values: of all of them, nulls left out; None for a time chunk.
            bounds: where in ``values`` each page begins, and the end.
            starts: time of each page's first point; of a page without points anything.
            ends: time of each page's last point.

        Raises:
            DamagedData: a page is not what its header says.
        """
        rows = np.zeros((len(group), summaries.ROW_WIDTH), np.int64)
        np.subtract(bounds[1:], bounds[:-1], out=rows[:, summaries.ROW_COUNT])
        rows[:, summaries.ROW_START] = starts
        rows[:, summaries.ROW_END] = ends
        (filled,) = rows[:, summaries.ROW_COUNT].nonzero()
        if len(filled):
            self._reach(group[filled[0]], int(starts[filled[0]]), int(ends[filled[-1]]))
        if isinstance(values, Binaries):
            self._add_binaries(group, values, bounds, rows)
        elif values is not None:
            summaries.summarise(self._code, values, bounds, rows)
        if self._code not in BINARY:
            self._compare(group, values, bounds, rows)
        self._rows.append(rows)
        self.exact &= not self._rounded

    def skip(self, page: DataPage) -> None:
        """Take in a page that is not decoded.

        Raises:
            DamagedData: its times do not lie behind those of the page before.
        """
        if page.points:
            self._reach(page, page.start, page.end)
        if self._code in BINARY:
            self._parts.append(self._said(page))
        elif page.row is not None:
            self._rows.append(page.row[np.newaxis].copy())  # not the whole table it is of
        elif page.points:
            self._rows.append(summaries.as_row(self._code, self._known)[np.newaxis])

    def _reach(self, page: DataPage, start: int, end: int) -> None:
        if start > end or (self._reached is not None and start <= self._reached):
            where = f"behind time {self._reached}" if start <= end else "as it says"
            raise self._pages.damaged(f"a page from time {start} to {end}, {where}", page)
        self._reached = end

    @property
    def _rounded(self) -> bool:
        pages = self._pages
        return pages.code != DataType.VECTOR and is_rounded(
            pages.encoding, pages.code, old_form=bool(pages.old_form)
        )

    def _compare(
        self, group: Sequence[DataPage], values: Any, bounds: Int64s, rows: summaries.SummaryRows
    ) -> None:
        """Compare rows with what is said of their pages."""
        said = [self._row(page, row) for page, row in zip(group, rows, strict=True)]
        known = said[0][np.newaxis] if len(said) == 1 else np.stack(said)
        if known.tobytes() == rows.tobytes():
            return
        if values is not None and not (self._pages.one_by_one or self._rounded):
            for index in np.flatnonzero((known != rows).any(axis=1)).tolist():
                part = values[bounds[index] : bounds[index + 1]]
                agreement = summaries.settle(self._code, part, rows[index], known[index])
                self.exact &= agreement is not summaries.Agreement.NEAR
        for index in np.flatnonzero((known != rows).any(axis=1)).tolist():
            ours = summaries.row_statistics(self._code, rows[index])
            theirs = summaries.row_statistics(self._code, known[index])
            self._refuse(self._differing(ours, theirs), group[index])

    def _differing(
        self, ours: Statistics, theirs: Statistics, *, whole: bool = False
    ) -> str | None:
        """What differs; the pages of a whole have been compared to the last bit by themselves."""
        if self._rounded:
            return far(self._pages.encoding, self._code, ours, theirs)
        return summaries.differing(ours, theirs, near_sum=whole)

    def _row(self, page: DataPage, ours: Int64s) -> Int64s:
        """What is said of a page of numbers; of the only one of a chunk the index says it."""
        if page.row is not None:
            return page.row
        if self._pages.several:
            return ours  # an empty page, of which nothing is said
        return summaries.as_row(self._code, self._known)

    def _refuse(self, wrong: str | None, page: DataPage | None) -> None:
        if wrong:
            by_page = page and self._pages.several
            who = "the page's statistics say" if by_page else "the index says"
            raise self._pages.damaged(f"not what {who}: {wrong}", page)

    def _add_binaries(
        self,
        group: Sequence[DataPage],
        values: Binaries,
        bounds: Int64s,
        rows: summaries.SummaryRows,
    ) -> None:
        edges = bounds.tolist()
        for index, page in enumerate(group):
            low, high = edges[index], edges[index + 1]
            part = Statistics(*(int(number) for number in rows[index, : summaries.ROW_FIRST]))
            if part.count and self._code in (DataType.TEXT, DataType.STRING):
                least = most = None
                if self._code == DataType.STRING:
                    first, last = summaries.extremes(values.offsets[low : high + 1], values.data)
                    least, most = values[low + first], values[low + last]
                ends = values[low], values[high - 1]
                part = Statistics(part.count, part.start, part.end, *ends, least, most)
            self._parts.append(part)
            if page.row is not None or not self._pages.several:
                self._refuse(summaries.differing(part, self._said(page)), page)

    def _said(self, page: DataPage) -> Statistics:
        """What a page's header says of its binaries."""
        if page.row is None and not self._pages.several:
            return self._known
        if not page.binaries:
            return Statistics(page.points, page.start, page.end)
        try:
            body = read_body(page.binaries, 0, self._code)
        except Malformed as bad:
            raise self._pages.damaged(bad.what, page) from None
        return Statistics(page.points, page.start, page.end, *body)

    def finish(self) -> Statistics:
        """Compare the whole chunk with the index.

        Returns:
            What the points come to, as decoded.

        Raises:
            DamagedData: they differ.
        """
        if self._code in BINARY:
            whole = summaries.merge(self._parts)
        else:
            whole = summaries.fold(self._code, self._rows)
        self._refuse(self._differing(whole, self._known, whole=True), None)
        return whole


class CheckedChunk:
    """A chunk that is decoded page by page, and checked if that is wanted.

    Attributes:
        pages: its pages.
        decoded: how many of them are decoded so far.
    """

    def __init__(self, pages: Pages, *, check: bool) -> None:
        self.pages = pages
        self.decoded = 0
        self._checker = Checker(pages) if check else None

    @property
    def exact(self) -> bool:
        """See ``Checker``; false without a check."""
        return self._checker is not None and self._checker.exact

    @property
    def times_as_written(self) -> bool:
        """Whether the times, if it has any, are encoded as our writer has them, TS_2DIFF."""
        return True


def check_times(
    pages: Pages, group: Sequence[DataPage], times: Int64s, bounds: Int64s, previous: int
) -> None:
    """Check that times increase, from page to page too.

    Args:
        pages: of the chunk.
        group: pages that are looked at.
        times: of all of them.
        bounds: where in ``times`` each page begins, and the end.
        previous: last time of the page before; the least int64 where there is none.

    Raises:
        DamagedData: they do not.
    """
    wrong = summaries.first_out_of_order(times, previous)
    if wrong < 0:
        return
    page = group[int(np.searchsorted(bounds, wrong, side="right")) - 1]
    before = int(times[wrong - 1]) if wrong else previous
    raise pages.damaged(f"time {times[wrong]} behind time {before}", page)
