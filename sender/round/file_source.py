"""Where a round's list of files comes from: the data directories, or a receiver's catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from common.errors import TsferryError, UsageError
from common.tsfile.deletion_records import whole_records
from common.tsfile.primitives import Malformed
from sender.select.data_dirs import DataDirs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from common import wire
    from common.names import FilePath
    from sender.kept.handed import Handed, HandedUp
    from sender.kept.receiver_file import ReceiverFile
    from sender.round.compared_lists.catalogue_source import CatalogueSource
    from sender.select.entry import Entry
    from sender.select.facts import ContentFacts
    from sender.select.found import LocalDeletions, LocalFile, Scan, TimePartition
    from sender.send.remote import Remote

__all__ = ["DirectorySource", "Source", "open_source"]

_MOST_DELETIONS = 64 << 20
"""Bytes of the largest deletion file that travels; a database rewrites one of more than 1 MiB."""


@dataclass
class DirectorySource:
    """The files of the data directories."""

    remote: Remote
    dirs: DataDirs
    doubt: str | None = None
    lost: bool = False
    accepted: bool = False

    def scan(self, entries: Mapping[FilePath, Entry], handed: HandedUp | None = None) -> Scan:
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

    def origin(self, path: FilePath) -> wire.OriginEntry | None:
        """They come from here."""
        return None

    def ends(self, paths: Iterable[FilePath]) -> list[wire.EndBelow]:
        """What is gone is gone."""
        return []

    def is_ended(self, path: FilePath) -> bool:
        """What is here is not at its end."""
        return False

    def note(self, handed: Handed, paths: Iterable[FilePath]) -> None:
        """Nothing is remembered beside the list."""

    def settle(self, handed: Handed) -> None:
        """Nothing is remembered beside the list."""

    def left(self, scan: Scan, handed: Handed) -> Scan:
        """All that is here and not on the list is left to be done."""
        return scan

    def facts(self) -> ContentFacts:
        """Reads contents and times."""
        return self.remote.scanner.facts(self.dirs)

    def md5_known(self, file: LocalFile) -> str | None:
        """As it was read before."""
        return self.remote.digests.of(file)

    def read_whole(self, file: LocalFile, md5: str) -> None:
        """The next receiver's transfer need not digest it."""
        self.remote.digests.note(file.data_dir, file.rel, file.identity, md5)

    def disproved(self, file: LocalFile) -> str:
        """What it means that a file has not the MD5 that was known."""
        self.remote.digests.forget(file)
        return "its bytes are not what they were when they were read before: read anew next time"


Source: TypeAlias = "DirectorySource | CatalogueSource"


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
        from sender.round.compared_lists.catalogue_source import open_catalogue

        return open_catalogue(remote, memory, remember=remember)
    dirs = DataDirs.open(remote.config.data_dirs, remote.uuid)
    if not dirs.mounted:
        dirs.close()
        reasons = "; ".join(f"{each.data_dir} {each.reason}" for each in dirs.unmounted)
        raise UsageError(f"no data directory counts: {reasons}")
    return DirectorySource(remote, dirs)
