"""Which local files may go, by evidence: the one judge, whoever asks.

A file is held by a receiver if it says, at that moment, that it is visible there with exactly this
content, that its bytes lie on its disk, and that what belongs to it here is committed there: its
resource, and all records of its deletion files. A receiver that mirrors this node holds nothing.

What the database here answers must not change by it, but for what is gone: a late (unsequence) file
hides older points of files below it, so it goes only when nothing that it overlaps stands. What is
open may have any time of its partition, and so may a file whose times cannot be read. Files above
it may stand if they are held as well: each hides by itself what is below it.

A judgement holds for what was looked at. Taking out what it calls safe makes nothing else unsafe.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from common.listed import parse_deletions
from common.names import Kind
from common.wire import LOADED
from sender.select.found import Span, Why

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from common.names import FilePath
    from common.wire import InventoryEntry
    from sender.kept.seen_looks.deletions_sight import DeletionsSight
    from sender.select.entry import Entry
    from sender.select.found import LocalDeletions, LocalFile, Scan, TimePartition

__all__ = ["Holding", "SafeFiles", "file_order", "safe_to_delete"]


@dataclass(frozen=True)
class Holding:
    """What is known of one receiver at the moment in which files are judged.

    Attributes:
        listed: its list (`Ledger.entries`).
        there: path -> what it has just said that it has, looked at on its disk.
        mirrors: whether what is gone here is deleted there.
        seen: what was seen of a deletion file and told it; None for nothing.
    """

    listed: Mapping[FilePath, Entry]
    there: Mapping[str, InventoryEntry]
    mirrors: bool
    seen: Callable[[LocalDeletions], DeletionsSight | None]


@dataclass(frozen=True)
class SafeFiles:
    """What came of it.

    Attributes:
        safe: files that may go, in the order in which they may.
        kept: why each of the others that were in question may not.
    """

    safe: tuple[LocalFile, ...]
    kept: Mapping[FilePath, str]


def file_order(path: FilePath) -> tuple[int, int, int, int, int, str]:
    """In which order files of a partition go: as the database ranks them, the lowest first."""
    late = int(path.kind is Kind.UNSEQUENCE)
    stem = path.stem
    if stem is None:
        return late, 0, 0, 0, 0, path.text
    return late, stem.version, stem.created, stem.inner, stem.cross, path.text


def safe_to_delete(
    scan: Scan,
    receivers: Mapping[str, Holding],
    *,
    span: Callable[[LocalFile], Span | None],
    resource_md5: Callable[[LocalFile], str | None],
    verified: bool = False,
    chosen: Callable[[LocalFile], bool] = lambda file: True,
) -> SafeFiles:
    """Judge local files.

    Args:
        scan: of them; only closed files at rest are in question, the others stand in the way.
        receivers: all of them, by name. Without any nothing is safe.
        span: reads the times of a file; None if it has none or cannot be read.
        resource_md5: reads the resource beside a file; None if it cannot be read.
        verified: only files that every receiver has proved, point by point, since it has them.
        chosen: which files are in question.
    """
    deletions: dict[FilePath, list[LocalDeletions]] = defaultdict(list)
    for each in scan.deletions:
        deletions[each.path].append(each)
    by_group: dict[TimePartition, list[LocalFile]] = defaultdict(list)
    for file in scan.files.values():
        by_group[file.path.group].append(file)
    safe: list[LocalFile] = []
    kept: dict[FilePath, str] = {}
    for group, files in by_group.items():
        files.sort(key=lambda file: file_order(file.path))
        asked = {file.path for file in files if chosen(file)}
        if not asked:
            continue
        hindered = _hindered(scan, group)
        reasons = {
            file.path: hindered or _why_not_held(file, deletions[file.path], receivers, verified)
            for file in files
        }
        for file in files:
            if file.path in asked and reasons[file.path] is None and file.resource is not None:
                reasons[file.path] = _other_resource(file, receivers, resource_md5(file))
        if any(path.kind is Kind.UNSEQUENCE for path in asked):
            above = _Standing(scan, group, receivers, span)
            reasons |= dict(above.overlaps(files, reasons))
        safe += [file for file in files if file.path in asked and reasons[file.path] is None]
        kept |= {path: why for path in asked if (why := reasons[path]) is not None}
    return SafeFiles(tuple(safe), kept)


# -- what receivers hold -------------------------------------------------------------------------


def _hindered(scan: Scan, group: TimePartition) -> str | None:
    """Why nothing of a partition may go: a compaction may be reading it just now."""
    if why := scan.changing.get(group):
        return why
    for each in scan.moving:
        if any(each.concerns("/".join((kind, *map(str, group)))) for kind in Kind):
            return f"{each.data_dir}/{each.rel}: {each.reason}"
    for waiting in scan.waiting:
        if waiting.group == group and waiting.why is Why.OPEN and waiting.is_product:
            return f"a compaction makes {waiting.text}"
    return None


def _why_not_held(
    file: LocalFile,
    deletions: Sequence[LocalDeletions],
    receivers: Mapping[str, Holding],
    verified: bool,
) -> str | None:
    if not receivers:
        return "there is no receiver"
    for name, receiver in receivers.items():
        why = _why_not_there(file, receiver, verified)
        why = why or _untold(file, deletions, receiver)
        if why is not None:
            return f"{name}: {why}"
    return None


def _why_not_there(file: LocalFile, receiver: Holding, verified: bool) -> str | None:
    entry, item = receiver.listed.get(file.path), receiver.there.get(file.path.text)
    if receiver.mirrors:
        return "deletes what is gone here (propagate_deletes = all)"
    if entry is None or not entry.md5 or entry.identity != file.identity:
        return "not loaded there as it is here"
    if item is None or (item.size, item.md5) != (entry.size, entry.md5):
        return "does not have it as it is here"
    if item.state != LOADED:
        return f"{item.state} there"
    if not item.stands:
        return "its bytes do not lie on the disk there"
    if verified and not item.verified:
        return "not verified there"
    return None


def _untold(file: LocalFile, deletions: Sequence[LocalDeletions], receiver: Holding) -> str | None:
    """Why what was deleted in a file would come back there."""
    item = receiver.there[file.path.text]
    there = parse_deletions(item.deletions)
    for each in deletions:
        if not each.size:
            continue  # made, and nothing written yet
        seen = receiver.seen(each)
        if seen is None or seen.identity != each.identity or each.size > seen.size:
            return f"its .{each.form} is not told there as it is now"
        if seen.told < seen.size or there.get(each.form) != seen.at_receiver:
            return f"its .{each.form} is not committed there as it is now"
    return None


def _other_resource(
    file: LocalFile, receivers: Mapping[str, Holding], md5: str | None
) -> str | None:
    assert file.resource is not None
    for name, receiver in receivers.items():
        resource = receiver.there[file.path.text].resource
        if resource is None or (resource.size, resource.md5) != (file.resource.size, md5):
            return f"{name}: its .resource is not committed there as it is here"
    return None


# -- what stands in the way ----------------------------------------------------------------------


@dataclass
class _Standing:
    """What stands in a partition, for the late files of it."""

    scan: Scan
    group: TimePartition
    receivers: Mapping[str, Holding]
    span: Callable[[LocalFile], Span | None]

    def overlaps(
        self, files: Sequence[LocalFile], reasons: Mapping[FilePath, str | None]
    ) -> Iterator[tuple[FilePath, str]]:
        """Late files that are held and may not go, and why.

        Args:
            files: of the partition, the lowest first.
            reasons: why each of them is not held; None if it is.
        """
        anywhere = self._anywhere()
        spans = {file.path: self._span(file) for file in files}
        unheld, below = _Times(), _Times()
        for file in files:
            if reasons[file.path] is not None:
                unheld.add(spans[file.path], file.path.text)
        for file in files:
            span = spans[file.path]
            if file.path.kind is Kind.UNSEQUENCE and reasons[file.path] is None:
                other = below.at(span) or unheld.at(span)
                if anywhere is not None:
                    yield file.path, anywhere
                elif other is not None:
                    yield file.path, f"overlaps {other}, which stands"
            below.add(span, file.path.text)

    def _anywhere(self) -> str | None:
        """What may have any time of the partition, or why it is not known what stands in it."""
        if why := self.scan.why_not_whole(self.group):
            return why
        for each in self.scan.waiting:
            if each.group == self.group and each.why is not Why.FILTERED:
                return f"may overlap {each.text}, which stands: {each.reason}"
        for clash in self.scan.clashes:
            if clash.path.group == self.group:
                return f"may overlap {clash.path}, which stands twice"
        return None

    def _span(self, file: LocalFile) -> Span | None:
        for receiver in self.receivers.values():
            entry = receiver.listed.get(file.path)
            if entry is not None and entry.identity == file.identity and entry.span is not None:
                return entry.span
        return self.span(file)


@dataclass
class _Times:
    """Ranges of time, merged where they overlap, each with the name of a file that it is of."""

    firsts: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    everywhere: str | None = None

    def add(self, span: Span | None, name: str) -> None:
        """Put one in; None is all times."""
        if span is None:
            self.everywhere = name
            return
        begin = bisect_left(self.lasts, span.first)
        end = bisect_right(self.firsts, span.last)
        first = min([span.first, *self.firsts[begin:end]])
        last = max([span.last, *self.lasts[begin:end]])
        self.firsts[begin:end], self.lasts[begin:end] = [first], [last]
        self.names[begin:end] = [name]

    def at(self, span: Span | None) -> str | None:
        """A file that overlaps these times; None if none does."""
        if self.everywhere is not None:
            return self.everywhere
        if span is None:
            return self.names[0] if self.names else None
        at = bisect_left(self.lasts, span.first)
        overlaps = at < len(self.firsts) and self.firsts[at] <= span.last
        return self.names[at] if overlaps else None
