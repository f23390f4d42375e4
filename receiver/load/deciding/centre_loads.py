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
from receiver.load.deciding.candidates import Change
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from receiver.load.deciding.candidates import Candidate
    from receiver.load.folder.current_task import TaskRecord
    from receiver.metadata.model.records import FileOutcome
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["content_of_anyone", "whole_or_nothing"]

_GOOD = frozenset({Result.LOADED, Result.ALREADY, Result.EXPIRED})
_STANDING = (FileState.LIVE, FileState.RETIRED, FileState.SUPERSEDED)


def content_of_anyone(
    state: State, candidate: Candidate, stands: Callable[[FileRow], bool]
) -> FileRow | None:
    """A file that has the very content, whoever brought it, and whose bytes stand.

    Args:
        state: committed.
        candidate: a file that is to be loaded.
        stands: looks at the disk.
    """
    staged = candidate.staged
    for row in state.file_table.of_tail(staged.tail):
        same = (row.size, row.md5) == (staged.size, staged.md5)
        if same and row.state in _STANDING and stands(row):
            return row
    return None


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
    for found in _overlaps(state, (each.candidate for each in change.loads), between):
        if found.is_apart or not mandate.may_overlap:
            bad.setdefault(found.path, found.outcome)
    change.guards += _owners(state, change)
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


class _Overlap(NamedTuple):
    """A file that overlaps a visible one.

    Attributes:
        path: of it.
        outcome: that it has where that may not be.
        is_apart: whether the two lie where no reader merges them.
    """

    path: str
    outcome: FileOutcome
    is_apart: bool


def _overlaps(
    state: State, candidates: Iterable[Candidate], between: Callable[[], None]
) -> Iterator[_Overlap]:
    """Of files that are to be loaded, those with a device and a time of a visible one."""
    spans: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    groups: set[str] = set()
    for each in candidates:
        groups.add(each.path.sg)
        for device, first, last in each.ranges:
            spans[device].append((first, last, each.path.text))
    table = state.file_table
    for key in table.groups():
        if not any(_are_related(key.sg, sg) for sg in groups):
            continue
        for row in table.group(key):
            between()
            if row.visible:
                yield from _overlaps_with(row, spans)


def _overlaps_with(
    row: FileRow, spans: dict[str, list[tuple[int, int, str]]]
) -> Iterator[_Overlap]:
    for device, begin, end in row.devices.ranges():
        for first, last, path in spans.get(device, ()):
            if begin <= last and first <= end:
                is_apart = _place(row.parsed) != _place(FilePath.parse(path))
                way_out = (
                    f"it lies in another storage group or partition than {path} would"
                    if is_apart
                    else "to load it above: --on-duplicate keep"
                )
                reason = (
                    f"{device} has points from {begin} to {end} in {row.physical}, and from "
                    f"{first} to {last} here; {way_out}"
                )
                found = records.FileOutcome(path, Result.CONFLICT, device=device, reason=reason)
                yield _Overlap(path, found, is_apart)


def _place(path: FilePath) -> tuple[str, int]:
    """What files of a device that are merged have in common."""
    return path.sg, path.partition


def _are_related(one: str, other: str) -> bool:
    """Whether a device can be in both storage groups, of two instances that cut otherwise."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _owners(state: State, change: Change) -> list[Guard]:
    """On those who alone can have loaded something meanwhile that overlaps."""
    devices = (each.name for load in change.loads for each in load.candidate.facts.devices)
    owners = {row.sender for name in devices if (row := state.owners.get(name)) is not None}
    rows = (state.senders.get(each) for each in owners)
    return [Guard("sender", row.uuid, row.changed) for row in rows if row is not None]
