"""The rules of compactions: what may stand for what.

Whoever merged read the inputs as of a commit; what has become true since is looked at here, under
the lock, so nobody is let through who has not seen a change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.digests import is_md5
from common.errors import ConflictError
from common.names import storage_group_of
from receiver.metadata.commit.judging.record_checks import (
    SIGNED_64,
    check_devices,
    is_range,
    parse_path,
    refusal_of,
)
from receiver.metadata.commit.replaced.becoming_final import why_not_final
from receiver.metadata.commit.replaced.dissolving import comes_between_files, times_of
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.state.ranges import ids_of
from receiver.metadata.state.tables.file_tables.retired import partition_of
from receiver.metadata.state.transfer_cuts import TransferCuts

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from receiver.metadata.model import records
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow

__all__ = [
    "check_compacted",
    "check_dissolved",
    "check_final",
    "check_forgotten",
    "check_verified",
    "times_of_files",
]

_MOST_INPUTS = 10_000


def check_compacted(state: State, op: records.FilesCompacted) -> None:
    """Refuse outputs that do not stand for their inputs as these are now.

    Raises:
        ConflictError: something has changed since the inputs were read.
        RefusedCommitError: these never could be inputs, or outputs.
    """
    if not 0 < op.id < SIGNED_64.stop or op.id in state.compacted_table.rows:
        raise refusal_of(op, f"{op.id} is no new id")
    if not 0 < len(op.inputs) <= _MOST_INPUTS or len(set(op.inputs)) != len(op.inputs):
        raise refusal_of(op, f"{len(op.inputs)} are no inputs")
    rows = [_input(state, op, each) for each in op.inputs]
    key = partition_of(op.inputs[0])
    if any(row.sender != rows[0].sender or partition_of(row.physical) != key for row in rows):
        raise refusal_of(op, "its inputs are of several senders or partitions")
    _check_others(state, op, rows)
    _check_deletions(state, op, rows)
    _check_outputs(state, op, rows)


def check_dissolved(op: records.CompactionDissolved, row: CompactedRow | None) -> None:
    """Refuse the end of what does not hold."""
    if row is None or row.dissolved:
        raise refusal_of(op, f"there is no compaction {op.id} that holds")


def check_verified(op: records.CompactionVerified, row: CompactedRow | None) -> None:
    """Refuse a verdict on what does not hold, or on other bytes than readers are given."""
    if row is None or row.dissolved:
        raise refusal_of(op, f"there is no compaction {op.id} that holds")
    if [(each.physical, each.size, each.md5) for each in op.outputs] != [
        (each.physical, each.size, each.md5) for each in row.outputs
    ]:
        raise refusal_of(op, "its outputs are others")


def check_final(state: State, op: records.CompactionFinal) -> None:
    """Refuse to make files of what does not stand for its inputs for good.

    Raises:
        ConflictError: something is in the way, that may go.
        RefusedCommitError: there is no such compaction, or it has other outputs.
    """
    row = state.compacted_table.rows.get(op.id)
    if row is None or row.dissolved:
        raise refusal_of(op, f"there is no compaction {op.id} that holds")
    if [each.physical for each in op.outputs] != [each.physical for each in row.outputs]:
        raise refusal_of(op, "its outputs are others")
    why = why_not_final(state, row)
    if why is not None:
        raise ConflictError(f"compaction {op.id} cannot become final: {why}")


def check_forgotten(
    op: records.CompactionForgotten, row: CompactedRow | None, files: Container[str]
) -> None:
    """Refuse to forget what readers may read, or what files are made of."""
    if row is None or not row.dissolved:
        raise refusal_of(op, f"there is no compaction {op.id} that is dissolved")
    if any(each in files for each in row.became):
        raise refusal_of(op, f"files are known that compaction {op.id} made")


def _input(state: State, op: records.FilesCompacted, physical: str) -> FileRow:
    row = state.files.get(physical)
    if row is None or not row.visible or row.changed > op.at:
        raise ConflictError(f"{physical} has changed since it was merged", extra={"file": physical})
    return row


def _check_others(state: State, op: records.FilesCompacted, rows: Sequence[FileRow]) -> None:
    """What came since stands above; devices are whose they were."""
    inputs = set(op.inputs)
    if state.owner_table.moves:
        cuts = TransferCuts(state.owner_table.moves, state.newest)
        moved = next((row for row in rows if cuts.of(row)), None)
        if moved is not None:
            raise ConflictError(f"devices of {moved.physical} were transferred")
    devices = {name for row in rows for name in row.devices}
    key = partition_of(op.inputs[0])
    ids = ids_of(row.devices for row in rows)
    first, last = times_of_files(rows)
    elsewhere = state.file_table.beside(key, ids, first, last, since=op.at)
    for other in (*state.file_table.partition(*key), *elsewhere):
        if other.changed <= op.at or other.physical in inputs:
            continue
        ranges = {name: (first, last) for name, first, last in other.devices.ranges()}
        is_strange = other.sender != rows[0].sender and not devices.isdisjoint(other.devices)
        if is_strange or comes_between_files(rows, other.rank, ranges):
            raise ConflictError(
                f"{other.physical} came between the inputs of a merge",
                extra={"file": other.physical},
            )


def times_of_files(rows: Iterable[FileRow]) -> tuple[int, int]:
    """First and last time of some files; the last is before the first where there is no point."""
    times = [(row.first, row.last) for row in rows if row.first is not None]
    first = min((first for first, _ in times), default=0)
    return first, max((last for _, last in times if last is not None), default=first - 1)


def _check_deletions(state: State, op: records.FilesCompacted, rows: Sequence[FileRow]) -> None:
    """Nothing was deleted since that may be of the inputs."""
    sender, sg = rows[0].sender, partition_of(op.inputs[0]).sg
    if state.deletion_table.newest(sender) <= op.at:
        return
    first, last = times_of_files(rows)
    for note in state.deletion_table.of_sender(sender):
        if note.changed <= op.at or storage_group_of(note.path) != sg:
            continue
        begin, end = times_of(note.content, note.form)
        if begin <= last and first <= end:
            raise ConflictError(f"deletions of {note.path} were told since its files were merged")


def _check_outputs(state: State, op: records.FilesCompacted, rows: Sequence[FileRow]) -> None:
    names = {each.physical for each in op.outputs}
    if len(names) != len(op.outputs):
        raise refusal_of(op, "an output is named twice")
    key = partition_of(op.inputs[0])
    for made in op.outputs:
        path = parse_path(op, made.physical)
        if partition_of(made.physical) != key or not is_merged(path.name):
            raise refusal_of(op, f"{made.physical} is no name of an output")
        if made.physical in state.files or path.is_resource:
            raise refusal_of(op, f"the name {made.physical} is taken")
        numbers = (made.size, made.series, made.points)
        if any(not 0 <= each < SIGNED_64.stop for each in numbers) or not is_md5(made.md5):
            raise refusal_of(op, f"{made.physical} has a size, count or digest that is none")
        if not is_range(made.first, made.last):
            raise refusal_of(op, f"{made.physical}: {made.first} to {made.last} is no range")
        check_devices(op, made.physical, made.devices, (made.first, made.last))
    taken = {each.physical for row in state.compacted_table.rows.values() for each in row.outputs}
    if not names.isdisjoint(taken):
        raise refusal_of(op, "the name of an output is taken")
    known = {device for row in rows for device in row.devices}
    if not known.issuperset(each.name for made in op.outputs for each in made.devices):
        raise refusal_of(op, "an output has a device that no input has")
    if sum(made.points for made in op.outputs) > sum(row.points for row in rows):
        raise refusal_of(op, "its outputs have more points than its inputs")
