"""A forwarding centre's list of files: the catalogue of the receiver on this node."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from common import wire
from common.errors import NotFoundError, TsferryError
from common.names import FilePath
from sender.kept.receiver_file import Receiver, ReceiverFile, SourceMark
from sender.select.data_dirs import DataDirs
from sender.select.filters import group_filter
from sender.select.scan import units_of
from sender.select.upstream import (
    Beneath,
    Upstream,
    catalogue_dirs,
    everywhere,
    scan_catalogue,
    undeleted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from sender.kept.handed import Handed, HandedUp
    from sender.select.entry import Entry
    from sender.select.facts import ContentFacts
    from sender.select.found import LocalDeletions, LocalFile, Scan, TimePartition
    from sender.send.catalogue_calls import CatalogueNow
    from sender.send.remote import Remote

__all__ = ["CatalogueSource", "open_catalogue"]

log = logging.getLogger(__name__)

_FETCHED = 1 << 30
"""Bytes that are brought from the object store for one round, unless a single file has more."""
_TRIES = 5
"""Readings of a catalogue that changes under way, before its gone files are left for later."""


@dataclass
class CatalogueSource:
    """The committed files of the receiver on this node."""

    remote: Remote
    dirs: DataDirs
    now: CatalogueNow
    seen: int = 0
    """The newest commit of the catalogue that was read before."""
    doubt: str | None = None
    """Why nothing may count as gone in this round, if so."""
    lost: bool = False
    """Whether it has another past than before; the lists in its data directories have it too."""
    accepted: bool = False
    """Whether the operator says that it has all that it should have."""
    fetches: bool = False
    """Whether files are brought to its disk that are to be sent, or this only looks."""
    _found: Upstream = field(init=False)
    _everywhere: list[FilePath] = field(default_factory=list)
    _told_all: bool = False

    def __post_init__(self) -> None:
        self._found = self._scanned(None)

    def _scanned(
        self, beneath: Beneath | None, listed: Mapping[FilePath, Entry] | None = None
    ) -> Upstream:
        config = self.remote.config
        groups = config.storage_groups
        includes = group_filter(groups.include, groups.exclude)
        return scan_catalogue(
            self.now.entries, self.dirs, includes, units_of(config), beneath, listed
        )

    def scan(self, entries: Mapping[FilePath, Entry], handed: HandedUp | None = None) -> Scan:
        """The catalogue, and what became of listed files that it has no more.

        Args:
            entries: the list.
            handed: what was handed up beside it; None for a receiver that takes no origins.
        """
        self._told_all = handed is not None
        beneath = None if handed is None else self._beneath(entries, handed)
        if beneath is not None or self._found.remote:
            self._found = self._scanned(beneath, entries)
        if self.fetches and self._found.remote and self._fetched():
            self._found = self._scanned(beneath, entries)
        if handed is not None:
            return self._found.scan
        if self.remote.config.propagate_deletes == "all" and not self.accepted:
            beneath, scan = self._beneath(entries, lambda *_: False), self._found.scan
            stay = undeleted(filter(scan.is_missing, entries), beneath)
            self._found = replace(
                self._found, scan=msgspec.structs.replace(scan, others=scan.others | stay)
            )
        return self._found.scan

    def _fetched(self) -> bool:
        """Have files that are to be sent brought to the disk; whether any of them came.

        No more of them than a part of the cache may hold: the next round has the next of them.
        """
        most = self.remote.config.task_max_files
        wanted = _first(self._found.remote[:most])
        ahead = _first(self._found.remote[len(wanted) :][:most])
        client = self.remote.source_client()
        try:
            failed = self.remote.patiently(lambda: client.fetch(wanted, ahead))
        except TsferryError as error:
            log.warning("files are in the object store only", extra={"error": str(error)})
            return False
        finally:
            client.close()
        for each in failed:
            log.warning(
                "a file does not come from the object store",
                extra={"file": each.path, "error": each.reason},
            )
        return len(failed) < len(wanted)

    def _beneath(self, entries: Mapping[FilePath, Entry], handed: HandedUp) -> Beneath:
        here = {each.path for each in self.now.entries}
        missing = [path.text for path in entries if path.text not in here]
        client = self.remote.source_client()
        try:
            answer = self.remote.patiently(lambda: client.fates(missing))
            notes = self.remote.patiently(client.noted)
        except NotFoundError:  # of an older version: what is gone is told as no more than that
            answer, notes = wire.FatesAnswer(engine=self.now.engine, commit=0, fates=[]), []
        finally:
            client.close()
        fates = {each.path: each for each in answer.fates}
        self._everywhere = [FilePath.parse(each.path) for each in answer.everywhere]
        return Beneath(self.now.engine, entries, handed, fates, answer.everywhere, notes, self.seen)

    def origin(self, path: FilePath) -> wire.OriginEntry | None:
        """Where a file comes from."""
        return self._found.origins.get(path)

    def ends(self, paths: Iterable[FilePath]) -> list[wire.EndBelow]:
        """What the ends of files mean above."""
        return [self._found.ends[path] for path in paths if path in self._found.ends]

    def is_ended(self, path: FilePath) -> bool:
        """Whether a file that is sent is at its end here, and so comes on no list."""
        return path in self._found.ended

    def note(self, handed: Handed, paths: Iterable[FilePath]) -> None:
        """Remember that the receiver above was told of files, as far as the list does not."""
        names = (self._found.due[path] for path in paths if path in self._found.due)
        handed.add(self.now.engine, names)

    def left(self, scan: Scan, handed: Handed) -> Scan:
        """A scan without what is on no list and is above, as it has ended."""
        engine, due = self.now.engine, self._found.due
        done = {path for path in self._found.ended if handed.has(engine, due[path])}
        return msgspec.structs.replace(
            scan, files={path: file for path, file in scan.files.items() if path not in done}
        )

    def settle(self, handed: Handed) -> None:
        """Remember how far all is handed up, at the end of a round.

        What was deleted everywhere is remembered by name, as long as the catalogue speaks of it.
        """
        engine, due = self.now.engine, self._found.due.values()
        told = self._told_all and self.doubt is None
        if told and due and all(handed.has(engine, each) for each in due):
            handed.settle(engine, self.now.commit, map(everywhere, self._everywhere))

    def look_again(
        self, groups: Collection[TimePartition], entries: Mapping[FilePath, Entry]
    ) -> Scan:
        """The catalogue as it was: its names are never used again, so nothing comes back."""
        return self._found.scan

    def deletion_file(self, file: LocalDeletions) -> bytes | None:
        """As it is noted here."""
        return self._found.contents.get((file.path, file.form))

    def facts(self) -> ContentFacts:
        """What the catalogue says of the files."""
        return self._found.facts

    def md5_known(self, file: LocalFile) -> str | None:
        """As it was verified when it was loaded here."""
        return self._found.facts.md5(file)

    def read_whole(self, file: LocalFile, md5: str) -> None:
        """Nothing that was not known."""

    def disproved(self, file: LocalFile) -> str:
        """What it means that a file has not the MD5 that was known."""
        return "its bytes here are not what was loaded here: run tsferry-receiver fsck"


def open_catalogue(remote: Remote, memory: ReceiverFile, *, remember: bool) -> CatalogueSource:
    """Read the catalogue; see `sender.round.file_source.open_source`."""
    client = remote.source_client()
    try:
        now = _read(lambda: remote.patiently(client.catalogue_now))
    finally:
        client.close()
    before = memory.now.source
    lost = _is_lost(before, now)
    seen = before.commit if before is not None and before.engine == now.engine else 0
    mark, doubt = _judged(memory.now, now, lost)
    paths = catalogue_dirs(now.entries, memory.now.data_dirs)
    if remember:
        # Before any list is written there, so that a list is never forgotten.
        memory.update(data_dirs=tuple(str(path) for path in paths), source=mark)
    dirs = DataDirs.unmarked(Path(path) for path in paths)
    accepted = memory.now.accept_source
    return CatalogueSource(remote, dirs, now, seen, doubt, lost, accepted, remember)


def _read(read: Callable[[], CatalogueNow]) -> CatalogueNow:
    now = read()
    for _ in range(_TRIES - 1):
        if now.whole:
            break
        now = read()
    return now


def _is_lost(before: SourceMark | None, now: CatalogueNow) -> bool:
    """Whether this is not the past that was seen.

    A receiver that was exchanged or restored from an old copy lists less than it did. Its commits
    soon overtake those that were seen, so it stays lost until the operator ends it.
    """
    if before is None:
        return False
    return before.lost or before.engine != now.engine or before.commit > now.commit


def _judged(known: Receiver, now: CatalogueNow, lost: bool) -> tuple[SourceMark, str | None]:
    """What to remember of a catalogue, and why nothing may count as gone because of it."""
    if lost and known.source is not None and not known.accept_source:
        return msgspec.structs.replace(known.source, lost=True), _LOST
    doubt = None if now.whole else "the catalogue changed while it was read"
    return SourceMark(engine=now.engine, commit=now.commit), doubt


_LOST = (
    "the receiver on this node was exchanged, or restored from an old copy: its catalogue may lack "
    "what it once had; once it is complete again: tsferry-sender sync --accept-source"
)


def _first(entries: Iterable[wire.CatalogueEntry]) -> list[str]:
    """The paths of the first, as many as come from the object store for one round."""
    found: list[str] = []
    size = 0
    for entry in entries:
        size += entry.size
        if found and size > _FETCHED:
            break
        found.append(entry.path)
    return found
