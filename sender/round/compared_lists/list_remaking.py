"""The list of loaded files is made what a comparison with the receiver has found.

What is off the list nobody knows any more, so what neither side has is told before that. What was
in the way of a file is forgotten before the receiver's past counts as this one's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain

from common import crash, wire
from common.wire import History
from sender.kept.receiver_file import ReceiverFile
from sender.kept.receiver_state import ReceiverState
from sender.plan.next_round import NextRound
from sender.round.compared_lists.comparing import lost_pages
from sender.round.compared_lists.freed_news import freed_pages, renew_freed
from sender.round.round_words.round_report import FileReason, RoundReport, of_held_records
from sender.send.remote import Remote

__all__ = ["ListRemaking", "note_held", "note_lost"]

_log = logging.getLogger(__name__)

_LOST_BYTES = 2000
"""Of one file in a page of lost ones, at most."""


class ListRemaking:
    """Carries out what of a plan concerns the list itself."""

    def __init__(
        self, remote: Remote, kept: ReceiverState, check: wire.CheckAnswer, report: RoundReport
    ) -> None:
        self._remote = remote
        self._kept = kept
        self._check = check
        self._report = report

    def take_back(self, ahead: NextRound) -> None:
        """Files that were loaded and are not any more leave the list."""
        for each in ahead.taken_back:
            what = "is wanted again" if each.wanted else "is in quarantine"
            _log.warning("%s: %s %s: %s", self._remote.name, each.path.text, what, each.reason)
            if each.wanted:
                reason = f"{each.reason}; it is here no more" if each.gone else each.reason
                self._report.wanted.append(FileReason(each.path.text, reason))
        if ahead.leaving:
            self._kept.ledger.fold(removed=ahead.leaving)
            crash.point("round.taken_back")

    def become(self, ahead: NextRound) -> None:
        """Make the list what it was found to be against the inventory, if it was compared."""
        kept, check = self._kept, self._check
        new = ahead.rebuilt
        if new is None:
            return
        self._tell_lost(ahead)  # first: what is off the list nobody knows any more
        kept.ledger.become(new)
        crash.point("round.rebuilt")
        self._report.already += sum(1 for path in new.taken if path in ahead.known.scan.files)
        with kept.changing_troubles() as troubles:
            troubles.clear(new.taken)  # what was in the way of these is over
            # First: once the history is begun, nobody would know that they are another's, and
            # once this comparison is remembered, that they may have been called back.
            troubles.forget_expired()
        crash.point("round.troubles_forgotten")
        self._begin_history()
        if not ahead.known.scan.unmounted:  # the lists of those that are away were not
            kept.memory.update(compared=check.newest_commit)
        _log.info(
            "%s: compared",
            self._remote.name,
            extra={"kept": new.kept, "taken": len(new.taken), "dropped": len(new.dropped)},
        )

    def _tell_lost(self, ahead: NextRound) -> None:
        """Tell what was listed here and is at neither side."""
        kept, check = self._kept, self._check
        limit = min(check.limits.max_page_items, check.limits.max_page_bytes // _LOST_BYTES)
        pages = [lost_pages(ahead.lost, max(1, limit))]
        if check.history is not History.CONTINUES and check.compares:
            pages.append(freed_pages(kept, ahead.known.scan, max(1, limit)))
        for page in chain.from_iterable(pages):
            answer = self._remote.patiently(lambda page=page: self._remote.client.lost(page))  # type: ignore[misc]
            note_lost(self._report, kept.memory, answer.all)
            if answer.lost:
                _log.error("%s: %d files are lost", self._remote.name, len(answer.lost))
        crash.point("round.lost_told")
        if check.history is not History.CONTINUES:
            renew_freed(kept, check.newest_commit)

    def _begin_history(self) -> None:
        """From now on this is the receiver's past, as the list has just been made to fit it."""
        memory, check = self._kept.memory, self._check
        if check.history is History.CONTINUES:
            return
        memory.update(
            engine=check.engine,
            newest_commit=check.newest_commit,
            last_task=None,
            propagate=None,
            verified=check.verified,
        )
        if check.history is History.NEW:
            memory.update(epoch=None)  # another engine's; a rewound one goes on from ours


def note_held(report: RoundReport, memory: ReceiverFile, held: Sequence[wire.HeldRecords]) -> None:
    """Records that wait for the receiver's operator are named in each round, until they go."""
    memory.update(held_records=tuple(held))
    report.held_records = of_held_records(held)


def note_lost(report: RoundReport, memory: ReceiverFile, lost: wire.LostFiles | None) -> None:
    """What neither side has any more is named in each round, until it is acknowledged."""
    memory.update(lost=lost)
    named = lost.named if lost is not None else []
    report.lost = [FileReason(each.path, each.reason or "lost") for each in named]
