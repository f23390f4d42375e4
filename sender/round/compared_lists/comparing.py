"""Both sides compare: is what is listed here what the receiver has listed, and if not, where.

The sum of the list is asked about in every round, after what the last tasks came to is folded in.
Where the sums differ, the receiver names what it let go by itself (past its TTL, deleted by its
operator, another sender's now); such files stay on the list, and count no more. If that does not
explain it, the next plan is made against the inventory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from common import wire
from common.errors import NameRefusedError
from common.listed import ListedSum, deletions_text
from common.names import FilePath
from common.wire import LOADED
from sender.select.entry import Entry, EntryState
from sender.select.listed_table import listed_sum
from sender.select.path_table import differing, with_changes

if TYPE_CHECKING:
    from sender.kept.seen_looks.deletions_sight import DeletionsSight
    from sender.plan.next_round import Known
    from sender.send.remote import Remote

__all__ = ["Compared", "ask_about", "compare", "lost_pages"]


class Compared(msgspec.Struct, frozen=True):
    """What the comparison came to.

    Attributes:
        known: with what was learned.
        inventory: of the receiver, where the plan is to be made against it.
        changed: listed files that the receiver let go by itself, or did not after all.
        agreed: the sum of the list, if that is what the receiver has.
    """

    known: Known
    inventory: list[wire.InventoryEntry] | None = None
    changed: tuple[Entry, ...] = ()
    agreed: ListedSum | None = None


def compare(remote: Remote, known: Known, since: int) -> Compared:
    """Ask the receiver; nothing is written.

    Args:
        remote: to it.
        known: what is known; its list is compared.
        since: the newest commit of it that was known when both lists were compared last.
    """
    before = known.entries
    inventory = agreed = None
    if known.comparable:
        known, agreed = _summed(remote, known, since)
    if known.comparison is not None:
        engine = None if known.check is None else known.check.engine
        inventory = remote.patiently(lambda: list(remote.client.inventory(of=engine)))
        if known.check is not None and known.check.compares:
            known = _asked(remote, known, inventory)
    changed = () if known.entries is before else tuple(_other_states(before, known.entries))
    return Compared(known, inventory, changed, agreed)


def _summed(remote: Remote, known: Known, since: int) -> tuple[Known, ListedSum | None]:
    found = _sum(known)
    answer = ask_about(remote, found, since)
    if not answer.agrees and answer.ended:
        known = _without(known, answer.ended)
        found = _sum(known)
        answer = ask_about(remote, found, since)
    return (known, found) if answer.agrees else (replace(known, differs=True), None)


def ask_about(remote: Remote, listed: ListedSum, since: int) -> wire.ListedAnswer:
    """Ask whether the receiver has the same listed; if not, what it let go since a commit."""
    request = wire.ListedRequest(files=listed.files, digest=listed.digest, since=since)
    return remote.patiently(lambda: remote.client.listed(request))


def _sum(known: Known) -> ListedSum:
    """Of what counts as loaded and good at both ends: what is wanted again does not."""
    made, check, told = listed_sum(known.entries), known.check, known.look.after.deletions
    bad = {(each.path, each.md5) for each in (*check.wanted, *check.held)} if check else set()
    for text in told.keys() | {path for path, _ in bad}:
        entry = _listed_at(known.entries, text)
        if entry is not None and entry.state is not EntryState.ENDED:
            made.remove(text, entry.md5)
            if (text, entry.md5) not in bad:
                made.add(text, entry.md5, _told(told[text]) if text in told else "")
    return made


def _listed_at(entries: Mapping[FilePath, Entry], text: str) -> Entry | None:
    try:
        return entries.get(FilePath.parse(text))
    except NameRefusedError:
        return None


def _other_states(
    before: Mapping[FilePath, Entry], after: Mapping[FilePath, Entry]
) -> Iterator[Entry]:
    """Entries that are sure in another way than they were."""
    for path, entry in differing(after, before):
        if entry.state is not before[path].state:
            yield entry


def _told(forms: Mapping[str, DeletionsSight]) -> str:
    return deletions_text(
        {form: known for form, each in forms.items() if (known := each.at_receiver) is not None}
    )


def _without(known: Known, ended: Iterable[wire.EndedHere]) -> Known:
    """The same, where what the receiver let go by itself counts no more."""
    changed = [
        replace(entry, state=EntryState.ENDED)
        for each in ended
        if (entry := _listed_at(known.entries, each.path)) is not None
        and entry.state is not EntryState.ENDED
        and entry.md5 == each.md5
    ]
    return replace(known, entries=with_changes(known.entries, changed))


def _asked(remote: Remote, known: Known, inventory: Iterable[wire.InventoryEntry]) -> Known:
    """The same, with what became of the listed files that the inventory lacks."""
    there = {each.path for each in inventory if each.state == LOADED}
    absent = {path: each for path, each in known.entries.items() if path.text not in there}
    asked = iter([wire.ListedFile(path=p.text, md5=each.md5) for p, each in absent.items()])
    limit = 1000 if known.check is None else known.check.limits.max_page_items
    ended: set[tuple[str, str]] = set()
    for page in _pages(asked, limit):
        answer = remote.patiently(lambda page=page: remote.client.ended(page))  # type: ignore[misc]
        ended |= {(each.path, each.md5) for each in answer.ended}
    changed = []
    for path, entry in absent.items():
        if (path.text, entry.md5) in ended:
            changed.append(replace(entry, state=EntryState.ENDED))
        elif entry.state is EntryState.ENDED and not known.is_settled(entry):
            changed.append(replace(entry, state=EntryState.LOADED))
    return replace(known, entries=with_changes(known.entries, changed))


def _pages(files: Iterator[wire.ListedFile], limit: int) -> Iterator[wire.ListedPage]:
    while page := list(islice(files, limit)):
        yield wire.ListedPage(files=page)


def lost_pages(entries: Iterable[Entry], limit: int) -> Iterator[wire.LostPage]:
    """Listed files that neither side has, in pages that a receiver takes."""
    left = map(_lost_file, entries)
    while page := list(islice(left, limit)):
        yield wire.LostPage(files=page)


def _lost_file(entry: Entry) -> wire.LostFile:
    return wire.LostFile(
        path=entry.path.text,
        md5=entry.md5,
        size=entry.size,
        first_time=entry.first_time,
        last_time=entry.last_time,
        reason="the receiver lacks what it once loaded, and it is gone at its sender",
    )
