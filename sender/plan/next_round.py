"""What the next round does, decided from what is known: whoever asks is told the same.

The round carries it out; `sync --dry-run` shows it; `status`, which asks no receiver, takes from it
what is left. Nothing here writes anything or waits for anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from common.wire import History
from sender.kept.rebuilt import Rebuilt, rebuilt
from sender.kept.troubles import Trouble, expired_paths, living, without_expired
from sender.plan.assurance import Remaining, remaining
from sender.plan.plan import RoundPlan, plan

if TYPE_CHECKING:
    from pathlib import Path

    from common.names import FilePath
    from common.wire import CheckAnswer, InventoryEntry
    from sender.kept.looks import EdgeLook
    from sender.kept.receiver_state import ReceiverState
    from sender.plan.plan_options import PlanOptions
    from sender.select.entry import Entry
    from sender.select.facts import ContentFacts
    from sender.select.found import LocalFile, Scan

__all__ = ["Comparison", "Known", "NextRound", "TakenBack", "next_round"]

_HISTORIES = {
    History.NEW: "this receiver was not known, or was exchanged",
    History.REWOUND: "the receiver lacks what it once reported: an old copy was restored",
}
_SOURCE_LOST = "the receiver on this node, which has the list, was exchanged or restored"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known once everything was looked at.

    Attributes:
        entries: the list, as it is once the last tasks are folded in.
        pending: what was sent in tasks that are not.
        home: the data directory of a path that is in none; None if none counts.
        doubts: why the list cannot be relied on.
        look: at the local files.
        last_copies: files that live on only in the snapshot.
        troubles: of files that the receiver did not take, by path.
        check: the receiver's answer; None where it was not asked.
        source_lost: the source of the files has another past than it had.
        source_doubt: why none of its files counts as gone, if so.
    """

    entries: Mapping[FilePath, Entry]
    pending: Mapping[FilePath, Entry]
    home: Path | None
    doubts: tuple[str, ...]
    look: EdgeLook
    last_copies: tuple[LocalFile, ...]
    troubles: Mapping[FilePath, Trouble]
    check: CheckAnswer | None = None
    source_lost: bool = False
    source_doubt: str | None = None

    @classmethod
    def of(
        cls,
        kept: ReceiverState,
        look: EdgeLook,
        *,
        entries: Mapping[FilePath, Entry] | None = None,
        last_copies: tuple[LocalFile, ...] = (),
        check: CheckAnswer | None = None,
        source_lost: bool = False,
        source_doubt: str | None = None,
    ) -> Known:
        """What is open on a kept, and what was looked at; `entries` where the list is to change."""
        ledger = kept.ledger
        known = cls(
            ledger.entries if entries is None else entries,
            ledger.pending,
            ledger.home,
            ledger.doubts,
            look,
            last_copies,
            kept.troubles.by_path,
            check,
            source_lost,
            source_doubt,
        )
        # A receiver with another past, or another list, may not have the deletions either.
        return known if known.comparison is None else replace(known, look=_untold(look))

    @property
    def scan(self) -> Scan:
        """The local files."""
        return self.look.scan

    @property
    def comparison(self) -> Comparison | None:
        """Whether the list is to be compared with the receiver's inventory before any plan."""
        if self.check is None:
            return None
        reason = _HISTORIES.get(self.check.history)
        if reason is None and self.doubts:
            reason = f"the list of loaded files cannot be relied on: {self.doubts[0]}"
        if reason is not None:
            return Comparison(reason, f"{reason}; deletions wait for the next round")
        return Comparison(_SOURCE_LOST, None) if self.source_lost else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Why all is compared with the inventory, and why deletions are held because of it, if so."""

    reason: str
    hold: str | None


@dataclass(frozen=True, slots=True)
class TakenBack:
    """A file on the list that the receiver has no more, or holds in quarantine.

    Attributes:
        path: of it.
        reason: in the receiver's words.
        wanted: it is to come again; else it is held, and is refused with the reason.
        gone: it is here no more, and so stays on the list: its deletion is told like any other, or
            the receiver would ask for it for ever.
    """

    path: FilePath
    reason: str
    wanted: bool
    gone: bool


@dataclass(frozen=True, slots=True)
class NextRound:
    """What is to be done.

    Attributes:
        known: what it was decided on.
        taken_back: files that were loaded and are not any more.
        rebuilt: what the comparison with the inventory made of the list, if there was one.
        scan: the local files, with the last copies.
        troubles: those that still concern a file.
        work: the plan.
        listed: the list once the plan's new facts of known files are taken in.
    """

    known: Known
    taken_back: tuple[TakenBack, ...]
    rebuilt: Rebuilt | None
    scan: Scan
    troubles: Mapping[FilePath, Trouble]
    work: RoundPlan
    listed: Mapping[FilePath, Entry]

    @property
    def leaving(self) -> tuple[FilePath, ...]:
        """Paths that leave the list, and so are new."""
        return tuple(dict.fromkeys(each.path for each in self.taken_back if not each.gone))

    def remaining(self, facts: ContentFacts) -> Remaining:
        """What is left to be sent before anything of the plan is done."""
        expired = expired_paths(self.troubles, self.scan)
        return remaining(self.scan, self.listed, facts, expired)


def next_round(
    known: Known,
    options: PlanOptions,
    facts: ContentFacts,
    inventory: Iterable[InventoryEntry] | None = None,
) -> NextRound:
    """Decide what is to be done.

    Args:
        known: what is known.
        options: what is wanted; why deletions are held comes from `known`.
        facts: reads contents and times where the numbers do not decide.
        inventory: what the receiver has, every page; needed where `known.comparison` says so.
    """
    back = tuple(_taken_back(known))
    leaving = {each.path for each in back if not each.gone}
    entries = {path: each for path, each in known.entries.items() if path not in leaving}
    new, troubles = None, known.troubles
    if (comparison := known.comparison) is not None:
        assert inventory is not None
        assert known.check is not None
        new = rebuilt(entries, known.pending, inventory, known.scan.files, known.home)
        entries = dict(new.entries)
        if known.check.history is not History.CONTINUES:
            troubles = without_expired(troubles)
    scan = known.scan.with_last_copies(known.last_copies)
    troubles = living(troubles, scan)
    hold = (comparison and comparison.hold) or known.source_doubt
    options = replace(options, hold_deletions=hold)
    if known.check is not None and known.check.limits.max_task_items:
        options = replace(options, task_most=known.check.limits.max_task_items)
    tells = known.look.number > 0
    if not tells:
        scan = scan.without_deletion_files(entries)
    work = plan(scan, entries, troubles, options, facts, known.look.due, tells=tells)
    listed = entries | {each.path: each for each in work.refreshed}
    return NextRound(known, back, new, scan, troubles, work, listed)


def _untold(look: EdgeLook) -> EdgeLook:
    """A look after which the receiver is told all deletion files from their beginning."""
    deletions = {
        path: {form: msgspec.structs.replace(sight, told=0) for form, sight in forms.items()}
        for path, forms in look.after.deletions.items()
    }
    return replace(look, after=msgspec.structs.replace(look.after, deletions=deletions))


def _taken_back(known: Known) -> Iterable[TakenBack]:
    """Files that were loaded and must come again, or are held: the latter are planned and refused.

    No byte of a held one travels; it is in trouble from then on.
    """
    if known.check is None:
        return
    held_paths = {held.path: held for held in known.check.held}
    wanted_paths = {wanted.path: wanted for wanted in known.check.wanted}
    for path, entry in known.entries.items() if wanted_paths or held_paths else ():
        held, wanted = held_paths.get(path.text), wanted_paths.get(path.text)
        if held is not None and entry.md5 in ("", held.md5):
            gone = known.scan.is_gone(path, entry.data_dir)
            yield TakenBack(path, held.reason, wanted=False, gone=gone)
        if wanted is not None and entry.md5 in ("", wanted.md5):
            gone = known.scan.is_gone(path, entry.data_dir)
            yield TakenBack(path, wanted.reason, wanted=True, gone=gone)
