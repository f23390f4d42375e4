"""Pages in groups that are decoded together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from common.tsfile import Encoding
from receiver.points.encodings import Bytes
from receiver.points.page_data.chunk_window import DataPage, Pages

__all__ = [
    "GREATEST_TIME",
    "GROUP_BYTES",
    "GROUP_ROWS",
    "LEAST_TIME",
    "PageGroup",
    "groups",
]

GROUP_ROWS: Final = 131_072
"""Pages are decoded in groups of about so many rows."""
GROUP_BYTES: Final = 8 * 1024 * 1024
"""A group ends where its pages have so many bytes."""
LEAST_TIME: Final = -(2**63)
GREATEST_TIME: Final = 2**63 - 1

PageGroup: TypeAlias = list[tuple[DataPage, Bytes]]


def groups(
    pages: Pages,
    start: int | None,
    end: int | None,
    *,
    rows: int,
    skip: Callable[[DataPage], None] | None,
) -> Iterator[PageGroup]:
    """The pages of a chunk that has times, with their bytes, but those without a time in range.

    Args:
        pages: of the chunk.
        start: inclusive.
        end: inclusive.
        rows: a group ends where it has so many.
        skip: is told each page that is left out, in order: what the header of one says decides
            that it is, so it is to be checked, to the end of the chunk. Without it the pages
            behind ``end`` are not looked at.

    Raises:
        DamagedData: a page without points, which no writer makes. (A byte is enough for one.)
    """
    low = LEAST_TIME if start is None else start
    high = GREATEST_TIME if end is None else end
    alone = pages.encoding == Encoding.DICTIONARY  # its bytes can become very many more
    group: PageGroup = []
    count = size = 0
    while page := pages.next():
        if not page.points:
            raise pages.damaged("a page without points", page)
        skipped = page.end < low or page.start > high
        if group and (skipped or alone or count >= rows or size >= GROUP_BYTES):
            yield group
            group, count, size = [], 0, 0
        if not skipped:
            group.append((page, pages.content(page)))
            count += page.points
            size += page.uncompressed
        elif skip is not None:
            skip(page)
        elif page.start > high:  # and so are all that follow
            break
    if group:
        yield group
