"""Chunks of an aligned device: one chunk of times, and a chunk of values for each series.

Pages of values stand one to one with those of the times. The content of one: int32 rows, a bitmap
with a bit a row (the highest of a byte first, set where there is a value), the values without the
nulls. A page without a value is empty, a chunk without one has no pages at all. Source:
apache/tsfile, ``AlignedChunkReader``, ``TimePageReader``, ``ValuePageReader``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from common.tsfile import Encoding, Statistics
from receiver.points.columns import Column, expanded, joined_values, no_values
from receiver.points.decoding import page_times, page_values
from receiver.points.encodings import Binaries, Bytes, Values
from receiver.points.grouping import GROUP_BYTES, GROUP_ROWS, LEAST_TIME, PageGroup, groups
from receiver.points.page_data.chunk_window import DataPage, Pages
from receiver.points.page_data.page_checks import CheckedChunk, Checker, check_times
from receiver.points.page_data.page_runs import has_kernel, times_run, values_run
from receiver.points.plain_chunks import edges

__all__ = ["DECODED_AT_ONCE", "TimeChunk", "TimeGroup", "ValueChunk", "parts"]

_SIZE_BYTES: Final = 4
DECODED_AT_ONCE: Final = 32 * 1024 * 1024
"""Values that are decoded at once, as far as can be known before."""
_MOST_BYTES: Final = 512 * 1024 * 1024
"""Texts of one series that are decoded at once, at most."""


class TimeGroup:
    """Some consecutive pages of a time chunk, decoded.

    Attributes:
        times: of all of them.
        bounds: where in ``times`` each page begins, and the end.
        first: number of the first page.
    """

    __slots__ = ("bounds", "first", "times")

    def __init__(
        self, times: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64], first: int
    ) -> None:
        self.times = times
        self.bounds = bounds
        self.first = first

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def part(self, low: int, high: int) -> TimeGroup:
        """Its pages from number ``low`` to before ``high``."""
        bounds = self.bounds[low : high + 1]
        times = self.times[bounds[0] : bounds[-1]]
        return TimeGroup(times, bounds - bounds[0], self.first + low)


class TimeChunk(CheckedChunk):
    """The times of a chunk's rows."""

    def __init__(self, pages: Pages, *, check: bool) -> None:
        super().__init__(pages, check=check)
        self._skip = self._checker.skip if self._checker else None
        self._previous = LEAST_TIME

    def groups(
        self, start: int | None = None, end: int | None = None, *, rows: int = GROUP_ROWS
    ) -> Iterator[TimeGroup]:
        """Decode group after group, but the pages without times in ``start`` to ``end``.

        Args:
            start: inclusive.
            end: inclusive.
            rows: a group ends where it has so many.

        With a check the headers of the pages that are left out are checked as well.
        """
        for group in groups(self.pages, start, end, rows=rows, skip=self._skip):
            yield self._decode(group)

    @property
    def times_as_written(self) -> bool:
        """See ``CheckedChunk``."""
        return self.pages.encoding == Encoding.TS_2DIFF

    @property
    def passed(self) -> int:
        """How many pages there were so far, those left out counted."""
        return self.pages.passed

    def finish(self) -> Statistics:
        """See ``PlainChunk.finish``."""
        assert self._checker is not None
        return self._checker.finish()

    def _decode(self, group: PageGroup) -> TimeGroup:
        pages, encoding = self.pages, self.pages.encoding
        listed = [page for page, _ in group]
        bounds = np.cumsum([0, *(page.points for page in listed)], dtype=np.int64)
        times = None
        if len(group) > 1 and encoding == Encoding.TS_2DIFF:
            times = times_run([raw for _, raw in group], bounds)
        if times is None:
            stamps = [page_times(pages, page, encoding, raw, 0, len(raw)) for page, raw in group]
            times = stamps[0] if len(stamps) == 1 else np.concatenate(stamps)
        if self._checker:
            check_times(pages, listed, times, bounds, self._previous)
            self._checker.add(listed, None, bounds, *edges(times, bounds))
        if len(times):
            self._previous = int(times[-1])
        self.decoded += len(listed)
        return TimeGroup(times, bounds, listed[0].number)


class ValueChunk(CheckedChunk):
    """The values of one series in the rows of a time chunk."""

    def __init__(self, pages: Pages, *, check: bool) -> None:
        super().__init__(pages, check=check)
        self._empty = pages.begin == pages.end
        self._passed = 0

    def ahead(self, group: TimeGroup, size: int) -> int:
        """How many pages of a group have values of about ``size`` bytes together; at least one."""
        if self._empty:
            return len(group)
        self._skip(group.first)
        if self.pages.encoding == Encoding.DICTIONARY:
            return 1  # its bytes can become very many more
        return self.pages.ahead(size)

    def column(self, group: TimeGroup) -> Column:
        """Decode the pages that stand with a group of times; groups come in order."""
        rows = len(group.times)
        if self._empty:
            return no_values(self.pages.code, rows)
        self._skip(group.first)
        pages: list[DataPage] = []
        coming = self._contents(len(group), pages)
        begun = self._begun(coming) if len(group) > 1 else []
        there = [each for each in begun if each is not None]
        found = None
        if len(there) == len(group) > 1:  # a page without a value is empty
            found = values_run(self.pages, pages, there, group.bounds)
        dense, valid, counts = found or self._one_by_one(group, pages, chain(begun, coming))
        if self._checker:
            self._check(self._checker, group, pages, dense, valid, counts)
        self.decoded += len(pages)
        values = dense if valid is None else expanded(dense, valid)
        return Column(self.pages.code, values, valid)

    def _contents(self, number: int, pages: list[DataPage]) -> Iterator[Bytes | None]:
        """What the next pages hold, None of an empty one; ``pages`` becomes which they are."""
        for _ in range(number):
            page = self._next()
            pages.append(page)
            yield self.pages.content(page) if page.uncompressed else None

    def _begun(self, coming: Iterator[Bytes | None]) -> list[Bytes | None]:
        """As many of them as may be decoded by one call; not more than a group may have."""
        begun: list[Bytes | None] = []
        size = 0
        if has_kernel(self.pages.encoding, self.pages.code):
            for content in coming:
                begun.append(content)
                size += 0 if content is None else len(content)
                if content is None or size > GROUP_BYTES:
                    break
        return begun

    def _one_by_one(
        self, group: TimeGroup, pages: Sequence[DataPage], contents: Iterator[Bytes | None]
    ) -> tuple[Values, npt.NDArray[np.bool_] | None, npt.NDArray[np.int64]]:
        """Values of pages without nulls, which rows have one (None: all), how many each page.

        Each is decoded before the next one comes: nobody knows what they become together.
        """
        parts, valids, counts = [], [], []
        size = 0
        expected = np.diff(group.bounds).tolist()
        for number, (content, rows) in enumerate(zip(contents, expected, strict=True)):
            page = pages[number]
            values, valid, count = self._decode(page, content, rows)
            if isinstance(values, Binaries):
                size += len(values.data)
                if size > _MOST_BYTES:
                    raise self.pages.unsupported(f"more than {_MOST_BYTES} bytes of text", page)
            parts.append(values)
            valids.append(valid)
            counts.append(count)
        valid = None
        if any(each is not None for each in valids):
            valid = _filled(valids, group.bounds)
        dense = joined_values([part for part in parts if part is not None] or [_none(self.pages)])
        return dense, valid, np.array(counts, np.int64)

    def finish(self, pages: int) -> Statistics:
        """See ``PlainChunk.finish``.

        Args:
            pages: how many the time chunk has.
        """
        assert self._checker is not None
        if not self._empty:
            self._skip(pages)
            if self.pages.next() is not None:
                raise self.pages.damaged(f"more pages than the {pages} of its times")
        return self._checker.finish()

    def _next(self) -> DataPage:
        page = self.pages.next()
        if page is None:
            raise self.pages.damaged("fewer pages than its times have")
        self._passed += 1
        return page

    def _skip(self, number: int) -> None:
        while self._passed < number:
            page = self._next()
            if self._checker:
                self._checker.skip(page)

    def _decode(
        self, page: DataPage, content: Bytes | None, rows: int
    ) -> tuple[Values | None, npt.NDArray[np.bool_] | None, int]:
        """Values without nulls, which rows have one (None: all), and how many do."""
        if content is None:
            return None, np.zeros(rows, np.bool_), 0
        width = -(-rows // 8)
        behind = _SIZE_BYTES + width
        if len(content) < behind:
            raise self.pages.damaged(f"{len(content)} bytes, too few for {rows} rows", page)
        size = int.from_bytes(content[:_SIZE_BYTES].tobytes(), "big")
        if size != rows:
            raise self.pages.damaged(f"{size} rows, {rows} times", page)
        bits = np.unpackbits(content[_SIZE_BYTES:behind], count=rows)
        count = int(np.count_nonzero(bits))
        if page.row is not None and count != page.points:
            raise self.pages.damaged(f"{count} values, {page.points} in its header", page)
        valid = None if count == rows else bits.view(np.bool_)
        return page_values(self.pages, page, content, behind, count), valid, count

    def _check(
        self,
        checker: Checker,
        group: TimeGroup,
        pages: Sequence[DataPage],
        values: Values,
        valid: npt.NDArray[np.bool_] | None,
        counts: npt.NDArray[np.int64],
    ) -> None:
        times = group.times if valid is None else group.times[valid]
        bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        checker.add(pages, values, bounds, *edges(times, bounds))


def parts(group: TimeGroup, chunks: Sequence[ValueChunk], size: int) -> Iterator[TimeGroup]:
    """Cut a group so that the values beside its times do not take too much memory.

    The columns of each part are to be taken before the next one.

    Args:
        group: of times.
        chunks: of values, which stand where the group begins.
        size: bytes for all values of a part together, unless a page has more.
    """
    share = size // max(1, len(chunks))
    while len(group):
        pages = min([len(group), *(chunk.ahead(group, share) for chunk in chunks)])
        if pages == len(group):  # mostly
            yield group
            return
        yield group.part(0, pages)
        group = group.part(pages, len(group))


def _filled(
    parts: Sequence[npt.NDArray[np.bool_] | None], bounds: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    valid = np.ones(int(bounds[-1]), np.bool_)
    for part, low, high in zip(parts, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if part is not None:
            valid[low:high] = part
    return valid


def _none(pages: Pages) -> Values:
    return no_values(pages.code, 0).values
