"""What a running server says that it has loaded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from common import wire
from common.errors import ConflictError, NotFoundError, UnreachableError
from common.names import FilePath
from receiver.metadata.model import records
from receiver.metadata.model.ranks import NOW, Rank, RankBelow, TransferCut, name_rank
from receiver.metadata.model.true_times import TrueTimes
from receiver.metadata.state.deletion_rows import DeletionsRow, DeletionsSegment
from receiver.metadata.state.ranges import DeviceTable
from receiver.metadata.state.table_rows import author_of
from receiver.metadata.state.uploaded_rows import UploadedRow
from receiver.spark.finder import DataFile
from receiver.spark.noted_deletions import NotedDeletions
from receiver.spark.standing_in import StandIn
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress

if TYPE_CHECKING:
    from receiver.metadata.state.ranges import Devices

from receiver.spark.catalogue import Catalogue, Loads

__all__ = ["A", "RemoteCatalogue", "T"]
_PAGE: Final = 1000
_UNTIL_ONE_LEADS: Final = 60.0
"""Seconds for which several addresses are asked, of which none leads."""
T = TypeVar("T")
A = TypeVar("A", wire.CatalogueAnswer, wire.CompactedAnswer, wire.NotedAnswer)


class RemoteCatalogue(Catalogue):
    """Asks a running server, as a reader."""

    def __init__(
        self,
        there: ReceiverAddress,
        kind: str = "all",
        data_dirs: Sequence[str] = (),
        *,
        token: str | None = None,
        store: StoreAddress | None = None,
        receiver: ReceiverAddress | None = None,
    ) -> None:
        """Ask it who it is; see `open_catalogue`.

        Raises:
            UsageError: the token would travel where others can read it.
            UnreachableError: it does not answer.
        """
        from receiver.storage.reading.reader_calls import (
            OPTION_NAMES,
            ReaderCalls,
            shown_certificate,
        )

        super().__init__(kind, data_dirs, store, receiver)
        self._said = store
        self._url = there.url
        self._calls = ReaderCalls(
            there.url,
            token=token,
            ca_cert=there.ca_cert,
            certificate=shown_certificate(
                there.client_cert, there.client_key, there.ca_cert, OPTION_NAMES
            ),
            what="option catalog",
            patience=_UNTIL_ONE_LEADS,
        )
        self.uuid, self._newest = "", 0
        self._devices = DeviceTable()
        self.refresh()

    def refresh(self) -> None:
        """See `Catalogue`."""
        answer = self._ask(limit=1)
        if (there := answer.store) is not None:
            self._store = self._said or StoreAddress(
                there.url, there.endpoint, there.region, path_style=there.path_style
            )
        self.uuid, self._newest = answer.engine, answer.commit
        self.times = TrueTimes(
            records.TimePiece(each.commit, each.moment, each.pace) for each in answer.times
        )

    @property
    def newest(self) -> int:
        """See `Catalogue`."""
        return self._newest

    @property
    def mark(self) -> object:
        """See `Catalogue`."""
        return self.uuid, self._newest, self._store

    def loads(self, at: int, since: int = 0, *, without: frozenset[str] = frozenset()) -> Loads:
        """See `Catalogue`."""
        entries: list[wire.CatalogueEntry] = []
        after = None
        while True:
            answer = self._ask(
                at=at, since=since, quarantined="true", devices="true", after=after, limit=_PAGE
            )
            entries += (each for each in answer.entries if each.path not in without)
            after = answer.next
            if after is None:
                break
        files = {each.path: self._file(each) for each in entries}
        noted = self._noted(at)
        visible: list[DataFile] = []
        held: list[DataFile] = []
        for each in entries:
            file = files[each.path]
            if noted is not None:
                author, closed = each.sender, file.standing.closed
                if (origin := each.origin) is not None:
                    below = origin.below[0]
                    author = author_of(each.sender, f"{origin.sender}@{below.engine}")
                    closed = below.closed
                file = replace(file, deletions=noted.of(author, each.path, closed))
            (held if each.state == wire.QUARANTINED else visible).append(file)
        return self._loads(visible, held)

    def stand_ins(self, at: int) -> list[StandIn]:
        """See `Catalogue`; none of a server that is too old to know of them."""
        found: list[StandIn] = []
        after: int | None = None
        try:
            while True:
                query = {"at": at, "after": after, "limit": _PAGE}
                answer = self._same("/compacted", wire.CompactedAnswer, at, **query)
                found += filter(None, map(self._stand_in, answer.entries))
                after = answer.next
                if after is None:
                    return found
        except NotFoundError:
            return []

    def _stand_in(self, entry: wire.CompactedEntry) -> StandIn | None:
        files = [
            self._merged(each, self._packed(each.devices, each.first, each.last), entry.commit)
            for each in entry.outputs
        ]
        known = tuple(each for each in files if each is not None)
        return StandIn(tuple(entry.inputs), known) if len(known) == len(files) else None

    def _packed(
        self, devices: Iterable[wire.DeviceExtent], first: int | None, last: int | None
    ) -> Devices:
        ranges = [records.DeviceRange(each.name, each.first, each.last) for each in devices]
        return self._devices.pack(ranges, first, last)

    def _file(self, entry: wire.CatalogueEntry) -> DataFile:
        origin = entry.origin
        below = () if origin is None else tuple(map(_below, origin.below))
        name = name_rank(FilePath.parse(entry.original if origin is None else origin.path))
        first = entry.first_look or entry.commit
        rank = Rank(
            name,
            first,
            entry.closed_look or first,
            entry.last_look or NOW,
            entry.commit,
            entry.path,
            below,
        )
        devices = None
        if entry.devices is not None:
            devices = self._packed(entry.devices, entry.first_time, entry.last_time)
        known = (devices, entry.first_time, entry.last_time)
        file = self._committed(entry.data_dir, rank, entry.size, *known)
        cuts = _cuts(entry.devices or ())
        there = None
        if entry.object is not None:
            there = UploadedRow(
                physical=entry.path,
                incarnation=entry.object.incarnation,
                size=entry.size,
                digests=entry.object.digests,
                again=entry.object.again,
                created=entry.commit,
                changed=entry.commit,
            )
        place = self._place(entry.path, entry.size, entry.md5, there)
        if not cuts and not entry.stored and place is None and not entry.news:
            return file
        created = entry.news or entry.commit
        return replace(file, created=created, cuts=cuts, stored=entry.stored, place=place)

    def _noted(self, at: int) -> NotedDeletions | None:
        """What was deleted; None if the server is too old to know."""
        rows: list[DeletionsRow] = []
        older: dict[tuple[str, str, str | None, str], frozenset[str]] = {}
        after = None
        try:
            while True:
                answer = self._same("/deletions", wire.NotedAnswer, at, after=after, limit=_PAGE)
                rows += map(_deletions_row, answer.entries)
                older |= {_file_of(each): frozenset(each.older) for each in answer.entries}
                after = answer.next
                if after is None:
                    break
        except NotFoundError:
            return None

        return NotedDeletions(rows, at, lambda row: older.get(_file_of(row), frozenset()))

    def _ask(self, **query: str | int | None) -> wire.CatalogueAnswer:
        return self._same("", wire.CatalogueAnswer, 0, **query)

    def _same(self, what: str, kind: type[A], seen: int, **query: str | int | None) -> A:
        """A page that may stand beside those before it, whichever address gives it.

        Args:
            what: of the catalogue.
            kind: of the answer.
            seen: time that is asked about; what was seen to be committed by then it has to know.
            query: of the call.

        Raises:
            ConflictError: it is of another engine.
            UnreachableError: it does not know of all up to that commit.
        """
        answer = self._get(what, kind, **query)
        if self.uuid not in ("", answer.engine):
            raise ConflictError(
                f"option catalog: {self._calls.url} is engine {answer.engine}, and {self.uuid} was "
                "asked before: the addresses are to be receivers over the same keys of etcd, or "
                "nodes that follow the same one"
            )
        if answer.commit < min(seen, self._newest):
            raise UnreachableError(
                f"option catalog: {self._calls.url} has come to commit {answer.commit}, and commit "
                f"{min(seen, self._newest)} was seen before",
                retry_after=1.0,
            )
        return answer

    def _get(self, what: str, kind: type[T], **query: str | int | None) -> T:
        path = f"{wire.BASE}/catalogue{what}"
        return wire.decode(self._calls.get(path, query), kind, f"answer of {self._url}{path}")

    def close(self) -> None:
        """See `Catalogue`."""
        self._calls.close()


def _file_of(noted: wire.NotedEntry | DeletionsRow) -> tuple[str, str, str | None, str]:
    return noted.sender, noted.path, noted.physical, noted.form


def _below(looks: wire.LooksBelow) -> RankBelow:
    return RankBelow(
        looks.engine, looks.first, looks.closed, looks.last or NOW, looks.loaded, looks.physical
    )


def _cuts(devices: Iterable[wire.DeviceExtent]) -> tuple[TransferCut, ...]:
    found: dict[tuple[int, int], list[str]] = defaultdict(list)
    for each in devices:
        if each.first_look:
            found[each.first_look, each.last_look or NOW].append(each.name)
    return tuple(TransferCut(*looks, frozenset(several)) for looks, several in found.items())


def _deletions_row(entry: wire.NotedEntry) -> DeletionsRow:
    segments = tuple(
        DeletionsSegment(each.end, each.floor, each.commit, each.applied) for each in entry.segments
    )
    return DeletionsRow(
        sender=entry.sender,
        path=entry.path,
        physical=entry.physical,
        form=entry.form,
        content=entry.content,
        segments=segments,
        by=entry.author,
        created=0,
        changed=0,
    )
