"""Tables and tablets that no commit of a load sees to: those of before, and those that are past."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from common import crash
from common.errors import FailedSyncError, TsferryError
from receiver.metadata.commit.tablet_making import missing_tablets
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow, TabletRow

__all__ = ["TableUpkeep"]

log = logging.getLogger(__name__)

_AT_ONCE: Final = 1000
"""Records of a commit, tablets that are looked at without a pause, and those that go at once."""
_EVERY: Final = 3600.0
"""Seconds between two looks for empty tablets, of which the last found all: there may be millions,
and none is in a hurry."""


class TableUpkeep:
    """Keeps the tables in step with the files.

    Attributes:
        may_forget: whether nobody elsewhere has anything of a dropped table any more.
        has_gone: the same of a dropped tablet.
        is_empty: whether nobody elsewhere has a file of a tablet that is empty here.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        may_forget: Callable[[LoadedTableRow], bool] = lambda _: True,
        keep_empty: float = 0.0,
        every: float = _EVERY,
    ) -> None:
        """Prepare.

        Args:
            engine: the metadata engine.
            may_forget: see the class.
            keep_empty: seconds since its making for which an empty tablet waits for a file.
            every: seconds between two looks for empty tablets.
        """
        self._engine = engine
        self._keep_empty = keep_empty
        self._every = every
        self._looked = float("-inf")
        self.may_forget = may_forget
        self.has_gone: Callable[[TabletRow], bool] = lambda _: True
        self.is_empty: Callable[[TabletRow], bool] = lambda _: True

    def take_over(self) -> int:
        """Make what files need that were loaded before there were tables; how many records.

        Only while nothing else is committed. A start that is cut off, or finds no room on the disk,
        leaves the rest to the next; what is loaded meanwhile makes what it needs.

        Raises:
            FailedSyncError: nothing can be committed any more.
        """
        with self._engine.reading() as state:
            ops = list(missing_tablets(state))
        made = 0
        try:
            for begin in range(0, len(ops), _AT_ONCE):
                some = ops[begin : begin + _AT_ONCE]
                self._engine.commit(some)
                made += len(some)
        except FailedSyncError:
            raise
        except (TsferryError, OSError) as error:
            log.warning("tables of files of before have to wait", extra={"error": str(error)})
        if made:
            told = {"records": made}
            log.info("tables and tablets were made of the files that are there", extra=told)
        return made

    def forget(self, _: float = 0.0) -> int:
        """Forget dropped tables that no question about the past can see; how many."""
        oldest = self._engine.oldest_answerable
        with self._engine.reading() as state:
            past = [row for row in state.loaded_tables.dropped() if row.dropped <= oldest]
        ids = [row.id for row in past if self.may_forget(row)]
        for begin in range(0, len(ids), _AT_ONCE):
            some = ids[begin : begin + _AT_ONCE]
            self._engine.commit([records.TableForgotten(each) for each in some])
        return len(ids)

    def drop_empty(self, now: float) -> int:
        """Drop tablets that no file is in any more, or came to; how many.

        Those that were made by hand stay. A file that comes later makes another one.

        Args:
            now: seconds since the epoch.
        """
        if 0 <= now - self._looked < self._every:
            return 0
        self._looked = now
        dropped = 0
        rows = self._empty(now - self._keep_empty)
        for row in rows:
            try:
                self._engine.commit([records.TabletDropped(row.id)])
            except RefusedCommitError as error:  # a file came meanwhile, or its table has gone
                log.info("a tablet is not dropped", extra={"reason": str(error)})
            else:
                crash.point("reaper.tablet_dropped")
                dropped += 1
        if dropped and len(rows) == _AT_ONCE:  # there may be more: with the next pass
            self._looked = float("-inf")
        return dropped

    def _empty(self, before: float) -> list[TabletRow]:
        """Tablets made before a time that have no file, here or elsewhere; so many at most."""
        found: list[TabletRow] = []
        with self._engine.reading() as state:
            tables = [(row.id, row.name) for row in state.loaded_tables.there()]
        for ident, name in tables:
            with self._engine.reading() as state:
                rows = [row for row in state.tablet_table.of_table(ident) if not row.by_hand]
            for begin in range(0, len(rows), _AT_ONCE):  # commits go on in between
                with self._engine.reading() as state:
                    seconds, files = state.clock.times.seconds, state.file_table
                    some = [
                        row
                        for row in rows[begin : begin + _AT_ONCE]
                        if not files.by_partition.of(name, row.begin, row.end).files
                        and seconds(row.created) <= before
                        and files.is_empty(name, row.begin, row.end)
                    ]
                found += filter(self.is_empty, some)
                if len(found) >= _AT_ONCE:
                    return found[:_AT_ONCE]
        return found

    def forget_tablets(self, _: float = 0.0) -> int:
        """Forget dropped tablets that no question about the past can see; how many."""
        oldest = self._engine.oldest_answerable
        with self._engine.reading() as state:
            tables = state.loaded_tables.rows
            past = [
                row
                for row in state.tablet_table.dropped()
                if row.dropped <= oldest and not tables[row.table].dropped
            ]
        ids = [row.id for row in past if self.has_gone(row)]
        for begin in range(0, len(ids), _AT_ONCE):
            some = ids[begin : begin + _AT_ONCE]
            self._engine.commit([records.TabletForgotten(each) for each in some])
        return len(ids)
