"""Pages as they stand in a file, kept beside the points that were decoded of them.

Who writes points that nothing has changed can write these bytes again, and saves the encoding. What
is kept are the very bytes that were decoded, and only where the points are to the last bit what the
file says of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from receiver.points.columns import BINARY
from receiver.points.summaries import ROW_COUNT, ROW_END, ROW_WIDTH, SummaryRows, as_row

if TYPE_CHECKING:
    from receiver.points.page_data.chunk_window import DataPage, Pages
    from receiver.points.page_data.page_checks import CheckedChunk

__all__ = ["KeptChunks", "PageKeeper", "StoredChunk", "StoredPage"]


class StoredPage(NamedTuple):
    """A page.

    Attributes:
        content: its bytes, compressed; none of a page of values that has no value.
        size: bytes that they become.
        row: what its points come to, as of ``summaries``; of texts count and times alone.
    """

    content: bytes
    size: int
    row: SummaryRows


class StoredChunk(NamedTuple):
    """The pages of a chunk.

    Attributes:
        encoding: of the values; the times beside them are TS_2DIFF.
        compression: of the pages.
        pages: none of a chunk without a value.
    """

    encoding: int
    compression: int
    pages: tuple[StoredPage, ...]


class KeptChunks:
    """Which of some chunks are to be kept, and what was kept of them.

    Attributes:
        wanted: whether to keep each.
        found: by their numbers.
    """

    def __init__(
        self, encoding: int, compression: int, wanted: npt.NDArray[np.bool_], least: int = 0
    ) -> None:
        """Keep none yet.

        Args:
            encoding: that chunks must have.
            compression: likewise.
            wanted: whether to keep each chunk.
            least: rows that its pages must have, as a mean.
        """
        self.wanted = wanted
        self.found: dict[int, StoredChunk] = {}
        self._form, self._least = (encoding, compression), least

    def add(self, number: int, chunk: StoredChunk | None) -> None:
        """Keep a chunk, if it is such a one."""
        if chunk is None or not self.wanted[number]:
            return
        rows = sum(int(page.row[ROW_COUNT]) for page in chunk.pages)
        is_as_wanted = not rows or (chunk.encoding, chunk.compression) == self._form
        if is_as_wanted and rows >= self._least * len(chunk.pages):
            self.found[number] = chunk


class PageKeeper:
    """Takes the bytes of a chunk's pages while they are decoded."""

    def __init__(self) -> None:
        self._chunk: CheckedChunk | None = None
        self._pages: dict[int, StoredPage] = {}

    def watch(self, chunk: CheckedChunk) -> None:
        """Look at a chunk, of which nothing is decoded yet."""
        self._chunk, self._pages = chunk, {}
        chunk.pages.keeper = self

    def take(self, pages: Pages, page: DataPage, content: bytes) -> None:
        """See ``TakesPages``."""
        row = page.row
        if row is not None:
            row = row.copy()  # not the whole table it is of
        elif pages.code in BINARY:
            row = np.zeros(ROW_WIDTH, np.int64)
            row[: ROW_END + 1] = page.points, page.start, page.end
        else:
            row = as_row(pages.code, pages.statistics)
        self._pages[page.number] = StoredPage(content, page.uncompressed, row)

    def stored(self) -> StoredChunk | None:
        """The chunk, once all of it was decoded and compared; None if it is not to be kept."""
        chunk = self._chunk
        if chunk is None or not (chunk.exact and chunk.times_as_written):
            return None
        pages = chunk.pages  # one that was not decoded has no value
        none = StoredPage(b"", 0, np.zeros(ROW_WIDTH, np.int64))
        listed = tuple(self._pages.get(number, none) for number in range(pages.passed))
        return StoredChunk(pages.encoding, pages.compression, listed)
