"""Chunks of a series from many files, cut into runs that are decoded and merged at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from receiver.points.summaries import ROW_END, ROW_START

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.points.many_chunks import Chunks

__all__ = ["ChunkRun", "MergeSpan", "chunks_in", "cut_times", "runs_of", "spans_between"]

_MOST_FILES = 256
"""Of a run, unless more of them overlap."""

_PARTS = 16
"""Into which a chunk is cut, where it is asked how points lie in time."""


class MergeSpan(NamedTuple):
    """Times, both ends included; None without a limit."""

    start: int | None = None
    end: int | None = None

    def goes_on(self, time: int) -> bool:
        """Whether a time and the one behind it are in it."""
        return (self.start is None or self.start <= time) and (self.end is None or time < self.end)

    def meets(self, first: int | None, last: int | None) -> bool:
        """Whether some of it lies between two times; between none (None) nothing does."""
        if first is None or last is None:
            return self == MergeSpan()
        return (self.start is None or self.start <= last) and (
            self.end is None or first <= self.end
        )


class ChunkRun(NamedTuple):
    """Chunks that have no time in common with those of other runs.

    Attributes:
        chunks: in the order of their first times.
        overlaps: whether some have times in common.
    """

    chunks: Chunks
    overlaps: bool

    @property
    def points(self) -> int:
        """Of all, as the index has them."""
        return int(self.chunks.counts.sum())

    @property
    def files(self) -> list[int]:
        """Numbers of its files, each once."""
        found: list[int] = np.unique(self.chunks.files).tolist()
        return found

    def within(self, span: MergeSpan) -> MergeSpan:
        """The times of it that are in a span."""
        first = int(self.chunks.statistics[:, ROW_START].min())
        last = int(self.chunks.statistics[:, ROW_END].max())
        return MergeSpan(
            first if span.start is None else max(first, span.start),
            last if span.end is None else min(last, span.end),
        )


def chunks_in(chunks: Chunks, span: MergeSpan) -> Chunks:
    """Those with points within a span, by their first times."""
    starts, ends = chunks.statistics[:, ROW_START], chunks.statistics[:, ROW_END]
    wanted = chunks.counts > 0
    if span.start is not None:
        wanted &= ends >= span.start
    if span.end is not None:
        wanted &= starts <= span.end
    found = chunks.take(wanted)
    return found.take(np.lexsort((found.offsets, found.files, found.statistics[:, ROW_START])))


def runs_of(chunks: Chunks, span: MergeSpan, most: int, large: int) -> Iterator[ChunkRun]:
    """Cut chunks into runs, in the order of time.

    Args:
        chunks: in any order.
        span: of the times that are wanted.
        most: points of a run, about, unless more overlap.
        large: chunks that overlap nothing and have so many points are in runs without others.
    """
    chunks = chunks_in(chunks, span)
    count = len(chunks.files)
    if not count:
        return
    starts = chunks.statistics[:, ROW_START]
    reach = np.maximum.accumulate(chunks.statistics[:, ROW_END])
    apart = np.ones(count, np.bool_)
    apart[1:] = starts[1:] > reach[:-1]
    points = np.append(0, np.cumsum(chunks.counts))
    edges = np.append(np.flatnonzero(apart), count)
    is_alone = (np.diff(edges) == 1) & (np.diff(points[edges]) >= large)
    turns = np.append(is_alone[1:] != is_alone[:-1], True).tolist()  # the last one ends a run too
    listed = edges.tolist()
    low = 0
    for behind, following, turn in zip(listed[1:], [*listed[2:], count], turns, strict=True):
        is_full = points[behind] - points[low] >= most or behind - low >= _MOST_FILES
        if is_full or turn or points[following] - points[behind] > most:
            here = chunks.take(np.arange(low, behind))
            yield ChunkRun(here, overlaps=not bool(apart[low + 1 : behind].all()))
            low = behind


def cut_times(chunks: Chunks, pieces: int) -> list[int]:
    """Times that cut points into about equal parts, each the last of its part; fewer if need be.

    Within a chunk points are taken for evenly spread.
    """
    chunks = chunks.take(chunks.counts > 0)
    if not len(chunks.files):
        return []
    first, last = chunks.statistics[:, ROW_START], chunks.statistics[:, ROW_END]
    parts = np.arange(_PARTS) / _PARTS
    places = np.outer(first.astype(np.float64), 1 - parts) + np.outer(last, parts)
    order = np.argsort(places.ravel(), kind="stable")
    weights = np.cumsum(np.repeat(chunks.counts / _PARTS, _PARTS)[order])
    at = np.searchsorted(weights, weights[-1] * np.arange(1, pieces) / pieces)
    found = {int(each) for each in places.ravel()[order[np.minimum(at, len(order) - 1)]]}
    return sorted(each for each in found if int(first.min()) <= each < int(last.max()))


def spans_between(span: MergeSpan, cuts: list[int]) -> list[MergeSpan]:
    """A span in parts that end at times, each within it."""
    starts = [span.start, *(each + 1 for each in cuts)]
    return [MergeSpan(*each) for each in zip(starts, [*cuts, span.end], strict=True)]
