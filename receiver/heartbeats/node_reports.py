"""What a start of a node has reported so far, and what the master still needs of it.

Messages come late, twice, and in another order than they were sent: a report is taken only where
it goes on from what is here. See `receiver.heartbeats.node_wire`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from common.errors import ProtocolError
from receiver.heartbeats.node_wire import PagesReceived
from receiver.heartbeats.reported_columns import ReportedColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from receiver.heartbeats.node_wire import ReportedTablet, TabletReport

__all__ = ["MOST_TABLETS", "NodeReports", "ReportNews"]

MOST_TABLETS: Final = 1_000_000
"""Of one node: 62 MB."""


class ReportNews(NamedTuple):
    """What a report has changed of what the master knows of a node.

    Attributes:
        node: its uuid.
        is_full: whether it replaced all that was known; `tablets` are then those of its last page
            alone, and all can be asked for.
        tablets: as they stand now.
        removed: ids of those that are not there any more; of an incremental report.
    """

    node: str
    is_full: bool
    tablets: Sequence[ReportedTablet]
    removed: Sequence[str]


class NodeReports:
    """Of one start of one node; used by one thread at a time.

    Attributes:
        held: what the node has by its reports; as it was before while a full report comes in.
        acknowledged: the change up to which that is the truth; None before the first full report.
    """

    def __init__(self, node: str, knows: Callable[[Sequence[str]], Sequence[bool]]) -> None:
        """Know nothing.

        Args:
            node: uuid of the node.
            knows: tells of ids of tablets whether the catalogue has them.
        """
        self.held = ReportedColumns.none()
        self.acknowledged: int | None = None
        self._node = node
        self._knows = knows
        self._number = 0
        self._sequence = 0
        self._pages: list[ReportedColumns] | None = None

    @property
    def received(self) -> PagesReceived | None:
        """What is here of a full report that has not come to its end."""
        if self._pages is None:
            return None
        return PagesReceived(number=self._number, pages=len(self._pages))

    def take(self, report: TabletReport) -> ReportNews | None:
        """Take a report in; returns what it changed, None where nothing is to be done.

        Raises:
            ProtocolError: it is none; what was here before is as it was.
        """
        return self._changes(report) if report.is_incremental else self._page(report)

    def _changes(self, report: TabletReport) -> ReportNews | None:
        if self.acknowledged is None or report.base > self.acknowledged:
            return None  # what was before is not here
        if report.sequence <= self.acknowledged:
            return None  # it came late, or twice
        changed = self._columns(report)
        if len(self.held) + len(changed) > MOST_TABLETS + len(report.removed):
            raise _too_many()
        self.held.drop(report.removed)
        self.held.put(changed)
        self.acknowledged = report.sequence
        return ReportNews(self._node, False, report.tablets, report.removed)

    def _page(self, report: TabletReport) -> ReportNews | None:
        if report.number < self._number or report.number == 0:
            return None
        if report.number > self._number:
            if report.page:
                return None  # its first page is on its way, or lost
            self._number, self._sequence, self._pages = report.number, report.sequence, []
        if self._pages is None or report.page != len(self._pages):
            return None  # it is here already, or one before it is missing
        page = self._columns(report)
        if report.sequence != self._sequence:
            raise ProtocolError("the pages of a full report are of one moment")
        if self._pages and not page.follows(self._pages[-1]):
            raise ProtocolError("the pages of a full report come in order of the tablets' ids")
        if sum(map(len, self._pages)) + len(page) > MOST_TABLETS:
            raise _too_many()
        self._pages.append(page)
        if not report.is_last:
            return None
        self.held, self._pages = ReportedColumns.joined(self._pages), None
        self.acknowledged = report.sequence
        return ReportNews(self._node, True, report.tablets, ())

    def _columns(self, report: TabletReport) -> ReportedColumns:
        return ReportedColumns.of(report.tablets, self._knows([each.id for each in report.tablets]))


def _too_many() -> ProtocolError:
    return ProtocolError(f"a node reports {MOST_TABLETS} tablets at most")
