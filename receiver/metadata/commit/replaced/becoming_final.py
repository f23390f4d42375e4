"""When what a compaction made takes the place of its inputs for good, and how.

An output that is final is a retired file of its sender, ranked by names and looks as all are: from
the last look that was the first to have an input, to the last that had one; and by the highest name
of the inputs that were there in the former. So it stands above each of them: what had ended before
by its looks, the others by its name. All else that overlaps them stands above it, and above each
input: looked at here, of every file in whatever state, and as it can still become. So whatever
comes later needs to know of no compaction: it ranks as against any file.

What was loaded at the centre is in no edge's list, so it never ends: there the outputs are files of
the centre as their inputs were, that nobody has retired, from the last of the first looks on. These
have names that no database gave, so they rank by their looks alone, below each other as above: what
a later load puts beneath all that is there stays beneath, and so does what was first looked at
before any of them.

Three things could still come that the outputs cannot answer as the inputs would. A file that stands
neither above nor apart is refused by name (`between_final`). A deletion that some inputs were
closed late for hides nothing in the outputs: points stay rather than go. An input that is at the
edge again counts as a new file. If in doubt, nothing becomes final: the inputs stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.digests import xxh3_64
from common.names import FilePath, storage_group_of
from receiver.metadata.commit.replaced.dissolving import meets, times_of
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import is_centre
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.model.ranks import LOWEST_LOOK, NOW, Rank, name_rank, stands_above
from receiver.metadata.state.ranges import ids_of
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.tables.file_tables.compacted_rows import may_give
from receiver.metadata.state.tables.file_tables.retired import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import (
        CompactedOutput,
        CompactedRow,
    )

__all__ = ["between_final", "owners_of", "why_not_final", "with_fallbacks", "with_finals"]

_Spans = dict[str, tuple[int, int]]


def why_not_final(state: State, row: CompactedRow) -> str | None:
    """Why the outputs of a compaction cannot take the place of its inputs for good; None if not.

    Args:
        state: committed.
        row: of the compaction.
    """
    if row.dissolved:
        return "it holds no more"
    if not row.outputs:
        return "nothing is left of its inputs"
    inputs = [state.files[each] for each in row.inputs]
    return (
        _why_not_together(inputs)
        or _why_not_alone(state, row, inputs)
        or _why_not_settled(state, row)
    )


def with_finals(state: State, ops: Sequence[records.Op]) -> Sequence[records.Op]:
    """The operations, with what makes files of the outputs that are to be final.

    The same where there is no `CompactionFinal`, or where it is going to be refused.
    """
    if not any(isinstance(op, records.CompactionFinal) for op in ops):
        return ops
    made: list[records.Op] = []
    for op in ops:
        made.append(op)
        row = None
        if isinstance(op, records.CompactionFinal):
            row = state.compacted_table.rows.get(op.id)
        if row is not None and why_not_final(state, row) is None:
            assert isinstance(op, records.CompactionFinal)
            made += _files_of(state, row, {each.physical: each.tail for each in op.outputs})
    return made


def with_fallbacks(state: State, ops: Sequence[records.Op]) -> Sequence[records.Op]:
    """The operations, with what goes where a final output is bad and all inputs are still there.

    These come back by that very commit (`coming_back`), and nothing is left to be proved of the
    outputs: they go, all of them, and what the commit says of another one of them counts no more.
    Where an input's bytes are gone the bad one stays in quarantine, and is named lost.
    """
    if not any(isinstance(op, records.FileQuarantined) for op in ops):
        return ops
    gone = {op.physical for op in ops if isinstance(op, records.FileDeleted)}
    fallen: set[str] = set()
    made: list[records.Op] = []
    for op in ops:
        row = None
        if isinstance(op, records.FileQuarantined):
            if op.physical in fallen:
                continue
            row = state.compacted_table.finals.maker(op.physical)
        made.append(op)
        if row is None or not _all_kept(state, row):
            continue
        for each in row.became:
            file = state.files.get(each)
            if file is not None and file.state is not FileState.DELETED and each not in gone:
                fallen.add(each)
                gone.add(each)
                made.append(records.FileDeleted(each, "replaced"))
    return made if fallen else ops


def between_final(state: State, op: records.FileLoaded) -> str | None:
    """The final output that a file would come between the inputs of; None for nearly all files.

    Args:
        state: committed.
        op: loads it.
    """
    key, totals = partition_of(op.physical), state.file_table.by_partition
    reached = () if op.first is None else totals.meeting(key.sg, op.first, op.last or op.first)
    finals = state.compacted_table.finals.near(key, reached)
    if not finals or 0 < op.first_look < LOWEST_LOOK:  # that one is below all that was looked at
        return None
    path = FilePath.parse(op.path if op.origin is None else op.origin.path)
    first = op.first_look or NOW
    rank = Rank(name_rank(path), first, op.closed_look or first, NOW, NOW, op.physical)
    spans = {each.name: (each.first, each.last) for each in op.devices if each.first is not None}
    for physical in (each for row in finals if not _is_below(first, row) for each in row.became):
        file = state.files.get(physical)
        if file is None or file.state is FileState.DELETED or physical == op.physical:
            continue
        mine = file.rank
        stays_above = first > mine.last or (first >= mine.first and stands_above(rank, mine))
        if not stays_above and meets(file.devices.ranges(), spans):  # type: ignore[arg-type]
            return physical
    return None


def _is_below(first: int, row: CompactedRow) -> bool:
    """Whether a file was first looked at before all that a merge of the centre's is made of.

    Names of an edge's are another matter: files that one look had rank by these.
    """
    return is_centre(row.sender) and first < row.lowest_look


def owners_of(state: State, files: Sequence[FileRow]) -> set[str]:
    """Whose the devices of some files are; an empty text for one that is nobody's."""
    names = {each for file in files for each in file.devices}
    owners = (state.owners.get(each) for each in names)
    return {"" if owner is None else owner.sender for owner in owners}


# -- what makes it so ----------------------------------------------------------------------------


def _rank_of(inputs: Sequence[FileRow]) -> tuple[FileRow, int, int, int]:
    """Of inputs the one that the outputs are called after; the last first, closed, and last look.

    What had ended before the last of them came is below it; of others the highest name counts.
    """
    ranks = [row.rank for row in inputs]
    first = max(rank.first for rank in ranks)
    named = [row for row in inputs if row.rank.last >= first]
    top = max(named, key=lambda row: row.rank.name or ())
    return top, first, max(rank.closed for rank in ranks), max(rank.last for rank in ranks)


def _files_of(
    state: State, row: CompactedRow, tails: Mapping[str, str]
) -> Iterator[records.FileLoaded | records.FileRetired | records.FileSuperseded]:
    inputs = [state.files[each] for each in row.inputs]
    top, first, closed, last = _rank_of(inputs)
    others = sorted(owners_of(state, inputs) - {row.sender})
    for each in row.outputs:
        yield records.FileLoaded(
            sender=row.sender,
            path=FilePath.parse(top.path).physical(xxh3_64(each.physical.encode())).text,
            physical=each.physical,
            size=each.size,
            md5=each.md5,
            tail=tails.get(each.physical, ""),
            version=each.version,
            devices=[records.DeviceRange(*span) for span in each.devices.ranges()],
            first=each.first,
            last=each.last,
            series=each.series,
            points=each.points,
            task="",
            data_dir=each.data_dir,
            first_look=first,
            closed_look=closed,
            owner=others[0] if others else "",
            others=others[1:],
        )
        if not is_centre(row.sender):
            yield records.FileRetired(each.physical, last)
    every = [each.physical for each in row.outputs]
    devices = [frozenset(each.devices.parts()[0]) for each in row.outputs]
    for file in inputs:
        mine = file.devices.parts()[0]
        rests = [
            each.physical
            for each, its in zip(row.outputs, devices, strict=True)
            if may_give(each, file) and not its.isdisjoint(mine)
        ]
        if not file.retired:
            yield records.FileRetired(file.physical, NOW)  # it may come back as what it was
        yield records.FileSuperseded(file.physical, rests or every)


def _all_kept(state: State, row: CompactedRow) -> bool:
    rows = map(state.files.get, row.inputs)
    return all(each is not None and each.state is FileState.SUPERSEDED for each in rows)


# -- whether it may be so ------------------------------------------------------------------------


def _why_not_together(inputs: Sequence[FileRow]) -> str | None:
    """All have ended, and one rank stands above them all."""
    newest = max(row.rank.first for row in inputs)
    awaited = FileState.LIVE if is_centre(inputs[0].sender) else FileState.RETIRED
    for row in inputs:
        if row.state is not awaited:
            return f"{row.physical} is {row.state}"
        if row.origin is not None:
            return f"{row.physical} was forwarded"
    together = [row for row in inputs if row.rank.last >= newest]
    if not together:
        return "the look that had the last of them first is behind the ends of all"
    unnamed = [row for row in together if row.rank.name is None]
    if unnamed and len(unnamed) < len(together):
        return f"{unnamed[0].physical} has a name that no database gave"
    return None


def _why_not_alone(state: State, row: CompactedRow, inputs: Sequence[FileRow]) -> str | None:
    """All else stands above, and will; the devices are whose they always were."""
    of_centre, moves = is_centre(row.sender), state.owner_table.moves
    for name in {each for file in inputs for each in file.devices}:
        owner = state.owners.get(name)
        is_moved = name in moves or owner is None
        if is_moved or not (of_centre or owner.sender == row.sender):  # type: ignore[union-attr]
            return f"the device {name} went to another sender"
    top, first, closed, last = _rank_of(inputs)
    rank = Rank(top.rank.name, first, closed, last, NOW, row.outputs[0].physical)
    spans = _hull(inputs)
    begin = min(begin for begin, _ in spans.values()) if spans else 0
    end = max(end for _, end in spans.values()) if spans else -1
    ids = ids_of(file.devices for file in inputs)
    beside = state.file_table.beside(row.key, ids, begin, end, hidden=True)
    if beside:
        return f"{beside[0].physical} of another partition overlaps it"
    mine = {file.physical for file in inputs}
    for other in state.file_table.every_in(*row.key):
        if other.physical in mine or not _may_meet(other, spans):
            continue
        if other.rank.first > last or _is_within(other, mine):
            continue
        below = [rank, *(each.rank for each in inputs)]
        stays = _has_ended(other) or (of_centre and other.sender == row.sender)
        if not stays or not all(stands_above(other.rank, each) for each in below):
            return f"{other.physical} does not stand above all of it"
    return None


def _is_within(file: FileRow, merged: AbstractSet[str]) -> bool:
    """Whether a file is inside of one that is merged again: it comes back with that alone."""
    rests = file.rests if file.state is FileState.SUPERSEDED else ()
    return bool(rests) and all(each in merged and is_merged(each) for each in rests)


def _has_ended(file: FileRow) -> bool:
    """Whether a file keeps its name and looks, unless it comes back, which lifts it."""
    return file.retired and file.state is not FileState.DELETED and file.origin is None


def _why_not_settled(state: State, row: CompactedRow) -> str | None:
    """Nothing that was told of the partition waits."""
    senders = {row.sender}
    if is_centre(row.sender):  # what comes of those whose devices it has may be of earlier looks
        senders |= owners_of(state, [state.files[each] for each in row.inputs])
    for each in senders:
        known = state.senders.get(each)
        if known is not None and known.restored:
            return "its sender was restored, and has not said what it has"
    for held in state.held_deletes.rows.values():
        if held.sender == row.sender and held.group == row.sg:
            return f"deletes of {held.group} are held"
    for entry in state.quarantine.values():
        if entry.sender in senders and partition_of(entry.path) == row.key:
            return f"{entry.path} is in quarantine"
    span = _span(row.outputs)
    for note in state.deletion_table.of_sender(row.sender):
        if storage_group_of(note.path) != row.sg:
            continue
        if not any(each.held or each.may_apply for each in note.segments):
            continue
        begin, end = times_of(note.content, note.form)
        if begin <= span[1] and span[0] <= end:
            return f"deletions of {note.path} may be applied yet"
    return None


# -- ranges of time ------------------------------------------------------------------------------


def _span(outputs: Sequence[CompactedOutput]) -> tuple[int, int]:
    firsts = [each.first for each in outputs if each.first is not None]
    lasts = [each.last for each in outputs if each.last is not None]
    return min(firsts, default=0), max(lasts, default=-1)


def _hull(rows: Sequence[FileRow]) -> _Spans:
    """Of each device the first and last time of all of some files."""
    found: _Spans = {}
    for row in rows:
        for name, first, last in row.devices.ranges():
            known = found.get(name, (first, last))
            found[name] = min(known[0], first), max(known[1], last)
    return found


def _may_meet(other: FileRow, spans: _Spans) -> bool:
    """Whether a file may have times that others have; of a deleted one less is known."""
    if other.state is FileState.DELETED:
        ranges = [(name, other.first or 0, other.last or 0) for name in other.devices]
        return other.first is not None and meets(ranges, spans)
    return meets(other.devices.ranges(), spans)
