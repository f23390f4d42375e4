"""Loads at the centre, without an edge: whose they are, what is here already, all or nothing.

They have a source of their own, one a centre, whose files are in no edge's list or digest. Their
names are given by this centre, so they rank by their look alone: above what was there, below what
is first looked at later. What overlaps is searched by device and time, whatever directory it lies
in, as another instance has other regions and perhaps other storage groups.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from common.names import FilePath
from common.wire import Result
from receiver.load.deciding.known_files.candidates import Change
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState, is_same_in
from receiver.metadata.state.tables.file_tables.file_index import GroupKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from receiver.load.deciding.known_files.candidates import Candidate
    from receiver.load.folder.current_task import TaskRecord
    from receiver.metadata.model.records import FileOutcome
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["FileOverlap", "content_of_anyone", "overlaps", "owner_guards", "whole_or_nothing"]

_GOOD = frozenset({Result.LOADED, Result.ALREADY, Result.EXPIRED})
_STANDING = (FileState.LIVE, FileState.RETIRED, FileState.SUPERSEDED)


def content_of_anyone(
    state: State, candidate: Candidate, stands: Callable[[FileRow], bool]
) -> list[FileRow]:
    """Files that have the very content, whoever brought it, and whose bytes stand.

    One, or all that were made of it where it was merged for good; none if it is not here.

    Args:
        state: committed.
        candidate: a file that is to be loaded.
        stands: looks at the disk.
    """
    staged = candidate.staged
    for row in state.file_table.of_tail(staged.tail):
        same = (row.size, row.md5) == (staged.size, staged.md5) and is_same_in(
            row, candidate.path.sg
        )
        if same and row.state in _STANDING and stands(row):
            return [row]
    for merge in state.compacted_table.finals.with_content(candidate.path.text, staged.md5):
        rows = [state.files.get(each) for each in merge.became]
        there = [each for each in rows if each is not None and each.visible and stands(each)]
        if len(there) == len(rows):
            return there
    return []


def whole_or_nothing(
    state: State,
    record: TaskRecord,
    change: Change,
    between: Callable[[], None] = lambda: None,
) -> Change:
    """A load at the centre as it was decided, or nothing of it if not all can be done.

    Args:
        state: that it was decided on.
        record: of the task; another one's change is returned as it is.
        change: what was decided.
        between: called between two files, where nothing is under way.
    """
    mandate = record.centre
    if mandate is None:
        return change
    bad = {path: each for path, each in change.outcomes.items() if each.result not in _GOOD}
    compared = frozenset(mandate.compared)
    for found in overlaps(state, (each.candidate for each in change.loads), between):
        matters = found.is_apart or not mandate.may_overlap
        if matters and not _was_compared(state, found, compared):
            bad.setdefault(found.path, found.outcome)
    change.guards += owner_guards(state, (each.candidate for each in change.loads))
    if not bad:
        return change
    first = next(iter(bad.values()))
    reason = f"nothing of this load is taken: {first.path}: {first.reason}"
    outcomes = {
        path: msgspec.structs.replace(
            bad.get(path, each),
            result=each.result if each.result is Result.ALREADY else Result.REFUSED,
            reason=bad[path].reason if path in bad else reason,
            hold=False,
        )
        for path, each in change.outcomes.items()
    }
    done = records.TaskDone(
        sender=record.sender, task=record.task, outcomes=tuple(outcomes.values())
    )
    guards = [each for each in change.guards if each.table == "task"]
    return Change(ops=[done], guards=guards, outcomes=outcomes)


def _was_compared(state: State, found: FileOverlap, compared: frozenset[str]) -> bool:
    """Whether the points of a file were compared, by itself or in what it was made of since.

    A file that others were merged into for good has times between theirs, and no point there.
    """
    if found.physical in compared:
        return True
    maker = state.compacted_table.finals.maker(found.physical)
    rows = [] if maker is None else [state.files.get(each) for each in maker.inputs]
    if not rows or any(row is None for row in rows):
        return False
    meeting = [
        found._replace(physical=row.physical)
        for row in rows
        if row is not None
        for begin, end in _times_of(row, found.device)
        if begin <= found.last and found.first <= end
    ]
    return all(_was_compared(state, each, compared) for each in meeting)


def _times_of(row: FileRow, device: str) -> Iterator[tuple[int, int]]:
    """The times between which a file has, or had, points of a device."""
    if row.state is not FileState.DELETED:
        yield from ((begin, end) for name, begin, end in row.devices.ranges() if name == device)
    elif device in row.devices and row.first is not None and row.last is not None:
        yield row.first, row.last  # of a deleted one no device's own are kept


class FileOverlap(NamedTuple):
    """A file that is to be loaded, and a visible one, with a device in the same times.

    Attributes:
        path: of the one.
        physical: of the other.
        device: that both have.
        begin: first time of the other.
        end: last time of it.
        first: first time of the one.
        last: last time of it.
        is_apart: whether the two lie where no reader merges them.
    """

    path: str
    physical: str
    device: str
    begin: int
    end: int
    first: int
    last: int
    is_apart: bool

    @property
    def way_out(self) -> str:
        """What can be done about it."""
        if self.is_apart:
            return f"it lies in another storage group or partition than {self.path} would"
        return "to load it above: --on-duplicate keep"

    @property
    def outcome(self) -> FileOutcome:
        """What becomes of the one where that may not be."""
        reason = (
            f"{self.device} has points from {self.begin} to {self.end} in {self.physical}, and "
            f"from {self.first} to {self.last} here; {self.way_out}"
        )
        return records.FileOutcome(self.path, Result.CONFLICT, device=self.device, reason=reason)


def overlaps(
    state: State, candidates: Iterable[Candidate], between: Callable[[], None] = lambda: None
) -> Iterator[FileOverlap]:
    """Of files that are to be loaded, those with a device in times that a visible one has it in.

    Args:
        state: committed.
        candidates: files that are to be loaded.
        between: called between two files, where nothing is under way.
    """
    spans: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    groups: set[str] = set()
    for each in candidates:
        groups.add(each.path.sg)
        for device, first, last in each.ranges:
            spans[device].append((first, last, each.path.text))
    table = state.file_table
    related: dict[str, bool] = {}
    for directory in table.directories():
        group = directory.split("/", 2)[1]
        if group not in related:
            related[group] = any(_are_related(group, sg) for sg in groups)
        if not related[group]:
            continue
        for row in table.group(GroupKey.of(directory)):
            between()
            if row.visible:
                yield from _overlaps_with(row, spans)


def _overlaps_with(
    row: FileRow, spans: dict[str, list[tuple[int, int, str]]]
) -> Iterator[FileOverlap]:
    for device, begin, end in row.devices.ranges():
        for first, last, path in spans.get(device, ()):
            if begin <= last and first <= end:
                is_apart = _place(row.parsed) != _place(FilePath.parse(path))
                yield FileOverlap(path, row.physical, device, begin, end, first, last, is_apart)


def _place(path: FilePath) -> tuple[str, int]:
    """What files of a device that are merged have in common."""
    return path.sg, path.partition


def _are_related(one: str, other: str) -> bool:
    """Whether a device can be in both storage groups, of two instances that cut otherwise."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def owner_guards(state: State, candidates: Iterable[Candidate]) -> list[Guard]:
    """On those who alone can have loaded something meanwhile that overlaps.

    Args:
        state: committed.
        candidates: files that are to be loaded.
    """
    devices = {each.name for candidate in candidates for each in candidate.facts.devices}
    owners = {row.sender for name in devices if (row := state.owners.get(name)) is not None}
    rows = (state.senders.get(each) for each in sorted(owners))
    guards = [Guard("sender", row.uuid, row.changed) for row in rows if row is not None]
    if not devices <= state.owners.keys():  # whoever gets one may lose it again, and has loaded
        guards.append(Guard("moves", "", state.changed("moves", "")))
    return guards
