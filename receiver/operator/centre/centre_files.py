"""TsFiles of this machine that are to be loaded without an edge: found, named, read.

A path that ends in `<kind>/<storage group>/<region>/<partition>/<name>.tsfile` says where its file
belongs, however deep it lies; a file that lies otherwise belongs to a storage group that is given.
The partition is always that of its times here, as another instance may have cut time otherwise:
files that overlap have it in common. What stands beside a TsFile goes with it.

Each gets a name of this centre, numbered in the order of its database: so files of one load rank
among themselves as they did there, and never by chance against those of another instance.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from common.digests import md5_of_fd
from common.errors import DigestError, NameRefusedError, NotATsFileError, NotFoundError, UsageError
from common.names import RESOURCE, SUFFIX, FilePath, Kind
from common.tsfile import Corrupt
from common.wire import DeletionsForm
from receiver.load.deciding.known_files.candidates import Candidate
from receiver.load.folder.content_checks import check_content, record_of
from receiver.load.tail_facts import facts_of
from receiver.metadata.model import records
from receiver.metadata.model.paths import IllegalPathError
from receiver.metadata.model.ranks import name_rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from common.tsfile import Tail

__all__ = [
    "CentreFile",
    "content_of",
    "find_files",
    "looked_at",
    "name_prefix",
    "opened",
    "size_of",
]

_LONGEST = 160
"""Characters of a name that go into the new one."""
_DELETIONS = {f".{form}": form for form in DeletionsForm}


@dataclass(frozen=True)
class CentreFile:
    """A TsFile where it lies.

    Attributes:
        source: its path on this machine.
        path: where it belongs, under the name and in the partition that it has there.
        staged: its name in the tree of the centre's folder, of one that came for this load alone:
            it is moved, and not copied. Empty for all others.
        md5: that it has to have; empty: any.
    """

    source: Path
    path: FilePath
    staged: str = ""
    md5: str = ""

    @property
    def resource(self) -> Path | None:
        """Its `.resource`, if it has one."""
        beside = self.source.with_name(self.source.name + RESOURCE)
        return beside if beside.is_file() else None

    @property
    def deletions(self) -> Iterator[tuple[DeletionsForm, Path]]:
        """Its deletion files."""
        for suffix, form in _DELETIONS.items():
            beside = self.source.with_name(self.source.name + suffix)
            if beside.is_file():
                yield form, beside


def find_files(paths: Iterable[str], storage_group: str | None) -> list[CentreFile]:
    """The TsFiles of directories and files, in the order of their databases.

    Args:
        paths: absolute, of this machine; links are not followed below them.
        storage_group: of files that do not lie as a database lays them.

    Raises:
        NotFoundError: there is no such path, or no TsFile in any of them.
        UsageError: a file lies in no directory of a storage group, and none is given; a partition
            has a deletion file that its TsFiles share.
    """
    found: dict[Path, CentreFile] = {}
    for text in paths:
        top = Path(text)
        if not top.is_absolute():
            raise UsageError(f"{text}: not an absolute path")
        if not top.exists():
            raise NotFoundError(f"{text}: there is no such file or directory")
        for each in _files(top):
            found[each] = _placed(each, storage_group)
    if not found:
        raise NotFoundError("there is no TsFile in what was named (*.tsfile)")
    return sorted(found.values(), key=_order)


def size_of(file: CentreFile) -> int:
    """Bytes of a file, for whoever watches; 0 where it cannot be told, as whoever reads it says."""
    try:
        return file.source.stat().st_size
    except OSError:
        return 0


def _order(file: CentreFile) -> tuple[object, ...]:
    path = file.path
    return path.kind, path.sg, path.vsg, path.partition, name_rank(path) or (), path.name


def _files(top: Path) -> Iterator[Path]:
    if top.is_file():
        yield top
        return
    for directory, below, names in os.walk(top):
        below.sort()
        for name in sorted(names):
            if name.startswith("."):
                continue
            path = Path(directory, name)
            if name.endswith(".mods2") and not name.endswith(f"{SUFFIX}.mods2"):
                raise UsageError(
                    f"{path}: a deletion file that TsFiles share is not taken in by a load: let "
                    "the database compact the partition, or send it by a tsferry-sender"
                )
            if name.endswith(SUFFIX) and stat.S_ISREG(path.lstat().st_mode):
                yield path


def _placed(source: Path, storage_group: str | None) -> CentreFile:
    try:
        return CentreFile(source, FilePath.parse("/".join(source.parts[-5:])))
    except NameRefusedError as error:
        if storage_group is None:
            raise UsageError(
                f"{source}: not in <sequence|unsequence>/<storage group>/<region>/<partition>/: "
                "say which storage group it belongs to (--sg, or into in SQL)"
            ) from error
    text = f"{Kind.SEQUENCE}/{storage_group}/0/0/{source.name}"
    return CentreFile(source, FilePath.parse(text))


def name_prefix(task: str) -> str:
    """How the names of files of a load begin."""
    return f"c{task[:12]}-"


def _named(file: CentreFile, task: str, number: int, partition: int) -> FilePath:
    """The name that a file is loaded under: one that no database gave.

    Args:
        file: it.
        task: id of the load.
        number: of the file in it.
        partition: that it belongs to.
    """
    path = file.path
    base = path.name.removesuffix(SUFFIX)[:_LONGEST].encode()[:_LONGEST].decode(errors="ignore")
    return FilePath(
        path.kind, path.sg, path.vsg, partition, f"{name_prefix(task)}{number:07d}-{base}{SUFFIX}"
    )


def looked_at(file: CentreFile, task: str, number: int, *, interval: int, at: float) -> Candidate:
    """A file as the load would have it, read where it lies: its MD5, its tail, its series.

    Args:
        file: it.
        task: id of the load.
        number: of the file in it.
        interval: width of a partition, in the unit of the timestamps.
        at: seconds since the epoch.

    Raises:
        NotATsFileError: it is none, is not closed, or is damaged.
        UsageError: it cannot be opened, or is of several partitions.
        DigestError: it is not what it has to be.
    """
    with opened(file.source) as fd:
        return _read(fd, file, task, number, interval, at)


def content_of(candidate: Candidate) -> tuple[str, str]:
    """What files have in common that are one; of tables the database, too: devices are its."""
    is_of_tables = any(each.name.startswith("/") for each in candidate.facts.devices)
    return candidate.staged.md5, candidate.path.sg if is_of_tables else ""


@contextmanager
def opened(source: Path) -> Iterator[int]:
    """A file of this machine, open for reading; a link is none.

    Raises:
        UsageError: it cannot be opened.
    """
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{source}: cannot be read by the receiver: {error.strerror}") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _read(fd: int, file: CentreFile, task: str, number: int, interval: int, at: float) -> Candidate:
    try:
        tail: Tail | None = check_content(fd, file.path, str(file.source))
        assert tail is not None
        first, last = ((each or 0) // interval for each in (tail.first_time, tail.last_time))
        if first != last:
            raise UsageError(
                f"{file.source}: its times are in the partitions {first} to {last} of this receiver"
                " (partition_interval), and a file is in one: have its database cut it"
            )
        path = _named(file, task, number, first)
        facts = facts_of(fd, tail, path.sg)
        staged = record_of(fd, path, md5_of_fd(fd), source=fd, at=at)
        if file.md5 not in ("", staged.md5):
            raise DigestError(f"{file.source}: MD5 {staged.md5}, and {file.md5} was sent")
    except (Corrupt, IllegalPathError) as error:
        raise NotATsFileError(f"{file.source}: {error}") from error
    manifest = records.ManifestMeta(facts.series, facts.points)
    return Candidate(path=path, staged=staged, resource=None, facts=facts, manifest=manifest)
