"""What was deleted of which file, as a receiver has noted it up to a commit."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from common.errors import TsferryError

if TYPE_CHECKING:
    from receiver.metadata.state.table_rows import DeletionsRow, DeletionsSegment
    from receiver.points.deletions import DeletionRecords

__all__ = ["FileDeletions", "NotedDeletions"]


@dataclass(frozen=True, slots=True)
class FileDeletions:
    """Records that hide points of one file.

    Attributes:
        own: of its deletion file.
        others: of those of other files of its sender.
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
        devices_of: Callable[[str], Iterable[str] | None],
    ) -> None:
        """Sort them by what they hide.

        Args:
            rows: what is noted, whenever.
            at: the commit.
            devices_of: names of the devices of a loaded file, None where they are not known.
        """
        self._devices_of = devices_of
        self._own: dict[str, tuple[DeletionRecords, ...]] = {}
        self._reaching: dict[str, list[_Reaching]] = defaultdict(list)
        self._shared: dict[tuple[str, int], tuple[tuple[_Reaching, ...], FileDeletions]] = {}
        for row in _preferred(rows, at):
            self._add(row, at)
        for each in self._reaching.values():
            each.sort(key=lambda one: (-one.floor, one.records.name))

    def of(self, sender: str, physical: str, closed: int) -> FileDeletions:
        """What hides points of a file that its sender's look `closed` had closed first."""
        own = self._own.get(physical, ())
        reaching = self._reaching.get(sender)
        if not reaching:
            return FileDeletions(own) if own else _NONE
        count = bisect.bisect_right(reaching, -closed, key=lambda one: -one.floor)
        found = self._shared.get((sender, count))
        if found is None:  # files that are closed about the same time share the tuple
            some = tuple(reaching[:count])
            found = some, FileDeletions((), tuple(each.records for each in some))
            self._shared[sender, count] = found
        if not own:
            return found[1]
        others = tuple(each.records for each in found[0] if each.owner != physical)
        return FileDeletions(own, others)

    def _add(self, row: DeletionsRow, at: int) -> None:
        from receiver.points.deletions import DeletionRecords

        name = f"{row.path}.{row.form}"
        begin, mine = 0, []
        for segment in row.segments:
            content, begin = row.content[begin : segment.end], segment.end
            if not _is_applied(segment, at):
                continue
            mine.append(content)
            if segment.floor:
                records = DeletionRecords(name, row.form, content, self._older(row))
                reaching = _Reaching(segment.floor, row.physical, records)
                self._reaching[row.sender].append(reaching)
        if row.physical is not None and mine:
            self._own[row.physical] = (DeletionRecords(name, row.form, b"".join(mine)),)

    def _older(self, row: DeletionsRow) -> frozenset[str]:
        """Which of its patterns are of an older server; only the file that it is of can tell."""
        if row.form != "mods" or row.physical is None:
            return frozenset()
        devices = self._devices_of(row.physical)
        if devices is None:
            return frozenset()
        from receiver.points.deletion_files import parse_text
        from receiver.points.deletions import older_patterns

        try:
            entries = parse_text(row.content, row.path).entries
        except TsferryError:
            return frozenset()  # whoever reads it says so
        return older_patterns(entries, [each for each in devices if not each.startswith("/")])


def _preferred(rows: Iterable[DeletionsRow], at: int) -> list[DeletionsRow]:
    """Those that count: a database that has both forms of a file has written one from the other."""
    found: dict[tuple[str, str | None, str], DeletionsRow] = {}
    for row in rows:
        key = (row.sender, row.physical, row.path)
        if any(each.commit <= at for each in row.segments) and (
            key not in found or row.form == "mods2"
        ):
            found[key] = row
    return list(found.values())


def _is_applied(segment: DeletionsSegment, at: int) -> bool:
    return segment.applied and segment.commit <= at
