"""All TsFiles of this node: the union of its data directories."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from common.config.shared_rules import PER_MILLISECOND
from common.errors import UnsafePathError
from common.names import Kind
from sender.select.entry import Entry, EntryState
from sender.select.facts import FileFacts
from sender.select.file_verdicts import WalkRules
from sender.select.filters import group_filter
from sender.select.found import LOCAL_FILES, Clash, LocalFile, Mounts, Scan, Unreadable
from sender.select.listed_table import rows_of_kind
from sender.select.path_table import PathTable, having, joined
from sender.select.stat_cache import StatCache
from sender.select.walk import ListedDirectory, Walk, WalkResult

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from common.durable import Tree
    from common.names import FilePath
    from sender.config import SenderConfig
    from sender.select.data_dirs import DataDirs
    from sender.select.found import TimePartition
    from sender.select.path_table import Directory, PathBlock

__all__ = ["Scanner", "units_of"]

_CHANGED = "changed during the scan"
_NO_KIND = "is not there any more: mount its disk, or make it (mkdir) where it is to be empty"


def units_of(config: SenderConfig) -> int:
    """The width of a time partition, in the unit of the data's timestamps."""
    return max(1, config.partition_interval_ms * PER_MILLISECOND[config.time_unit])


class Scanner:
    """Scans, and remembers what it read from files between scans.

    One for the life of the process; it serves all receivers.
    """

    def __init__(self, config: SenderConfig, *, clock: Callable[[], float] = time.time) -> None:
        groups = config.storage_groups
        self._rules = WalkRules(
            flat_group=config.storage_group if config.layout == "flat" else None,
            by_tail=config.closed_by == "tail",
            quiet_seconds=config.quiet_seconds,
            interval=units_of(config),
            includes=group_filter(groups.include, groups.exclude),
            clock=clock,
            deletions_travel=config.deletion_files != "wait",
        )
        self._cache = StatCache()

    def facts(self, dirs: DataDirs) -> FileFacts:
        """Contents and times of scanned files, while `dirs` are open."""
        return FileFacts(dirs, self._cache)

    def forget(
        self, files: Mapping[FilePath, LocalFile], entries: Mapping[FilePath, Entry]
    ) -> None:
        """What was read of scanned files that are listed is not needed any more."""
        if self._rules.flat_group is None:
            paths = self._cache.paths()
        else:  # where a file lies does not tell its path
            paths = list(files) if len(self._cache) else []
        listed = (files.get(path) for path in paths if path in entries)
        self._cache.forget(file for file in listed if file is not None)

    def scan(
        self,
        dirs: DataDirs,
        known: Sequence[Mapping[FilePath, Entry]] = (),
        *,
        only: Collection[TimePartition] | None = None,
    ) -> Scan:
        """Look at every TsFile.

        Args:
            dirs: the data directories, open.
            known: the lists of loaded files (`Ledger.entries`) of all receivers: what is on one of
                them with the same size, mtime and inode is not read again.
            only: partitions; None for all. Others are as if they were not there.
        """
        if only is None:
            self._cache.begin()
        found = {path: self._walk(tree, known, only) for path, tree in dirs}
        for data_dir, each in found.items():
            self._missing_kinds(dirs, data_dir, each, known)
        scan = self._union(dirs, found)
        if only is None:
            self._cache.end()
        return scan

    def _walk(
        self,
        tree: Tree,
        known: Sequence[Mapping[FilePath, Entry]],
        only: Collection[TimePartition] | None,
    ) -> WalkResult:
        names: dict[str, list[Entry]] = {}
        if self._rules.flat_group is not None:
            for entries in known:
                for entry in entries.values():
                    if entry.path.sg == self._rules.flat_group:
                        names.setdefault(entry.path.name, []).append(entry)

        def by_path(path: FilePath) -> list[Entry]:
            if len(known) == 1:
                entry = known[0].get(path)
                return [] if entry is None else [entry]
            return [entry for entries in known if (entry := entries.get(path)) is not None]

        listed: Mapping[Directory, Sequence[PathBlock]] = {}
        if len(known) == 1 and isinstance(known[0], PathTable):
            listed = known[0].directories()
        walk = Walk(tree, self._rules, self._cache, by_path, lambda n: names.get(n, []), listed)
        return walk.run(only)

    def _missing_kinds(
        self,
        dirs: DataDirs,
        data_dir: Path,
        found: WalkResult,
        known: Sequence[Mapping[FilePath, Entry]],
    ) -> None:
        """`sequence/` itself missing is a missing mount, not the deletion of all that was in it.

        What only the receiver's inventory told of may have been in any data directory.
        """
        if self._rules.flat_group is not None:
            return
        for kind in Kind:
            if dirs.trees[data_dir].exists(kind):
                continue
            somewhere = any(tree.exists(kind) for tree in dirs.trees.values())
            if any(
                entry.data_dir == data_dir and not (somewhere and entry.state is EntryState.LISTED)
                for entries in known
                for entry in rows_of_kind(entries, kind)
            ):
                found.unreadable.append(Unreadable(data_dir, kind, _NO_KIND))

    def _union(self, dirs: DataDirs, found: Mapping[Path, WalkResult]) -> Scan:
        files = PathTable[LocalFile](LOCAL_FILES)
        rivals: dict[FilePath, list[LocalFile]] = {}
        for each in found.values():
            table = PathTable(LOCAL_FILES, each.blocks)
            for path, file in having(table, files):
                rivals.setdefault(path, [files[path]]).append(file)
            files = joined(files, table)
        clashes = self._clashes(dirs, rivals)
        files = files.changed(removed=[clash.path for clash in clashes])
        others = {path for each in found.values() for path in each.others}
        others.update(clash.path for clash in clashes)
        changing = {group: why for each in found.values() for group, why in each.changing.items()}
        changed, moving = _changed_meanwhile(dirs, found)
        changing.update(changed)
        return Scan(
            files=files,
            waiting=tuple(each for one in found.values() for each in one.waiting),
            clashes=clashes,
            mounted=dirs.mounted,
            unmounted=dirs.unmounted,
            unreadable=tuple(each for one in found.values() for each in one.unreadable),
            moving=tuple(moving),
            mounts={
                data_dir: Mounts(frozenset(each.opened), each.mounts)
                for data_dir, each in found.items()
            },
            deletions=tuple(each for one in found.values() for each in one.deletions),
            others=frozenset(others),
            loose_names=frozenset(name for one in found.values() for name in one.loose_names),
            changing=changing,
            includes=self._rules.includes,
            rests_in=min((s for each in found.values() if (s := each.rests_in)), default=None),
        )

    def _clashes(
        self, dirs: DataDirs, rivals: Mapping[FilePath, list[LocalFile]]
    ) -> tuple[Clash, ...]:
        """Paths in several data directories whose contents differ."""
        facts = self.facts(dirs)
        clashes = []
        for path, several in rivals.items():
            different = len({file.size for file in several}) > 1
            if not different:
                digests = {facts.md5(file) for file in several}
                different = len(digests - {None}) > 1  # None: it moves away just now
            if different:
                clashes.append(Clash(path, tuple(several)))
        return tuple(clashes)


def _changed_meanwhile(
    dirs: DataDirs, found: Mapping[Path, WalkResult]
) -> tuple[dict[TimePartition, str], list[Unreadable]]:
    """Partitions and other directories that changed since they were listed.

    A compaction renames its result into place and then deletes its sources, over two directories:
    a listing in the midst of that may miss both.
    """
    changed: dict[TimePartition, str] = {}
    others: list[Unreadable] = []
    for data_dir, one in found.items():
        for each in one.directories:
            if _is_unchanged(dirs.trees[data_dir], each):
                continue
            if each.group is None:
                others.append(Unreadable(data_dir, each.rel, _CHANGED))
            else:
                changed[each.group] = f"{each.rel} {_CHANGED}"
    return changed, others


def _is_unchanged(tree: Tree, listed: ListedDirectory) -> bool:
    try:
        fd = tree.open_dir(listed.rel)
    except (OSError, UnsafePathError):
        return False
    try:
        if os.fstat(fd).st_mtime_ns != listed.mtime_ns:
            return False
        return listed.names is None or frozenset(os.listdir(fd)) == listed.names
    except OSError:
        return False
    finally:
        os.close(fd)
