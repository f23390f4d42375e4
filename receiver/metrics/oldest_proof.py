"""When the oldest verification of a visible file was, found out a piece at each scrape.

No index has it, and to look at ten million rows would take longer than a scrape may. So each
scrape looks at so many, and a pass over all of them says what is told until the next one is over.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from receiver.operator.paging import every_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["OldestProof"]

_ROWS: Final = 20_000
"""Of a scrape: some 20 ms."""


class OldestProof:
    """Passes over the visible files; one at a time may ask.

    Args:
        engine: that has them.
        rows: that are looked at each time.
    """

    def __init__(self, engine: Engine, rows: int = _ROWS) -> None:
        self._engine = engine
        self._rows = rows
        self._pass: Iterator[FileRow] | None = None
        self._seen_at = -1
        self._oldest = 0
        self._known = 0

    def commit(self) -> int:
        """That of the oldest verification, as of the last pass that is over; 0 for none."""
        if self._pass is None:
            newest = self._engine.newest_commit
            if newest == self._seen_at:
                return self._known
            self._seen_at, self._oldest = newest, 0
            self._pass = self._visible()
        looked = 0
        for row in islice(self._pass, self._rows):
            looked += 1
            if row.verified:
                self._oldest = min(self._oldest or row.verified, row.verified)
        if looked < self._rows:
            self._pass, self._known = None, self._oldest
        return self._known

    def _visible(self) -> Iterator[FileRow]:
        return every_row(
            self._engine,
            lambda state, behind, count: state.file_table.catalogue(behind, count),
            lambda row: row.physical,
        )
