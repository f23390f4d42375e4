"""What was freed here: of each file a line, until the receiver needs it no more.

    <schema dir>/sync/<host>_<port>/freed-<number>.state     zlib of one JSON array of `FreedFile`

A file that this node has freed is at the receiver only. Were that restored from an old copy, or
exchanged, nobody else could say what it should have: so the line is on the disk before the file
goes, and stays until the receiver calls the file superseded, or its operator has given it up.

There may be millions of them. Each batch of files is a part of its own, written at once; small
parts are put together, and a line that is in two of them, after a death in between, is one line.
"""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from common import crash
from common.decoders import from_json
from common.text_numbers import whole_number
from sender.kept.identity import patient_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from common.durable import Tree

__all__ = ["FreedFile", "FreedList", "changing_freed"]

_PREFIX, _SUFFIX = "freed-", ".state"
_SMALL: Final = 1 << 20
"""Bytes of a part that is still put together with others."""
_MOST_SMALL: Final = 16


class FreedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that was freed.

    Attributes:
        path: its path here.
        md5: of its content.
        size: bytes.
        first_time: of its data; None where it is not known, or of a file without points.
        last_time: the same.
        freed: seconds since the epoch.
        commit: of the receiver, when it said that it has the file.
    """

    path: str
    md5: str
    size: int
    first_time: int | None
    last_time: int | None
    freed: int
    commit: int

    @property
    def key(self) -> tuple[str, str]:
        """What a receiver is told, and tells, of it by."""
        return self.path, self.md5


@contextmanager
def changing_freed(sync: Tree, directory: str) -> Iterator[FreedList]:
    """A receiver's list of freed files, for one process at a time.

    Raises:
        LockedError: another process keeps it for longer than a change takes.
    """
    sync.make_dirs(directory)
    with patient_lock(sync, f"{directory}/freed.lock"):
        yield FreedList(sync, directory)


class FreedList:
    """The freed files of one receiver.

    Attributes:
        problems: parts that could not be read, and why; their files are not known.
    """

    def __init__(self, sync: Tree, directory: str) -> None:
        self._tree = sync
        self._directory = directory
        self.problems: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is none; nothing is read for that."""
        return not self._parts()

    def __iter__(self) -> Iterator[FreedFile]:
        """All of them, each once and as it was freed last; what cannot be read is left out."""
        return iter(_each_once(each for name in self._parts() for each in self._read(name)))

    def lines(self) -> Iterator[FreedFile]:
        """All lines, a part in memory at a time; one that is in two parts comes twice."""
        for name in self._parts():
            yield from self._read(name)

    def add(self, files: Iterable[FreedFile]) -> None:
        """Put files on the list: on the disk before this returns."""
        new = list(files)
        if not new:
            return
        self._write(self._next(self._parts()), new)
        crash.point("freed.added")
        self._join()

    def drop(self, is_settled: Callable[[FreedFile], bool]) -> int:
        """Take off the list what nobody needs to know any more; how many lines that were."""
        count = 0
        for name in self._parts():
            files = self._read(name)
            left = [each for each in files if not is_settled(each)]
            if len(left) < len(files):
                self._replace(name, left)
                count += len(files) - len(left)
                crash.point("freed.dropped")
        return count

    def renew(self, commit: int) -> None:
        """From now on the list is of another engine, or of another past of it.

        Args:
            commit: that has been reached there; what happens later concerns all of the list.
        """
        for name in self._parts():
            if files := self._read(name):
                renewed = [msgspec.structs.replace(each, commit=commit) for each in files]
                self._replace(name, renewed)
                crash.point("freed.renewed")

    # -- parts -----------------------------------------------------------------------------

    def _parts(self) -> list[str]:
        """Names, the oldest first."""
        names = (name for name, _ in self._tree.listing(self._directory))
        found = {_number(name): name for name in names if _number(name)}
        return [found[number] for number in sorted(found)]

    @staticmethod
    def _next(parts: list[str]) -> str:
        return f"{_PREFIX}{(_number(parts[-1]) if parts else 0) + 1:08}{_SUFFIX}"

    def _read(self, name: str) -> list[FreedFile]:
        rel = f"{self._directory}/{name}"
        try:
            content = self._tree.read(rel)
            return from_json(zlib.decompress(content), list[FreedFile])
        except FileNotFoundError:
            return []
        except (msgspec.MsgspecError, UnicodeDecodeError, zlib.error) as error:
            self.problems = (*self.problems, f"{self._tree.path / rel} is damaged: {error}")
            return []

    def _write(self, name: str, files: list[FreedFile]) -> None:
        content = zlib.compress(msgspec.json.encode(files))
        self._tree.write_atomic(f"{self._directory}/{name}", content)

    def _replace(self, name: str, files: list[FreedFile]) -> None:
        if files:
            self._write(name, files)
        else:
            self._tree.unlink(f"{self._directory}/{name}")

    def _join(self) -> None:
        """Put small parts together once there are many; what cannot be read is left alone."""
        small = [
            name
            for name, found in self._tree.listing(self._directory)
            if _number(name) and found.st_size < _SMALL
        ]
        if len(small) < _MOST_SMALL:
            return
        contents = {name: files for name in small if (files := self._read(name))}
        joined = _each_once(each for files in contents.values() for each in files)
        self._write(self._next(self._parts()), joined)
        crash.point("freed.joined")
        for name in contents:  # not flushed: one that comes back says nothing new
            self._tree.unlink(f"{self._directory}/{name}", sync=False)


def _each_once(files: Iterable[FreedFile]) -> list[FreedFile]:
    found: dict[tuple[str, str], FreedFile] = {}
    for each in files:
        known = found.get(each.key)
        if known is None or known.commit <= each.commit:
            found[each.key] = each
    return list(found.values())


def _number(name: str) -> int:
    """The number of a part; 0 for other files."""
    text = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    number = whole_number(text) if name == f"{_PREFIX}{text}{_SUFFIX}" else None
    return number or 0
