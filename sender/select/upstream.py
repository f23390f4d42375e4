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
    found = _CatalogueScan(dirs, includes, interval, beneath, listed or {})
    for entry in entries:
        found.take(entry)
    if beneath is not None:
        found.add_beneath(beneath)
    return found.upstream()


class _CatalogueScan:
    """What one pass over the catalogue finds; the arguments are those of `scan_catalogue`."""

    def __init__(
        self,
        dirs: DataDirs,
        includes: Callable[[str], bool],
        interval: int,
        beneath: Beneath | None,
        listed: Mapping[FilePath, Entry],
    ) -> None:
        self._dirs = dirs
        self._includes = includes
        self._interval = interval
        self._beneath = beneath
        self._listed = listed
        self._ends: dict[FilePath, EndBelow] = {}
        self._ended: set[FilePath] = set()
        self._due: dict[FilePath, str] = {}
        self._told_anew: set[FilePath] = set()
        self._origins: dict[FilePath, OriginEntry] = {}
        self._files: dict[FilePath, LocalFile] = {}
        self._waiting: list[Waiting] = []
        self._others: set[FilePath] = set()
        self._by_path: dict[FilePath, CatalogueEntry] = {}
        self._remote: list[CatalogueEntry] = []
        self._gone_before: dict[FilePath, Path] = {}
        self._deletions: list[LocalDeletions] = []
        self._contents: dict[tuple[FilePath, str], bytes] = {}

    def take(self, entry: CatalogueEntry) -> None:
        """Judge one entry."""
        data_dir = Path(entry.data_dir)
        try:
            path = FilePath.parse(entry.path)
        except NameRefusedError as error:
            self._waiting.append(Waiting(entry.path, data_dir, Why.REFUSED, str(error), entry.size))
            return
        self._by_path[path] = entry
        if not self._includes(path.sg):
            self._others.add(path)
        elif not self._is_settled(path, entry):
            self._find(path, entry, data_dir)

    def _is_settled(self, path: FilePath, entry: CatalogueEntry) -> bool:
        """Note what is known of a file's origin; whether the file itself need not be looked at."""
        beneath = self._beneath
        if beneath is None or not entry.first_look or not entry.changed:
            return False
        self._origins[path] = _handed_up(entry, beneath.engine)
        name = f"{entry.changed} {path}"
        is_due = not beneath.handed(beneath.engine, name, entry.changed)
        if is_due:
            self._due[path] = name
        if not entry.last_look:
            if is_due and path in beneath.listed:
                self._told_anew.add(path)
            return False
        if path in beneath.listed:
            self._ends[path] = EndBelow(
                path=path.text, last=entry.last_look, origin=self._origins[path]
            )
            return True
        if is_due:
            self._ended.add(path)
        return not is_due

    def _find(self, path: FilePath, entry: CatalogueEntry, data_dir: Path) -> None:
        """Where the bytes of a file are."""
        tree = self._dirs.trees.get(data_dir)
        file = None if tree is None else _on_disk(tree, path, entry)
        if file is _REMOTE and path in self._told_anew:
            # What is told anew has its bytes at hand, should they be wanted.
            self._remote.append(entry)
        if file is _REMOTE and path in self._listed:
            file = _as_it_was(self._listed[path], data_dir)
            if file is None:  # nothing of it is to be sent, and it is not gone
                self._others.add(path)
                return
        if isinstance(file, LocalFile):
            self._files[path] = file
            return
        if file is _REMOTE:
            self._remote.append(entry)
        self._others.add(path)
        first = entry.first_time
        bound = path.partition * self._interval if first is None else first
        reason = file or "its data directory cannot be opened"
        self._waiting.append(
            Waiting(entry.path, data_dir, Why.UNREADABLE, reason, entry.size, path.group, bound)
        )

    def add_beneath(self, beneath: Beneath) -> None:
        """Add what is known of files that are not in the catalogue, and of deletions."""
        for path in beneath.listed.keys() - self._by_path.keys():
            end = _end_of(path, beneath)
            if end is None:
                self._others.add(path)
            else:
                self._ends[path] = end
        for end in beneath.everywhere if self._dirs.mounted else ():
            path = FilePath.parse(end.path)
            told = beneath.handed(beneath.engine, everywhere(path), 0)
            if path not in beneath.listed and not told and self._includes(path.sg):
                self._ends[path] = end
                self._gone_before[path] = self._dirs.mounted[0]
                self._due[path] = everywhere(path)
        for note in beneath.notes:
            for each, content in _noted(note, self._by_path, self._dirs, beneath.engine):
                if self._includes(each.path.sg):
                    self._deletions.append(each)
                    self._contents[each.path, each.form] = content

    def upstream(self) -> Upstream:
        """All of it."""
        scan = Scan(
            files=self._files,
            waiting=tuple(self._waiting),
            mounted=self._dirs.mounted,
            unmounted=self._dirs.unmounted,
            others=frozenset(self._others),
            includes=self._includes,
            deletions=tuple(self._deletions),
            gone_before=self._gone_before,
            told_anew=frozenset(self._told_anew),
        )
        return Upstream(
            scan,
            CatalogueFacts(self._by_path),
            self._origins,
            self._ends,
            frozenset(self._ended),
            self._due,
            self._contents,
            self._remote,
        )


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
