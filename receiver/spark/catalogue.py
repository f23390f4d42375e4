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
import math
import os
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from common import wire
from common.config import load
from common.durable import Closing
from common.errors import ConflictError, NotFoundError, UnreachableError, UsageError
from common.names import FilePath
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.metadata.clock.clock_record import RECORD
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.ranks import (
    NOW,
    Rank,
    RankBelow,
    TransferCut,
    name_rank,
    rank_beneath,
)
from receiver.metadata.model.timestamps import from_seconds
from receiver.metadata.model.true_times import TrueTimes
from receiver.metadata.query.past_files import files_at
from receiver.metadata.state.ranges import DeviceTable
from receiver.metadata.state.table_rows import (
    DeletionsRow,
    DeletionsSegment,
    UploadedRow,
    author_of,
)
from receiver.metadata.state.transfer_cuts import TransferCuts
from receiver.open_engine import is_behind, read_current
from receiver.spark.finder import DataFile
from receiver.spark.noted_deletions import FileDeletions, NotedDeletions
from receiver.spark.standing_in import StandIn, is_whole_here
from receiver.storage.reading.open_stores import of_process
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress, StoredPlace
from receiver.storage.store_opening import StoreOptions, open_store
from receiver.storage.stored_files import place_of

if TYPE_CHECKING:
    from receiver.follower.store_view import StoreView
    from receiver.metadata.query.past_files import PastFiles
    from receiver.metadata.state.ranges import Devices
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.compactions import CompactedOutput

__all__ = [
    "Catalogue",
    "Loads",
    "LocalCatalogue",
    "RemoteCatalogue",
    "StoreCatalogue",
    "open_catalogue",
    "store_at",
    "unit_of",
]

_PAGE: Final = 1000
_ASKED_AGAIN: Final = 10.0
"""Seconds from one question to etcd, whether there are newer commits, to the next."""
_UNTIL_ONE_LEADS: Final = 60.0
"""Seconds for which several addresses are asked, of which none leads."""

T = TypeVar("T")
A = TypeVar("A", wire.CatalogueAnswer, wire.CompactedAnswer, wire.NotedAnswer)


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


def open_catalogue(
    where: str,
    *,
    kind: str = "all",
    data_dirs: Sequence[str] = (),
    token: str | None = None,
    ca_cert: str | None = None,
    client_cert: str | None = None,
    client_key: str | None = None,
    store: StoreAddress | None = None,
    receiver: str | None = None,
) -> Catalogue:
    """The catalogue at a place.

    Args:
        where: the receiver's configuration file, its schema directory or its URL, or several of
            those that may take its place, with commas; or that of the object store which has its
            copies.
        kind: which of a database's files.
        data_dirs: where the data directories are for the workers, if elsewhere.
        token: of a reader, for a URL.
        ca_cert: PEM file that the server of a URL is checked against.
        client_cert: PEM certificate that it is shown in the place of a token.
        client_key: PEM private key of that.
        store: that has the files, if another than the receiver says.
        receiver: URL of the one that gives files to workers which have them neither on a disk nor
            in the store; that of the catalogue, if left out.

    Raises:
        UsageError: it is no configuration file, schema directory or URL.
        NotFoundError: there is no engine in the directory, or none was copied to the store.
        UnreachableError: nobody answers at the URL.
    """
    is_url = where.startswith(("http://", "https://"))
    asked = receiver or (where if is_url else None)
    shown = ca_cert, client_cert, client_key
    giving = None if asked is None else ReceiverAddress(asked.rstrip("/"), *shown)
    if giving is not None:
        of_process.give_token(giving.url, token)
    if is_url:
        address = ReceiverAddress(where, *shown)
        return RemoteCatalogue(address, kind, data_dirs, token=token, store=store, receiver=giving)
    if where.startswith(("s3://", "file:///")):
        there = store or store_at(where, os.environ)
        return StoreCatalogue(there, kind, data_dirs, receiver=giving)
    path = Path(where).absolute()
    if path.is_dir():
        return LocalCatalogue(path, kind, data_dirs, store=store, receiver=giving)
    if path.is_file():
        config = _configuration(path)
        return LocalCatalogue(
            config.schema_dir,
            kind,
            data_dirs or tuple(map(str, config.data_dirs)),
            store=store or StoreAddress.of(config.storage),
            receiver=giving,
            config=config,
        )
    raise UsageError(
        f"option catalog = {where!r}: expected a receiver's configuration file, its schema "
        "directory or its URL, or that of its object store; there is nothing"
    )


def store_at(url: str, environ: Mapping[str, str]) -> StoreAddress:
    """How a store is spoken to whose URL alone is given: as AWS's own tools are told."""
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    region = environ.get("AWS_REGION")
    return StoreAddress(url, endpoint, region, path_style=endpoint is not None)


def unit_of(where: str) -> Literal["ms", "us", "ns"] | None:
    """The unit of the times, where the receiver's configuration is at hand."""
    path = Path(where)
    return _configuration(path).time_unit if path.is_file() else None


def _configuration(path: Path) -> ReceiverConfig:
    return load(
        ReceiverConfig, file=path, env_prefix=ENV_PREFIX, environ=os.environ, flags={},
        secrets=False,
    ).value  # fmt: skip


def _locations(roots: Sequence[str], physical: str) -> tuple[str, ...]:
    if not any(roots):
        raise UsageError(
            "option dataDirs: missing; the catalogue does not say where its data directories are"
        )
    return tuple(f"{root}/{physical}" for root in roots)


# -- directories ---------------------------------------------------------------------------------


class LocalCatalogue(Catalogue):
    """Reads the engine's files, beside a server that may be running, without its lock."""

    def __init__(
        self,
        schema_dir: Path,
        kind: str = "all",
        data_dirs: Sequence[str] = (),
        *,
        store: StoreAddress | None = None,
        receiver: ReceiverAddress | None = None,
        config: ReceiverConfig | None = None,
    ) -> None:
        """Open it.

        Args:
            schema_dir: of the receiver.
            kind: which of a database's files.
            data_dirs: to look for files in; where each was loaded into, if left out.
            store: that has files which are not there.
            receiver: that gives what a worker finds in neither.
            config: of the receiver: with that, and with etcd behind it, no old copy is read.

        Raises:
            NotFoundError: there is no engine in the directory.
            DamagedError: the receiver's log is damaged.
            ConflictError: another receiver has committed since, by the same keys of etcd.
        """
        super().__init__(kind, data_dirs, store, receiver)
        self._schema = schema_dir
        self._config = config
        self._asked = -math.inf
        self._seen: Any = None
        self._engine: Engine | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read the engine anew, if its files changed, or should have."""
        seen = self._look()
        if self._engine is not None and seen == self._seen and not self._is_behind():
            return
        if self._config is None:
            engine = Engine.read_only(self._schema)
        else:
            engine, self._asked = read_current(self._config), time.monotonic()
        self.close()
        self._engine, self._seen = engine, seen
        self.uuid, self.times = engine.uuid, engine.times

    def _is_behind(self) -> bool:
        """Whether what was read is old, though its files are the same; asked now and then."""
        if self._config is None or time.monotonic() < self._asked + _ASKED_AGAIN:
            return False
        self._asked = time.monotonic()
        return is_behind(self._config, self.engine)

    def _look(self) -> list[tuple[str, int, int]]:
        # Every commit makes the log longer.
        try:
            there = [each for each in os.scandir(self._schema) if each.name != RECORD]
            found = [(each.name, each.stat()) for each in there]
        except OSError:
            return []
        return sorted((name, stat.st_size, stat.st_ino) for name, stat in found)

    @property
    def engine(self) -> Engine:
        """As its files had it when they were looked at last."""
        assert self._engine is not None
        return self._engine

    @property
    def newest(self) -> int:
        """See `Catalogue`."""
        return self.engine.newest_commit

    @property
    def mark(self) -> object:
        """See `Catalogue`: an engine that is read anew is another one."""
        return self.engine

    def loads(self, at: int, since: int = 0, *, without: frozenset[str] = frozenset()) -> Loads:
        """See `Catalogue`."""
        past = self._past(at, since, None if self._kind == "all" else self._is_wanted)
        with self.engine.reading() as state:
            noted = NotedDeletions(state.deletion_table, past.commit, self._older_of(state))
            cuts = TransferCuts(state.owner_table.moves, past.commit)
            table, released = state.uploaded_table, set(state.released_table.rows)
            rows = chain(past.visible, past.quarantined) if table.rows else ()
            stored = {
                row.physical: table.rows[row.physical] for row in rows if table.parts(row).file
            }
            news = {
                physical: maker.news
                for maker in state.compacted_table.final()
                for physical in maker.became
            }

        def found(row: FileRow) -> DataFile:
            deletions = noted.of(row.author, row.physical, row.closed)
            file = self._committed(
                row.data_dir, row.rank, row.size, row.devices, row.first, row.last
            )
            there = stored.get(row.physical)
            place = self._place(row.physical, row.size, row.md5, there)
            return replace(
                file,
                created=news.get(row.physical, row.created),
                cuts=cuts.of(row),
                deletions=deletions,
                stored=there is not None or row.physical in released,
                place=place,
            )

        visible = (row for row in past.visible if row.physical not in without)
        return self._loads(map(found, visible), map(found, past.quarantined))

    def stand_ins(self, at: int) -> list[StandIn]:
        """See `Catalogue`."""
        with self.engine.reading() as state:
            rows = state.compacted_table.at(min(at, state.newest))
        found: list[StandIn] = []
        for row in rows:
            files = [self._merged(each, each.devices, row.created) for each in row.outputs]
            whole = [each for each in files if each is not None and is_whole_here(each)]
            if len(whole) == len(files):
                found.append(StandIn(tuple(row.inputs), tuple(whole)))
        return found

    @staticmethod
    def _older_of(state: State) -> Callable[[DeletionsRow], frozenset[str]]:
        def older(noted: DeletionsRow) -> frozenset[str]:
            row = state.files.get(noted.physical or "")
            if row is None or noted.form != "mods":
                return frozenset()
            from receiver.points.deletions import older_in

            return older_in(noted.content, noted.path, row.devices.names())

        return older

    def rows(self, at: int, since: int = 0) -> PastFiles:
        """The same as `loads`, of all kinds and with all that the engine knows.

        Raises:
            HistoryGoneError: `at` is before the kept history.
        """
        return self._past(at, since)

    def _past(self, at: int, since: int, within: Callable[[str], bool] | None = None) -> PastFiles:
        return files_at(self.engine, at, since=since, within=within)

    def _is_wanted(self, directory: str) -> bool:
        return directory.split("/", 1)[0] == self._kind

    def close(self) -> None:
        """See `Catalogue`."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


# -- an object store ------------------------------------------------------------------------------


class StoreCatalogue(LocalCatalogue):
    """Reads the copies of a receiver, which need not be there; up to `storage.lag` behind it."""

    def __init__(
        self,
        store: StoreAddress,
        kind: str = "all",
        data_dirs: Sequence[str] = (),
        *,
        receiver: ReceiverAddress | None = None,
    ) -> None:
        """Open it.

        Args:
            store: that has the copies.
            kind: which of a database's files.
            data_dirs: to look for files in; where each was loaded into, if left out.
            receiver: that gives what a worker finds in neither.

        Raises:
            NotFoundError: nobody has copied anything there.
            DamagedError: nothing there makes a state.
        """
        self._view: StoreView | None = None
        self._address = store
        super().__init__(Path("/"), kind, data_dirs, store=store, receiver=receiver)

    def refresh(self) -> None:
        """Fetch what was copied since."""
        if self._view is None:
            # Only here: what plans by a directory is a new process, mostly, and need not wait.
            from receiver.follower.store_view import StoreView

            there = self._address
            options = StoreOptions(
                endpoint=there.endpoint,
                region=there.region,
                profile=there.profile,
                path_style=there.path_style,
            )
            self._view = StoreView(open_store(there.url, options))
        else:
            self._view.refresh()
        self._engine = engine = self._view.engine
        self.uuid, self.times = engine.uuid, engine.times

    def _past(self, at: int, since: int, within: Callable[[str], bool] | None = None) -> PastFiles:
        if at < self.newest and self._view is not None:
            self._view.fetch_older()
        return super()._past(at, since, within)

    def close(self) -> None:
        """See `Catalogue`."""
        if self._view is not None:
            self._view.close()


# -- a running server ----------------------------------------------------------------------------


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
