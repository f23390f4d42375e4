"""Chunks of a device whose series each have times of their own.

The content of a page: uvarint bytes of times, the times, the values. Source: apache/tsfile,
``PageReader``, ``PageWriter``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from common.tsfile import Encoding, Statistics
from common.tsfile.primitives import Malformed, read_uvarint
from receiver.points.chunks import PointBlock
from receiver.points.columns import Column, joined_values
from receiver.points.decoding import guessed_times, page_times, page_values
from receiver.points.encodings import Bytes, Values
from receiver.points.grouping import GROUP_ROWS, LEAST_TIME, PageGroup, groups
from receiver.points.page_data.chunk_window import DataPage, Pages
from receiver.points.page_data.page_checks import CheckedChunk, check_times
from receiver.points.page_data.page_runs import plain_run

__all__ = ["PlainChunk", "edges"]


class PlainChunk(CheckedChunk):
    """A chunk with times and values."""

    def __init__(self, pages: Pages, *, check: bool) -> None:
        super().__init__(pages, check=check)
        self._time_encoding: int | None = None
        self._skip = self._checker.skip if self._checker else None
        self._previous = LEAST_TIME

    @property
    def times_as_written(self) -> bool:
        """See ``CheckedChunk``."""
        return self._time_encoding == Encoding.TS_2DIFF

    def blocks(
        self, start: int | None = None, end: int | None = None, *, rows: int = GROUP_ROWS
    ) -> Iterator[PointBlock]:
        """Decode group after group, but the pages without points in ``start`` to ``end``.

        Args:
            start: inclusive.
            end: inclusive.
            rows: a group ends where it has so many.

        With a check the headers of the pages that are left out are checked as well.
        """
        for group in groups(self.pages, start, end, rows=rows, skip=self._skip):
            yield self._decode(group)

    def finish(self) -> Statistics:
        """What the points come to, after all blocks; compared with the index.

        Raises:
            DamagedData: the index says otherwise.
        """
        assert self._checker is not None
        return self._checker.finish()

    def _decode(self, group: PageGroup) -> PointBlock:
        listed = [page for page, _ in group]
        bounds = np.cumsum([0, *(page.points for page in listed)], dtype=np.int64)
        times, values = self._together(group, bounds) or self._one_by_one(group)
        if self._checker:
            self._check(listed, times, values, bounds)
        if len(times):
            self._previous = int(times[-1])
        self.decoded += len(listed)
        return PointBlock(times, Column(self.pages.code, values), listed[0].number, len(listed))

    def _together(
        self, group: PageGroup, bounds: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], Values] | None:
        """Times and values of several pages by one call; None if that cannot be."""
        if len(group) == 1 or self._time_encoding not in (None, Encoding.TS_2DIFF):
            return None
        found = plain_run(self.pages, [content for _, content in group], bounds)
        if found is None:
            return None
        if self._time_encoding is None:
            times, first = found[0], group[0][0]
            if (times[0], times[bounds[1] - 1]) != (first.start, first.end):
                return None  # another encoding may tell better: see `guessed_times`
            self._time_encoding = Encoding.TS_2DIFF
        return found

    def _one_by_one(self, group: PageGroup) -> tuple[npt.NDArray[np.int64], Values]:
        stamps, parts = [], []
        for page, content in group:
            behind, pos = self._split(page, content)
            stamps.append(self._times(page, content, pos, behind))
            parts.append(page_values(self.pages, page, content, behind, page.points))
        times = stamps[0] if len(stamps) == 1 else np.concatenate(stamps)
        return times, joined_values(parts)

    def _times(self, page: DataPage, content: Bytes, pos: int, end: int) -> npt.NDArray[np.int64]:
        if self._time_encoding is None and page.points:
            self._time_encoding, times = guessed_times(self.pages, page, content, pos, end)
            return times
        encoding = Encoding.TS_2DIFF if self._time_encoding is None else self._time_encoding
        return page_times(self.pages, page, encoding, content, pos, end)

    def _split(self, page: DataPage, content: Bytes) -> tuple[int, int]:
        """Where values begin and where times begin."""
        try:
            size, pos = read_uvarint(content[:5].tobytes(), 0) if len(content) else (0, 0)
        except (Malformed, IndexError):
            raise self.pages.damaged("no length of its times", page) from None
        if size > len(content) - pos:
            raise self.pages.damaged(f"times of {size} bytes, more than it has", page)
        return pos + size, pos

    def _check(
        self,
        group: list[DataPage],
        times: npt.NDArray[np.int64],
        values: Values,
        bounds: npt.NDArray[np.int64],
    ) -> None:
        check_times(self.pages, group, times, bounds, self._previous)
        starts, ends = edges(times, bounds)
        assert self._checker is not None
        self._checker.add(group, values, bounds, starts, ends)


def edges(
    times: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """First and last time of each page; zeros for a page without rows.

    Args:
        times: of all pages.
        bounds: where each begins, and the end.
    """
    if not len(times):
        none = np.zeros(len(bounds) - 1, np.int64)
        return none, none
    if len(bounds) == 2:
        return times[:1], times[-1:]
    some = bounds[1:] > bounds[:-1]
    starts = np.where(some, times[np.minimum(bounds[:-1], len(times) - 1)], 0)
    ends = np.where(some, times[np.maximum(bounds[1:], 1) - 1], 0)
    return starts, ends
