"""The rules that a commit must keep, operation by operation; those of the schema: `schema_rules`.

What stands earlier in the commit counts for what follows (a replacement is a deletion, then a
load): `draft` plays the operations on them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from receiver.metadata.commit.judging.background_rules import BACKGROUND_RULES
from receiver.metadata.commit.judging.file_rules import FILE_RULES
from receiver.metadata.commit.judging.kept_rules import KEPT_RULES
from receiver.metadata.commit.judging.place_rules import PLACE_RULES
from receiver.metadata.commit.judging.record_checks import refusal_of
from receiver.metadata.commit.judging.rule_overlay import Rule, RuleOverlay
from receiver.metadata.commit.judging.sender_rules import SENDER_RULES
from receiver.metadata.commit.series_rules.schema_draft import Savepoint, truncate
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.model.snapshot_kv import check_keys, check_prefixes

if TYPE_CHECKING:
    from receiver.metadata.commit.pace import Pace
    from receiver.metadata.state.state import State

__all__ = ["Rules", "check_txn"]


class Rules:
    """The rules, over committed state with the changes of one commit.

    Attributes:
        schema: those of storage groups and series.
        touched: keys that the commit looked at and changes.
    """

    __slots__ = ("_on", "schema", "touched")

    def __init__(self, state: State, *, notes: bool, pace: Pace | None = None) -> None:
        self._on = RuleOverlay(state, notes=notes, pace=pace)
        self.schema, self.touched = self._on.schema, self._on.touched

    def play(self, op: records.Op) -> None:
        """See that an operation may follow those before it, and remember what it changes.

        Raises:
            ConflictError: a file holds a device of another owner (`extra`: device, path), or a
                series of another type (`SchemaConflictError`).
            RefusedCommitError: another rule is broken; the message names the operation or the
                object.
            IllegalPathError: a path is none.
        """
        rule = _RULES.get(type(op))
        if rule is None:
            raise RefusedCommitError(f"{type(op).__name__} is not for callers to commit")
        if self._on.compacts and not isinstance(op, _BESIDE_COMPACTIONS):
            raise refusal_of(op, "it stands in a commit with a compaction")
        if self._on.final and not _is_of_final(self._on, op):
            raise refusal_of(op, "it stands in a commit that makes a compaction final")
        rule(self._on, op)

    def savepoint(self) -> tuple[int, int, Savepoint]:
        """What `roll_back` needs to give back all that is played from now on."""
        return len(self._on.changes), self.schema.cost, self.schema.draft.savepoint()

    def roll_back(self, savepoint: tuple[int, int, Savepoint]) -> None:
        """Give back what was changed since."""
        size, self.schema.cost, schema = savepoint
        self.schema.draft.roll_back(schema)
        truncate(self._on.changes, size)


def _is_of_final(on: RuleOverlay, op: records.Op) -> bool:
    if isinstance(op, records.FileSuperseded):
        return on.final.issuperset(op.rests)
    if isinstance(op, records.FileRetired) and op.physical in on.final_inputs:
        return True
    return isinstance(op, records.FileLoaded | records.FileRetired) and op.physical in on.final


def _keys_written(on: RuleOverlay, op: records.KeysWritten) -> None:
    check_prefixes(op.removals)
    check_keys(op.saves)
    if not op.removals and not op.saves:
        raise refusal_of(op, "there is nothing to write")
    on.touched.written.update([("key", key) for key in op.saves])
    # Which keys a prefix removes is not known here, and a guard may be on any of them.
    if op.removals:
        on.touched.sweep()


def _txn_committed(on: RuleOverlay, op: records.TxnCommitted) -> None:
    check_txn(on.state, op)
    if ("txn", op.id) in on.changes:
        raise refusal_of(op, "it stands twice")
    on.put(("txn", op.id), True)


def _clock_corrected(on: RuleOverlay, op: records.ClockCorrected) -> None:
    for before, after in pairwise(op.pieces):
        if not before.ts < after.ts or not before.moment <= after.moment:
            raise refusal_of(op, f"{after} does not follow {before}")
    if any(each.pace not in range(3) or each.moment < 0 for each in op.pieces):
        raise refusal_of(op, "a piece goes at a pace that is none")
    on.put(("clock",), True)


def check_txn(state: State, op: records.TxnCommitted) -> None:
    """See that a transaction is one that was not committed yet.

    Raises:
        RefusedCommitError: it was, or its id is none.
    """
    if not 0 < op.id < 1 << 63:
        raise refusal_of(op, f"{op.id} is no id of a transaction")
    if op.id in state.txn_table.rows:
        raise refusal_of(op, f"transaction {op.id} was committed already")


_BESIDE_COMPACTIONS = (
    records.FilesCompacted,
    records.CompactionDissolved,
    records.CompactionForgotten,
    records.WorkAdded,
    records.WorkTaken,
    records.WorkEnded,
)
"""What has no part in what is judged of a compaction by the committed state."""
_RULES: dict[type, Rule] = {
    **SENDER_RULES,
    **FILE_RULES,
    **KEPT_RULES,
    **BACKGROUND_RULES,
    **PLACE_RULES,
    records.StorageGroupSet: lambda on, op: on.schema.storage_group_set(op),
    records.StorageGroupDeleted: lambda on, op: on.schema.storage_group_deleted(op),
    records.TtlSet: lambda on, op: on.schema.ttl_set(op),
    records.UploadSet: lambda on, op: on.schema.upload_set(op),
    records.SeriesCreated: lambda on, op: on.schema.series_created(op),
    records.SeriesDeleted: lambda on, op: on.schema.series_deleted(op),
    records.AliasSet: lambda on, op: on.schema.alias_set(op),
    records.TagsSet: lambda on, op: on.schema.tags_set(op),
    records.KeysWritten: _keys_written,
    records.ClockCorrected: _clock_corrected,
    records.TxnCommitted: _txn_committed,
}
