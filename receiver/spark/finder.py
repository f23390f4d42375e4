"""The one finder of TsFiles: from what a user wrote (files, directories, globs) to files.

The verification and the data source both go by it, so that what is proved is what is read. The
rule, which docs/spark.md has for users: what is named is taken, whatever it is called; what is only
met on the way, below a directory or by a wildcard, is left out if it is hidden or tsferry's own.
Such files are on their way, or are second names of others that were met already.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from common.errors import NameRefusedError, UsageError
from common.names import SUFFIX, FilePath, Kind
from receiver.metadata.model.ranks import NOW, Rank, TransferCut, name_rank

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from receiver.metadata.state.ranges import Devices
    from receiver.spark.noted_deletions import FileDeletions
    from receiver.storage.reading.stored_place import StoredPlace

__all__ = ["DataFile", "database_of", "kind_of", "list_files", "shown"]

_KINDS: Final = frozenset(Kind)
_HIDDEN: Final = (".", "_")
_BRACES: Final = re.compile(r"\{([^{},]*(?:,[^{},]*)+)\}")
"""Braces with a comma in them and no further ones, as Hadoop and shells have them."""
_OWN: Final = frozenset({"sync-receiver", "sync-sender"})
"""Directories of tsferry within a data directory: files on their way, and links to files."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A TsFile, of a catalogue or of none.

    Attributes:
        locations: where it may be, absolute; the first that exists counts.
        name: as messages and the file column call it.
        size: bytes; another size means that it was replaced.
        database: that its tables are in, where its directory tells.
        created: the commit that loaded it; 0 for a file that no catalogue has. Of one that was
            merged for good, the last of what it is made of: it is no news.
        devices: with their ranges of time, where a catalogue has them. Not for workers.
        first: time of its first point, where a catalogue has it.
        last: of its last.
        is_known: whether `first` and `last` are from a catalogue; None means no points then.
        rank: where it stands among files that overlap it.
        cuts: where it stands otherwise, in devices that were transferred.
        deletions: what a catalogue knows to be deleted of it; None for what stands beside it.
        stored: the object store of a receiver has it; it need not be at any of its locations.
        place: where else than on a disk it can be read, if that is known.
    """

    locations: tuple[str, ...]
    name: str
    size: int
    database: str | None = None
    created: int = 0
    devices: Devices | None = None
    first: int | None = None
    last: int | None = None
    is_known: bool = False
    rank: Rank | None = None
    cuts: tuple[TransferCut, ...] = ()
    deletions: FileDeletions | None = None
    stored: bool = False
    place: StoredPlace | None = None

    def for_worker(self) -> DataFile:
        """What of it travels."""
        return DataFile(
            self.locations, self.name, self.size, self.database, self.created,
            rank=self.rank, cuts=self.cuts, deletions=self.deletions, stored=self.stored,
            place=self.place,
        )  # fmt: skip

    @property
    def is_in_known_store(self) -> bool:
        """Whether it is read by ranges from a store, where it is on no disk."""
        return self.place is not None and self.place.store is not None and self.place.key != ""

    def local(self) -> str | None:
        """Where it is on this machine; None if it is at none of its locations."""
        return next((each for each in self.locations if os.path.exists(each)), None)

    def why_absent(self) -> str:
        """What it means that it is at none of its locations, and at no place of a store."""
        if self.stored:
            return (
                f"{self.name}: it is in the object store only, or at storage nodes, and which "
                "store or receiver that is was not said: expected option store or receiver "
                "(--receiver of commands), or the receiver's configuration file as the catalog"
            )
        return f"{self.name}: not there any more: {', '.join(self.locations)}"

    @property
    def standing(self) -> Rank:
        """Its rank; of one that has none, what its place and name say."""
        return self.rank or _rank_by_name(self.name)


def list_files(
    paths: Sequence[str],
    kind: str = "all",
    *,
    option: str = "option path =",
    required: bool = False,
    name_glob: str | None = None,
) -> list[DataFile]:
    """The TsFiles that paths lead to, each once, in order of their names.

    A directory means all files below it whose names end with ``.tsfile``, links followed, but for
    hidden ones and tsferry's own directories. A glob may lead to files and directories; its
    wildcards pass over what is left out below a directory, unless they say so (``.*``, ``_*``,
    ``sync-*``), and where it ends in ``*`` it means files whose names end with ``.tsfile``. A path
    that is written out is taken, whatever it is called. A link to a file is that file; one that
    leads nowhere is listed, so that whoever reads says so.

    Args:
        paths: what a user wrote.
        kind: `sequence` or `unsequence` for files in such a directory alone, or `all`.
        option: how messages call what stands before a path.
        required: there must be a file at each path, in a directory too.
        name_glob: only files with such a name, braces allowed; None for all.

    Raises:
        UsageError: a path leads to nothing or to another file system, or cannot be read.
    """
    found: dict[str, tuple[bool, str, int]] = {}
    real = lru_cache(1024)(os.path.realpath)
    for text in paths:
        try:
            files = list(_meant(text))
            if required and not files:
                raise _WrongPathError(_NONE)
            for path, size in files:
                folder, name = os.path.split(path)
                is_link = os.path.islink(path)
                it = os.path.realpath(path) if is_link else f"{real(folder)}/{name}"
                entry = (is_link, path, size)  # a link says less of where the file is
                found[it] = min(found.get(it, entry), entry)
        except OSError as error:
            where = "" if error.filename == _local(text) else f"{error.filename}: "
            raise UsageError(f"{option} {text!r}: {where}{error.strerror or error}") from error
        except _WrongPathError as error:
            raise UsageError(f"{option} {text!r}: {error}") from None
    names = None if name_glob is None else list(_alternatives(name_glob))
    listed = [
        DataFile((path,), shown(path), size, database_of(path))
        for path, size in sorted((path, size) for _, path, size in found.values())
        if kind in ("all", kind_of(path))
        and (names is None or any(fnmatchcase(os.path.basename(path), each) for each in names))
    ]
    if required and names is not None and not listed:
        raise UsageError(f"option pathGlobFilter = {name_glob!r}: no file has such a name")
    return listed


def _rank_by_name(path: str) -> Rank:
    """The rank of a file of a directory: as if one look had found all of its files together."""
    kind = kind_of(path) or Kind.SEQUENCE
    try:
        name = name_rank(FilePath.parse(f"{kind}/root/0/0/{os.path.basename(path)}"))
    except NameRefusedError:
        name = None
    return Rank(name, 1, 1, NOW, 0, path)


def shown(path: str) -> str:
    """A path as text that every format can hold: what is no UTF-8 in it is written out."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


def kind_of(path: str) -> str | None:
    """``sequence`` or ``unsequence``, by the directories that a file is in; None for neither."""
    return next((each for each in reversed(path.split("/")[:-1]) if each in _KINDS), None)


def database_of(path: str) -> str | None:
    """The directory below ``sequence`` or ``unsequence``, which is a database's name."""
    parts = path.split("/")[:-1]
    at = max((n for n, each in enumerate(parts) if each in _KINDS), default=None)
    return parts[at + 1] if at is not None and at + 1 < len(parts) else None


class _WrongPathError(ValueError):
    """A path is not what was expected; the text says what was."""


_NONE: Final = "expected TsFiles there, there are none"


def _meant(text: str) -> Iterator[tuple[str, int]]:
    """Files with their sizes, some of them perhaps more than once."""
    path = _local(text)
    if os.path.lexists(path) or not (glob.has_magic(path) or _BRACES.search(path)):
        yield from _below(path) if os.path.isdir(path) else [_named(path)]
        return
    found = False
    for pattern in dict.fromkeys(_alternatives(path)):
        for each in glob.glob(pattern, recursive=True):
            if not _is_meant(each, pattern):
                continue
            found = True
            if os.path.isdir(each):
                yield from _below(each)
            elif each.endswith(SUFFIX) or not pattern.endswith("*"):
                yield from _met(each)
    if not found:
        raise _WrongPathError(_NONE)


def _alternatives(path: str) -> Iterator[str]:
    """What a glob with braces stands for: `{a,b}/x` for `a/x` and `b/x`; they may be nested."""
    inner = _BRACES.search(path)
    if inner is None:
        yield path
        return
    for each in inner[1].split(","):
        yield from _alternatives(f"{path[: inner.start()]}{each}{path[inner.end() :]}")


def _local(text: str) -> str:
    if not text:  # a variable that is not set; as a path it would be this directory
        raise _WrongPathError("expected a directory, a file or a glob")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise _WrongPathError(str(error)) from None
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return os.path.abspath(unquote(parts.path))
    if "://" in text:
        raise _WrongPathError(
            "expected a path on this machine (or mounted on it, and on every worker)"
        )
    return os.path.abspath(os.path.expanduser(text))


def _named(path: str) -> tuple[str, int]:
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise _WrongPathError("expected a file, it is something else")
    return path, found.st_size


def _is_left_out(name: str) -> bool:
    return name.startswith(_HIDDEN) or name in _OWN


def _is_meant(path: str, pattern: str) -> bool:
    """Whether a glob means what it matches; as in a shell, `*` alone means no hidden name."""
    written = pattern.split("/")

    def is_said(name: str) -> bool:
        begin = "sync-" if name in _OWN else name[0]
        return any(each.startswith(begin) and fnmatchcase(name, each) for each in written)

    return all(is_said(name) for name in path.split("/") if _is_left_out(name))


def _met(path: str) -> Iterator[tuple[str, int]]:
    """A file that nobody named: something else is none, and it may vanish any time."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return  # a compaction has removed it since it was listed
    if stat.S_ISLNK(found.st_mode):
        try:
            found = os.stat(path)
        except FileNotFoundError:
            yield path, 0  # of a disk that is away, perhaps: not to be passed over in silence
            return
    if stat.S_ISREG(found.st_mode):
        yield path, found.st_size


def _below(directory: str) -> Iterator[tuple[str, int]]:
    def unreadable(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # removed since it was listed
            raise error

    seen: set[str] = set()
    for folder, folders, names in os.walk(directory, onerror=unreadable, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:  # a link may lead to one that was gone into already
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(each for each in folders if not _is_left_out(each))
        for name in names:
            if name.endswith(SUFFIX) and not name.startswith(_HIDDEN):
                yield from _met(os.path.join(folder, name))
