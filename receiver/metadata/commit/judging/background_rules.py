"""Rules of work behind the scenes, and of what merges leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace as replace_row

from receiver.metadata.commit.judging.compaction_rules import (
    check_compacted,
    check_dissolved,
    check_final,
    check_forgotten,
    check_verified,
)
from receiver.metadata.commit.judging.record_checks import SIGNED_64, refusal_of
from receiver.metadata.commit.judging.rule_overlay import Rule, RuleOverlay
from receiver.metadata.commit.judging.work_rules import (
    check_added,
    check_ended,
    check_taken,
    overlap,
    work_conflict,
)
from receiver.metadata.model import records
from receiver.metadata.state.tables.background_work import parts_of
from receiver.metadata.state.work_rows import OPEN_WORK, WorkRow, WorkState

if TYPE_CHECKING:
    pass

__all__ = ["BACKGROUND_RULES"]

_Opened: TypeAlias = "tuple[int, _Opened] | None"
_BESIDE_KEYS = ("compacted", "work", "work_at", "work_below")


def _work(on: RuleOverlay, ident: int) -> WorkRow | None:
    return on.get(("work", ident), lambda: on.state.work_table.rows.get(ident))


def _work_added(on: RuleOverlay, op: records.WorkAdded) -> None:
    check_added(op)
    if _work(on, op.id) is not None:
        raise refusal_of(op, f"work {op.id} is there already")
    row = WorkRow(
        id=op.id,
        kind=op.kind,
        spec=op.spec,
        scope=tuple(op.scope),
        priority=op.priority,
        created=op.id,
        changed=op.id,
    )
    _open_work(on, row)


def _work_taken(on: RuleOverlay, op: records.WorkTaken) -> None:
    row = check_taken(op, _work(on, op.id))
    on.put(("work", op.id), replace_row(row, state=WorkState.RUNNING, attempt=op.attempt))


def _work_ended(on: RuleOverlay, op: records.WorkEnded) -> None:
    row = check_ended(op, _work(on, op.id))
    if op.end == "again":
        _open_work(on, replace_row(row, state=WorkState.PENDING))
    else:
        on.put(("work", op.id), replace_row(row, state=WorkState(op.end)))


def _open_work(on: RuleOverlay, row: WorkRow) -> None:
    """Open work, if nothing that is open has a part of its scope, here or as committed."""
    holders = {each for at in row.scope for each in on.state.work_table.overlapping(at)}
    for place in row.scope:
        parts = parts_of(place)
        for part in parts:
            holders.update(_opened(on, "work_at", part))
        holders.update(_opened(on, "work_below", place))
    for each in sorted(holders):
        other = _work(on, each)
        if other and other.state in OPEN_WORK and overlap(row.scope, other.scope):
            raise work_conflict(row, other)
    for place in row.scope:
        _note_opened(on, "work_at", place, row.id)
        for part in parts_of(place):
            _note_opened(on, "work_below", part, row.id)
    on.put(("work", row.id), row)


def _opened(on: RuleOverlay, kind: str, place: records.WorkPlace) -> Iterator[int]:
    """Work that this commit has opened at a place, or in it; some may have ended since."""
    chain: _Opened = on.get((kind, place), lambda: None)
    while chain is not None:
        ident, chain = chain
        yield ident


def _note_opened(on: RuleOverlay, kind: str, place: records.WorkPlace, ident: int) -> None:
    # A chain, not a list: each of ten thousand in one group would copy those before it.
    on.put((kind, place), (ident, on.get((kind, place), lambda: None)))


def _files_compacted(on: RuleOverlay, op: records.FilesCompacted) -> None:
    on.touched.sweep()  # it is about all that may come to its partition
    if any(key[0] not in _BESIDE_KEYS for key in on.changes):
        raise refusal_of(op, "it stands in a commit with other changes")
    if on.compacts:  # both would be judged by the committed state, and may have the same inputs
        raise refusal_of(op, "it stands in a commit with another one")
    on.compacts = True
    check_compacted(on.state, op)
    for ident in {row.id for each in op.inputs if (row := on.state.compacted_table.of_input(each))}:
        if (row := on.compaction(ident)) is not None and not row.dissolved:
            raise refusal_of(op, f"compaction {ident} stands for inputs of it")
    on.put(("compacted", op.id), None)


def _compaction_dissolved(on: RuleOverlay, op: records.CompactionDissolved) -> None:
    row = on.compaction(op.id)
    check_dissolved(op, row)
    assert row is not None
    on.put(("compacted", op.id), replace_row(row, dissolved=SIGNED_64.stop))


def _compaction_verified(on: RuleOverlay, op: records.CompactionVerified) -> None:
    check_verified(op, on.compaction(op.id))


def _compaction_final(on: RuleOverlay, op: records.CompactionFinal) -> None:
    on.touched.sweep()  # it is about all that may come to its partition
    if on.changes:
        raise refusal_of(op, "it stands in a commit with other changes")
    check_final(on.state, op)
    row = on.compaction(op.id)
    assert row is not None
    on.final = frozenset(each.physical for each in row.outputs)
    on.final_inputs = frozenset(row.inputs)
    on.put(("compacted", op.id), replace_row(row, dissolved=row.created))


def _compaction_forgotten(on: RuleOverlay, op: records.CompactionForgotten) -> None:
    check_forgotten(op, on.compaction(op.id), on.state.files)
    on.put(("compacted", op.id), None)


BACKGROUND_RULES: dict[type, Rule] = {
    records.WorkAdded: _work_added,
    records.WorkTaken: _work_taken,
    records.WorkEnded: _work_ended,
    records.FilesCompacted: _files_compacted,
    records.CompactionDissolved: _compaction_dissolved,
    records.CompactionVerified: _compaction_verified,
    records.CompactionFinal: _compaction_final,
    records.CompactionForgotten: _compaction_forgotten,
}
