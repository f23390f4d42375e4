"""The second look: what is to be told as gone is looked for once more, just before it is told.

Between a round's scan and the moment in which an end is told, a database may have put a file back,
a disk may have been unmounted, a task may have lain about for days. Whatever is not proved absent
now is not told, nor is what goes together with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.errors import Transient
from sender.round.round_words.round_report import FileReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from common.names import FilePath
    from sender.kept.seen_looks.looks import EdgeLook
    from sender.plan.task_plan import TaskPlan
    from sender.round.file_source import Source
    from sender.round.round_words.round_report import RoundReport
    from sender.select.entry import Entry

__all__ = ["SecondLook"]


@dataclass
class SecondLook:
    """Looks again at partitions of which ends are to be told.

    Attributes:
        source: of the files.
        look: that found them gone.
        entries: the list of loaded files.
        report: hears of what is not told.
    """

    source: Source
    look: EdgeLook
    entries: Mapping[FilePath, Entry]
    report: RoundReport

    def confirmed(self, plan: TaskPlan) -> TaskPlan:
        """A task without the ends that are not proved any more, and what goes with them.

        Raises:
            Transient: the list was to begin anew with it, and the look was not whole after all.
        """
        told = {
            each.path: entry
            for each in plan.deletions
            if (entry := self.entries.get(each.path)) is not None
        }
        if not told:
            return plan
        again = self.source.look_again({path.group for path in told}, self.entries)
        doubtful = self.look.not_gone(again, told)
        if not doubtful:
            return plan
        if plan.anew:
            why = next(iter(doubtful.values()))
            raise Transient(f"the list cannot begin anew, on a second look: {why}")
        self.report.held += [
            FileReason(path.text, f"on a second look: {doubtful[path.group]}")
            for path in told
            if path.group in doubtful
        ]
        return plan.without_ends(doubtful)
