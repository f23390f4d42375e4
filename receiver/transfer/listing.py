"""Pages of what is committed: for a sender its own, for readers everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import UsageError
from common.wire import CatalogueAnswer, CatalogueEntry, InventoryAnswer, InventoryEntry
from receiver.metadata.query.past_files import files_at
from receiver.transfer.intake import check_sender

if TYPE_CHECKING:
    from receiver.config import ReceiverConfig
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import FileRow
    from receiver.principal import Principal

__all__ = ["Listing", "page_limit"]


def page_limit(limit: int, most: int) -> int:
    """A page's length within what is allowed.

    Raises:
        UsageError: it is not positive.
    """
    if limit < 1:
        raise UsageError(f"limit = {limit}: expected 1 or more")
    return min(limit, most)


class Listing:
    """Answers `inventory` and `catalogue`."""

    def __init__(self, config: ReceiverConfig, engine: Engine, load: LoadService) -> None:
        self._most = config.limits.max_page_items
        self._engine = engine
        self._load = load

    def inventory(
        self, who: Principal, sender: str, after: str | None, limit: int
    ) -> InventoryAnswer:
        """See `Node.inventory`."""
        check_sender(who, sender)
        limit = page_limit(limit, self._most)
        with self._engine.reading() as state:
            commit = state.newest
            rows = state.file_table.inventory(sender, after, limit)
        entries = [
            InventoryEntry(
                path=row.path,
                size=row.size,
                md5=row.md5,
                state="loaded" if row.visible else "quarantined",
                commit=row.created,
                first_time=row.first,
                last_time=row.last,
                verified=row.verified,
            )
            for row in rows
        ]
        following = rows[-1].path if len(rows) == limit else None
        return InventoryAnswer(
            engine=self._engine.uuid, commit=commit, entries=entries, next=following
        )

    def catalogue(
        self,
        who: Principal,
        after: str | None,
        limit: int,
        *,
        at: int | None = None,
        since: int = 0,
        quarantined: bool = False,
    ) -> CatalogueAnswer:
        """See `Node.catalogue`."""
        who.must_read()
        limit = page_limit(limit, self._most)
        if at is not None or since or quarantined:
            return self._past(after, limit, at, since, quarantined)
        with self._engine.reading() as state:
            commit = state.newest
            rows = state.file_table.catalogue(after, limit)
        return CatalogueAnswer(
            engine=self._engine.uuid,
            commit=commit,
            entries=[self._entry(row) for row in rows],
            next=rows[-1].physical if len(rows) == limit else None,
        )

    def _past(
        self, after: str | None, limit: int, at: int | None, since: int, quarantined: bool
    ) -> CatalogueAnswer:
        past = files_at(self._engine, self._engine.newest_commit if at is None else at, since=since)
        held = frozenset(row.physical for row in past.quarantined)
        rows = past.visible + past.quarantined if quarantined else past.visible
        rows = [row for row in rows if after is None or row.physical > after]
        rows.sort(key=lambda row: row.physical)
        page = rows[:limit]
        return CatalogueAnswer(
            engine=self._engine.uuid,
            commit=past.commit,
            entries=[self._entry(row, quarantined=row.physical in held) for row in page],
            next=page[-1].physical if len(rows) > limit else None,
        )

    def _entry(self, row: FileRow, *, quarantined: bool = False) -> CatalogueEntry:
        found = self._load.find_physical(row)
        return CatalogueEntry(
            path=row.physical,
            original=row.path,
            sender=row.sender,
            size=row.size,
            md5=row.md5,
            data_dir=str(found[0].path) if found is not None else row.data_dir,
            commit=row.created,
            first_time=row.first,
            last_time=row.last,
            resource=row.resource is not None,
            state="quarantined" if quarantined else "loaded",
        )
