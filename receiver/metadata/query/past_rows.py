"""Rows of a time in order of their physical paths, made when they are asked for.

Most files are packed (`PackedFiles`): of these, columns tell which were loaded by then, and what is
kept of each is its number. The others, and those that the log since tells something of, are objects
in between. All of it is from one moment, and holds no lock.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from receiver.metadata.schema.tree_columns.growing_columns import view
from receiver.metadata.state.packed_file import packed_row, packed_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from receiver.metadata.state.file_rows import FrozenFileRows
    from receiver.metadata.state.packed_files import PackedFiles
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["PastRows", "RowsBetween"]

_AT_ONCE: Final = 1 << 16
"""Numbers that become a list at once."""


class PastRows:
    """Rows in order; as often as one goes through them, they are made anew.

    A row of a packed file is looked at in place, and keeps the table that it is of: go through many
    without keeping them.
    """

    def __init__(
        self, packed: PackedFiles, numbers: NDArray[np.uint32], others: Sequence[FileRow]
    ) -> None:
        """Make it.

        Args:
            packed: a table.
            numbers: of those of its files that stand here as they are in it, in order.
            others: all others, in order.
        """
        self._packed = packed
        self._numbers = numbers
        self._others = others

    def __len__(self) -> int:
        return len(self._numbers) + len(self._others)

    def __iter__(self) -> Iterator[FileRow]:
        return self.behind(None)

    def behind(self, physical: str | None) -> Iterator[FileRow]:
        """Those whose physical paths sort behind one; all for None."""
        others, at, begin = self._others, 0, 0
        if physical is not None:
            at = self._place(physical)
            begin = bisect_right(others, physical, key=attrgetter("physical"))
        for each in others[begin:] if begin else others:
            end = self._place(each.physical)
            if at < end:
                yield from self._some(at, end)
                at = end
            yield each
        yield from self._some(at, len(self._numbers))

    def _place(self, physical: str) -> int:
        # A number of another type would have numpy copy all of them.
        return int(np.searchsorted(self._numbers, np.uint32(self._packed.behind(physical))))

    def _some(self, begin: int, end: int) -> Iterator[FileRow]:
        for at in range(begin, end, _AT_ONCE):
            some = self._numbers[at : min(at + _AT_ONCE, end)]
            yield from packed_rows(self._packed, some.tolist())


class RowsBetween:
    """The rows of a moment that were made by commits in between two.

    `numbers` are the packed ones, `others` the rest, in no order.
    """

    def __init__(
        self,
        rows: FrozenFileRows,
        *,
        since: int,
        until: int,
        within: Callable[[str], bool] | None = None,
    ) -> None:
        """Look for them.

        Args:
            rows: of that moment.
            since: made behind this commit.
            until: made up to this one.
            within: which directories they are in, such as ``sequence/root.wind/0/0``; None for all.
        """
        self.packed = packed = rows.packed
        known: dict[str, bool] = {}

        def is_within(physical: str) -> bool:
            directory = physical.rpartition("/")[0]
            if directory not in known:
                known[directory] = within is None or within(directory)
            return known[directory]

        self.others = [
            row for row in rows.young if since < row.created <= until and is_within(row.physical)
        ]
        created = view(packed.created).view(np.uint64)
        fits = (created > since) & (created <= until)
        fits &= np.frombuffer(rows.left, np.uint8) == 0
        if within is not None:
            meant = np.array([*map(within, packed.texts.directories)], np.bool_)
            fits &= np.repeat(meant, np.diff(view(packed.begins)).astype(np.int64))
        self._fits = fits

    def take_out(self, numbers: Iterable[int]) -> None:
        """Let packed files, by their numbers, be among the others: as objects."""
        packed, fits = self.packed, self._fits
        for number in numbers:
            if fits[number]:
                fits[number] = False
                self.others.append(packed_row(packed, number))

    def seen_first(self, looks: Mapping[str, Collection[int]]) -> list[int]:
        """Numbers of the packed files whose first look is one of those said of their sender."""
        packed, found = self.packed, np.zeros(len(self._fits), np.bool_)
        for number, sender in enumerate(packed.texts.senders):
            if wanted := [each for each in looks.get(sender, ()) if each]:
                first = view(packed.first_looks).view(np.uint64)
                looked = np.isin(first, np.array(wanted, np.uint64))
                found |= looked & (view(packed.senders) == number)
        numbers: list[int] = np.flatnonzero(found & self._fits).tolist()
        return numbers

    def in_order(self, others: Sequence[FileRow]) -> PastRows:
        """The packed files, and these others."""
        numbers = np.flatnonzero(self._fits).astype(np.uint32)
        return PastRows(self.packed, numbers, others)
