"""What senders deleted within a window of time, and what of it waits for an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from receiver.metadata.model import records
from receiver.metadata.state.deletion_rows import DeleteWindowRow, HeldDeletesRow

if TYPE_CHECKING:
    from receiver.metadata.state.tables import Appliers

__all__ = ["DeleteWindows", "HeldDeletes"]


class DeleteWindows:
    """Windows in which deletes are counted.

    Attributes:
        rows: by (sender, storage group).
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], DeleteWindowRow] = {}

    def restore(self, row: DeleteWindowRow) -> None:
        """Put a row in as it was."""
        self.rows[row.sender, row.group] = row

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {records.DeletesCounted: self._deletes_counted}

    def _deletes_counted(self, op: records.DeletesCounted, ts: int) -> None:
        known = self.rows.get((op.sender, op.group))
        begins = known is None or op.listed is not None
        self.rows[op.sender, op.group] = DeleteWindowRow(
            sender=op.sender,
            group=op.group,
            begun=ts if begins or known is None else known.begun,
            listed=op.listed or 0 if begins or known is None else known.listed,
            count=op.count + (0 if begins or known is None else known.count),
            created=ts if known is None else known.created,
            changed=ts,
        )


class HeldDeletes:
    """Lists of held deletes.

    Attributes:
        rows: by digest.
    """

    def __init__(self) -> None:
        self.rows: dict[str, HeldDeletesRow] = {}

    def of(self, sender: str, group: str) -> list[HeldDeletesRow]:
        """Those of a sender in a storage group, the oldest first."""
        return [row for row in self.rows.values() if (row.sender, row.group) == (sender, group)]

    def waiting(self) -> list[HeldDeletesRow]:
        """Those that nobody has decided about, the oldest first."""
        return [row for row in self.rows.values() if row.verdict is None]

    def has_end(self, physical: str) -> bool:
        """Whether a list has the end of a file, not records of its deletion file."""
        return any(physical in row.files for row in self.rows.values() if not row.records)

    def restore(self, row: HeldDeletesRow) -> None:
        """Put a row in as it was."""
        self.rows[row.digest] = row

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.DeletesHeld: self._deletes_held,
            records.DeletesSettled: self._deletes_settled,
        }

    def _deletes_held(self, op: records.DeletesHeld, ts: int) -> None:
        before = self.rows.pop(op.replaces, None)
        same = before is not None and before.digest == op.digest
        self.rows[op.digest] = HeldDeletesRow(
            digest=op.digest,
            sender=op.sender,
            group=op.group,
            files=tuple(op.files),
            records=op.records,
            reason=op.reason,
            look=op.look,
            created=before.created if before is not None and same else ts,
            changed=ts,
        )

    def _deletes_settled(self, op: records.DeletesSettled, ts: int) -> None:
        row = self.rows[op.digest]
        if op.verdict == "done" or (row.records and op.verdict != "use"):
            del self.rows[op.digest]
        elif op.verdict == "use":
            self.rows[op.digest] = msgspec.structs.replace(row, used=op.look, changed=ts)
        else:
            self.rows[op.digest] = msgspec.structs.replace(
                row, verdict=op.verdict, used=None, changed=ts
            )
