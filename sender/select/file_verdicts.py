"""Whether a TsFile is closed, and may be sent: by what lies beside it, its resource or its tail.

A file that is listed as it is was judged before. The tail of any other is read once for each
content, as long as nobody can have written to it behind that look.
"""

from __future__ import annotations

import os
import stat as modes
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from common.beneath import open_regular
from common.errors import UnsafePathError
from common.names import FilePath, Kind
from common.tsfile import Status, read_status
from sender.select.eligibility import Beside
from sender.select.facts import read_span
from sender.select.found import Span, Why

if TYPE_CHECKING:
    from collections.abc import Callable

    from sender.select.entry import Entry
    from sender.select.found import TimePartition
    from sender.select.stat_cache import KnownFile, StatCache

__all__ = ["FileVerdicts", "WalkRules", "WalkedDirectory"]

_RACY_SECONDS = 2.0
"""A verdict on a file that changed less than this ago is not kept: clocks of files are coarse."""


class WalkRules(msgspec.Struct, frozen=True):
    """What the configuration says of files.

    Attributes:
        flat_group: storage group of a flat layout, None for the layout of a database.
        by_tail: whether a complete tail and rest count as closed, without a resource.
        quiet_seconds: that rest.
        interval: width of a time partition, in the unit of the data's timestamps.
        includes: whether a storage group is sent.
        clock: seconds since the epoch.
        deletions_travel: whether a file with a deletion file is sent, and that with it.
    """

    flat_group: str | None
    by_tail: bool
    quiet_seconds: float
    interval: int
    includes: Callable[[str], bool]
    clock: Callable[[], float]
    deletions_travel: bool = False


class WalkedDirectory(msgspec.Struct, frozen=True):
    """A directory that holds TsFiles; `group` is None in a flat layout."""

    rel: str
    fd: int
    kind: Kind
    sg: str
    vsg: str
    partition: int | None

    @property
    def group(self) -> TimePartition | None:
        """The time partition, of a directory that is one."""
        return None if self.partition is None else (self.sg, self.vsg, self.partition)

    def at(self, name: str) -> str:
        """The path of a file in it."""
        return f"{self.rel}/{name}" if self.rel else name


class FileVerdicts:
    """Judges the files of one data directory.

    Attributes:
        rests_in: seconds until the first of those that wait for their rest will have rested; None
            where none does.
    """

    def __init__(self, data_dir: Path, rules: WalkRules, cache: StatCache, now: float) -> None:
        """Prepare.

        Args:
            data_dir: whose files they are.
            rules: of the configuration.
            cache: what was read before.
            now: seconds since the epoch.
        """
        self._data_dir = data_dir
        self._rules = rules
        self._cache = cache
        self._now = now
        self.rests_in: float | None = None

    def verdict(
        self,
        place: WalkedDirectory,
        beside: Beside,
        name: str,
        stat: os.stat_result,
        identity: tuple[int, int, int],
        path: FilePath | None,
        loaded: Entry | None,
    ) -> FilePath | tuple[Why, str]:
        """The path under which the file may be sent, or why it may not."""
        if not modes.S_ISREG(stat.st_mode):
            kind = "a symlink" if modes.S_ISLNK(stat.st_mode) else "no regular file"
            return Why.UNREADABLE, f"{kind}: not followed"
        if change := beside.change(name):
            return Why.CHANGING, f"{change} says that it is being changed"
        if not self._rules.by_tail and not beside.has_resource(name):
            return Why.OPEN, "has no .resource: its writer has not closed it"
        if loaded is not None and (path is not None or loaded.span is not None):
            return path if path is not None else self._flat_path(place, name, loaded.span)
        known_file = self._cache.at(self._data_dir, place.rel, name, identity, self._now)
        self._judge(place, name, known_file)
        if known_file.problem is not None:
            return (Why.OPEN if known_file.open else Why.UNREADABLE), known_file.problem
        if self._rules.by_tail and not self._rested(stat, known_file):
            return Why.OPEN, f"changed less than {self._rules.quiet_seconds:g} s ago"
        return path if path is not None else self._flat_path(place, name, known_file.span)

    def _judge(self, place: WalkedDirectory, name: str, known_file: KnownFile) -> None:
        """Read the tail, if that was not done for this content already."""
        flat = place.partition is None
        if known_file.judged and (known_file.timed or not flat or known_file.problem is not None):
            return
        try:
            fd = open_regular(place.fd, name)
        except (OSError, UnsafePathError) as error:
            known_file.problem, known_file.open = f"cannot be read: {error}", True
            return
        try:
            status = read_status(fd)
            known_file.problem = None if status.complete else f"{status.status}: {status.reason}"
            known_file.open = status.status in (Status.UNSEALED, Status.EMPTY)
            if status.complete and flat:
                known_file.span, known_file.problem = read_span(fd)
                known_file.timed = True
        except OSError as error:
            known_file.problem, known_file.open = f"cannot be read: {error.strerror}", True
            return
        finally:
            os.close(fd)
        known_file.judged = self._now - known_file.identity[1] / 1e9 > _RACY_SECONDS

    def _rested(self, stat: os.stat_result, known_file: KnownFile) -> bool:
        """By the file's own clock, or, where that is ahead of ours, by how long we have seen it."""
        rest = self._now - min(stat.st_mtime, known_file.since)
        missing = self._rules.quiet_seconds - rest
        if missing <= 0:
            return True
        earliest = self.rests_in
        self.rests_in = missing if earliest is None else min(earliest, missing)
        return False

    def _flat_path(self, place: WalkedDirectory, name: str, span: Span | None) -> FilePath:
        partition = 0 if span is None else span.first // self._rules.interval
        return FilePath(place.kind, place.sg, place.vsg, partition, name)
