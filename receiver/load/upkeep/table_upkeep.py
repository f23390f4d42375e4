"""Tables and tablets that no commit of a load sees to: those of before, and those that are past."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from common.errors import FailedSyncError, TsferryError
from receiver.metadata.commit.tablet_making import missing_tablets
from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.tablets import LoadedTableRow

__all__ = ["TableUpkeep"]

log = logging.getLogger(__name__)

_AT_ONCE: Final = 1000
"""Records of a commit."""


class TableUpkeep:
    """Keeps the tables in step with the files."""

    def __init__(
        self, engine: Engine, *, may_forget: Callable[[LoadedTableRow], bool] = lambda _: True
    ) -> None:
        """Prepare.

        Args:
            engine: the metadata engine.
            may_forget: whether nobody elsewhere has anything of a dropped table any more.
        """
        self._engine = engine
        self.may_forget = may_forget

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
