"""What was read from files, remembered for as long as they do not change.

Reading a tail is cheap, reading it of every file in every scan is not. A record counts while size,
mtime and inode are the same. Files that are loaded need none: the ledger has their facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from common.names import FilePath

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from common.tsfile.resource import Resource
    from sender.select.found import LocalFile, Span

__all__ = ["KnownFile", "StatCache"]


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


class StatCache:
    """The records of all files, by directory and name."""

    def __init__(self) -> None:
        self._directories: dict[tuple[Path, str], dict[str, KnownFile]] = {}
        self._round = 0

    def __len__(self) -> int:
        return sum(map(len, self._directories.values()))

    def begin(self) -> None:
        """A new scan begins."""
        self._round += 1

    def end(self) -> None:
        """The scan is over: what it did not meet is forgotten."""
        current = self._round
        for at, files in list(self._directories.items()):
            left = {name: each for name, each in files.items() if each.round == current}
            if not left:
                del self._directories[at]
            elif len(left) < len(files):
                self._directories[at] = left

    def at(
        self,
        data_dir: Path,
        directory: str,
        name: str,
        identity: tuple[int, int, int],
        now: float,
    ) -> KnownFile:
        """The record of a file, an empty one if it is new or has changed."""
        files = self._directories.setdefault((data_dir, directory), {})
        known_file = files.get(name)
        if known_file is None or known_file.identity != identity:
            known_file = files[name] = KnownFile(identity, now)
        known_file.round = self._round
        return known_file

    def of(self, file: LocalFile) -> KnownFile:
        """The record of a scanned file."""
        directory, _, name = file.rel.rpartition("/")
        return self.at(file.data_dir, directory, name, file.identity, 0.0)

    def paths(self) -> list[FilePath]:
        """The paths of all files that there are records of; not in a flat layout."""
        names = ((at[1], name) for at, files in self._directories.items() for name in files)
        return [FilePath.parse(f"{directory}/{name}") for directory, name in names]

    def forget(self, files: Iterable[LocalFile]) -> None:
        """Drop the records of files that a list of loaded files knows by now."""
        for file in files:
            directory, _, name = file.rel.rpartition("/")
            at = (file.data_dir, directory)
            known = self._directories.get(at)
            if known is not None and known.pop(name, None) is not None and not known:
                del self._directories[at]
