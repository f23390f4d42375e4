"""What the next round does, decided from what is known: whoever asks is told the same.

The round carries it out; `sync --dry-run` shows it; `status`, which asks no receiver, takes from it
what is left. Nothing here writes anything or waits for anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from common.errors import NameRefusedError
from common.names import FilePath
from common.wire import LOADED, History, Propagate
from sender.kept.loaded_list.rebuilt import Rebuilt, rebuilt
from sender.kept.troubles import Trouble, expired_paths, living, without_expired
from sender.plan.assurance import Remaining, remaining
from sender.plan.begun_anew import why_not_at_once
from sender.plan.plan import RoundPlan, plan
from sender.select.entry import Entry, EntryState
from sender.select.path_table import lacking, one_of_each_directory, with_changes

if TYPE_CHECKING:
    from pathlib import Path

    from common.wire import CheckAnswer, InventoryEntry, LostFiles
    from sender.kept.receiver_state import ReceiverState
    from sender.kept.seen_looks.looks import EdgeLook
    from sender.plan.plan_options import PlanOptions
    from sender.select.facts import ContentFacts
    from sender.select.found import LocalFile, Scan

__all__ = ["Comparison", "Known", "NextRound", "TakenBack", "next_round"]

_HISTORIES = {
    History.NEW: "this receiver was not known, or was exchanged",
    History.REWOUND: "the receiver lacks what it once reported: an old copy was restored",
}
_ACCEPTED = "the receiver's operator says that this sender was restored from a copy"
_DIFFERS = "what is listed here is not what the receiver has listed"
_SOURCE_LOST = "the receiver on this node, which has the list, was exchanged or restored"


class Known(msgspec.Struct, frozen=True):
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
        differs: whether the receiver has something else listed.
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
    differs: bool = False

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
        return cls(
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

    @property
    def scan(self) -> Scan:
        """The local files."""
        return self.look.scan

    @property
    def comparable(self) -> bool:
        """Whether the whole list is known, as far as one side can tell, and the other compares."""
        return (
            self.check is not None
            and self.check.compares
            and self.comparison is None
            and self.source_doubt is None
            and not self.scan.unmounted
        )

    def is_settled(self, entry: Entry) -> bool:
        """Whether an end is all that is left to tell of what the receiver let go by itself.

        It need not know of it any more: it forgets what was superseded, if its devices went to
        another sender. Where it is another one, or lacks what it had, that is no reason.
        """
        continues = self.check is not None and self.check.history is History.CONTINUES
        return continues and self.scan.is_gone(entry.path, entry.data_dir)

    @property
    def comparison(self) -> Comparison | None:
        """Whether the list is to be compared with the receiver's inventory before any plan."""
        if self.check is None:
            return None
        if self.check.anew and not self.scan.unmounted:
            return Comparison(_ACCEPTED, None)
        reason = _HISTORIES.get(self.check.history)
        if reason is None and self.doubts:
            reason = f"the list of loaded files cannot be relied on: {self.doubts[0]}"
        if reason is None and self.differs:
            reason = _DIFFERS
        if reason is not None:
            return Comparison(reason, f"{reason}; deletions wait for the next round")
        return Comparison(_SOURCE_LOST, None) if self.source_lost else None


class Comparison(msgspec.Struct, frozen=True):
    """Why all is compared with the inventory, and why deletions are held because of it, if so."""

    reason: str
    hold: str | None


class TakenBack(msgspec.Struct, frozen=True):
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


class NextRound(msgspec.Struct, frozen=True):
    """What is to be done.

    Attributes:
        known: what it was decided on.
        look: what is to be remembered of the look.
        taken_back: files that were loaded and are not any more.
        rebuilt: what the comparison with the inventory made of the list, if there was one.
        scan: the local files, with the last copies.
        troubles: those that still concern a file.
        work: the plan.
        listed: the list once the plan's new facts of known files are taken in.
        ending: files that the receiver wants again, that are neither here nor on the list: their
            end was never told, so they go on the list once more.
        lost: what was listed here and neither side has any more.
        postponed: why the list does not begin anew yet, if it is to.
    """

    known: Known
    look: EdgeLook
    taken_back: tuple[TakenBack, ...]
    rebuilt: Rebuilt | None
    scan: Scan
    troubles: Mapping[FilePath, Trouble]
    work: RoundPlan
    listed: Mapping[FilePath, Entry]
    ending: tuple[Entry, ...] = ()
    lost: tuple[Entry, ...] = ()
    postponed: str | None = None

    @property
    def leaving(self) -> tuple[FilePath, ...]:
        """Paths that leave the list, and so are new."""
        return tuple(dict.fromkeys(each.path for each in self.taken_back if not each.gone))

    def remaining(self, facts: ContentFacts, lost: LostFiles | None = None) -> Remaining:
        """What is left to be sent before anything of the plan is done."""
        expired = expired_paths(self.troubles, self.scan)
        return remaining(self.scan, self.listed, facts, expired, lost)


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
    ending = tuple(_never_ended(known))
    if ending:
        known = replace(known, entries=with_changes(known.entries, ending))
    back = tuple(_taken_back(known))
    leaving = {each.path for each in back if not each.gone}
    entries = known.entries
    if leaving:
        entries = with_changes(entries, removed=leaving)
    new, troubles, look = None, known.troubles, known.look
    lost: tuple[Entry, ...] = ()
    comparison = known.comparison
    if comparison is not None:
        assert inventory is not None
        assert known.check is not None
        there = list(inventory)
        keeps = _keeps(known, ending) if known.check.compares else lambda entry, item: False
        new = rebuilt(entries, known.pending, there, known.scan.files, known.home, keeps)
        if known.check.compares and options.propagate is not Propagate.ALL:
            lost = tuple(_lost(known, entries, new))  # what a mirror has no more, it deletes
        entries = new.entries
        look = _told_there(known, there)
        troubles = without_expired(troubles)  # of another past, or called back since
    scan = known.scan.with_last_copies(known.last_copies)
    troubles = living(troubles, scan)
    hold, anew, postponed = _why_held(known, comparison, new), False, None
    if known.check is not None and known.check.anew:
        partial = hold or _why_not_all(scan, entries)
        anew = partial is None
        hold = postponed = partial and f"{_ACCEPTED}; it waits for a whole look: {partial}"
    takes = known.check is not None and known.check.resources
    options = replace(options, hold_deletions=hold, anew=anew, resources=takes)
    if known.check is not None and known.check.limits.max_task_items:
        options = replace(options, task_most=known.check.limits.max_task_items)
    tells = look.number > 0
    if not tells:
        scan = scan.without_deletion_files(entries)
    due = look.due(applies=options.applies)

    def planned(options: PlanOptions) -> RoundPlan:
        return plan(scan, entries, troubles, options, facts, due, tells=tells, parts=look.parts)

    work = planned(options)
    why = why_not_at_once(work.tasks[0], options.limits(look.parts)) if anew else None
    if why is not None:
        postponed = f"{_ACCEPTED}; it waits: {why}"
        work = planned(replace(options, hold_deletions=postponed, anew=False))
    listed = entries
    if work.refreshed:
        listed = with_changes(entries, work.refreshed)
    return NextRound(known, look, back, new, scan, troubles, work, listed, ending, lost, postponed)


def _why_held(known: Known, comparison: Comparison | None, new: Rebuilt | None) -> str | None:
    """Why no end is told in this round."""
    if comparison is not None and comparison.hold is not None:
        # Where nothing came of it, what differs is what could not be looked at: no end waits.
        only_differs = comparison.reason == _DIFFERS
        if not only_differs or new is None or new.taken or new.dropped:
            return comparison.hold
    return known.source_doubt


def _why_not_all(scan: Scan, entries: Mapping[FilePath, Entry]) -> str | None:
    """Why this edge was not looked at whole; None if it was."""
    for away in scan.unmounted:
        return f"{away.data_dir}: {away.reason}"
    paths = chain.from_iterable(map(one_of_each_directory, (entries, scan.files, scan.others)))
    for group in dict.fromkeys(path.group for path in paths):
        why = scan.why_not_whole(group)
        if why is not None:
            return why
    for why in scan.blocked(products_only=False).values():
        return why  # a file that is closed and does not come would be missing above the others
    for path, entry in lacking(entries, scan.files):
        if scan.is_missing(path) and not scan.is_gone(path, entry.data_dir):
            return f"{entry.data_dir} is not configured any more"
    return None


def _keeps(known: Known, ending: Iterable[Entry]) -> Callable[[Entry, InventoryEntry | None], bool]:
    """Which listed files stay listed although the receiver does not have them loaded.

    What it let go by itself; what it has in quarantine, or asks for, so that the end is told; what
    may be here, where this look did not get to.
    """
    due = {each.path for each in ending}

    def keeps(entry: Entry, item: InventoryEntry | None) -> bool:
        if entry.state is EntryState.ENDED or entry.path in due:
            return True
        missing = known.scan.is_missing(entry.path)
        if item is not None and item.md5 == entry.md5:
            return missing
        return missing and not known.scan.is_gone(entry.path, entry.data_dir)

    return keeps


def _lost(known: Known, before: Mapping[FilePath, Entry], new: Rebuilt) -> Iterable[Entry]:
    """What leaves the list because the receiver lacks it, and is proved not to be here."""
    copies = {each.path for each in known.last_copies}
    for path in new.dropped:
        entry = before[path]
        if entry.md5 and path not in copies and known.scan.is_gone(path, entry.data_dir):
            yield entry


def _never_ended(known: Known) -> Iterable[Entry]:
    """Files that are wanted again, off the list, and proved not to be here: their end is due."""
    home, check = known.home, known.check
    for each in (*check.wanted, *check.held) if check is not None and home is not None else ():
        path = _parsed(each.path)
        if path is None or path in known.entries or home is None:
            continue
        copies = {copy.path for copy in known.last_copies}
        if path not in copies and path not in known.pending and known.scan.is_gone(path, home):
            yield Entry(path, home, each.size, 0, 0, each.md5, state=EntryState.LOADED)


def _parsed(text: str) -> FilePath | None:
    try:
        return FilePath.parse(text)
    except NameRefusedError:
        return None


def _told_there(known: Known, inventory: Iterable[InventoryEntry]) -> EdgeLook:
    """The look, where what was told of deletion files is what the receiver has of them."""
    if known.check is None or not known.check.compares or known.check.anew:
        return _untold(known.look)
    return known.look.told_as(
        {each.path: each.deletions for each in inventory if each.state == LOADED}
    )


def _untold(look: EdgeLook) -> EdgeLook:
    """A look after which the receiver is told all deletion files from their beginning."""
    deletions = {
        path: {form: replace(sight, told=0, there=0, kept=0) for form, sight in forms.items()}
        for path, forms in look.after.deletions.items()
    }
    return replace(look, after=replace(look.after, deletions=deletions))


def _taken_back(known: Known) -> Iterable[TakenBack]:
    """Files that were loaded and must come again, or are held: the latter are planned and refused.

    No byte of a held one travels; it is in trouble from then on.
    """
    if known.check is None:
        return
    copies = {each.path for each in known.last_copies}
    held_paths = {held.path: held for held in known.check.held}
    wanted_paths = {wanted.path: wanted for wanted in known.check.wanted}
    for text in dict.fromkeys((*wanted_paths, *held_paths)):
        path = _parsed(text)
        entry = None if path is None else known.entries.get(path)
        if path is None or entry is None:
            continue
        held, wanted = held_paths.get(text), wanted_paths.get(text)
        if held is not None and entry.md5 in ("", held.md5):
            gone = known.scan.is_gone(path, entry.data_dir)
            yield TakenBack(path, held.reason, wanted=False, gone=gone)
        if wanted is not None and entry.md5 in ("", wanted.md5):
            gone = path not in copies and known.scan.is_gone(path, entry.data_dir)
            yield TakenBack(path, wanted.reason, wanted=True, gone=gone)
