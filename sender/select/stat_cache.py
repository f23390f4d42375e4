"""What was read from files, remembered for as long as they do not change.

Reading a tail is cheap, reading it of every file in every scan is not. A record counts while size,
mtime and inode are the same. Files that are loaded need none: the ledger has their facts.

A first look has a record of each file. Those of directories that nobody asked about lately are
bytes: of nearly all files nothing is known but that they are sound, and perhaps their times.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from common.errors import NameRefusedError
from common.names import FilePath
from sender.select.found import Span

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from common.tsfile.resource import Resource
    from sender.select.found import LocalFile

__all__ = ["KnownFile", "StatCache"]


_OBJECTS = 4
"""Directories whose records are objects: one is scanned, a few are compared."""
_SOUND = struct.Struct("<qqQd")
_TIMED = struct.Struct("<qqQd?qq")
"""Identity, `since`, and of files whose times were read whether they have any, first and last."""


class KnownFile(msgspec.Struct, gc=False):
    """What is known of one file as it is.

    Attributes:
        identity: (size, mtime_ns, inode) that it was read with.
        since: when it was first seen so, by the scanner's clock.
        problem: why it is no complete TsFile; None if it is, or was not judged yet.
        judged: whether `problem` means anything.
        open: whether the problem may end by itself: its writer may not have closed it.
        span: its data times.
        timed: whether `span` means anything.
        md5: in hex, empty if it was not computed.
        resource: what it says, if it is one that was asked.
        round: number of the last scan that met it.
    """

    identity: tuple[int, int, int]
    since: float
    problem: str | None = None
    judged: bool = False
    open: bool = False
    span: Span | None = None
    timed: bool = False
    md5: str = ""
    resource: Resource | None = None
    round: int = 0


_Place = tuple["Path", str]


class StatCache:
    """The records of all files, by directory and name; of one thread."""

    def __init__(self) -> None:
        self._objects: dict[_Place, dict[str, KnownFile]] = {}
        """What was asked about last at the end."""
        self._bytes: dict[_Place, _Packed] = {}
        self._round = 0

    def __len__(self) -> int:
        return sum(map(len, self._objects.values())) + sum(map(len, self._bytes.values()))

    def begin(self) -> None:
        """A new scan begins."""
        self._round += 1

    def end(self) -> None:
        """The scan is over: what it did not meet is forgotten."""
        current = self._round
        for at in [*self._objects, *self._bytes]:
            packed = self._bytes.get(at)
            if packed is not None and packed.is_of(current):
                continue
            files = self._files(at)
            left = {name: each for name, each in files.items() if each.round == current}
            if left:
                self._objects[at] = left
            else:
                del self._objects[at]

    def at(
        self,
        data_dir: Path,
        directory: str,
        name: str,
        identity: tuple[int, int, int],
        now: float,
    ) -> KnownFile:
        """The record of a file, an empty one if it is new or has changed.

        It may be changed until another directory is asked about.
        """
        files = self._files((data_dir, directory))
        known_file = files.get(name)
        if known_file is None or known_file.identity != identity:
            known_file = files[name] = KnownFile(identity, now)
        known_file.round = self._round
        return known_file

    def _files(self, at: _Place) -> dict[str, KnownFile]:
        """The records of a directory, as objects."""
        files = self._objects.pop(at, None)
        if files is None:
            packed = self._bytes.pop(at, None)
            files = {} if packed is None else packed.records()
        self._objects[at] = files
        while len(self._objects) > _OBJECTS:
            oldest = next(iter(self._objects))
            self._bytes[oldest] = _Packed(self._objects.pop(oldest))
        return files

    def of(self, file: LocalFile) -> KnownFile:
        """The record of a scanned file."""
        directory, _, name = file.rel.rpartition("/")
        return self.at(file.data_dir, directory, name, file.identity, 0.0)

    def paths(self) -> list[FilePath]:
        """The paths of the files that there are records of, where they lie at their paths."""
        found = []
        for at in [*self._objects, *self._bytes]:
            objects = self._objects.get(at)
            for name in self._bytes[at].names() if objects is None else objects:
                # In a flat layout, and in a snapshot, where a file lies does not tell its path.
                with suppress(NameRefusedError):
                    found.append(FilePath.parse(f"{at[1]}/{name}"))
        return found

    def forget(self, files: Iterable[LocalFile]) -> None:
        """Drop the records of files that a list of loaded files knows by now."""
        for file in files:
            directory, _, name = file.rel.rpartition("/")
            at = (file.data_dir, directory)
            if at not in self._objects and at not in self._bytes:
                continue
            known = self._files(at)
            if known.pop(name, None) is not None and not known:
                del self._objects[at]


class _Packed:
    """The records of a directory: bytes, but for those that say more than most."""

    __slots__ = ("_bytes", "_names", "_others", "_round", "_timed")

    def __init__(self, files: dict[str, KnownFile]) -> None:
        self._round = max((each.round for each in files.values()), default=0)
        plain = {name: each for name, each in files.items() if self._is_plain(name, each)}
        self._timed = any(each.timed for each in plain.values())
        if self._timed:
            plain = {name: each for name, each in plain.items() if each.timed}
        self._others = {name: each for name, each in files.items() if name not in plain}
        self._names = os.fsencode("\n".join(plain))
        self._bytes = b"".join(map(self._pack, plain.values()))

    def _is_plain(self, name: str, each: KnownFile) -> bool:
        says_more = each.problem is not None or each.open or each.md5 or each.resource is not None
        usual = each.judged and each.round == self._round and "\n" not in name
        fits = each.identity[0] < 1 << 63 and -(1 << 63) <= each.identity[1] < 1 << 63
        return usual and fits and not says_more

    def _pack(self, each: KnownFile) -> bytes:
        if not self._timed:
            return _SOUND.pack(*each.identity, each.since)
        has_span = each.span is not None
        return _TIMED.pack(*each.identity, each.since, has_span, *(each.span or (0, 0)))

    def __len__(self) -> int:
        return len(self._bytes) // (_TIMED if self._timed else _SOUND).size + len(self._others)

    def is_of(self, scan: int) -> bool:
        """Whether a scan met all of them."""
        return self._round == scan and all(each.round == scan for each in self._others.values())

    def names(self) -> list[str]:
        """Of the files."""
        return [*self._plain_names(), *self._others]

    def _plain_names(self) -> list[str]:
        return os.fsdecode(self._names).split("\n") if self._bytes else []

    def records(self) -> dict[str, KnownFile]:
        """All, as objects."""
        found = {}
        form = _TIMED if self._timed else _SOUND
        for name, values in zip(self._plain_names(), form.iter_unpack(self._bytes), strict=True):
            size, mtime_ns, inode, since, *times = values
            found[name] = KnownFile(
                (size, mtime_ns, inode),
                since,
                judged=True,
                timed=self._timed,
                span=Span(*times[1:]) if times and times[0] else None,
                round=self._round,
            )
        return {**found, **self._others}
