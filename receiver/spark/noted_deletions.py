"""What was deleted of which file, as a receiver has noted it up to a commit."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from common.names import storage_group_of
from receiver.metadata.query.applied_deletions import AppliedDeletions, applied_deletions

if TYPE_CHECKING:
    from receiver.metadata.state.deletion_rows import DeletionsRow
    from receiver.points.deleted.deletions import DeletionRecords

__all__ = ["FileDeletions", "NotedDeletions"]


@dataclass(frozen=True, slots=True)
class FileDeletions:
    """Records that hide points of one file.

    Attributes:
        own: of its deletion file.
        others: of those of other files of its sender, in the same storage group.
    """

    own: tuple[DeletionRecords, ...] = ()
    others: tuple[DeletionRecords, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.own or self.others)


class _Reaching(NamedTuple):
    """Records that hide points of other files than their own: of those closed up to `floor`."""

    floor: int
    owner: str | None
    records: DeletionRecords


_NONE = FileDeletions()


class NotedDeletions:
    """The deletions of all senders that readers apply, as of a commit."""

    def __init__(
        self,
        rows: Iterable[DeletionsRow],
        at: int,
        older_of: Callable[[DeletionsRow], frozenset[str]],
    ) -> None:
        """Sort them by what they hide.

        Args:
            rows: what is noted, whenever.
            at: the commit.
            older_of: which patterns of a deletion file name all that lies below as well.
        """
        self._older_of = older_of
        self._own: dict[str, tuple[DeletionRecords, ...]] = {}
        self._reaching: dict[tuple[str, str], list[_Reaching]] = defaultdict(list)
        self._shared: dict[tuple[str, str, int], tuple[tuple[_Reaching, ...], FileDeletions]] = {}
        for row, several in groupby(applied_deletions(rows, at), lambda each: each.row):
            self._add(row, list(several))
        for each in self._reaching.values():
            each.sort(key=lambda one: (-one.floor, one.records.name))

    def of(self, author: str, physical: str, closed: int) -> FileDeletions:
        """What hides points of a file that its author's look `closed` had closed first."""
        own = self._own.get(physical, ())
        group = storage_group_of(physical)
        reaching = self._reaching.get((author, group))
        if not reaching:
            return FileDeletions(own) if own else _NONE
        count = bisect.bisect_right(reaching, -closed, key=lambda one: -one.floor)
        found = self._shared.get((author, group, count))
        if found is None:  # files that are closed about the same time share the tuple
            some = tuple(reaching[:count])
            found = some, FileDeletions((), tuple(each.records for each in some))
            self._shared[author, group, count] = found
        if not own:
            return found[1]
        others = tuple(each.records for each in found[0] if each.owner != physical)
        return FileDeletions(own, others)

    def _add(self, row: DeletionsRow, several: list[AppliedDeletions]) -> None:
        from receiver.points.deleted.deletions import DeletionRecords

        name = f"{row.path}.{row.form}"
        for each in several:
            if each.floor:
                records = DeletionRecords(name, row.form, each.content, self._older_of(row))
                reaching = _Reaching(each.floor, row.physical, records)
                self._reaching[row.author, storage_group_of(row.path)].append(reaching)
        if row.physical is not None:
            content = b"".join(each.content for each in several)
            known = self._own.get(row.physical, ())
            self._own[row.physical] = (*known, DeletionRecords(name, row.form, content))
