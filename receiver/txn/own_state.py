"""What a transaction sees once it has written: a fork of the schema, with its own changes in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.metadata.commit.draft import Draft
from receiver.metadata.model import records
from receiver.metadata.model.tag_layout import layout
from receiver.metadata.state.lock import Reading
from receiver.metadata.state.state import State
from receiver.metadata.state.table_rows import OwnerRow
from receiver.metadata.state.tables.series import SchemaTable
from receiver.txn.schema_fork import schema_as_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.engine import Engine

__all__ = ["SCHEMA_OPS", "OwnState"]

SCHEMA_OPS: Final = (
    records.StorageGroupSet,
    records.StorageGroupDeleted,
    records.TtlSet,
    records.SeriesCreated,
    records.SeriesDeleted,
    records.AliasSet,
    records.TagsSet,
)
"""What changes the fork."""
_OWN_TAGS: Final = 1 << 48
"""Where tags of the transaction would begin in a tlog: none is as long."""


class OwnState:
    """Belongs to one transaction.

    Attributes:
        state: schema and owners as of the time, with the changes; nothing else is in it.
        reading: of that state.
    """

    def __init__(self, engine: Engine, ts: int) -> None:
        """Make the fork; costs a copy of the schema.

        Raises:
            HistoryGoneError: the time is before the kept history.
        """
        self._engine = engine
        self._ts = ts
        self._tags_end = _OWN_TAGS
        self._labels: dict[int, tuple[dict[str, str], dict[str, str]]] = {}
        self.state = state = State(schema_as_of(engine, ts))
        state.newest = ts + 1
        self._loaded = SchemaTable(state.schema).operations()[records.SeriesLoaded]
        with engine.reading() as committed:
            rows = list(committed.owners.items())
        state.owners.update((device, row) for device, row in rows if row.changed <= ts)
        self.reading = Reading(state)

    def judge(self, ops: Sequence[records.Op]) -> None:
        """Raise what speaks against operations of the schema, by the rules of a commit."""
        error = Draft(self.state).attempt(ops) if ops else None
        if error is not None:
            raise error

    def apply(self, ops: Sequence[records.Op]) -> None:
        """Play operations that were judged; those of other tables than the schema are left out."""
        schema: list[records.Op] = []
        for op in ops:
            if isinstance(op, SCHEMA_OPS):
                schema.append(op)
            elif isinstance(op, records.OwnerSet):
                self._set_owner(op)
            elif isinstance(op, records.SeriesLoaded):
                self._apply_schema(schema)
                schema = []
                # By itself: the row of its file is not here.
                self._loaded(op, self._ts + 1)
        self._apply_schema(schema)

    def _apply_schema(self, schema: Sequence[records.Op]) -> None:
        if not schema:
            return
        laid = layout(schema, self._tags_end)
        offsets = None
        if laid is not None:
            offsets = laid.offsets
            self._tags_end += len(laid.content)
            for op, places in zip(schema, offsets, strict=True):
                self._note_labels(op, places)
        self.state.apply(records.Commit(self._ts + 1, schema), offsets)

    def tags_of(self, offset: int) -> tuple[dict[str, str], dict[str, str]]:
        """Tags and attributes of a series, by their place."""
        own = self._labels.get(offset)
        return self._engine.tags_of(offset) if own is None else own

    def _note_labels(self, op: records.Op, places: Sequence[int] | None) -> None:
        if places is None:
            return
        if isinstance(op, records.TagsSet):
            self._labels[places[0]] = (dict(op.tags), dict(op.attributes))
        elif isinstance(op, records.SeriesCreated):
            none: list[dict[str, str]] = [{}] * len(op.names)
            columns = zip(places, op.tags or none, op.attributes or none, strict=True)
            for place, tags, attributes in columns:
                if place >= 0:
                    self._labels[place] = (dict(tags), dict(attributes))

    def _set_owner(self, op: records.OwnerSet) -> None:
        if op.sender is None:
            self.state.owners.pop(op.device, None)
        else:
            now = self._ts + 1
            self.state.owners[op.device] = OwnerRow(sender=op.sender, created=now, changed=now)
