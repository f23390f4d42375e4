"""Freeing space: files that every receiver holds are removed here, the lowest rank first.

The database may compact, close, delete and be killed meanwhile, and so may we. So each file is
judged just before it goes: its partition is scanned, the receivers are asked what they hold of it,
and what is safe by that goes one by one (`removing`). Where anything else changes meanwhile, or the
receivers' word gets old, all is judged anew.

    <schema dir>/sync/free.lock      one process frees at a time
"""

from __future__ import annotations

import fnmatch
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from common.config.shared_rules import PER_MILLISECOND
from common.digests import md5_of_fd
from common.durable import Tree, free_bytes
from common.errors import StoppedError, UnsafePathError, UsageError
from common.names import RESOURCE, FilePath, Kind
from common.wire import InventoryEntry, Propagate
from sender.kept.freed import FreedFile
from sender.kept.receiver_file import Receiver
from sender.kept.seen_incarnations import refuse_replaced
from sender.plan.safe_to_delete import Holding, SafeFiles, safe_to_delete
from sender.round.freed_files.removing import FreeBatch, Removal
from sender.round.look import LookedAt, viewing
from sender.select.found import LocalFile, Scan, TimePartition, stat_identity
from sender.send.remote import Remote

__all__ = ["FreeOptions", "FreeReport", "Freeing", "ReceiverWord", "judged"]

_MOST: Final = 1000
"""Files that go by one judgement."""
_FRESH: Final = 30.0
"""Seconds for which the receivers' word is good."""
_PATIENCE: Final = 5
"""Judgements in a row by which nothing goes, as the partition changes all the time."""
_LOCK = "free.lock"


# -- judging -------------------------------------------------------------------------------------


class ReceiverWord(NamedTuple):
    """What a receiver says, at one moment.

    Attributes:
        commit: its newest.
        propagate: what is gone here means there, as it has it committed.
        there: path -> what it has, looked at on its disk.
    """

    commit: int
    propagate: Propagate | None
    there: dict[str, InventoryEntry]

    @classmethod
    def asked(
        cls, remote: Remote, known: Receiver, directories: Iterable[str] = ("",)
    ) -> ReceiverWord:
        """Ask what it has in some directories; everything without them.

        Raises:
            UsageError: it is not the engine that the list of loaded files is of.
            ConflictError: likewise, of one of several addresses.
            ReplacedCentreError: it is one that was replaced.
        """
        there: dict[str, InventoryEntry] = {}
        commit, propagate = 0, None
        if remote.addresses.are_several:
            remote.check(remote.check_request(known, 0))
        for directory in directories:
            for page in remote.client.inventory_looked_at(after=directory or None):
                if known.engine not in (None, page.engine):
                    raise UsageError(
                        f"{remote.name}: another engine answers than in the rounds before: do a "
                        "round first"
                    )
                refuse_replaced(known, remote.name, page.engine, page.incarnation)
                commit, propagate = max(commit, page.commit), page.propagate
                found = [each for each in page.entries if each.path.startswith(directory)]
                there.update((each.path, each) for each in found)
                if len(found) < len(page.entries):
                    break
        return cls(commit, propagate, there)


def judged(
    scan: Scan,
    views: Mapping[str, LookedAt],
    words: Mapping[str, ReceiverWord],
    *,
    verified: bool,
    chosen: Callable[[LocalFile], bool] = lambda file: True,
    resources: dict[LocalFile, str] | None = None,
) -> SafeFiles:
    """Which files may go, by what is kept of each receiver and what it says.

    Args:
        scan: of the files.
        views: of all receivers, by name.
        words: the same.
        verified: see `safe_to_delete`.
        chosen: the same.
        resources: MD5 of resources that were read before; what is read now is put in.
    """
    first = next(iter(views.values()))
    read = {} if resources is None else resources

    def resource_md5(file: LocalFile) -> str | None:
        if file not in read and (found := _resource_md5(first.kept.dirs.trees, file)) is not None:
            read[file] = found
        return read.get(file)

    return safe_to_delete(
        scan,
        {name: _holding(view, words[name]) for name, view in views.items()},
        span=first.source.facts().span,
        resource_md5=resource_md5,
        verified=verified,
        chosen=chosen,
    )


def _holding(view: LookedAt, word: ReceiverWord) -> Holding:
    deletions = view.kept.looks.now.deletions
    ours = Propagate(view.source.remote.config.propagate_deletes)
    return Holding(
        listed=view.kept.ledger.entries,
        there=word.there,
        mirrors=Propagate.ALL in (ours, word.propagate),
        seen=lambda file: deletions.get(file.path.text, {}).get(file.form),
    )


def _resource_md5(trees: Mapping[Path, Tree], file: LocalFile) -> str | None:
    """Of the resource beside a file; None where it cannot be read, or has changed."""
    assert file.resource is not None
    try:
        fd = trees[file.data_dir].open_read(file.rel + RESOURCE)
    except (OSError, UnsafePathError):
        return None
    try:
        digest = md5_of_fd(fd)
        return digest if stat_identity(os.fstat(fd)) == tuple(file.resource) else None
    except OSError:
        return None
    finally:
        os.close(fd)


# -- freeing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FreeOptions:
    """What is to go, of what is safe.

    Attributes:
        verified: only what every receiver has proved.
        older_than: only files that were last changed so many seconds ago, or earlier.
        keep: only files whose data is all older than so many seconds.
        until_free: only while the file system of a file has fewer bytes free.
        patterns: only paths that one of these shell patterns matches, if there are any.
        dry_run: only say what would go.
    """

    verified: bool = False
    older_than: float | None = None
    keep: float | None = None
    until_free: int | None = None
    patterns: tuple[str, ...] = ()
    dry_run: bool = False


@dataclass
class FreeReport:
    """What came of it.

    Attributes:
        freed: files that are gone, or would be.
        kept: why others that were asked for are not.
    """

    freed: list[LocalFile] = field(default_factory=list)
    kept: dict[FilePath, str] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Of the TsFiles that are gone."""
        return sum(file.size for file in self.freed)


class Freeing:
    """One run.

    Args:
        remotes: to all receivers that the files here are sent to.
        options: what is to go.
        stop: set when the process is to end.
        tell: hears of each file that is gone.
        clock: seconds, for how old an answer is.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        remotes: Iterable[Remote],
        options: FreeOptions,
        *,
        stop: threading.Event,
        tell: Callable[[LocalFile], None] = lambda file: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._remotes = list(remotes)
        self._options = options
        self._stop = stop
        self._tell = tell
        self._clock = clock
        self._now = now
        self._matches = [re.compile(fnmatch.translate(each)) for each in options.patterns]
        self.report = FreeReport()

    def run(self) -> FreeReport:
        """Do it; `report` has what was done, whatever is raised.

        Raises:
            LockedError: another process frees.
            StoppedError: told to stop.
            TsferryError: a receiver is out of reach or refuses: no more is safe.
        """
        with ExitStack() as stack:
            sync = stack.enter_context(self._remotes[0].sync_tree())
            if not self._options.dry_run:
                stack.callback(sync.lock(_LOCK).release)
            self._views = {
                remote.name: stack.enter_context(viewing(remote)) for remote in self._remotes
            }
            self._first = next(iter(self._views.values()))
            self._removal = Removal(sync, self._first.kept.dirs.trees)
            if not self._options.dry_run:
                self._removal.finish()
            for group in self._groups():
                self._partition(group)
        return self.report

    def _groups(self) -> list[TimePartition]:
        """Partitions with files that are asked for, the oldest first."""
        files = self._first.scan.files.values()
        groups = {file.path.group for file in files if self._is_chosen(file)}
        return sorted(groups, key=lambda group: (group[2], group[:2]))

    def _is_chosen(self, file: LocalFile) -> bool:
        options, path = self._options, file.path.text
        if self._matches and not any(each.match(path) for each in self._matches):
            return False
        now = self._now()
        if options.older_than is not None and file.mtime_ns / 1e9 > now - options.older_than:
            return False
        return options.keep is None or self._is_past(file, now - options.keep)

    def _is_past(self, file: LocalFile, time: float) -> bool:
        """Whether all data of a file is older; what is not known is not."""
        entry = self._first.kept.ledger.entries.get(file.path)
        unit = 1000 * PER_MILLISECOND[self._remotes[0].config.time_unit]
        return entry is not None and entry.last_time is not None and entry.last_time < time * unit

    # -- one partition ---------------------------------------------------------------------

    def _partition(self, group: TimePartition) -> None:
        """Free what is safe of a partition, until a judgement finds nothing more."""
        directories = ["/".join((kind, *map(str, group))) for kind in Kind]
        here = [""] if self._remotes[0].config.layout == "flat" else directories
        resources: dict[LocalFile, str] = {}
        idle = 0
        while idle < _PATIENCE:
            if self._stop.is_set():
                raise StoppedError("told to stop")
            names = self._removal.names(here)
            scan = self._scan(group)
            words = {
                remote.name: self._ask(remote, [f"{each}/" for each in directories])
                for remote in self._remotes
            }
            until = self._clock() + _FRESH
            found = judged(
                scan,
                self._views,
                words,
                verified=self._options.verified,
                chosen=lambda file: file.path.group == group and self._is_chosen(file),
                resources=resources,
            )
            self.report.kept.update(found.kept)
            files = [file for file in found.safe if self._is_needed(file)][:_MOST]
            if not files:
                return
            batch = FreeBatch(files, scan, here, names, self._lines(files, words))
            idle = 0 if self._free(batch, until) else idle + 1
        reason = "its partition changes all the time"
        self.report.kept.update({file.path: reason for file in batch.files})

    def _scan(self, group: TimePartition) -> Scan:
        """A partition as it is now; in a dry run without what would be gone."""
        lists = [view.kept.ledger.entries for view in self._views.values()]
        scan = self._remotes[0].scanner.scan(self._first.kept.dirs, lists, only={group})
        if not self._options.dry_run:
            return scan
        gone = {file.path for file in self.report.freed}
        left = {path: file for path, file in scan.files.items() if path not in gone}
        return replace(scan, files=left, _wholes={})

    def _ask(self, remote: Remote, directories: list[str]) -> ReceiverWord:
        known = self._views[remote.name].kept.memory.now
        return remote.patiently(lambda: ReceiverWord.asked(remote, known, directories))

    def _lines(
        self, files: Iterable[LocalFile], words: Mapping[str, ReceiverWord]
    ) -> dict[str, list[FreedFile]]:
        now = int(self._now())

        def line(word: ReceiverWord, file: LocalFile) -> FreedFile:
            item = word.there[file.path.text]
            times = (item.first_time, item.last_time)
            return FreedFile(item.path, item.md5, item.size, *times, now, word.commit)

        return {
            view.kept.directory: [line(words[name], file) for file in files]
            for name, view in self._views.items()
        }

    def _is_needed(self, file: LocalFile) -> bool:
        """Whether a file must go for the space that is wanted."""
        wanted = self._options.until_free
        if wanted is None:
            return True
        there = free_bytes(file.data_dir)
        if self._options.dry_run:
            there += self.report.bytes
        if there < wanted:
            return True
        self.report.kept[file.path] = "enough is free without it"
        return False

    def _free(self, batch: FreeBatch, until: float) -> int:
        """Remove what is still safe; how many files that were."""

        def go_on(file: LocalFile) -> bool:
            fresh = self._clock() < until and not self._stop.is_set()
            return fresh and self._is_needed(file)

        dry = self._options.dry_run
        gone = list(batch.files) if dry else self._removal.run(batch, go_on)
        for file in gone:
            self.report.kept.pop(file.path, None)
            self.report.freed.append(file)
            self._tell(file)
        return len(gone)
