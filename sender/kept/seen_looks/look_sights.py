"""What a look sees of each file, and since when it misses one."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from common.names import FilePath
from sender.kept.seen_looks.sights import Sight
from sender.select.found import LocalFile, Scan, Why
from sender.select.listed_table import unsettled
from sender.select.path_table import lacking, one_of_each_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sender.kept.seen_looks.looks_state import LooksState
    from sender.select.entry import Entry

__all__ = ["earlier_looks", "missing_since", "out_of_sight", "sights_of_look"]


def sights_of_look(
    before: LooksState,
    number: int,
    scan: Scan,
    entries: Mapping[FilePath, Entry],
    copies: Sequence[LocalFile],
    now: float,
) -> Iterator[tuple[str, Sight]]:
    """What is here and not on the list as it is: last copies and closed files, then open ones.

    A partition in motion may show what a compaction made beside what it was made of, which the
    database never had together: the next look that sees it at rest is the first one that had it.
    """
    here = ((each, entries.get(each.path)) for each in copies)
    for file, entry in chain(here, unsettled(scan.files, entries)):
        path = file.path
        if entry is None or not entry.is_of(file):
            known = _known(before, path.text, file.inode)
            if known is None and path.is_product and path.group in scan.changing:
                continue
            first = known.first if known else number
            closed = (known.closed if known else 0) or number
            yield path.text, Sight(file.inode, first, closed)
    for waiting in scan.waiting:
        if waiting.group is not None and waiting.inode and waiting.why is not Why.REFUSED:
            known = _known(before, waiting.text, waiting.inode)
            if known is not None or not (waiting.is_product and waiting.group in scan.changing):
                seen = known or Sight(waiting.inode, number, 0)
                yield waiting.text, seen if seen.since else replace(seen, since=now)


def out_of_sight(
    before: LooksState, scan: Scan, entries: Mapping[FilePath, Entry]
) -> Iterator[tuple[str, Sight]]:
    """What was seen, is not on the list, and lies where this look did not get to."""
    if not (scan.unmounted or scan.unreadable):
        return
    for path, sight in before.sights.items():
        if scan.why_not_listed(path.rpartition("/")[0]) and FilePath.parse(path) not in entries:
            yield path, sight


def missing_since(
    before: LooksState,
    number: int,
    scan: Scan,
    entries: Mapping[FilePath, Entry],
    copies: Sequence[LocalFile],
) -> Iterator[tuple[str, int]]:
    """The last look that had each file that is not seen now, while its end is not told.

    Its end may be held for long; looks that go by meanwhile do not have it. Where a data directory
    is away, its list is, too. Without a memory it is known that this look does not have it.
    """
    if scan.unmounted:
        for text, last in before.missing.items():
            path = FilePath.parse(text)
            if not (path in entries or path in scan.files or path in scan.others):
                yield text, last
    for each in copies:
        known = before.missing.get(each.path.text)
        yield each.path.text, known or before.last_of(each.path.directory) or number - 1
    for path, _ in lacking(entries, scan.files):
        if path in scan.others:
            continue
        known = before.missing.get(path.text)
        if known is not None:
            yield path.text, known
        elif scan.why_not_listed(path.directory) is None:
            yield path.text, before.last_of(path.directory) or number - 1


def _known(before: LooksState, path: str, inode: int) -> Sight | None:
    found = before.sights.get(path)
    return found if found is not None and found.inode == inode else None


def earlier_looks(
    before: LooksState, number: int, scan: Scan, entries: Mapping[FilePath, Entry]
) -> tuple[dict[str, int], dict[str, int]]:
    """`LooksState.earlier` and `torn` of a look."""
    if not (scan.unmounted or scan.unreadable or scan.moving or scan.changing):
        return {}, {}
    directories: dict[str, FilePath] = {}
    remembered = map(FilePath.parse, (*before.missing, *before.sights, *before.deletions))
    seen = map(one_of_each_directory, (entries, scan.files, scan.others, remembered))
    for path in chain.from_iterable(seen):
        directories.setdefault(path.directory, path)
    earlier, torn = {}, {}
    for directory, path in directories.items():
        listed = scan.why_not_listed(directory) is None
        earlier[directory] = number if listed else before.last_of(directory)
        at_rest = path.group not in scan.changing and scan.why_not_looked_at(directory) is None
        torn[directory] = number if at_rest else before.floor_of(directory)
    if not (scan.unmounted or scan.unreadable):
        return {}, {each: look for each, look in torn.items() if look != number}
    # What lies there is not seen, and where a data directory is away, its list is not read.
    for directory in (before.earlier.keys() | before.torn.keys() | {""}) - directories.keys():
        earlier[directory] = before.last_of(directory)
        torn[directory] = before.floor_of(directory)
    return earlier, torn
