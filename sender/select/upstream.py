"""A forwarding centre: the files come from the catalogue of the receiver on this node.

The catalogue lists what is committed, under names that are unique and never used again, so there
is nothing to wait for and nothing to watch: a file is gone when the catalogue has it no more.
Markers do not apply; the lists and snapshots live in the receiver's own data directories.
"""

from __future__ import annotations

import stat as modes
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import NameRefusedError, UnsafePathError
from common.names import RESOURCE, FilePath
from sender.select.found import LocalFile, ResourceStat, Scan, Span, Waiting, Why

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from common.durable import Tree
    from common.wire import CatalogueEntry
    from sender.select.data_dirs import DataDirs

__all__ = ["CatalogueFacts", "Upstream", "catalogue_dirs", "scan_catalogue"]


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
class Upstream:
    """A catalogue as a scan, and what it says of the files."""

    scan: Scan
    facts: CatalogueFacts


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
) -> Upstream:
    """The catalogue as a scan.

    Args:
        entries: all of it, as of one commit: what is missing here counts as gone.
        dirs: the receiver's data directories, opened by `DataDirs.unmarked`.
        includes: whether a storage group is sent (`sender.select.filters`).
        interval: width of a time partition in the unit of the data (`sender.select.scan.units_of`).
    """
    files: dict[FilePath, LocalFile] = {}
    waiting: list[Waiting] = []
    others: set[FilePath] = set()
    by_path: dict[FilePath, CatalogueEntry] = {}
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
        tree = dirs.trees.get(data_dir)
        file = None if tree is None else _on_disk(tree, path, entry)
        if isinstance(file, LocalFile):
            files[path] = file
        else:
            others.add(path)
            bound = path.partition * interval if entry.first_time is None else entry.first_time
            reason = file or "its data directory cannot be opened"
            waiting.append(
                Waiting(entry.path, data_dir, Why.UNREADABLE, reason, entry.size, path.group, bound)
            )
    scan = Scan(
        files=files,
        waiting=tuple(waiting),
        mounted=dirs.mounted,
        unmounted=dirs.unmounted,
        others=frozenset(others),
        includes=includes,
    )
    return Upstream(scan, CatalogueFacts(by_path))


def _on_disk(tree: Tree, path: FilePath, entry: CatalogueEntry) -> LocalFile | str:
    """The file that the catalogue speaks of, or why it cannot be sent."""
    try:
        stat = tree.stat(path.text)
        beside = tree.stat(path.text + RESOURCE) if entry.resource else None
    except (OSError, UnsafePathError) as error:
        return f"cannot be read: {error}"
    if stat is None or not modes.S_ISREG(stat.st_mode):
        return "the catalogue has it, and it is not on disk: tsferry-receiver fsck"
    if stat.st_size != entry.size:
        return f"{stat.st_size} bytes on disk, {entry.size} in the catalogue: tsferry-receiver fsck"
    resource = None
    if beside is not None and modes.S_ISREG(beside.st_mode):
        resource = ResourceStat(beside.st_size, beside.st_mtime_ns, beside.st_ino)
    return LocalFile(
        path, tree.path, path.text, stat.st_size, stat.st_mtime_ns, stat.st_ino, resource
    )
