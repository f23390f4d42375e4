"""What the operator may rely on: up to which time all is loaded."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from sender.select.found import Why
from sender.select.listed_table import last_time, unsettled

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from common.names import FilePath
    from common.wire import LostFiles
    from sender.select.entry import Entry
    from sender.select.facts import ContentFacts
    from sender.select.found import LocalFile, Scan

__all__ = ["Remaining", "complete_until", "remaining"]


class Remaining(msgspec.Struct, frozen=True):
    """What a receiver does not have yet.

    Attributes:
        files: closed files that are not loaded as they are, without the expired.
        bytes: of these.
        complete_until: see the function.
    """

    files: int
    bytes: int
    complete_until: int | None


def remaining(
    scan: Scan,
    entries: Mapping[FilePath, Entry],
    facts: ContentFacts,
    expired: Collection[FilePath] = (),
    lost: LostFiles | None = None,
) -> Remaining:
    """What is left to be loaded; the arguments are those of `complete_until`."""
    files = size = 0
    for file, entry in unsettled(scan.files, entries):
        if file.path not in expired and (entry is None or not entry.is_of(file)):
            files, size = files + 1, size + file.size
    return Remaining(files, size, complete_until(scan, entries, facts, expired, lost))


def complete_until(
    scan: Scan,
    entries: Mapping[FilePath, Entry],
    facts: ContentFacts,
    expired: Collection[FilePath] = (),
    lost: LostFiles | None = None,
) -> int | None:
    """The data time before which nothing of this node is unloaded at the receiver.

    The lowest first time of what is here and not loaded; of a file that cannot be read yet, the
    begin of its partition. If all is loaded, the last time that is. None where nothing can be
    said: nothing is loaded, a directory is away, or a file waits whose times nothing bounds.

    Args:
        scan: the local files.
        entries: what is loaded at the receiver.
        facts: reads times.
        expired: files that the receiver is past keeping: nothing is missing there without them.
        lost: what neither side has any more: nothing is complete behind it.
    """
    if scan.unmounted or scan.not_looked_at or (lost is not None and lost.since is None):
        return None
    bounds: list[int] = [] if lost is None or lost.since is None else [lost.since]
    for waiting in scan.waiting:
        if waiting.why is Why.FILTERED:
            continue
        if waiting.lower_bound is None:
            return None
        bounds.append(waiting.lower_bound)
    unloaded = (
        file
        for file, entry in unsettled(scan.files, entries)
        if file.path not in expired and not _is_loaded(file, entry)
    )
    clashing = (file for clash in scan.clashes for file in clash.files)
    for file in chain(unloaded, clashing):
        span = facts.span(file)
        if span is None:
            return None
        bounds = [min((*bounds, span.first))]
    if bounds:
        return min(bounds)
    return last_time(entries)


def _is_loaded(file: LocalFile, entry: Entry | None) -> bool:
    return entry is not None and bool(entry.md5) and entry.is_of(file)
