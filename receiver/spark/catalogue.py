"""The one catalogue: which files a receiver has loaded, and where they lie.

It is read from the receiver's directories, beside the server, which need not run; from the running
server by its URL; or from the copies in an object store, with no receiver at all. The data source
reads these files; the verification puts its questions about them on top (`committed`). The bytes
are read where they are: in the receiver's data directories, or a mount of them (option
``dataDirs``), in its object store what is not there, and from the receiver or a node where a worker
has no way into the store.
"""

from __future__ import annotations

import datetime
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from common import wire
from common.durable import Closing
from common.errors import UsageError
from receiver.metadata.model.ranks import Rank, rank_beneath
from receiver.metadata.model.timestamps import from_seconds
from receiver.metadata.model.true_times import TrueTimes
from receiver.metadata.state.uploaded_rows import UploadedRow
from receiver.spark.finder import DataFile
from receiver.spark.noted_deletions import FileDeletions
from receiver.spark.standing_in import StandIn
from receiver.storage.cache.stored_files import place_of
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress, StoredPlace

if TYPE_CHECKING:
    from receiver.metadata.state.ranges import Devices
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedOutput

__all__ = ["Catalogue", "Loads"]


class Loads(NamedTuple):
    """What was loaded in a range of commits, as of a commit.

    Attributes:
        visible: files to read.
        held: files in quarantine.
    """

    visible: list[DataFile]
    held: list[DataFile]


class Catalogue(Closing):
    """What a receiver has loaded."""

    uuid: str
    """Of its engine: another engine's commits mean nothing here."""
    times: TrueTimes
    """The moments of its commits."""

    def __init__(
        self,
        kind: str,
        data_dirs: Sequence[str],
        store: StoreAddress | None = None,
        receiver: ReceiverAddress | None = None,
    ) -> None:
        """Make one of files of some kind, in data directories, in a store, and at a receiver."""
        self._kind = kind
        self._roots = data_dirs
        self._store = store
        self._receiver = receiver

    @property
    @abstractmethod
    def newest(self) -> int:
        """The newest commit."""

    @property
    @abstractmethod
    def mark(self) -> object:
        """Equal as long as nothing was committed: then all answers are the same."""

    @abstractmethod
    def loads(self, at: int, since: int = 0, *, without: frozenset[str] = frozenset()) -> Loads:
        """What was loaded after `since`, as of `at`, but for files of some physical names.

        Raises:
            HistoryGoneError: `at` is before the kept history.
        """

    @abstractmethod
    def stand_ins(self, at: int) -> list[StandIn]:
        """Merged files that can be read in place of others, as of a commit.

        Only such as are whole where they are looked for: on this machine, or at the server that was
        asked.
        """

    @property
    def has_store(self) -> bool:
        """Whether files may be in an object store alone, where merged ones are not."""
        return self._store is not None

    def at(self, when: int | datetime.datetime | None) -> int:
        """The commit that a time means; without one, or with one to come, the newest."""
        if when is None:
            return self.newest
        ts = when if isinstance(when, int) else self.times.first(from_seconds(when.timestamp()))
        return min(ts, self.newest)

    def files(self, at: int, *, without: frozenset[str] = frozenset()) -> list[DataFile]:
        """All files that were visible at a commit, but for some."""
        return self.loads(at, without=without).visible

    def _place(
        self, physical: str, size: int, digest: str, there: UploadedRow | None
    ) -> StoredPlace | None:
        """Where a file is that is on no disk; None if nobody says where that could be.

        Args:
            physical: its name.
            size: bytes.
            digest: its MD5, in hex.
            there: what is known of its upload; None if it was not uploaded.
        """
        if there is not None and self._store is not None:
            return place_of(self._store, self.uuid, there, digest, self._receiver)
        if self._receiver is not None:
            return StoredPlace(None, physical, size, digest, "", self._receiver, physical)
        if self._store is None:
            return None
        # Its upload may be newer than what is known here: where it is needed it is looked for.
        return StoredPlace(self._store, "", size, digest, "", None, physical, self.uuid)

    def refresh(self) -> None:
        """Look at what was committed since."""

    def close(self) -> None:
        """Let go of it."""

    def _loads(self, visible: Iterable[DataFile], held: Iterable[DataFile]) -> Loads:
        def wanted(files: Iterable[DataFile]) -> list[DataFile]:
            return [each for each in files if self._kind in ("all", each.name.split("/")[0])]

        return Loads(wanted(visible), wanted(held))

    def _committed(
        self, data_dir: str, rank: Rank, size: int, devices: Devices | None,
        first: int | None, last: int | None,
    ) -> DataFile:  # fmt: skip
        physical = rank.physical
        places = _locations(self._roots or [data_dir], physical)
        database = physical.split("/")[1]
        return DataFile(
            places, physical, size, database, rank.loaded, devices, first, last, is_known=True,
            rank=rank,
        )  # fmt: skip

    def _merged(self, output: CompactedOutput | wire.CompactedFileEntry, devices: Devices,
                created: int) -> DataFile | None:  # fmt: skip
        """What stands for files; None if nobody says where it is."""
        if not (self._roots or output.data_dir):
            return None
        first, last = output.first, output.last
        rank = rank_beneath(output.physical)
        file = self._committed(output.data_dir, rank, output.size, devices, first, last)
        place = None
        if self._receiver is not None:  # no store has it
            place = StoredPlace(
                None, output.physical, output.size, output.md5, "", self._receiver, output.physical
            )
        return replace(file, created=created, deletions=FileDeletions(), place=place)


def _locations(roots: Sequence[str], physical: str) -> tuple[str, ...]:
    if not any(roots):
        raise UsageError(
            "option dataDirs: missing; the catalogue does not say where its data directories are"
        )
    return tuple(f"{root}/{physical}" for root in roots)
