"""Deletion files in parts, as the receiver takes them: whole records, and the look before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.digests import xxh3_128
from common.tsfile.deletion_records import whole_records
from common.wire import DeletionsForm, DeletionsPart
from sender.kept.seen_looks.deletions_sight import LONGEST_PART

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sender.kept.seen_looks.deletions_sight import DeletionsSight
    from sender.select.found import LocalDeletions

__all__ = ["deletion_pages", "deletion_parts"]

_FRAME = 1500
"""Of a part in JSON, without its content, at most."""


def deletion_parts(
    file: LocalDeletions,
    sight: DeletionsSight,
    content: bytes,
    *,
    begin: int,
    applied: bool,
    behind: int = 0,
) -> Iterator[DeletionsPart]:
    """What a look saw of a deletion file, from some place on.

    Args:
        file: it.
        sight: what the look saw.
        content: as it is now; if what was seen has changed, there are no parts.
        begin: bytes that the receiver has.
        applied: whether readers there are to leave out what is deleted.
        behind: bytes that it has more, of what stands in the file no more, or of another name.
    """
    if xxh3_128(content[: sight.size]).hex() != sight.digest:
        return
    let = {end: is_applied for end, _, is_applied in file.segments}
    for end, floor in sight.marks:
        while begin < end:
            records = content[begin : min(end, begin + LONGEST_PART)]
            size = whole_records(records, file.form) or end - begin
            yield DeletionsPart(
                path=file.path.text,
                form=DeletionsForm(file.form),
                base=begin + behind,
                content=content[begin : begin + size],
                floor=floor,
                applied=applied and let.get(end, True),
                author=file.author,
            )
            begin += size


def deletion_pages(
    parts: Iterable[DeletionsPart], most_items: int, most_bytes: int
) -> Iterator[list[DeletionsPart]]:
    """Parts in pages that a receiver takes."""
    page: list[DeletionsPart] = []
    size = 0
    for part in parts:
        more = _FRAME + len(part.content) * 4 // 3
        if page and (len(page) >= most_items or size + more > most_bytes):
            yield page
            page, size = [], 0
        page.append(part)
        size += more
    if page:
        yield page
