"""What a round without news leaves: the next one need not look at every file again.

Where the file system tells of each change, and told of none, what was found still holds: only the
receiver and the schema log are asked. Nothing is sent and no end is told by that, so a change that
was not told of (on another mount, or while the kernel's queue was full) is only found later, by the
next look at all files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from common.names import RESOURCE
from common.wire import History
from sender.kept.freed import FreedList
from sender.round.compared_lists.comparing import ask_about
from sender.select.found import Why, stat_identity

if TYPE_CHECKING:
    from common.durable import Tree
    from common.listed import ListedSum
    from common.wire import CheckAnswer
    from sender.plan.next_round import NextRound
    from sender.round.compared_lists.comparing import Compared
    from sender.round.round_words.round_report import RoundReport
    from sender.select.found import LocalDeletions, Waiting
    from sender.send.remote import Remote

__all__ = ["Rested", "left_at_rest"]


class Rested(msgspec.Struct, frozen=True):
    """What was found, and found to need nothing.

    Attributes:
        listed: the sum of the list, on which the receiver agreed.
        look: the number of the look.
        deletions: deletion files; a database appends to one that it keeps open, of which the file
            system tells nothing.
        report: of the round.
    """

    listed: ListedSum
    look: int
    deletions: tuple[LocalDeletions, ...]
    report: RoundReport

    def holds(self, remote: Remote, check: CheckAnswer, since: int) -> bool:
        """Whether nothing is new at the receiver, nor in deletion files.

        Args:
            remote: to the receiver, which is asked about the list.
            check: its answer in this round.
            since: the newest commit of it that was known when both lists were compared last.
        """
        wants = check.wanted or check.held or check.anew or check.busy or check.unfinished
        if wants or check.history is not History.CONTINUES or not check.compares:
            return False
        return all(map(_is_as_seen, self.deletions)) and (
            ask_about(remote, self.listed, since).agrees
        )

    def tell(self, report: RoundReport) -> None:
        """Enter what was found into the report of a round that did not look."""
        before = self.report
        report.waiting, report.up_to_date = before.waiting, before.up_to_date
        report.kept_deletions = before.kept_deletions
        report.pending_files, report.pending_bytes = before.pending_files, before.pending_bytes
        report.complete_until = before.complete_until
        report.looked = True


def left_at_rest(
    remote: Remote, sync: Tree, compared: Compared, ahead: NextRound, report: RoundReport
) -> Rested | None:
    """What a round leaves that has come to its end; None where the next has to look at all.

    Args:
        remote: to the receiver.
        sync: `<schema dir>/sync`.
        compared: what the comparison of both lists came to.
        ahead: what was to be done.
        report: of the round.
    """
    scan = ahead.scan
    # What waits for its rest, or its turn, becomes ready without any change.
    timed = remote.config.closed_by == "tail" and report.waiting
    loose = report.held or report.changed or report.expired or report.pending_files
    if remote.entry.source != "directories" or compared.agreed is None or timed or loose:
        return None
    busy = ahead.work.tasks or ahead.taken_back or ahead.ending or ahead.rebuilt is not None
    torn = scan.unmounted or scan.unreadable or scan.moving or scan.changing
    if not report.quiet or busy or torn or not FreedList(sync, remote.directory).is_empty:
        return None
    if any(map(_may_end_untold, scan.waiting)):
        return None
    if any(each.shared is not None for each in scan.deletions):
        return None
    return Rested(compared.agreed, ahead.look.number, scan.deletions, report)


def _may_end_untold(waiting: Waiting) -> bool:
    """Whether a file may become ready without a change of names: it could not be read."""
    return waiting.why is Why.OPEN and os.path.lexists(waiting.data_dir / (waiting.text + RESOURCE))


def _is_as_seen(file: LocalDeletions) -> bool:
    try:
        found = os.lstat(file.data_dir / file.rel)
    except OSError:
        return False
    return stat_identity(found) == file.identity
