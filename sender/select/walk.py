"""Walking one data directory: every TsFile in it, judged.

Two layouts: `<kind>/<storage group>/<virtual group>/<partition>/<file>`, as a database has it, and
flat, where files lie side by side in the data directory and their path comes from the configured
storage group and their first time.

Nothing is followed through a symlink, nothing deeper than the layout is looked at, and what cannot
be listed is said, because nothing beneath it may count as gone.
"""

from __future__ import annotations

import os
import stat as modes
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from common.errors import NameRefusedError, UnsafePathError
from common.names import RESOURCE, SUFFIX, FilePath, Kind, check_component, check_file_name
from sender.select.eligibility import Beside
from sender.select.file_verdicts import FileVerdicts, WalkedDirectory
from sender.select.found import (
    LOCAL_FILES,
    LocalDeletions,
    ResourceStat,
    Unreadable,
    Waiting,
    Why,
    stat_identity,
)
from sender.select.path_table import PathBlockBuilder, directory_of, pack_numbers
from sender.select.shared_deletions import Shared, deletions_beside, shared_deletions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from common.durable import Tree
    from sender.select.entry import Entry
    from sender.select.file_verdicts import WalkRules
    from sender.select.found import TimePartition
    from sender.select.path_table import Directory, PathBlock
    from sender.select.stat_cache import StatCache

__all__ = ["ListedDirectory", "Walk", "WalkResult"]

_LINK = "a symlink, which is not followed"
_MISPLACED = (
    "not where a TsFile lies: <kind>/<storage group>/<virtual group>/<partition>/<file> "
    "(databases before 0.12 have no virtual groups: an upgrade makes them)"
)
_RACY_LISTING_NS = 2_000_000_000
"""A directory that changed less than this before it was listed may change again in the same tick of
the file system's clock: then its names are compared too."""


class ListedDirectory(NamedTuple):
    """A directory as it was when it was listed.

    Attributes:
        rel: where it is.
        mtime_ns: of it, before it was listed.
        names: what was in it; None where a change could not hide from its modification time.
        group: the partition whose files it has; None for a directory above, or a flat one.
    """

    rel: str
    mtime_ns: int
    names: frozenset[str] | None
    group: TimePartition | None


@dataclass
class WalkResult:
    """What one data directory holds."""

    blocks: list[PathBlock] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    others: set[FilePath] = field(default_factory=set)
    loose_names: set[str] = field(default_factory=set)
    changing: dict[TimePartition, str] = field(default_factory=dict)
    directories: list[ListedDirectory] = field(default_factory=list)
    opened: set[str] = field(default_factory=set)
    mounts: dict[str, str] = field(default_factory=dict)
    deletions: list[LocalDeletions] = field(default_factory=list)
    rests_in: float | None = None


class Walk:
    """One pass over one data directory."""

    def __init__(
        self,
        tree: Tree,
        rules: WalkRules,
        cache: StatCache,
        known: Callable[[FilePath], list[Entry]],
        known_flat: Callable[[str], list[Entry]],
        listed: Mapping[Directory, Sequence[PathBlock]],
    ) -> None:
        self._tree = tree
        self._rules = rules
        self._cache = cache
        self._known = known
        self._known_flat = known_flat
        self._listed_blocks = listed
        self._builders: dict[Directory, PathBlockBuilder] = {}
        self._now = rules.clock()
        self._verdicts = FileVerdicts(tree.path, rules, cache, self._now)
        self._mount = ""
        self.found = WalkResult()

    def run(self, only: Collection[TimePartition] | None = None) -> WalkResult:
        """Do it, for some partitions only if they are given; a flat directory is all or nothing."""
        root = self._tree.open_dir()
        try:
            self._mount = _mount(root)
        finally:
            os.close(root)
        if self._rules.flat_group is not None:
            self._flat(self._rules.flat_group)
        else:
            for kind in Kind:
                for sg in self._subdirectories(kind, "storage group"):
                    if only is None or any(each[0] == sg for each in only):
                        self._storage_group(kind, sg, only)
        self.found.rests_in = self._verdicts.rests_in
        return self.found

    # -- directories -----------------------------------------------------------------------

    def _storage_group(self, kind: Kind, sg: str, only: Collection[TimePartition] | None) -> None:
        rel = f"{kind}/{sg}"
        if not self._rules.includes(sg):
            self._wait(rel, Why.FILTERED, f"storage group {sg} is not in [storage_groups]")
            return
        for vsg in self._subdirectories(rel, "virtual storage group"):
            for partition in self._subdirectories(f"{rel}/{vsg}", "time partition"):
                if only is None or any((sg, vsg, partition) == _texts(each) for each in only):
                    self._partition(kind, sys.intern(sg), sys.intern(vsg), partition)

    def _partition(self, kind: Kind, sg: str, vsg: str, partition: str) -> None:
        rel = f"{kind}/{sg}/{vsg}/{partition}"
        try:
            checked = FilePath.parse(f"{rel}/x{SUFFIX}")
        except NameRefusedError as error:
            self._wait(rel, Why.REFUSED, str(error))
            return
        fd = self._open(rel)
        if fd is None:
            return
        try:
            self._files(WalkedDirectory(rel, fd, kind, sg, vsg, checked.partition))
        except OSError as error:
            self._unreadable(rel, error)
        finally:
            os.close(fd)

    def _flat(self, sg: str) -> None:
        if not self._rules.includes(sg):
            self._wait("", Why.FILTERED, f"storage group {sg} is not in [storage_groups]")
            return
        fd = self._open("")
        if fd is None:
            return
        try:
            self._files(WalkedDirectory("", fd, Kind.SEQUENCE, sg, "0", None))
        except OSError as error:
            self._unreadable("", error)
        finally:
            os.close(fd)

    def _open(self, rel: str) -> int | None:
        try:
            return self._tree.open_dir(rel)
        except FileNotFoundError:
            return None
        except UnsafePathError:
            self._not_looked_at(rel, _LINK)
        except OSError as error:
            self._unreadable(rel, error)
        return None

    def _listed(self, rel: str, fd: int, group: TimePartition | None) -> frozenset[str]:
        """What is in a directory, noted for the comparison at the end."""
        self.found.opened.add(rel)
        mount = _mount(fd)
        if mount != self._mount:
            self.found.mounts[rel] = f"{os.fstatvfs(fd).f_fsid:x}"
        mtime = os.fstat(fd).st_mtime_ns  # before the listing: a change shows afterwards
        names = frozenset(os.listdir(fd))
        racy = time.time_ns() - mtime < _RACY_LISTING_NS
        self.found.directories.append(ListedDirectory(rel, mtime, names if racy else None, group))
        return names

    def _subdirectories(self, rel: str, what: str) -> Iterator[str]:
        """Names of directories, checked; what else lies there and should not is said."""
        fd = self._open(rel)
        if fd is None:
            return
        try:
            self._listed(rel, fd, None)
            with os.scandir(fd) as entries:
                listed = sorted((each.name, _mode(each)) for each in entries)
        except OSError as error:
            self._unreadable(rel, error)
            return
        finally:
            os.close(fd)
        for name, mode in listed:
            at = f"{rel}/{name}"
            if mode == "directory" and self._name_is_good(at, name, what):
                yield name
            elif mode == "symlink":
                self._not_looked_at(at, _LINK)
            elif mode == "file" and name.endswith(SUFFIX):
                self._wait(at, Why.REFUSED, _MISPLACED)

    def _name_is_good(self, rel: str, name: str, what: str) -> bool:
        try:
            check_component(name, what)
        except NameRefusedError as error:
            self._wait(rel, Why.REFUSED, str(error))
            return False
        return True

    # -- files -----------------------------------------------------------------------------

    def _files(self, place: WalkedDirectory) -> None:
        travel = self._rules.deletions_travel and place.group is not None
        beside = Beside(self._listed(place.rel, place.fd, place.group), deletions_travel=travel)
        if place.group is not None and (name := beside.unfinished):
            self.found.changing[place.group] = f"{place.at(name)}: a compaction is under way"
        listed = self._listed_block(place)
        as_listed = listed.numbers_by_name() if listed is not None and beside.is_usual else {}
        try:
            for name in beside.tsfiles:
                try:
                    stat = os.stat(name, dir_fd=place.fd, follow_symlinks=False)
                except FileNotFoundError:
                    continue  # its directory has changed by that, which is noticed at the end
                numbers = as_listed.get(name)
                if numbers is not None and self._is_as_listed(beside, name, stat, numbers):
                    assert listed is not None
                    self._take(place, name, listed.directory, numbers)
                else:
                    self._file(place, beside, name, stat)
        finally:
            self._seal(listed)

    def _is_as_listed(
        self, beside: Beside, name: str, stat: os.stat_result, numbers: bytes
    ) -> bool:
        """Whether a file is closed and as it is listed, as nearly all are.

        In short what `_file` finds where nothing but TsFiles and resources is in a directory.
        """
        closed = self._rules.by_tail or beside.has_resource(name)
        same = numbers == pack_numbers(stat.st_size, stat.st_mtime_ns, stat.st_ino)
        return closed and same and modes.S_ISREG(stat.st_mode)

    def _listed_block(self, place: WalkedDirectory) -> PathBlock | None:
        """What is listed in a directory, and of this data directory."""
        if place.partition is None:
            return None
        directory = (place.kind is Kind.UNSEQUENCE, place.sg, place.vsg, place.partition)
        for each in self._listed_blocks.get(directory, ()):
            if each.data_dir == self._tree.path:
                return each
        return None

    def _seal(self, listed: PathBlock | None) -> None:
        """What was found in a directory is whole."""
        for each in self._builders.values():
            if (made := each.block(listed)) is not None:
                self.found.blocks.append(made)
        self._builders.clear()

    def _file(
        self, place: WalkedDirectory, beside: Beside, name: str, stat: os.stat_result
    ) -> None:
        path = None
        if place.partition is not None:
            path = FilePath(place.kind, place.sg, place.vsg, place.partition, name)
        entries = self._known_flat(name) if path is None else self._known(path)
        if not entries:
            try:
                check_file_name(name)
            except NameRefusedError as error:
                self._wait(place.at(name), Why.REFUSED, str(error), place, stat.st_size)
                return
        shared = self._shared_deletions(place, beside, name)
        if path is not None and beside.any_deletions:
            self.found.deletions += deletions_beside(
                self._tree.path, place, beside, path, stat.st_ino, shared
            )
        loaded = _as_listed(stat, entries)
        identity = stat_identity(stat)
        verdict = self._verdicts.verdict(place, beside, name, stat, identity, path, loaded)
        if isinstance(shared, str) and isinstance(verdict, FilePath):
            verdict = Why.CHANGING, shared
        if isinstance(verdict, FilePath):
            self._take(place, name, directory_of(verdict), pack_numbers(*identity))
            return
        why, reason = verdict
        self._wait(place.at(name), why, reason, place, stat.st_size, stat.st_ino)
        if path is None:
            self.found.loose_names.add(name)
        else:
            self.found.others.add(path)

    def _shared_deletions(
        self, place: WalkedDirectory, beside: Beside, name: str
    ) -> Shared | str | None:
        """What deletions it shares with others; a text is why it must wait."""
        present = beside.shared_deletions
        if not (present and beside.has_resource(name)):
            return None
        found = shared_deletions(self._tree, place.at(name), present, self._cache, self._now)
        if isinstance(found, Shared) and not beside.deletions_travel:
            return f"{found.part.rel.rpartition('/')[2]} has deletions of it"
        return found

    def _take(
        self, place: WalkedDirectory, name: str, directory: Directory, numbers: bytes
    ) -> None:
        builder = self._builders.get(directory)
        if builder is None:
            where = "" if place.partition is None else None
            builder = PathBlockBuilder(directory, self._tree.path, where)
            self._builders[directory] = builder
        builder.add(name, numbers, LOCAL_FILES.pack_rest(_resource(place.fd, name)))

    # -- saying ----------------------------------------------------------------------------

    def _wait(
        self,
        rel: str,
        why: Why,
        reason: str,
        place: WalkedDirectory | None = None,
        size: int = 0,
        inode: int = 0,
    ) -> None:
        group = place.group if place is not None else None
        bound = None if group is None else group[2] * self._rules.interval
        self.found.waiting.append(
            Waiting(rel, self._tree.path, why, reason, size, group, bound, inode)
        )

    def _not_looked_at(self, rel: str, reason: str) -> None:
        self.found.unreadable.append(Unreadable(self._tree.path, rel, reason))

    def _unreadable(self, rel: str, error: OSError) -> None:
        self._not_looked_at(rel, error.strerror or str(error))


def _as_listed(stat: os.stat_result, entries: list[Entry]) -> Entry | None:
    """What lists a file just as it is."""
    for each in entries:
        if (
            each.inode == stat.st_ino
            and each.mtime_ns == stat.st_mtime_ns
            and each.size == stat.st_size
        ):
            return each
    return None


def _texts(group: TimePartition) -> tuple[str, str, str]:
    sg, vsg, partition = group
    return sg, vsg, str(partition)


def _mount(fd: int) -> str:
    """The mount that an open directory lies on, by a number that holds until the next boot."""
    try:
        lines = Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="ascii").splitlines()
        found = (line.split()[1] for line in lines if line.startswith("mnt_id:"))
        if (mount := next(found, None)) is not None:
            return mount
    except OSError:
        pass  # no /proc: the device tells all but bind mounts
    return f"device {os.fstat(fd).st_dev}"


def _mode(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "symlink"
    return "directory" if entry.is_dir(follow_symlinks=False) else "file"


def _resource(directory: int, name: str) -> ResourceStat | None:
    try:
        stat = os.stat(name + RESOURCE, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not modes.S_ISREG(stat.st_mode):
        return None
    return ResourceStat(*stat_identity(stat))
