"""Which gone files a compaction accounts for.

A file is explained when files of the same partition with a higher compaction count, here and now,
hold its time: then it was compacted. Only a delay hangs on it: nothing is deleted because of it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from common.names import FilePath
    from sender.select.entry import Entry
    from sender.select.facts import ContentFacts
    from sender.select.found import LocalFile, Scan, Span, TimePartition

__all__ = ["unexplained"]


def unexplained(
    gone: Iterable[Entry], scan: Scan, entries: Mapping[FilePath, Entry], facts: ContentFacts
) -> list[Entry]:
    """Those of `gone` whose place no compacted file of their partition took."""
    missing = list(gone)
    if not missing:
        return []
    wanted = {entry.path.group for entry in missing}
    candidates: dict[TimePartition, list[LocalFile]] = defaultdict(list)
    for path, file in scan.files.items():
        if path.group in wanted:
            candidates[path.group].append(file)
    spans: dict[FilePath, Span | None] = {}

    def span_of(file: LocalFile) -> Span | None:
        if file.path not in spans:
            entry = entries.get(file.path)
            known = entry.span if entry is not None and entry.identity == file.identity else None
            spans[file.path] = known or facts.span(file)
        return spans[file.path]

    return [
        entry for entry in missing if not _explained(entry, candidates[entry.path.group], span_of)
    ]


def _explained(
    entry: Entry, candidates: list[LocalFile], span_of: Callable[[LocalFile], Span | None]
) -> bool:
    stem, lost = entry.path.stem, entry.span
    if stem is None or lost is None:
        return False
    spans = [
        span
        for file in candidates
        if (other := file.path.stem) is not None
        and other.compactions > stem.compactions
        and (span := span_of(file)) is not None
    ]
    # A compaction may spread a late file over several results, so they count together.
    return bool(spans) and (
        min(span.first for span in spans) <= lost.first
        and max(span.last for span in spans) >= lost.last
    )
