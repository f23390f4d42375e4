"""From what is here and what is loaded there to what must be done. Nothing is changed here.

For each path, against the list of loaded files:

* *new*: closed here and not listed;
* *replaced*: listed with other size, mtime or inode, and other content (MD5 is only computed when
  the numbers differ): a deletion and an addition of one path in one task;
* *gone*: listed, and the TsFile itself is certainly not there any more (`Scan.is_gone`);
* *resource*: listed as it is, and what lies beside it is another `.resource` than was told of;
* *moved*, or touched: the same content with other numbers, or in another data directory: neither;
  its facts are brought up to date.

* *unseen*: listed, not met, and its partition was not looked at whole: nothing is known of it.

What compactions made in a partition, and its ends, travel together or not at all: while a product
waits, is in trouble, or clashes, or an end is held, all of them are; in mode `all`, while anything
in it does. Originals go meanwhile. So the centre never has a product beside what it was made of,
and never loses what it was made of before it has the product.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from common.wire import Propagate
from sender.kept.troubles import TroubleKind
from sender.plan.additions import Addition, NewFiles
from sender.plan.begun_anew import tasks_anew
from sender.plan.compacted import unexplained
from sender.plan.plan_options import PlanOptions
from sender.plan.task_plan import TaskPlan, ToldDeletion, Work, cut, too_many
from sender.select.entry import Entry, EntryState
from sender.select.facts import ContentFacts
from sender.select.found import LocalFile
from sender.select.listed_table import unsettled, with_other_resources
from sender.select.path_table import PathTable, lacking

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from common.names import FilePath
    from sender.kept.troubles import Trouble
    from sender.select.found import LocalDeletions, Scan, Span, TimePartition
    from sender.select.path_table import Directory, PathBlock

__all__ = ["Held", "HeldWhy", "RoundPlan", "Skipped", "plan"]


class HeldWhy(StrEnum):
    """Why a deletion waits."""

    PARTITION = "partition"
    """Something else in its partition is not loaded yet."""
    HISTORY = "history"
    """The list was just compared afresh with the receiver."""
    UNSEEN = "unseen"
    """Its partition was not looked at whole: the file may be there."""
    UNSURE = "unsure"
    """Only the inventory knows the file: it was never seen here since."""


class Held(msgspec.Struct, frozen=True):
    """A deletion that waits, and why, in words that name what it waits for."""

    path: FilePath
    why: HeldWhy
    reason: str


class Skipped(msgspec.Struct, frozen=True):
    """A file that is not offered now; `held`: it goes together with ends that wait."""

    file: LocalFile
    reason: str
    held: bool = False


class RoundPlan(msgspec.Struct, frozen=True):
    """What a round has to do.

    Attributes:
        tasks: in the order in which they are to run, oldest partitions first.
        held: deletions that wait.
        skipped: files that are in trouble and not offered, or that changed just now.
        refreshed: listed files whose facts are to be brought up to date (`Ledger.refresh`).
        moved: how many of these are in another data directory than before.
        unchanged: listed files with nothing to do.
    """

    tasks: tuple[TaskPlan, ...] = ()
    held: tuple[Held, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    refreshed: tuple[Entry, ...] = ()
    moved: int = 0
    unchanged: int = 0

    @property
    def files(self) -> int:
        """Files to send."""
        return sum(not each.resource_only for task in self.tasks for each in task.additions)


@dataclass
class _Sorted:
    """The files of a scan, compared with the list."""

    additions: list[Addition] = field(default_factory=list)
    new: Mapping[TimePartition, Sequence[PathBlock]] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    refreshed: list[Entry] = field(default_factory=list)
    gone: list[Entry] = field(default_factory=list)
    unseen: list[Held] = field(default_factory=list)
    moved: int = 0
    unchanged: int = 0


@dataclass
class _Deletions:
    """What is to become of the gone files."""

    go: list[ToldDeletion] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)


def plan(
    scan: Scan,
    entries: Mapping[FilePath, Entry],
    troubles: Mapping[FilePath, Trouble],
    options: PlanOptions,
    facts: ContentFacts,
    deletion_files: Iterable[LocalDeletions] = (),
    *,
    tells: bool = False,
    parts: Callable[[LocalDeletions], int] = lambda file: 1,
) -> RoundPlan:
    """Compare a scan with what is loaded; see the module.

    Args:
        scan: the local files; last copies of an earlier task among them (`with_last_copies`).
        entries: what is loaded (`Ledger.entries`).
        troubles: files that the receiver did not take (`Troubles.by_path`, pruned).
        options: what is wanted.
        facts: reads contents and times where the numbers do not decide.
        deletion_files: of which the receiver does not have all (`EdgeLook.due`).
        tells: whether it is told of deletion files; those of a file that is sent go along in any
            case, since it is another file than the one that they were told of.
        parts: in how many a deletion file is told.
    """
    found = _compare(scan, entries, troubles, facts, apart=not options.anew)
    beside: Counter[FilePath] = Counter()
    for each in scan.deletions if tells else ():
        beside[each.path] += parts(each)
    _skip_too_long(found, beside, options.task_most)
    limits = options.limits(parts)
    if options.anew:
        return _planned(tasks_anew(found.additions, found.gone, scan.deletions, limits), found)
    blocked = _blocked_groups(scan, troubles, found, options)
    _put_off(found, scan, troubles)
    verdicts = _deletions(scan, entries, found, options, facts, blocked)
    _hold_together(found, verdicts, _too_long(found, verdicts, options, beside) | blocked)
    by_group: dict[TimePartition, Work] = defaultdict(Work)
    for addition in found.additions:
        by_group[addition.path.group].additions.append(addition)
    for group, blocks in found.new.items():
        by_group[group].new = blocks
    for addition in _resources(scan, entries, troubles, found, options):
        by_group[addition.path.group].additions.append(addition)
    for deletion in verdicts.go:
        by_group[deletion.path.group].deletions.append(deletion)
    for path, data_dir in scan.gone_before.items() if options.hold_deletions is None else ():
        by_group[path.group].deletions.append(ToldDeletion(path, data_dir))
    travelling = {each.path for each in found.additions} if tells else set()
    along = [each for each in scan.deletions if each.path in travelling]
    for each in dict.fromkeys([*deletion_files, *along]):
        if (number := parts(each)) > options.task_most:
            why = too_many(f"its deletion file is told in {number} parts", options.task_most)
            verdicts.held.append(Held(each.path, HeldWhy.PARTITION, why))
        else:
            by_group[each.path.group].deletion_files.append(each)
    mirror = options.propagate is Propagate.ALL
    return _planned(cut(by_group, limits, mirror=mirror), found, verdicts.held)


def _planned(tasks: tuple[TaskPlan, ...], found: _Sorted, held: Iterable[Held] = ()) -> RoundPlan:
    return RoundPlan(
        tasks,
        tuple(held),
        tuple(found.skipped),
        tuple(found.refreshed),
        found.moved,
        found.unchanged,
    )


# -- comparing -----------------------------------------------------------------------------------


def _compare(
    scan: Scan,
    entries: Mapping[FilePath, Entry],
    troubles: Mapping[FilePath, Trouble],
    facts: ContentFacts,
    *,
    apart: bool,
) -> _Sorted:
    """Compare all; `apart` has new files that nothing depends on in `_Sorted.new`."""
    found = _Sorted()
    found.unchanged = len(scan.files)
    new = NewFiles(_blocks_of(scan.files))
    told_of = {each.path for each in scan.deletions}
    for file, entry in unsettled(scan.files, entries):
        found.unchanged -= 1
        if apart and entry is None and _depends_on_nothing(file.path, troubles, told_of):
            new.add(file)
        elif entry is not None and entry.md5 and entry.is_of(file):
            _unchanged(found, entry, file)
        else:
            _differs(found, file, entry, troubles.get(file.path), facts)
    found.new = new.by_group()
    for path in scan.told_anew:
        again, entry = scan.files.get(path), entries.get(path)
        if again is not None and entry is not None and entry.md5 and entry.is_of(again):
            found.additions.append(Addition(again))
    for path, entry in lacking(entries, scan.files):
        if not scan.is_missing(path):
            continue
        if scan.is_gone(path, entry.data_dir):
            found.gone.append(entry)
        else:
            why = scan.why_not_whole(path.group) or f"{entry.data_dir} is not configured any more"
            found.unseen.append(Held(path, HeldWhy.UNSEEN, why))
    return found


def _blocks_of(files: Mapping[FilePath, LocalFile]) -> Callable[[Directory], Iterable[PathBlock]]:
    table = files.directories() if isinstance(files, PathTable) else {}
    return lambda directory: table.get(directory, ())


def _depends_on_nothing(
    path: FilePath, troubles: Mapping[FilePath, Trouble], told_of: Collection[FilePath]
) -> bool:
    """Whether a new file goes whatever becomes of others: no end, no deletion file, no trouble."""
    return not path.is_product and path not in troubles and path not in told_of


def _resources(
    scan: Scan,
    entries: Mapping[FilePath, Entry],
    troubles: Mapping[FilePath, Trouble],
    found: _Sorted,
    options: PlanOptions,
) -> Iterator[Addition]:
    """Loaded files whose resource a database wrote anew: as many as one task may have.

    It may have written all of them, and files that are new are not to wait for that. Nothing waits
    for them either: they are no part of what a look tells.
    """
    if not options.resources:
        return
    coming = {each.path for each in found.additions}
    left = options.task_max_files
    for file in with_other_resources(scan.files, entries):
        trouble = troubles.get(file.path)
        if trouble is not None and not trouble.concerns(file):
            trouble = None
        if file.path in coming or (trouble is not None and trouble.keeps_back):
            continue
        yield Addition(file, trouble=trouble, resource_only=True)
        left -= 1
        if not left:
            return


def _unchanged(found: _Sorted, entry: Entry, file: LocalFile) -> None:
    if entry.data_dir == file.data_dir and entry.state is not EntryState.LISTED:
        found.unchanged += 1
    else:
        _refresh(found, entry, file, entry.span)


def _refresh(found: _Sorted, entry: Entry, file: LocalFile, span: Span | None) -> None:
    found.moved += entry.data_dir != file.data_dir
    fresh = Entry.of(file, entry.md5, span, entry.resource_mark)
    ended = entry.state is EntryState.ENDED
    found.refreshed.append(replace(fresh, state=EntryState.ENDED) if ended else fresh)


def _differs(
    found: _Sorted,
    file: LocalFile,
    entry: Entry | None,
    trouble: Trouble | None,
    facts: ContentFacts,
) -> None:
    """A file that is not listed with these numbers: touched, replaced, or new."""
    replaces = False
    if entry is not None and entry.md5:
        if entry.size == file.size:
            md5 = facts.md5(file)
            if md5 is None:
                found.skipped.append(Skipped(file, "changed or unreadable while it was compared"))
                return
            if md5 == entry.md5:
                _refresh(found, entry, file, entry.span or facts.span(file))
                return
        replaces = True
    if trouble is not None and not trouble.concerns(file):
        trouble = None
    if trouble is not None and trouble.keeps_back:
        found.skipped.append(Skipped(file, trouble.reason or str(trouble.kind)))
        return
    found.additions.append(Addition(file, replaces, trouble))


# -- ends ----------------------------------------------------------------------------------------


def _deletions(
    scan: Scan,
    entries: Mapping[FilePath, Entry],
    found: _Sorted,
    options: PlanOptions,
    facts: ContentFacts,
    blocked: Mapping[TimePartition, str],
) -> _Deletions:
    verdicts = _Deletions(held=list(found.unseen))
    gone = []
    for entry in found.gone:
        wait = _waits(entry, options, blocked)
        if wait is None:
            gone.append(entry)
        else:
            verdicts.held.append(wait)
    if options.propagate is Propagate.ALL:
        puzzling = [] if options.accept_source else unexplained(gone, scan, entries, facts)
        _unsure(verdicts, gone, puzzling)
    else:  # the receiver retires them: nothing is lost by it
        verdicts.go = [ToldDeletion(entry.path, entry.data_dir) for entry in gone]
    return verdicts


def _skip_too_long(found: _Sorted, beside: Mapping[FilePath, int], most: int) -> None:
    """Do not offer files whose deletion files are more than a task may have."""
    staying = []
    for addition in found.additions:
        if (number := beside.get(addition.path, 0)) > most:
            why = too_many(f"its deletion file is told in {number} parts", most)
            found.skipped.append(Skipped(addition.file, why))
        else:
            staying.append(addition)
    found.additions = staying


def _put_off(found: _Sorted, scan: Scan, troubles: Mapping[FilePath, Trouble]) -> None:
    """Do not offer last copies in conflict beside what is to be told of their partitions.

    Nobody here can mend such a file, and what the database has by now does not depend on it; so
    neither the ends nor the products of its partition wait for it.
    """
    conflicts = [
        each
        for each in found.additions
        if each.path in scan.last_copies
        and (trouble := troubles.get(each.path)) is not None
        and trouble.concerns(each.file)
        and trouble.kind is TroubleKind.CONFLICT
    ]
    if not conflicts:
        return
    staying = [each for each in found.additions if each not in conflicts]
    busy = {each.path.group for each in staying} | {each.path.group for each in found.gone}
    for each in conflicts:
        if each.path.group in busy:
            found.skipped.append(Skipped(each.file, troubles[each.path].reason))
        else:
            staying.append(each)
    found.additions = staying


def _too_long(
    found: _Sorted, verdicts: _Deletions, options: PlanOptions, beside: Mapping[FilePath, int]
) -> dict[TimePartition, str]:
    """Partitions whose ends, and what goes together with them, are more than a task may have."""
    mirror, most = options.propagate is Propagate.ALL, options.task_most
    ends = Counter(each.path.group for each in verdicts.go)
    ends.update(each.path.group for each in found.additions if each.replaces)
    together = Counter(each.path.group for each in found.additions if each.goes_with_ends)
    files = together
    records: Counter[TimePartition] = Counter()
    groups = ends.keys() | together.keys()
    for each in found.additions:
        if each.goes_with_ends or (mirror and each.path.group in groups):
            records[each.path.group] += beside.get(each.path, 0)
    if mirror:
        files = Counter(each.path.group for each in found.additions if each.path.group in groups)
        for group in groups & found.new.keys():
            files[group] += sum(map(len, found.new[group]))
    return {
        group: too_many(f"{number} of them go together", most)
        for several in (ends, files, records)
        for group, number in several.items()
        if number > most
    }


def _hold_together(
    found: _Sorted, verdicts: _Deletions, blocked: Mapping[TimePartition, str]
) -> None:
    """Where an end is held, or a product is not ready, hold all of them, and the products."""
    reasons = dict(blocked)
    for held in verdicts.held:
        reasons.setdefault(held.path.group, f"the end of {held.path.name} waits: {held.reason}")
    going = verdicts.go
    verdicts.go = [each for each in going if each.path.group not in reasons]
    verdicts.held += [
        Held(each.path, HeldWhy.PARTITION, reasons[each.path.group])
        for each in going
        if each.path.group in reasons
    ]
    staying = []
    for addition in found.additions:
        why = reasons.get(addition.path.group) if addition.goes_with_ends else None
        if why is None:
            staying.append(addition)
        else:
            found.skipped.append(Skipped(addition.file, f"waits with its partition: {why}", True))
    found.additions = staying


def _unsure(result: _Deletions, gone: list[Entry], puzzling: list[Entry]) -> None:
    """Hold what was never seen here and nothing explains; let the rest pass."""
    puzzles = {each.path for each in puzzling}
    for entry in gone:
        path = entry.path
        if path in puzzles and entry.state is EntryState.LISTED:
            result.held.append(Held(path, HeldWhy.UNSURE, _UNSURE))
        else:
            result.go.append(ToldDeletion(path, entry.data_dir, explained=path not in puzzles))


_UNSURE = (
    "it is known from the receiver's inventory only, no file of this node explains why it is not "
    "here; tsferry-sender sync --accept-source deletes it there"
)


def _waits(entry: Entry, options: PlanOptions, blocked: Mapping[TimePartition, str]) -> Held | None:
    path = entry.path
    if options.hold_deletions is not None:
        return Held(path, HeldWhy.HISTORY, options.hold_deletions)
    if path.group in blocked:
        return Held(path, HeldWhy.PARTITION, blocked[path.group])
    return None


def _blocked_groups(
    scan: Scan, troubles: Mapping[FilePath, Trouble], found: _Sorted, options: PlanOptions
) -> dict[TimePartition, str]:
    """Partitions of which something is not ready that their ends go together with, and why."""
    mirror = options.propagate is Propagate.ALL
    blocked = scan.blocked(products_only=not mirror)
    for addition in found.additions:
        group = addition.path.group
        if addition.goes_with_ends and (why := scan.why_not_whole(group)) is not None:
            blocked.setdefault(group, why)
    for skipped in found.skipped:
        path = skipped.file.path
        trouble = troubles.get(path)
        if (mirror or path.is_product) and (trouble is None or trouble.blocks):
            blocked.setdefault(path.group, f"{path}: {skipped.reason}")
    # A file in trouble that is offered again travels in the same task: if it fails again, that
    # task goes without the ends (`TaskPlan.without`).
    return blocked
