"""Pages of what is committed: for a sender its own, for readers everything."""

from __future__ import annotations

from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from common.errors import TooLargeError, UsageError
from common.wire import (
    LOADED,
    QUARANTINED,
    CatalogueAnswer,
    CatalogueEntry,
    ClockPiece,
    CompactedAnswer,
    EndMeaning,
    FatesAnswer,
    IncarnationMark,
    InventoryAnswer,
    InventoryEntry,
    NotedAnswer,
    ObjectsAnswer,
)
from receiver.datadirs.disks import AwayError, whole_in
from receiver.load.placing import tree_of
from receiver.metadata.query.kept_past import KeptPast
from receiver.metadata.state.tables.file_tables.uploaded import InStore
from receiver.metadata.state.transfer_cuts import TransferCuts
from receiver.scope import Scope
from receiver.transfer.intake import check_sender
from receiver.transfer.said_lists.listed_entries import (
    catalogue_entry,
    compacted_entry,
    deletions_cursor,
    end_below,
    extents_of,
    fate_of,
    noted_entry,
    object_entry,
    resource_entry,
    store_entry,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from receiver.config import ReceiverConfig
    from receiver.datadirs.disks import Disks
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.deletion_rows import DeletionsRow
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow
    from receiver.principal import Principal

__all__ = ["Listing", "page_limit"]

_MOST_DEVICES: Final = 50_000
"""On a page of the catalogue, unless a single file has more."""
_MOST_FATES: Final = 1000
"""Asked for at once; who asks knows no limits of ours."""
_MOST_CONTENT: Final = 8 << 20
"""Bytes of deletion files on a page, unless a single one has more."""


def page_limit(limit: int | None, most: int) -> int:
    """A page's length within what is allowed, which is also what None stands for.

    Raises:
        UsageError: it is not positive.
    """
    if limit is None:
        return most
    if limit < 1:
        raise UsageError(f"limit = {limit}: expected 1 or more")
    return min(limit, most)


class Listing:
    """Answers `inventory` and `catalogue`."""

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        disks: Disks,
        in_store: Callable[[Sequence[FileRow]], frozenset[str]] | None = None,
        incarnation: Callable[[], IncarnationMark | None] = lambda: None,
        is_copied: Callable[[State, FileRow], bool] | None = None,
    ) -> None:
        """Prepare.

        Args:
            config: of the receiver.
            engine: its metadata.
            disks: its data directories.
            in_store: asks the object store which of some files it has now, whole; the answer are
                their physical names. None without a store.
            incarnation: which of the owners of its copies this receiver is now.
            is_copied: whether as many storage nodes have a file as are wanted; None where none are.
        """
        self._incarnation = incarnation
        self._most = config.limits.max_page_items
        self._engine = engine
        self._store = store_entry(config.storage)
        self._disks = disks
        self._in_store = in_store
        self._is_copied = is_copied
        self._kept = KeptPast(engine)

    def inventory(
        self,
        who: Principal,
        sender: str,
        after: str | None,
        limit: int | None,
        look: bool = False,
    ) -> InventoryAnswer:
        """What the receiver has of this sender, a page in order of the sender's paths.

        Of files with a device outside of the token's scope nothing is told: a page may be shorter.

        Args:
            who: asks.
            sender: whose files.
            after: the cursor of the page before.
            limit: entries of a page; as many as the configuration allows, if None.
            look: say of each file whether its bytes stand on the disk now.
        """
        check_sender(who, sender)
        limit = page_limit(limit, self._most)
        with self._engine.reading() as state:
            commit = state.newest
            page = state.file_table.inventory(sender, after, limit)
            scope = Scope(who.scope)
            rows = [row for row in page if scope.first_outside(row.devices) is None]
            owner = state.senders.get(sender)
            known = [state.file_table.listed.deletions(row.physical) for row in rows]
            stored = {row.physical: state.uploaded_table.parts(row) for row in rows}
            inside = state.compacted_table.inside(rows) if look else {}
        standing = self._standing(rows, stored) if look else frozenset()
        entries = [
            InventoryEntry(
                path=row.path,
                size=row.size,
                md5=row.md5,
                state=LOADED if row.visible else QUARANTINED,
                commit=row.created,
                first_time=row.first,
                last_time=row.last,
                verified=row.verified,
                stands=row.physical in standing,
                resource=resource_entry(row) if look else None,
                deletions=deletions,
                inside=list(inside.get(row.physical, ())),
            )
            for row, deletions in zip(rows, known, strict=True)
        ]
        following = page[-1].path if len(page) == limit else None
        return InventoryAnswer(
            engine=self._engine.uuid,
            commit=commit,
            entries=entries,
            next=following,
            looked=look,
            propagate=None if owner is None else owner.propagate,
            incarnation=self._incarnation(),
        )

    def _standing(self, rows: Sequence[FileRow], stored: Mapping[str, InStore]) -> frozenset[str]:
        """Which files can be given up elsewhere: what a row says of the store is asked there."""
        trees = self._disks.holding()
        if not trees:
            return frozenset()
        with self._engine.reading() as state:
            released = {} if self._is_copied is None else state.released_table.rows
            kept = {row.physical: InStore(file=row.physical in released) for row in rows}
        here = {row.physical for row in rows if whole_in(trees, row, kept[row.physical])}
        if self._is_copied is not None:
            with self._engine.reading() as state:
                here = {
                    row.physical
                    for row in rows
                    if row.physical in here and self._is_copied(state, row)
                }
        far = [
            row
            for row in rows
            if row.physical not in here and whole_in(trees, row, stored[row.physical])
        ]
        return self._in_store(far) | here if far and self._in_store else frozenset(here)

    def catalogue(
        self,
        who: Principal,
        after: str | None,
        limit: int | None,
        *,
        at: int | None = None,
        since: int = 0,
        quarantined: bool = False,
        devices: bool = False,
    ) -> CatalogueAnswer:
        """Committed files of everybody, a page in order of physical paths.

        Args:
            who: asks.
            after: the cursor of the page before.
            limit: entries of a page; as many as the configuration allows, if None.
            at: the commit that is asked about; the newest, if left out.
            since: only files loaded after this commit.
            quarantined: those too that had been loaded and are in quarantine.
            devices: with the ranges of their devices; a page may have fewer entries then.

        Raises:
            AwayError: files of the page lie in a data directory that is away.
        """
        who.must_read()
        limit = page_limit(limit, self._most)
        if at is not None or since or quarantined:
            return self._past(after, limit, at, since, quarantined, devices)
        with self._engine.reading() as state:
            commit = state.newest
            rows = state.file_table.catalogue(after, limit)
        page = _with_few_devices(rows) if devices else rows
        return CatalogueAnswer(
            engine=self._engine.uuid,
            commit=commit,
            entries=self._entries(page, commit, devices=devices),
            next=page[-1].physical if len(rows) == limit or len(page) < len(rows) else None,
            times=self._times(),
            store=self._store,
        )

    def compacted(
        self, who: Principal, at: int | None, after: int | None, limit: int | None
    ) -> CompactedAnswer:
        """What may be read in place of files of the catalogue, a page in order of their ids.

        Only such as the data directories have whole now: who is told of one asks for its bytes.

        Args:
            who: asks.
            at: as of which commit; the newest, if left out.
            after: the cursor of the page before.
            limit: entries of a page; as many as the configuration allows, if None.

        Raises:
            HistoryGoneError: `at` is before the kept history.
        """
        who.must_read()
        limit = page_limit(limit, self._most)
        with self._engine.reading() as state:
            commit = state.newest if at is None else min(at, state.newest)
            self._engine.check_answerable(commit)
            rows = state.compacted_table.at(commit)
        trees = self._disks.standing()
        rows = sorted((row for row in rows if after is None or row.id > after), key=_id_of)
        page: list[CompactedRow] = []
        count = 0
        for row in rows[:limit]:
            count += row.count + sum(len(each.devices) for each in row.outputs)
            if page and count > _MOST_DEVICES:
                break
            page.append(row)
        found = [compacted_entry(row, trees) for row in page]
        return CompactedAnswer(
            engine=self._engine.uuid,
            commit=commit,
            entries=[each for each in found if each is not None],
            next=page[-1].id if len(page) < len(rows) else None,
        )

    def deletions(self, who: Principal, after: str | None, limit: int | None) -> NotedAnswer:
        """The deletion files that are known, of everybody, a page in order of their names.

        Args:
            who: asks.
            after: the cursor of the page before.
            limit: entries of a page; as many as the configuration allows, if None.
        """
        who.must_read()
        limit = page_limit(limit, self._most)
        with self._engine.reading() as state:
            commit = state.newest
            rows = sorted(state.deletion_table, key=deletions_cursor)
        rows = [row for row in rows if after is None or deletions_cursor(row) > after]
        page: list[DeletionsRow] = []
        size = 0
        for row in rows[:limit]:
            size += len(row.content)
            if page and size > _MOST_CONTENT:
                break
            page.append(row)
        with self._engine.reading() as state:
            files = {row.physical: state.files.get(row.physical or "") for row in page}
        return NotedAnswer(
            engine=self._engine.uuid,
            commit=commit,
            entries=[noted_entry(row, files[row.physical]) for row in page],
            next=deletions_cursor(page[-1]) if len(page) < len(rows) else None,
        )

    def fates(self, who: Principal, paths: Sequence[str]) -> FatesAnswer:
        """What became of files that were in the catalogue, for one who forwards it.

        Args:
            who: asks.
            paths: physical paths.

        Raises:
            TooLargeError: there are too many.
        """
        who.must_read()
        if len(paths) > _MOST_FATES:
            raise TooLargeError(f"a page of {len(paths)} items, at most {_MOST_FATES} are taken")
        with self._engine.reading() as state:
            commit = state.newest
            rows = [state.files.get(each) for each in paths]
            deleted = state.file_table.deleted()
        uuid = self._engine.uuid
        return FatesAnswer(
            engine=uuid,
            commit=commit,
            fates=[fate_of(uuid, path, row) for path, row in zip(paths, rows, strict=True)],
            everywhere=[
                end_below(uuid, row) for row in deleted if row.reason == EndMeaning.EVERYWHERE
            ],
        )

    def objects(self, who: Principal, paths: Sequence[str]) -> ObjectsAnswer:
        """Which objects of the store files are, for one who reads them there.

        Args:
            who: asks.
            paths: physical paths.

        Raises:
            TooLargeError: there are too many.
        """
        who.must_read()
        if len(paths) > _MOST_FATES:
            raise TooLargeError(f"a page of {len(paths)} items, at most {_MOST_FATES} are taken")
        with self._engine.reading() as state:
            rows = [row for each in paths if (row := state.files.get(each)) is not None]
            table = state.uploaded_table
            found = {
                row.physical: object_entry(table.rows[row.physical])
                for row in rows
                if table.parts(row).file
            }
        return ObjectsAnswer(engine=self._engine.uuid, store=self._store, objects=found)

    def _times(self) -> list[ClockPiece]:
        pieces = self._engine.times.pieces
        return [ClockPiece(commit=each.ts, moment=each.moment, pace=each.pace) for each in pieces]

    def _past(
        self,
        after: str | None,
        limit: int,
        at: int | None,
        since: int,
        quarantined: bool,
        devices: bool,
    ) -> CatalogueAnswer:
        past = self._kept.files_at(self._engine.newest_commit if at is None else at, since)
        held = frozenset(row.physical for row in past.quarantined)
        rows = list(islice(past.visible.behind(after), limit + 1))
        if quarantined:
            rows += (row for row in past.quarantined if after is None or row.physical > after)
            rows.sort(key=attrgetter("physical"))
        page = _with_few_devices(rows[:limit]) if devices else rows[:limit]
        return CatalogueAnswer(
            engine=self._engine.uuid,
            commit=past.commit,
            entries=self._entries(page, past.commit, held, devices=devices),
            next=page[-1].physical if len(rows) > len(page) else None,
            times=self._times(),
            store=self._store,
        )

    def _entries(
        self,
        rows: Sequence[FileRow],
        at: int,
        quarantined: frozenset[str] = frozenset(),
        *,
        devices: bool = False,
    ) -> list[CatalogueEntry]:
        away = self._disks.away()
        standing = self._disks.standing() if away else self._disks.trees
        found = [(row, tree_of(standing, row)) for row in rows]
        with self._engine.reading() as state:
            table = state.uploaded_table
            uploaded = (row.physical for row in rows if table.parts(row).file)
            stored = {each: object_entry(table.rows[each]) for each in uploaded}
            makers = {
                row.physical: state.compacted_table.finals.maker(row.physical) for row in rows
            }
            at_nodes = {row.physical: row.physical in state.released_table.rows for row in rows}
        for row, tree in found:
            # Whoever went on without it would answer too little.
            if tree is None and away and row.physical not in stored and not at_nodes[row.physical]:
                raise AwayError(f"{row.physical} cannot be read: {away[0]}", retry_after=60.0)
        with self._engine.reading() as state:
            cuts = TransferCuts(state.owner_table.moves, at)
            of_rows = [cuts.of(row) if devices else () for row in rows]
        return [
            catalogue_entry(
                row,
                tree,
                extents_of(row, several) if devices else None,
                quarantined=row.physical in quarantined,
                stored=stored.get(row.physical),
                at_nodes=at_nodes[row.physical],
                news=0 if (maker := makers[row.physical]) is None else maker.news,
            )
            for (row, tree), several in zip(found, of_rows, strict=True)
        ]


def _id_of(row: CompactedRow) -> int:
    return row.id


def _with_few_devices(rows: Sequence[FileRow]) -> list[FileRow]:
    """The first of them, as many as a page takes with their devices; at least one."""
    count = 0
    page: list[FileRow] = []
    for row in rows:
        count += len(row.devices)
        if page and count > _MOST_DEVICES:
            break
        page.append(row)
    return page
