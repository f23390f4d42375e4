"""Pages of what is committed: for a sender its own, for readers everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.errors import UsageError
from common.wire import (
    LOADED,
    QUARANTINED,
    CatalogueAnswer,
    CatalogueEntry,
    ClockPiece,
    DeviceExtent,
    InventoryAnswer,
    InventoryEntry,
    NotedAnswer,
    NotedEntry,
    NotedRecords,
)
from receiver.disks import AwayError, whole_in
from receiver.load.placing import tree_of
from receiver.metadata.model.ranks import NOW
from receiver.metadata.query.past_files import files_at
from receiver.transfer.intake import check_sender

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from common.durable import Tree
    from receiver.config import ReceiverConfig
    from receiver.disks import Disks
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import DeletionsRow, FileRow
    from receiver.principal import Principal

__all__ = ["Listing", "page_limit"]

_MOST_DEVICES: Final = 50_000
"""On a page of the catalogue, unless a single file has more."""
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

    def __init__(self, config: ReceiverConfig, engine: Engine, disks: Disks) -> None:
        self._most = config.limits.max_page_items
        self._engine = engine
        self._disks = disks

    def inventory(
        self,
        who: Principal,
        sender: str,
        after: str | None,
        limit: int | None,
        look: bool = False,
    ) -> InventoryAnswer:
        """What the receiver has of this sender, a page in order of the sender's paths.

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
            rows = state.file_table.inventory(sender, after, limit)
        standing = self._disks.standing() if look else []
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
                stands=whole_in(standing, row),
            )
            for row in rows
        ]
        following = rows[-1].path if len(rows) == limit else None
        return InventoryAnswer(
            engine=self._engine.uuid,
            commit=commit,
            entries=entries,
            next=following,
            looked=look,
        )

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
            entries=self._entries(page, devices=devices),
            next=page[-1].physical if len(rows) == limit or len(page) < len(rows) else None,
            times=self._times(),
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
            rows = sorted(state.deletion_table, key=_cursor)
        rows = [row for row in rows if after is None or _cursor(row) > after]
        page: list[DeletionsRow] = []
        size = 0
        for row in rows[:limit]:
            size += len(row.content)
            if page and size > _MOST_CONTENT:
                break
            page.append(row)
        return NotedAnswer(
            engine=self._engine.uuid,
            commit=commit,
            entries=[_noted(row) for row in page],
            next=_cursor(page[-1]) if len(page) < len(rows) else None,
        )

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
        past = files_at(self._engine, self._engine.newest_commit if at is None else at, since=since)
        held = frozenset(row.physical for row in past.quarantined)
        rows = past.visible + past.quarantined if quarantined else past.visible
        rows = [row for row in rows if after is None or row.physical > after]
        rows.sort(key=lambda row: row.physical)
        page = _with_few_devices(rows[:limit]) if devices else rows[:limit]
        return CatalogueAnswer(
            engine=self._engine.uuid,
            commit=past.commit,
            entries=self._entries(page, held, devices=devices),
            next=page[-1].physical if len(rows) > len(page) else None,
            times=self._times(),
        )

    def _entries(
        self,
        rows: Iterable[FileRow],
        quarantined: frozenset[str] = frozenset(),
        *,
        devices: bool = False,
    ) -> list[CatalogueEntry]:
        away = self._disks.away()
        standing = self._disks.standing() if away else self._disks.trees
        found = [(row, tree_of(standing, row)) for row in rows]
        for row, tree in found:
            if tree is None and away:  # whoever went on without it would answer too little
                raise AwayError(f"{row.physical} cannot be read: {away[0]}", retry_after=60.0)
        return [
            _entry(row, tree, quarantined=row.physical in quarantined, devices=devices)
            for row, tree in found
        ]


def _entry(row: FileRow, tree: Tree | None, *, quarantined: bool, devices: bool) -> CatalogueEntry:
    rank = row.rank
    return CatalogueEntry(
        path=row.physical,
        original=row.path,
        sender=row.sender,
        size=row.size,
        md5=row.md5,
        data_dir=row.data_dir if tree is None else str(tree.path),
        commit=row.created,
        first_time=row.first,
        last_time=row.last,
        resource=row.resource is not None,
        state=QUARANTINED if quarantined else LOADED,
        first_look=rank.first,
        closed_look=rank.closed,
        last_look=0 if rank.last == NOW else rank.last,
        devices=_extents(row) if devices else None,
    )


def _extents(row: FileRow) -> list[DeviceExtent]:
    ranges = row.devices.ranges()
    return [DeviceExtent(name=name, first=first, last=last) for name, first, last in ranges]


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


def _cursor(row: DeletionsRow) -> str:
    return f"{row.sender}/{row.path}/{row.physical or ''}/{row.form}"


def _noted(row: DeletionsRow) -> NotedEntry:
    return NotedEntry(
        sender=row.sender,
        path=row.path,
        physical=row.physical,
        form=row.form,
        content=row.content,
        segments=[
            NotedRecords(end=each.end, floor=each.floor, commit=each.commit, applied=each.applied)
            for each in row.segments
        ],
    )
