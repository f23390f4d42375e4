"""Where a round's list of files comes from: the data directories, or a receiver's catalogue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from common import wire
from common.errors import TsferryError, UsageError
from common.names import FilePath
from common.tsfile.deletion_records import whole_records
from common.tsfile.primitives import Malformed
from sender.kept.receiver_file import Receiver, ReceiverFile, SourceMark
from sender.select.data_dirs import DataDirs
from sender.select.entry import Entry
from sender.select.facts import ContentFacts
from sender.select.filters import group_filter
from sender.select.found import LocalDeletions, LocalFile, Scan, TimePartition
from sender.select.scan import units_of
from sender.select.upstream import catalogue_dirs, scan_catalogue
from sender.send.calls import CatalogueNow
from sender.send.remote import Remote

__all__ = ["CatalogueSource", "DirectorySource", "Source", "open_source"]

_MOST_DELETIONS = 64 << 20
"""Bytes of the largest deletion file that travels; a database rewrites one of more than 1 MiB."""
_TRIES = 5
"""Readings of a catalogue that changes under way, before its gone files are left for later."""


@dataclass
class DirectorySource:
    """The files of the data directories."""

    remote: Remote
    dirs: DataDirs
    doubt: str | None = None
    lost: bool = False

    def scan(self, entries: Mapping[FilePath, Entry]) -> Scan:
        """Look at every file; what `entries` knows is not read again."""
        return self.remote.scanner.scan(self.dirs, (entries,))

    def look_again(
        self, groups: Collection[TimePartition], entries: Mapping[FilePath, Entry]
    ) -> Scan:
        """Look at some partitions once more."""
        return self.remote.scanner.scan(self.dirs, (entries,), only=groups)

    def deletion_file(self, file: LocalDeletions) -> bytes | None:
        """The content of a deletion file as it is; None where it cannot be read.

        What a shared one has of its TsFile follows the whole records of its own.
        """
        tree = self.dirs.trees[file.data_dir]
        try:
            own = tree.read(file.rel, limit=_MOST_DELETIONS) if file.rel else b""
            if file.shared is None:
                return own
            shared = tree.read(file.shared.rel, limit=_MOST_DELETIONS)
            return own[: whole_records(own, file.form)] + shared[file.shared.begin :]
        except (OSError, TsferryError, Malformed):
            return None

    def facts(self) -> ContentFacts:
        """Reads contents and times."""
        return self.remote.scanner.facts(self.dirs)

    def md5_known(self, file: LocalFile) -> str | None:
        """Nothing is known without reading."""
        return None


@dataclass
class CatalogueSource:
    """The committed files of the receiver on this node."""

    remote: Remote
    dirs: DataDirs
    entries: list[wire.CatalogueEntry]
    doubt: str | None = None
    """Why nothing may count as gone in this round, if so."""
    lost: bool = False
    """Whether it has another past than before; the lists in its data directories have it too."""
    _facts: ContentFacts = field(init=False)

    def __post_init__(self) -> None:
        config = self.remote.config
        groups = config.storage_groups
        found = scan_catalogue(
            self.entries,
            self.dirs,
            group_filter(groups.include, groups.exclude),
            units_of(config),
        )
        self._scan, self._facts = found.scan, found.facts

    def scan(self, entries: Mapping[FilePath, Entry]) -> Scan:
        """The catalogue."""
        return self._scan

    def look_again(
        self, groups: Collection[TimePartition], entries: Mapping[FilePath, Entry]
    ) -> Scan:
        """The catalogue as it was: its names are never used again, so nothing comes back."""
        return self._scan

    def deletion_file(self, file: LocalDeletions) -> bytes | None:
        """The catalogue lists none."""
        return None

    def facts(self) -> ContentFacts:
        """What the catalogue says of the files."""
        return self._facts

    def md5_known(self, file: LocalFile) -> str | None:
        """As it was verified when it was loaded here."""
        return self._facts.md5(file)


Source = DirectorySource | CatalogueSource


def open_source(remote: Remote, memory: ReceiverFile, *, remember: bool) -> Source:
    """Open what a round reads from; its `dirs` are the caller's to close.

    Args:
        remote: to the receiver.
        memory: of it.
        remember: whether new data directories of a catalogue may be noted.

    Raises:
        UsageError: no data directory counts.
    """
    if remote.entry.source == "receiver":
        return _catalogue(remote, memory, remember)
    dirs = DataDirs.open(remote.config.data_dirs, remote.uuid)
    if not dirs.mounted:
        dirs.close()
        reasons = "; ".join(f"{each.data_dir} {each.reason}" for each in dirs.unmounted)
        raise UsageError(f"no data directory counts: {reasons}")
    return DirectorySource(remote, dirs)


def _catalogue(remote: Remote, memory: ReceiverFile, remember: bool) -> CatalogueSource:
    client = remote.source_client()
    try:
        now = _read(lambda: remote.patiently(client.catalogue_now))
    finally:
        client.close()
    lost = _is_lost(memory.now.source, now)
    mark, doubt = _judged(memory.now, now, lost)
    paths = catalogue_dirs(now.entries, memory.now.data_dirs)
    if remember:
        # Before any list is written there, so that a list is never forgotten.
        memory.update(data_dirs=tuple(str(path) for path in paths), source=mark)
    dirs = DataDirs.unmarked(Path(path) for path in paths)
    return CatalogueSource(remote, dirs, now.entries, doubt, lost)


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
