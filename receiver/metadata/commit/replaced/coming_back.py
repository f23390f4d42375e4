"""What comes back into sight by a commit: superseded files whose proof it takes away.

A proof names files that give every point of a superseded one. Where one of these leaves sight in
another way than by a proof of its own, or stands above no longer, what rests on it is visible again
by the same commit. Whoever commits need not know of it.

Past its TTL a file takes nothing with it that would have to come back: what it gave of others is of
the same series and times, and is past the same TTL there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from common.names import FilePath
from receiver.metadata.model import records
from receiver.metadata.model.ranks import NOW, cut_in, name_rank, rank_in, stands_above
from receiver.metadata.state.packed_file import whole
from receiver.metadata.state.transfer_cuts import TransferCuts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from receiver.metadata.model.ranks import Rank
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["with_revivals"]

_SHAKING = (
    records.FileQuarantined,
    records.FileDeleted,
    records.FileRetired,
    records.FileReturned,
    records.FileUnnamed,
    records.OriginNoted,
)
_SHAKING_TYPES = frozenset(_SHAKING)
_SETTLING = (records.FileRevived, records.FileDeleted)
_NAMING = (records.FileNamed, records.FileUnnamed)


def with_revivals(state: State, ops: Sequence[records.Op]) -> Sequence[records.Op]:
    """The operations, each followed by what comes back because of it; the same where nothing does.

    Args:
        state: committed.
        ops: of a commit.
    """
    if _SHAKING_TYPES.isdisjoint(map(type, ops)):  # nearly all commits
        return ops
    settled = {op.physical for op in ops if isinstance(op, _SETTLING)}
    gone = {op.physical for op in ops if isinstance(op, records.FileDeleted)}
    made: list[records.Op] = []
    named: dict[str, _Named] = {}
    for op in ops:
        made.append(op)
        if isinstance(op, _NAMING) and op.physical in state.files:
            # A name is often given and another one taken in one commit.
            before = named.get(op.physical) or _Named(state.files[op.physical].paths)
            named[op.physical] = before.behind(op)
        for row in _shaken(state, op, named, gone):
            if row.physical not in settled:
                settled.add(row.physical)
                made.append(records.FileRevived(row.physical))
                if row.last_look == NOW:  # it never ended: see `becoming_final`
                    made.append(records.FileReturned(row.physical))
    return made if len(made) > len(ops) else ops


class _Named(NamedTuple):
    """A file whose names change in a commit.

    Attributes:
        paths: its names, the one that it ranks by first.
        look: that counts as the first which had it, 0 for the one that did.
    """

    paths: Sequence[str]
    look: int = 0

    def behind(self, op: records.FileNamed | records.FileUnnamed) -> _Named:
        look = op.first_look or self.look
        if isinstance(op, records.FileNamed):
            return _Named(op.among(self.paths), look)
        return _Named([each for each in self.paths if each != op.path], look)


def _shaken(
    state: State, op: records.Op, named: Mapping[str, _Named], gone: AbstractSet[str]
) -> Iterable[FileRow]:
    """Superseded files that may no longer rest on the file that an operation is about.

    Args:
        state: committed.
        op: the operation.
        named: the files whose names change in the commit, with this operation.
        gone: files that it deletes.
    """
    resting = _resting(state, op.physical, gone) if isinstance(op, _SHAKING) else ()
    if not resting or not isinstance(op, _SHAKING):
        return ()
    row = state.files[op.physical]
    if not row.visible:
        return ()  # it is superseded itself: what it rests on gives those points too
    if isinstance(op, records.FileQuarantined):
        return resting
    if isinstance(op, records.FileDeleted):
        return () if op.reason == "expired" else resting
    rank = _rank_after(row, op, named.get(op.physical) or _Named(row.paths))
    cuts = TransferCuts(state.owner_table.moves, NOW)
    return [each for each in resting if not _is_above(row, rank, each, cuts)]


def _is_above(row: FileRow, rank: Rank, lower: FileRow, cuts: TransferCuts) -> bool:
    """Whether a file of that rank stands above another one, in each device that both have."""
    mine, theirs = cuts.of_rank(rank, row), cuts.of(lower)
    if not mine and not theirs:
        return stands_above(rank, lower.rank)
    pairs = {
        (cut_in(mine, each), cut_in(theirs, each)) for each in {*row.devices} & {*lower.devices}
    }
    return all(stands_above(rank_in(rank, a), rank_in(lower.rank, b)) for a, b in pairs)


def _resting(state: State, physical: str, gone: AbstractSet[str]) -> list[FileRow]:
    """What rests on a file, or on a superseded one that rests on it and goes with it."""
    found: dict[str, FileRow] = {}
    waiting = [physical]
    while waiting:
        for row in state.file_table.resting_on(waiting.pop()):
            if row.physical in gone and row.physical not in found:
                waiting.append(row.physical)
            found[row.physical] = row
    return list(found.values())


def _rank_after(row: FileRow, op: records.Op, now: _Named) -> Rank:
    """Where a file stands after an operation that changes its looks or its name."""
    if isinstance(op, records.FileRetired):
        return row.rank._replace(last=op.last_look or NOW)
    if isinstance(op, records.FileReturned):
        found = row.rank._replace(name=_name(op.path or row.path), last=NOW)
        return _seen_from(found, op.first_look)
    if isinstance(op, records.FileUnnamed):
        path = now.paths[0] if now.paths else row.path  # the rules refuse what takes all
        return _seen_from(row.rank._replace(name=_name(path)), now.look)
    if isinstance(op, records.OriginNoted):
        return msgspec.structs.replace(whole(row), origin=op.origin).rank
    return row.rank


def _seen_from(rank: Rank, look: int) -> Rank:
    return rank._replace(first=look, closed=look) if look else rank


def _name(path: str) -> tuple[int, int, int, int, int] | None:
    return name_rank(FilePath.parse(path))
