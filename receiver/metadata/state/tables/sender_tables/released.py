"""Files whose bytes the receiver may let go of, since storage nodes have proved to have them.

As with what is in the object store, what leaves the data directories and comes back into them is no
commit: a file of this table may be here and there, and its row goes with that of the file.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from receiver.metadata.model import records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables import Appliers

__all__ = ["ReleasedRow", "ReleasedTable"]


class ReleasedRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """See `records.FileReleased`.

    Attributes:
        created: the commit that said so first.
        changed: the commit that the row is from.
    """

    physical: str
    tablet: str
    generation: int
    nodes: tuple[str, ...]
    created: int
    changed: int


class ReleasedTable:
    """Released files.

    Attributes:
        rows: by physical name.
    """

    def __init__(self, files: Mapping[str, FileRow]) -> None:
        """Begin with none.

        Args:
            files: all files by their physical names; a row shares the name of its file.
        """
        self._files = files
        self.rows: dict[str, ReleasedRow] = {}
        self._of_tablet: dict[str, dict[str, None]] = {}
        self._copies: dict[str, Counter[int]] = {}

    def of_tablet(self, tablet: str) -> list[str]:
        """Physical names of those of a tablet."""
        return list(self._of_tablet.get(tablet, ()))

    def tablets(self) -> list[str]:
        """Tablets with released files."""
        return list(self._of_tablet)

    def copies(self, tablet: str) -> int:
        """Nodes that have proved to have a file of a tablet, of the one with most; 0 for none."""
        return max(self._copies.get(tablet, ()), default=0)

    def restore(self, row: ReleasedRow) -> None:
        """Put a row in as it was."""
        file = self._files.get(row.physical)
        if file is not None:
            row = msgspec.structs.replace(row, physical=file.physical)
        self._drop(row.physical)
        self.rows[row.physical] = row
        self._of_tablet.setdefault(row.tablet, {})[row.physical] = None
        self._copies.setdefault(row.tablet, Counter())[len(row.nodes)] += 1

    def _drop(self, physical: str) -> None:
        row = self.rows.pop(physical, None)
        if row is None:
            return
        names, copies = self._of_tablet[row.tablet], self._copies[row.tablet]
        del names[physical]
        copies[len(row.nodes)] -= 1
        if not copies[len(row.nodes)]:
            del copies[len(row.nodes)]
        if not names:
            del self._of_tablet[row.tablet], self._copies[row.tablet]

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.FileReleased: self._file_released,
            records.FileForgotten: self._file_forgotten,
        }

    def _file_released(self, op: records.FileReleased, ts: int) -> None:
        known = self.rows.get(op.physical)
        self.restore(
            ReleasedRow(
                physical=op.physical,
                tablet=op.tablet,
                generation=op.generation,
                nodes=tuple(op.nodes),
                created=ts if known is None else known.created,
                changed=ts,
            )
        )

    def _file_forgotten(self, op: records.FileForgotten, ts: int) -> None:
        self._drop(op.physical)
