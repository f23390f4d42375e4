"""A forwarding centre: the files come from the catalogue of the receiver on this node.

The catalogue lists what is committed, under names that are unique and never used again, so there
is nothing to wait for and nothing to watch. Markers do not apply; the lists and snapshots live in
the receiver's own data directories.

What is handed up of a file is what was told here: its edge, its path there, the looks that had it,
what was deleted in it. A file is at its end above when it is so here: its edge has it no more. What
became of the copy, by quarantine, TTL, proof or an operator, is told as no more than that; a copy
that is bad and will come again is not at its end.
"""

from __future__ import annotations

import stat as modes
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from common.digests import xxh3_64
from common.errors import NameRefusedError, UnsafePathError
from common.names import RESOURCE, FilePath
from common.wire import EndBelow, EndMeaning, LooksBelow, OriginEntry
from sender.select.found import LocalDeletions, LocalFile, ResourceStat, Scan, Span, Waiting, Why

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from common.durable import Tree
    from common.wire import CatalogueEntry, FileFate, NotedEntry
    from sender.select.data_dirs import DataDirs
    from sender.select.entry import Entry

__all__ = [
    "Beneath",
    "CatalogueFacts",
    "Upstream",
    "catalogue_dirs",
    "everywhere",
    "scan_catalogue",
    "undeleted",
]


@dataclass(frozen=True)
class CatalogueFacts:
    """`ContentFacts` from the catalogue: nothing is read again."""

    by_path: Mapping[FilePath, CatalogueEntry]

    def md5(self, file: LocalFile) -> str | None:
        """As it was verified when it was loaded."""
        entry = self.by_path.get(file.path)
        return None if entry is None else entry.md5

    def span(self, file: LocalFile) -> Span | None:
        """As it was read when it was loaded."""
        entry = self.by_path.get(file.path)
        if entry is None or entry.first_time is None or entry.last_time is None:
            return None
        return Span(entry.first_time, entry.last_time)


@dataclass(frozen=True)
class Beneath:
    """What is known beside a catalogue, for a receiver above that takes origins.

    Attributes:
        engine: uuid of the receiver on this node.
        listed: what is loaded above.
        handed: whether it was told something, by the engine, a name and the commit since which
            that is so.
        fates: of listed files that the catalogue has no more, by physical path.
        everywhere: ends of files that an operator deleted everywhere.
        notes: deletion files.
        seen: the newest commit of the catalogue that was read before.
    """

    engine: str
    listed: Mapping[FilePath, Entry]
    handed: Callable[[str, str, int], bool]
    fates: Mapping[str, FileFate]
    everywhere: Sequence[EndBelow] = ()
    notes: Sequence[NotedEntry] = ()
    seen: int = 0


@dataclass(frozen=True)
class Upstream:
    """A catalogue as a scan, and what it says of the files.

    Attributes:
        scan: of it.
        facts: of its files.
        origins: of its files, as they are handed up.
        ends: of listed files that are at their end, and what they mean.
        ended: files on no list that are at their end here, and are sent as such.
        due: what is handed up by sending a file, or telling its end, or both anew: file -> the name
            under which that is remembered.
        contents: of deletion files.
        remote: files on no list that are in the object store only, in the order of the catalogue.
    """

    scan: Scan
    facts: CatalogueFacts
    origins: Mapping[FilePath, OriginEntry] = field(default_factory=dict)
    ends: Mapping[FilePath, EndBelow] = field(default_factory=dict)
    ended: frozenset[FilePath] = frozenset()
    due: Mapping[FilePath, str] = field(default_factory=dict)
    contents: Mapping[tuple[FilePath, str], bytes] = field(default_factory=dict)
    remote: Sequence[CatalogueEntry] = ()


def catalogue_dirs(entries: Iterable[CatalogueEntry], remembered: Iterable[str]) -> list[Path]:
    """The data directories that a forwarding sender keeps its lists in.

    Args:
        entries: the catalogue.
        remembered: those of earlier rounds (`Receiver.data_dirs`): when the last file of one is
            gone, its list still says what is to be deleted above.
    """
    return sorted({Path(each) for each in remembered} | {Path(each.data_dir) for each in entries})


def scan_catalogue(
    entries: Iterable[CatalogueEntry],
    dirs: DataDirs,
    includes: Callable[[str], bool],
    interval: int,
    beneath: Beneath | None = None,
    listed: Mapping[FilePath, Entry] | None = None,
) -> Upstream:
    """The catalogue as a scan.

    Args:
        entries: all of it, as of one commit: what is missing here counts as gone, unless more is
            known of it.
        dirs: the receiver's data directories, opened by `DataDirs.unmarked`.
        includes: whether a storage group is sent (`sender.select.filters`).
        interval: width of a time partition in the unit of the data (`sender.select.scan.units_of`).
        beneath: what is known beside; None for a receiver above that takes no origins.
        listed: what is loaded above: of that a file need not be here.
    """
    ends: dict[FilePath, EndBelow] = {}
    ended: set[FilePath] = set()
    due: dict[FilePath, str] = {}
    told_anew: set[FilePath] = set()
    origins: dict[FilePath, OriginEntry] = {}
    files: dict[FilePath, LocalFile] = {}
    waiting: list[Waiting] = []
    others: set[FilePath] = set()
    by_path: dict[FilePath, CatalogueEntry] = {}
    remote: list[CatalogueEntry] = []
    for entry in entries:
        data_dir = Path(entry.data_dir)
        try:
            path = FilePath.parse(entry.path)
        except NameRefusedError as error:
            waiting.append(Waiting(entry.path, data_dir, Why.REFUSED, str(error), entry.size))
            continue
        by_path[path] = entry
        if not includes(path.sg):
            others.add(path)
            continue
        if beneath is not None and entry.first_look and entry.changed:
            origins[path] = _handed_up(entry, beneath.engine)
            name = f"{entry.changed} {path}"
            is_due = not beneath.handed(beneath.engine, name, entry.changed)
            if is_due:
                due[path] = name
            if not entry.last_look:
                if is_due and path in beneath.listed:
                    told_anew.add(path)
            elif path in beneath.listed:
                ends[path] = EndBelow(path=path.text, last=entry.last_look, origin=origins[path])
                continue
            elif is_due:
                ended.add(path)
            else:
                continue
        tree = dirs.trees.get(data_dir)
        file = None if tree is None else _on_disk(tree, path, entry)
        if file is _REMOTE and path in told_anew:
            remote.append(entry)  # what is told anew has its bytes at hand, should they be wanted
        if file is _REMOTE and listed and path in listed:
            file = _as_it_was(listed[path], data_dir)
            if file is None:  # nothing of it is to be sent, and it is not gone
                others.add(path)
                continue
        if isinstance(file, LocalFile):
            files[path] = file
        else:
            if file is _REMOTE:
                remote.append(entry)
            others.add(path)
            bound = path.partition * interval if entry.first_time is None else entry.first_time
            reason = file or "its data directory cannot be opened"
            waiting.append(
                Waiting(entry.path, data_dir, Why.UNREADABLE, reason, entry.size, path.group, bound)
            )
    gone_before: dict[FilePath, Path] = {}
    deletions: list[LocalDeletions] = []
    contents: dict[tuple[FilePath, str], bytes] = {}
    if beneath is not None:
        for path in beneath.listed.keys() - by_path.keys():
            end = _end_of(path, beneath)
            if end is None:
                others.add(path)
            else:
                ends[path] = end
        for end in beneath.everywhere if dirs.mounted else ():
            path = FilePath.parse(end.path)
            told = beneath.handed(beneath.engine, everywhere(path), 0) or not includes(path.sg)
            if path not in beneath.listed and not told:
                ends[path] = end
                gone_before[path] = dirs.mounted[0]
                due[path] = everywhere(path)
        for note in beneath.notes:
            for each, content in _noted(note, by_path, dirs, beneath.engine):
                if includes(each.path.sg):
                    deletions.append(each)
                    contents[each.path, each.form] = content
    scan = Scan(
        files=files,
        waiting=tuple(waiting),
        mounted=dirs.mounted,
        unmounted=dirs.unmounted,
        others=frozenset(others),
        includes=includes,
        deletions=tuple(deletions),
        gone_before=gone_before,
        told_anew=frozenset(told_anew),
    )
    facts = CatalogueFacts(by_path)
    return Upstream(scan, facts, origins, ends, frozenset(ended), due, contents, remote)


def everywhere(path: FilePath) -> str:
    """The name under which a deletion everywhere is remembered as handed up."""
    return f"everywhere {path}"


def undeleted(missing: Iterable[FilePath], beneath: Beneath) -> frozenset[FilePath]:
    """Listed files that the catalogue has no more, and that no edge deleted.

    A receiver above that takes no origins would delete them, if it is a mirror.
    """
    ends = ((path, _end_of(path, beneath)) for path in missing)
    return frozenset(path for path, end in ends if end is None or end.meaning is EndMeaning.RETIRED)


def _handed_up(entry: CatalogueEntry, engine: str) -> OriginEntry:
    here = LooksBelow(
        engine=engine,
        first=entry.first_look,
        closed=entry.closed_look,
        last=entry.last_look,
        loaded=entry.commit,
        physical=entry.path,
    )
    if entry.origin is None:
        return OriginEntry(sender=entry.sender, path=entry.original, below=[here])
    origin = entry.origin
    return OriginEntry(sender=origin.sender, path=origin.path, below=[*origin.below, here])


def _end_of(path: FilePath, beneath: Beneath) -> EndBelow | None:
    """The end of a listed file that is not in the catalogue; None where it is not at its end."""
    fate = beneath.fates.get(path.text)
    if fate is not None and fate.here:
        return None
    if fate is not None and fate.end is not None:
        return fate.end
    return EndBelow(path=path.text, last=beneath.seen, meaning=EndMeaning.RETIRED)


def _noted(
    note: NotedEntry, by_path: Mapping[FilePath, CatalogueEntry], dirs: DataDirs, engine: str
) -> Iterator[tuple[LocalDeletions, bytes]]:
    """A deletion file as one beside a file here, up to what waits for an operator.

    That of a file which is not loaded gets a name that no other edge's can have.
    """
    author = note.author or f"{note.sender}@{engine}"
    segments = []
    for each in note.segments:
        if each.held:
            break
        segments.append((each.end, each.floor, each.applied))
    if not segments or not dirs.mounted:
        return
    if note.physical is None:
        path = FilePath.parse(note.path).physical(xxh3_64(author.encode()))
    else:
        path = FilePath.parse(note.physical)
    entry = by_path.get(path)
    data_dir = dirs.mounted[0] if entry is None else Path(entry.data_dir)
    size = segments[-1][0]
    identity = (size, note.segments[len(segments) - 1].commit, 0)
    file = LocalDeletions(
        path,
        data_dir,
        "",
        note.form,
        identity,
        0,
        author=author,
        segments=tuple(segments),
    )
    yield file, note.content[:size]


_REMOTE = (
    "it is in the object store only; `tsferry-receiver storage fetch` brings it to the disk of the "
    "receiver on this node"
)


def _as_it_was(entry: Entry, data_dir: Path) -> LocalFile | None:
    """A listed file that is in the object store only, as it was when it was sent."""
    if entry.data_dir != data_dir or not entry.inode or entry.resource_mark is None:
        return None
    mark = entry.resource_mark
    resource = ResourceStat(*mark, 0) if any(mark) else None
    return LocalFile(entry.path, data_dir, "", *entry.identity, resource)


def _on_disk(tree: Tree, path: FilePath, entry: CatalogueEntry) -> LocalFile | str:
    """The file that the catalogue speaks of, or why it cannot be sent."""
    try:
        stat = tree.stat(path.text)
        beside = tree.stat(path.text + RESOURCE) if entry.resource else None
    except (OSError, UnsafePathError) as error:
        return f"cannot be read: {error}"
    if stat is None and entry.stored:
        return _REMOTE
    if stat is None or not modes.S_ISREG(stat.st_mode):
        return "the catalogue has it, and it is not on disk: tsferry-receiver fsck"
    if stat.st_size != entry.size:
        return f"{stat.st_size} bytes on disk, {entry.size} in the catalogue: tsferry-receiver fsck"
    resource = None
    if beside is not None and modes.S_ISREG(beside.st_mode):
        resource = ResourceStat(beside.st_size, beside.st_mtime_ns, beside.st_ino)
    return LocalFile(path, tree.path, "", stat.st_size, stat.st_mtime_ns, stat.st_ino, resource)
