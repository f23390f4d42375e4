"""Which compactions hold no more behind a commit; whoever commits need not know of them.

What a compaction made stands for its inputs as long as it gives what they give. Two things end
that: an input that changes, and something else that comes between the inputs: a file that overlaps
one of them and does not stand above it, a deletion that reaches them, a device that goes to another
sender. The commit that does so dissolves the compaction with it, so readers of no commit see
anything else than the inputs give. Where it would take long to find out, it is dissolved: that
costs another compaction, and no answer.

What stays beside a compaction that holds stands above all of its inputs, where they overlap. That
is so for files of other partitions too: a file may have times that are not of the one that it lies
in, and a device may be of a group that was another one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from common.names import FilePath, storage_group_of
from common.tsfile.deletion_records import deleted_times
from common.tsfile.primitives import Malformed
from receiver.metadata.model import records
from receiver.metadata.model.ranks import NOW, Rank, name_rank, stands_above
from receiver.metadata.state.table_rows import author_of, rank_of_origin
from receiver.metadata.state.tables.file_tables.retired import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from receiver.metadata.state.deletion_rows import DeletionsRow
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow

__all__ = ["comes_between_files", "meets", "times_of", "with_dissolutions"]

_LAST = 1 << 62
"""Stands for a commit that has no timestamp yet; it is later than all others."""


def with_dissolutions(state: State, ops: Sequence[records.Op]) -> Sequence[records.Op]:
    """The operations, with the compactions that they dissolve; the same where there are none.

    Args:
        state: committed.
        ops: of a commit.
    """
    if not state.compacted_table:
        return ops
    ended = {op.id for op in ops if isinstance(op, records.CompactionDissolved)}
    moved = {op.device for op in ops if isinstance(op, records.OwnerSet)}
    made: list[records.Op] = []
    for op in ops:
        found = {row.id: why for row, why in _dissolved(state, op) if row.id not in ended}
        ended.update(found)
        made += [records.CompactionDissolved(ident, why) for ident, why in found.items()]
        made.append(op)
    for row in _of_moved(state, moved):
        if row.id not in ended:
            made.append(records.CompactionDissolved(row.id, "a device was transferred"))
    return made if len(made) > len(ops) else ops


def _dissolved(state: State, op: records.Op) -> Iterable[tuple[CompactedRow, str]]:
    """What an operation dissolves, and why; by transfers: see `_of_moved`."""
    judge = _JUDGES.get(type(op))
    return () if judge is None else judge(state, op)


def _changed(
    state: State,
    op: records.FileDeleted | records.FileQuarantined | records.FileSuperseded,
) -> Iterable[tuple[CompactedRow, str]]:
    """An input goes out of sight."""
    row = state.compacted_table.of_input(op.physical)
    if row is not None:
        yield row, f"{op.physical} went out of sight"


def _ranked_anew(
    state: State,
    op: records.FileReturned | records.FileUnnamed | records.OriginNoted,
) -> Iterable[tuple[CompactedRow, str]]:
    """A file, an input or one that stands above, has another place in the order from now on."""
    why = f"{op.physical} ranks otherwise"
    return ((row, why) for row in _sharing(state, op.physical))


def _named(state: State, op: records.FileNamed) -> Iterable[tuple[CompactedRow, str]]:
    """Another name changes the order only where the file ranks by it."""
    return _ranked_anew(state, op) if op.first_look else ()  # type: ignore[arg-type]


def _retired(state: State, op: records.FileRetired) -> Iterable[tuple[CompactedRow, str]]:
    """The last look that had a file matters to those that a later one had first, and in circles."""
    for row in _sharing(state, op.physical):
        if row.top is None or 0 < op.last_look < row.newest_look:
            yield row, f"{op.physical} ended before others of it came"


def _shown(
    state: State, op: records.FileRestored | records.FileRevived
) -> Iterable[tuple[CompactedRow, str]]:
    """A file is visible again."""
    return ((row, f"{op.physical} is visible again") for row in _sharing(state, op.physical))


def _undeleted(state: State, op: records.FileUndeleted) -> Iterable[tuple[CompactedRow, str]]:
    file = state.files.get(op.physical)
    if file is None:  # which the rules refuse by name
        return
    names = {each.name for each in op.devices}
    firsts = [each.first for each in op.devices if each.first is not None]
    lasts = [each.last for each in op.devices if each.last is not None]
    times = (min(firsts), max(lasts)) if firsts and lasts else (None, None)
    for row in _near(state, op.physical, file.sender, names, *times):
        if _has_any(row, names):
            yield row, f"{op.physical} is visible again"


def _near(
    state: State,
    physical: str,
    sender: str,
    devices: Iterable[str],
    first: int | None,
    last: int | None,
) -> list[CompactedRow]:
    """Those of the partition of a file, and of others where they have times of it.

    A device is one sender's, unless it was another one's before, or was loaded at the centre.
    """
    table, key = state.compacted_table, partition_of(physical)
    rows = table.of_partition(key)
    if first is None or last is None:
        return rows
    moves = state.owner_table.moves
    is_moved = bool(moves) and any(each in moves for each in devices)
    return rows + table.beside(key, None if is_moved else sender, first, last)


def _sharing(state: State, physical: str) -> Iterable[CompactedRow]:
    """Those that stand for a file, or have a device of it."""
    table = state.compacted_table
    file = state.files.get(physical)
    if file is None:
        return
    rows = _near(state, physical, file.sender, file.devices, file.first, file.last)
    names: AbstractSet[str] | None = None
    for row in rows:
        if table.stands_for(row, physical):
            yield row
            continue
        names = set(file.devices) if names is None else names
        if _has_any(row, names):
            yield row


def _has_any(row: CompactedRow, names: AbstractSet[str]) -> bool:
    return any(not names.isdisjoint(each.devices) for each in row.outputs)


# -- files that come -----------------------------------------------------------------------------


def _loaded(state: State, op: records.FileLoaded) -> Iterable[tuple[CompactedRow, str]]:
    for note in state.deletion_table.unloaded(op.sender, op.path):
        # What was noted while it was not loaded may reach more, now that its devices are known.
        yield from _reached(state, note, f"deletions of {op.path} are its own")
    devices = (each.name for each in op.devices)
    rows = _near(state, op.physical, op.sender, devices, op.first, op.last)
    if not rows:
        return
    names = {each.name for each in op.devices}
    rank = _rank_of(op)
    ranges = {
        each.name: (each.first, each.last)
        for each in op.devices
        if each.first is not None and each.last is not None
    }
    for row in rows:
        if op.sender != row.sender and _has_any(row, names):
            yield row, f"{op.path} of another sender has a device of it"
        elif op.sender == row.sender and _comes_between(state, row, rank, ranges):
            yield row, f"{op.path} came between its inputs"


def _rank_of(op: records.FileLoaded) -> Rank:
    """Where a file will stand."""
    parsed = FilePath.parse(op.path)
    name, below = (name_rank(parsed), ()) if op.origin is None else rank_of_origin(op.origin)
    first = op.first_look or _LAST
    return Rank(name, first, op.closed_look or first, NOW, _LAST, op.physical, below)


def _comes_between(
    state: State,
    row: CompactedRow,
    rank: Rank,
    ranges: Mapping[str, tuple[int, int]],
) -> bool:
    """Whether a file overlaps an input of a compaction, and does not stand above it."""
    # No input was first seen behind the end of a file that is still there: either the file came
    # when an input had ended, and stands above, or their names tell.
    is_plain = row.top is not None and not rank.below and rank.last == NOW
    if is_plain and rank.name is not None and rank.name > row.top:  # type: ignore[operator]
        return False
    if not any(meets(each.devices.ranges(), ranges) for each in row.outputs):
        return False
    return comes_between_files(map(state.files.__getitem__, row.inputs), rank, ranges)


def comes_between_files(
    inputs: Iterable[FileRow], rank: Rank, ranges: Mapping[str, tuple[int, int]]
) -> bool:
    """Whether a file overlaps one of some others, and does not stand above it.

    Args:
        inputs: the others.
        rank: of the file.
        ranges: first and last time of each device that has points.
    """
    return any(
        meets(file.devices.ranges(), ranges) and not stands_above(rank, file.rank)
        for file in inputs
    )


def meets(mine: Iterable[tuple[str, int, int]], ranges: Mapping[str, tuple[int, int]]) -> bool:
    """Whether devices with their first and last times have a time that is in their ranges."""
    for name, first, last in mine:
        other = ranges.get(name)
        if other is not None and first <= other[1] and other[0] <= last:
            return True
    return False


# -- deletions -----------------------------------------------------------------------------------


def _noted(state: State, op: records.DeletionsNoted) -> Iterable[tuple[CompactedRow, str]]:
    """Records hide their times in what was closed by the look `floor`, and in their own file."""
    author, table = author_of(op.sender, op.author), state.compacted_table
    rows = [row for row in table.of_sender(op.sender) if row.sg == storage_group_of(op.path)]
    if not op.base and any(each.form == op.form for each in _notes_of(state, op)):
        # What it began with hides no more: points come back that no output has, whenever they are.
        for row in rows:
            yield row, f"the deletion file of {op.path} began anew"
        return
    if not op.applied:
        return
    span = times_of(op.content, op.form) if rows else (0, -1)
    for row in rows:
        own = op.physical is not None and table.stands_for(row, op.physical)
        reaches = own or (author in row.authors and op.floor >= row.oldest_closed)
        if reaches and _has_times(row, span):
            yield row, f"deletions of {op.path}"


def _kept_applied(
    state: State, op: records.KeptRecordsApplied
) -> Iterable[tuple[CompactedRow, str]]:
    for row in _notes_of(state, op) if not op.held else ():
        yield from _reached(state, row, f"deletions of {op.path}")


def _settled(state: State, op: records.DeletesSettled) -> Iterable[tuple[CompactedRow, str]]:
    """Records that were held hide from now on."""
    held = state.held_deletes.rows.get(op.digest)
    if op.verdict != "allow" or held is None:
        return
    for row in state.deletion_table.of_sender(held.sender):
        if any(each.held == op.digest for each in row.segments):
            yield from _reached(state, row, "deletions that were held")


def _notes_of(
    state: State, op: records.DeletionsNoted | records.KeptRecordsApplied
) -> list[DeletionsRow]:
    """The deletion files of the file that an operation is about, as they are known."""
    if op.physical is None:
        return state.deletion_table.unloaded(op.sender, op.path, op.heir)
    return state.deletion_table.of_file(op.physical)


def _reached(state: State, note: DeletionsRow, why: str) -> Iterable[tuple[CompactedRow, str]]:
    """What a deletion file may reach, by its times alone."""
    rows = state.compacted_table.of_sender(note.sender)
    span = times_of(note.content, note.form) if rows else (0, -1)
    for row in rows:
        if row.sg == storage_group_of(note.path) and _has_times(row, span):
            yield row, why


def _has_times(row: CompactedRow, span: tuple[int, int]) -> bool:
    first, last = span
    return any(
        each.first is not None and each.first <= last and first <= (each.last or 0)
        for each in row.outputs
    )


def times_of(content: bytes, form: str) -> tuple[int, int]:
    """First and last time that records delete; all times where that cannot be told."""
    try:
        return deleted_times(content, form)
    except Malformed:
        return -(1 << 63), (1 << 63) - 1


# -- senders -------------------------------------------------------------------------------------


def _begun_anew(state: State, op: records.ListBegun) -> Iterable[tuple[CompactedRow, str]]:
    """All that a sender has is seen anew."""
    return (
        (row, "its sender's list began anew") for row in state.compacted_table.of_sender(op.sender)
    )


def _of_moved(state: State, devices: AbstractSet[str]) -> Iterable[CompactedRow]:
    """Those with a device that changes hands."""
    rows = state.compacted_table.holding() if devices else ()
    return (row for row in rows if _has_any(row, devices))


# -- compactions ---------------------------------------------------------------------------------


def _compacted(state: State, op: records.FilesCompacted) -> Iterable[tuple[CompactedRow, str]]:
    """Inputs are taken out of what stood for them."""
    table = state.compacted_table
    for row in table.of_partition(partition_of(op.inputs[0])) if op.inputs else ():
        if any(table.stands_for(row, each) for each in op.inputs):
            yield row, f"compaction {op.id} stands for inputs of it"


_JUDGES: dict[type, Callable[[State, Any], Iterable[tuple[CompactedRow, str]]]] = {
    records.FileDeleted: _changed,
    records.FileQuarantined: _changed,
    records.FileSuperseded: _changed,
    records.FileReturned: _ranked_anew,
    records.FileUnnamed: _ranked_anew,
    records.OriginNoted: _ranked_anew,
    records.FileNamed: _named,
    records.FileRetired: _retired,
    records.FileRestored: _shown,
    records.FileRevived: _shown,
    records.FileUndeleted: _undeleted,
    records.FileLoaded: _loaded,
    records.DeletionsNoted: _noted,
    records.KeptRecordsApplied: _kept_applied,
    records.DeletesSettled: _settled,
    records.ListBegun: _begun_anew,
    records.FilesCompacted: _compacted,
}
