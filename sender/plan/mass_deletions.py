"""Holding back mass deletions that nothing explains (`propagate_deletes = "all"`).

A deletion is explained when files of the same partition with a higher compaction count, here and
now, hold its time: then it was compacted. Others may be an operator's wish, or an accident such as
an emptied directory; many at once are held until the operator says so.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from common.names import FilePath
    from sender.plan.plan_options import PlanOptions
    from sender.select.entry import Entry
    from sender.select.facts import ContentFacts
    from sender.select.found import LocalFile, Scan, Span, TimePartition

__all__ = ["GuardVerdict", "unexplained"]


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """Deletions that were held back.

    Attributes:
        deletions: unexplained ones in this round.
        listed: files on the list.
        fraction: the largest share that may go at once.
    """

    deletions: int
    listed: int
    fraction: float

    @classmethod
    def judge(cls, deletions: int, listed: int, options: PlanOptions) -> GuardVerdict | None:
        """A verdict if these are too many, else None."""
        if listed < options.guard_from_files:
            return None
        if deletions <= options.max_delete_fraction * listed:
            return None
        return cls(deletions, listed, options.max_delete_fraction)

    @property
    def reason(self) -> str:
        """What the operator reads."""
        return (
            f"{self.deletions} of {self.listed} listed files are gone here and no compaction "
            f"explains it, more than max_delete_fraction = {self.fraction:g} allows; if they are "
            "to be deleted at the receiver too: tsferry-sender sync --allow-mass-delete"
        )


def unexplained(
    gone: Iterable[Entry], scan: Scan, entries: Mapping[FilePath, Entry], facts: ContentFacts
) -> list[Entry]:
    """Those of `gone` whose place no compacted file of their partition took."""
    missing = list(gone)
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
