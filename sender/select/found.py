"""What a scan finds: the files of this node as they are now, and why some of them must wait."""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from common.names import Kind, parse_stem
from sender.select.path_table import pack_numbers, with_changes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Container, Iterable, Mapping
    from pathlib import Path

    from common.names import FilePath
    from sender.select.path_table import PathBlock

__all__ = [
    "LOCAL_FILES",
    "Clash",
    "LocalDeletions",
    "LocalFile",
    "Mounts",
    "ResourceStat",
    "Scan",
    "SharedDeletions",
    "Span",
    "TimePartition",
    "Unmounted",
    "Unreadable",
    "Waiting",
    "Why",
    "stat_identity",
]

TimePartition = tuple[str, str, int]
"""(storage group, virtual group, partition): the unit that deletions and additions share."""


class Span(NamedTuple):
    """First and last time in a file, raw integers of its own precision."""

    first: int
    last: int


class ResourceStat(NamedTuple):
    """The `.resource` beside a TsFile."""

    size: int
    mtime_ns: int
    inode: int


class LocalFile(msgspec.Struct, frozen=True, gc=False):
    """A closed TsFile that may be sent.

    Attributes:
        path: its name for the receiver, relative to a data directory.
        data_dir: the data directory that holds it.
        elsewhere: where it really is beneath `data_dir`, if that is not its path: in a flat layout,
            and for the last copy of a file, which lies in a snapshot.
        size: bytes.
        mtime_ns: modification time, nanoseconds since the epoch.
        inode: number of the inode.
        resource: the resource beside it, if there is one.
    """

    path: FilePath
    data_dir: Path
    elsewhere: str
    size: int
    mtime_ns: int
    inode: int
    resource: ResourceStat | None = None

    @property
    def resource_mark(self) -> tuple[int, int]:
        """(size, mtime_ns) of its resource, (0, 0) without one: unchanged while these are."""
        return (0, 0) if self.resource is None else self.resource[:2]

    @property
    def rel(self) -> str:
        """Where it really is beneath its data directory."""
        return self.elsewhere or self.path.text

    @property
    def identity(self) -> tuple[int, int, int]:
        """(size, mtime_ns, inode): unchanged while these are."""
        return (self.size, self.mtime_ns, self.inode)


class _LocalFileForm:
    """A local file in a table: behind its numbers whether it has a resource, and those of that."""

    rest = struct.Struct("<?qqQ")

    def where(self, row: LocalFile) -> str | None:
        return row.elsewhere.rpartition("/")[0] if row.elsewhere else None

    def pack(self, row: LocalFile) -> tuple[bytes, bytes]:
        return pack_numbers(*row.identity), self.pack_rest(row.resource)

    def pack_rest(self, resource: ResourceStat | None) -> bytes:
        if resource is None:
            return self.rest.pack(False, 0, 0, 0)
        return self.rest.pack(True, *resource)

    def row(
        self,
        path: FilePath,
        block: PathBlock,
        numbers: tuple[int, int, int],
        rest: tuple[bool, int, int, int],
    ) -> LocalFile:
        where = block.where
        elsewhere = "" if where is None else f"{where}/{path.name}" if where else path.name
        resource = ResourceStat(*rest[1:]) if rest[0] else None
        return LocalFile(path, block.data_dir, elsewhere, *numbers, resource)


LOCAL_FILES: Final = _LocalFileForm()
"""How local files stand in a table."""


def stat_identity(stat: os.stat_result) -> tuple[int, int, int]:
    """(size, mtime_ns, inode): a file is still the one that was looked at while these are."""
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


class Why(StrEnum):
    """Why a file is not sent now."""

    OPEN = "open"
    """No resource, no complete tail, or not at rest: its writer has not closed it."""
    CHANGING = "changing"
    """Something beside it (`.mods` and the like) says that it is being changed."""
    UNREADABLE = "unreadable"
    """Closed, but no TsFile that we ship: legacy, corrupt, foreign; a symlink; a read error."""
    REFUSED = "refused"
    """Its name, or where it lies, is not one that travels."""
    FILTERED = "filtered"
    """Outside the configured storage groups. Not waiting for anything; shown, never gone."""


class Waiting(msgspec.Struct, frozen=True):
    """A file that is there and not sent, and why.

    Attributes:
        text: its path as it is on disk, beneath `data_dir`; any bytes, so print with care.
        data_dir: the data directory that holds it.
        why: kind of the reason.
        reason: the reason in words, naming what is in the way.
        size: bytes; 0 for a directory that is refused as a whole.
        group: where it belongs, if that is known.
        lower_bound: no data time in it is below this; None where nothing is known.
        inode: number of the inode; 0 where it is not known.
    """

    text: str
    data_dir: Path
    why: Why
    reason: str
    size: int = 0
    group: TimePartition | None = None
    lower_bound: int | None = None
    inode: int = 0

    @property
    def is_product(self) -> bool:
        """Whether its name says that a compaction made it."""
        stem = parse_stem(self.text.rpartition("/")[2])
        return stem is not None and stem.compactions != (0, 0)


class SharedDeletions(NamedTuple):
    """What a deletion file of several TsFiles has of one of them.

    Attributes:
        rel: where the file is beneath its data directory.
        begin: the byte from which on it concerns this TsFile.
    """

    rel: str
    begin: int


class LocalDeletions(msgspec.Struct, frozen=True):
    """A deletion file beside a TsFile, whether that is closed or not.

    Attributes:
        path: of the TsFile.
        data_dir: the data directory that holds both.
        rel: where the deletion file is beneath it; empty where there is only a shared one.
        form: see `common.tsfile.deletion_records.DELETION_FORMS`.
        identity: (size, mtime_ns, inode) of it, and of the shared one: the sums.
        inode: of the TsFile.
        shared: what follows its own records.
        author: of one that is forwarded, see `common.wire.DeletionsPart`.
        segments: of one that is forwarded, as it is noted here: up to which byte, the look before
            it, and whether readers are to leave out what is deleted.
    """

    path: FilePath
    data_dir: Path
    rel: str
    form: str
    identity: tuple[int, int, int]
    inode: int
    shared: SharedDeletions | None = None
    author: str = ""
    segments: tuple[tuple[int, int, bool], ...] = ()

    @property
    def size(self) -> int:
        """Bytes that concern its TsFile, with a record that may be being written."""
        return self.identity[0] - (0 if self.shared is None else self.shared.begin)


class Clash(msgspec.Struct, frozen=True):
    """One path with different content in several data directories; none of them is sent."""

    path: FilePath
    files: tuple[LocalFile, ...]

    @property
    def reason(self) -> str:
        """What the operator reads."""
        where = ", ".join(str(each.data_dir) for each in self.files)
        return f"{self.path}: other content in each of {where}; remove or rename all but one"


class Unmounted(msgspec.Struct, frozen=True):
    """A data directory that does not count now: nothing in it is sent, nothing of it is gone."""

    data_dir: Path
    reason: str


class Unreadable(msgspec.Struct, frozen=True):
    """A directory beneath a data directory that was not looked at; nothing in it is gone."""

    data_dir: Path
    rel: str
    reason: str

    def concerns(self, directory: str) -> bool:
        """Whether a directory is this one, or lies in it."""
        return not self.rel or f"{directory}/".startswith(f"{self.rel}/")


class Mounts(msgspec.Struct, frozen=True):
    """On which file systems the directories of a data directory lie.

    Attributes:
        opened: those that were listed, relative to it.
        others: those of them that lie on another mount than it does, with a name for that one.
    """

    opened: frozenset[str] = frozenset()
    others: Mapping[str, str] = msgspec.field(default_factory=dict)

    def of(self, directory: str) -> str:
        """The name of a directory's mount, empty for that of the data directory.

        One that is not there would be on that of the directory above it.
        """
        while directory and directory not in self.opened:
            directory = directory.rpartition("/")[0]
        return self.others.get(directory, "")


def _first_of(unreadable: Iterable[Unreadable], directory: str) -> str | None:
    for each in unreadable:
        if each.concerns(directory):
            return f"{each.data_dir}/{each.rel}: {each.reason}"
    return None


def _all(_sg: str) -> bool:
    return True


class Scan(msgspec.Struct, frozen=True):
    """All local TsFiles at one time.

    Attributes:
        files: those that may be sent.
        waiting: those that may not (yet), filtered ones included.
        clashes: paths with different content in several data directories.
        mounted: data directories that count.
        unmounted: those that do not.
        unreadable: directories that were not looked at.
        misplaced: directories of TsFiles that are not those in which missing ones were listed: a
            mount is away, or may be.
        moving: directories that changed while what lies in them was looked at.
        mounts: of each data directory.
        deletions: deletion files that are to travel.
        others: paths at which there is a TsFile that is not in `files`.
        loose_names: names of flat files whose path is not known, because they wait.
        changing: groups in motion (a running compaction, a directory that changed during the
            scan), with the reason.
        includes: whether a storage group is inside the filter.
        told_anew: files that may be on the list as they are, and are to be told once more.
        gone_before: files on no list, with their data directory, whose end is to be told all the
            same.
        last_copies: of the files, those that live on only in a snapshot.
        rests_in: seconds until the first of those that wait for their rest has rested, if nothing
            changes it; None where none does.
    """

    files: Mapping[FilePath, LocalFile]
    waiting: tuple[Waiting, ...] = ()
    clashes: tuple[Clash, ...] = ()
    mounted: tuple[Path, ...] = ()
    unmounted: tuple[Unmounted, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    misplaced: tuple[Unreadable, ...] = ()
    moving: tuple[Unreadable, ...] = ()
    mounts: Mapping[Path, Mounts] = msgspec.field(default_factory=dict)
    deletions: tuple[LocalDeletions, ...] = ()
    others: frozenset[FilePath] = frozenset()
    loose_names: frozenset[str] = frozenset()
    changing: Mapping[TimePartition, str] = msgspec.field(default_factory=dict)
    includes: Callable[[str], bool] = _all
    gone_before: Mapping[FilePath, Path] = msgspec.field(default_factory=dict)
    last_copies: frozenset[FilePath] = frozenset()
    rests_in: float | None = None
    told_anew: frozenset[FilePath] = frozenset()
    _wholes: dict[TimePartition, str | None] = msgspec.field(default_factory=dict)

    @property
    def not_looked_at(self) -> tuple[Unreadable, ...]:
        """Directories in which there may be anything, until somebody sees to them."""
        return self.unreadable + self.misplaced

    def is_gone(self, path: FilePath, data_dir: Path) -> bool:
        """Whether a file listed in `data_dir` is certainly not there any more, in any directory.

        Its partition was looked at whole, and does not have it. What was filtered out, or only
        became ineligible, is not gone.
        """
        return (
            self.is_missing(path)
            and data_dir in self.mounted
            and self.why_not_whole(path.group) is None
        )

    def is_missing(self, path: FilePath) -> bool:
        """Whether a listed file was not seen, and would be sent if it had been."""
        seen = path in self.files or path in self.others or path.name in self.loose_names
        return not seen and self.includes(path.sg)

    def why_not_whole(self, group: TimePartition) -> str | None:
        """Why a partition was not looked at whole, so that nothing of it is gone; None if it was.

        Whole is: both kinds, in every data directory, every directory on the way opened without
        following a link and read to its end, and nothing changed meanwhile.
        """
        if group not in self._wholes:
            self._wholes[group] = self._why_not_whole(group)
        return self._wholes[group]

    def _why_not_whole(self, group: TimePartition) -> str | None:
        for kind in Kind:
            why = self.why_not_looked_at("/".join((kind, *map(str, group))))
            if why is not None:
                return why
        return self.changing.get(group)

    def why_not_looked_at(self, directory: str) -> str | None:
        """The same of one directory of TsFiles, of all data directories together."""
        return self.why_not_listed(directory) or _first_of(self.moving, directory)

    def why_not_listed(self, directory: str) -> str | None:
        """Why a directory of TsFiles was not listed, in some data directory; None if it was."""
        if self.unmounted:
            away = self.unmounted[0]
            return f"data directory {away.data_dir} {away.reason}: the file may be there"
        return _first_of(self.unreadable, directory)

    def with_last_copies(self, copies: Iterable[LocalFile]) -> Scan:
        """This scan and the files that live on only in a snapshot: they are still to be sent."""
        extra = [
            each for each in copies if each.path not in self.files and each.path not in self.others
        ]
        if not extra:
            return self
        paths = frozenset(each.path for each in extra)
        return replace(self, files=with_changes(self.files, extra), last_copies=paths, _wholes={})

    def without_deletion_files(self, listed: Container[FilePath]) -> Scan:
        """This scan for a receiver that takes no deletion files: files that have one wait."""
        reason = "has a deletion file, and its receiver takes none yet"
        wait = (each.path for each in self.deletions if each.path not in listed)
        return self.waiting_for(dict.fromkeys(wait, reason))

    def waiting_for(self, reasons: Mapping[FilePath, str]) -> Scan:
        """This scan, where some files wait for something, and why."""
        wait = {path: file for path in reasons if (file := self.files.get(path)) is not None}
        if not wait:
            return self
        waiting = [
            Waiting(
                file.rel,
                file.data_dir,
                Why.CHANGING,
                reasons[path],
                file.size,
                path.group,
                inode=file.inode,
            )
            for path, file in wait.items()
        ]
        return replace(
            self,
            files=with_changes(self.files, removed=wait),
            waiting=(*self.waiting, *waiting),
            others=self.others | wait.keys(),
            _wholes={},
        )

    def blocked(self, *, products_only: bool = False) -> dict[TimePartition, str]:
        """Groups in which something is not ready to be sent, with the first reason.

        A file that the database still writes is none of it, unless a compaction makes it: nothing
        that is gone can be in it.

        Args:
            products_only: only what compactions made counts.
        """
        reasons = dict(self.changing)
        for clash in self.clashes:
            if clash.path.is_product or not products_only:
                reasons.setdefault(clash.path.group, clash.reason)
        for each in self.waiting:
            if each.group is None or each.why is Why.FILTERED:
                continue
            if each.is_product or not (products_only or each.why is Why.OPEN):
                reasons.setdefault(each.group, f"{each.text}: {each.reason}")
        return reasons
