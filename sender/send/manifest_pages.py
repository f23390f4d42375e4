"""The end of a task in pages that a receiver takes: what fits into one body goes as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from common.wire import EndRequest, ManifestEntry, ManifestPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.wire import EndBelow, Limits, SchemaEnd

__all__ = ["end_in_pages"]

_FRAME = 1024
_LOOK = 24
"""Of a deleted path in JSON, beside the path: quotes, commas, its look."""


def end_in_pages(
    manifest: Sequence[ManifestEntry],
    deleted: Sequence[str],
    looks: Sequence[int],
    below: Sequence[EndBelow],
    schema: SchemaEnd | None,
    limits: Limits,
) -> tuple[list[ManifestPage], EndRequest]:
    """The pages that go before the end, in order, and the end with what is left.

    Args:
        manifest: the files.
        deleted: paths that are gone or replaced.
        looks: the last look that had each of these.
        below: what ends of forwarded files mean.
        schema: that came with the task.
        limits: of the receiver; one that says nothing of long tasks takes no pages.
    """
    most = max(4096, limits.max_page_bytes // 2) - _FRAME
    pages: list[ManifestPage] = []
    entries: list[ManifestEntry] = []
    ends: list[EndBelow] = []
    first = size = 0

    def page(end: int) -> None:
        nonlocal entries, ends, first, size
        pages.append(
            ManifestPage(
                number=len(pages),
                manifest=entries,
                deleted=list(deleted[first:end]),
                last_looks=list(looks[first:end]),
                below=ends,
            )
        )
        entries, ends, first, size = [], [], end, 0

    for entry in manifest if limits.max_task_items else ():
        more = len(msgspec.json.encode(entry)) + 1
        if size and size + more > most:
            page(0)
        entries.append(entry)
        size += more
    for at, path in enumerate(deleted if limits.max_task_items else ()):
        more = len(msgspec.json.encode(path)) + _LOOK
        if size and size + more > most:
            page(at)
        size += more
    for end in below if limits.max_task_items else ():
        more = len(msgspec.json.encode(end)) + 1
        if size and size + more > most:
            page(len(deleted))
        ends.append(end)
        size += more
    return pages, EndRequest(
        manifest=entries if limits.max_task_items else list(manifest),
        deleted=list(deleted[first:]),
        last_looks=list(looks[first:]),
        below=ends if limits.max_task_items else list(below),
        schema=schema,
        pages=len(pages),
    )
