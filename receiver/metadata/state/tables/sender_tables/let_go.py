"""Files that an operator deleted, and that are forgotten here but for that.

Without them a sender that lists such a file still would take it for lost at the centre and send it
again; and one that has lost its list, was restored from a copy of its disk or put in the place of
another would send it as a new file. What an edge has told, or heard, says nothing of what it will
know tomorrow, so a note stays until the content is loaded again.
"""

from __future__ import annotations

from itertools import chain
from sys import intern
from typing import TYPE_CHECKING, Final

from receiver.metadata.model import records
from receiver.metadata.state.packed_files import hash_of
from receiver.metadata.state.packed_notes import FrozenNotes, PackedNotes
from receiver.metadata.state.table_rows import LetGoRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from receiver.metadata.state.tables import Appliers

__all__ = ["LetGoTable"]

_ROOM: Final = 8
"""Bytes of marks a note, at the least."""
_MANY: Final = 4096
"""So many are packed; what is fewer stays as objects."""


class LetGoTable:
    """By sender, path and content; and by content alone.

    The newest are objects. All others lie in packed tables, each at least twice as long as the next
    one, so that a note is packed anew only a few times, and few tables are asked. Of what is not
    among them nearly always a byte says so: a plan asks for each file.
    """

    def __init__(self) -> None:
        """Make an empty one."""
        self._packed: list[PackedNotes] = []
        self._marks = bytearray(1)
        self._bits = 0
        self._at_path: dict[str, list[LetGoRow]] = {}
        self._by_tail: dict[str, list[LetGoRow]] = {}
        self._fitting = 0

    def __iter__(self) -> Iterator[LetGoRow]:
        """All of them."""
        return chain(*self._packed, *self._at_path.values())

    def __len__(self) -> int:
        return sum(each.count for each in self._packed) + sum(map(len, self._at_path.values()))

    def get(self, sender: str, path: str, md5: str) -> LetGoRow | None:
        """What is known of a content under a path of a sender."""
        rows = self._of_path(path)
        return next((row for row in rows if (row.sender, row.md5) == (sender, md5)), None)

    def of(self, sender: str, since: int = 0) -> Iterable[LetGoRow]:
        """All of a sender that were deleted behind a commit."""
        rows = chain(*self._at_path.values())
        others = (row for row in rows if row.sender == sender and row.deleted > since)
        return chain(*(each.of_sender(sender, since) for each in self._packed), others)

    def of_tail(self, tail: str) -> list[LetGoRow]:
        """All with the digest of a tail, whoever had them, under whatever path."""
        hashed = hash_of(tail)
        packed = [row for each in self._with(hashed) for _, row in each.of_tail(tail, hashed)]
        return packed + self._by_tail.get(tail, [])

    def _of_path(self, path: str) -> list[LetGoRow]:
        hashed = hash_of(path)
        packed = [row for each in self._with(hashed) for _, row in each.at_path(path, hashed)]
        return packed + self._at_path.get(path, [])

    def _with(self, hashed: int) -> list[PackedNotes]:
        """The tables that may have something with a hash."""
        return self._packed if self._marks[hashed >> (64 - self._bits)] else []

    def freeze(self) -> FrozenNotes:
        """All as they are now."""
        rows = [*chain(*self._at_path.values())]
        return FrozenNotes([(each, bytes(each.left)) for each in self._packed], rows)

    def thaw(self, packed: list[PackedNotes]) -> None:
        """Put packed tables in as they were."""
        self._packed = packed
        self._mark()

    def restore(self, row: LetGoRow) -> None:
        """Put a row in as it was; what an earlier release had no use for any more goes."""
        if not row.deleted:
            return
        self._at_path.setdefault(row.path, []).append(row)
        if row.tail:
            self._by_tail.setdefault(row.tail, []).append(row)
        self._fitting += PackedNotes.fits(row)
        if self._fitting >= _MANY:
            self._pack()

    def operations(self) -> Appliers:
        """What it does with operations."""
        return {
            records.LetGoNoted: self._noted,
            records.LetGoEnded: self._ended,
            records.FileLoaded: self._file_loaded,
        }

    def _noted(self, op: records.LetGoNoted, ts: int) -> None:
        self._drop(op.sender, op.path, op.md5)
        self.restore(
            LetGoRow(
                sender=intern(op.sender),
                path=op.path,
                md5=op.md5,
                deleted=op.deleted,
                tail=op.tail,
                created=ts,
                changed=ts,
            )
        )

    def _ended(self, op: records.LetGoEnded, ts: int) -> None:
        self._drop(op.sender, op.path)

    def _file_loaded(self, op: records.FileLoaded, ts: int) -> None:
        self._drop(op.sender, op.path, op.md5)
        for row in self.of_tail(op.tail):
            if row.md5 == op.md5:
                self._drop(row.sender, row.path, row.md5)

    def _drop(self, sender: str, path: str, md5: str | None = None) -> None:
        """Those under a path of a sender go, or the one with a content."""
        hashed = hash_of(path)
        for table in self._with(hashed):
            for number, row in table.at_path(path, hashed):
                if row.sender == sender and md5 in (None, row.md5):
                    table.leave(number)
        for row in [each for each in self._at_path.get(path, ()) if each.sender == sender]:
            if md5 in (None, row.md5):
                _take_out(self._at_path, path, row)
                if row.tail:
                    _take_out(self._by_tail, row.tail, row)
                self._fitting -= PackedNotes.fits(row)

    def _mark(self) -> None:
        """Have a byte for what is packed: many more of them than paths and tails."""
        wanted = _ROOM * sum(len(each.left) for each in self._packed)
        if len(self._marks) < wanted:
            self._bits = wanted.bit_length()
            self._marks = bytearray(1 << self._bits)
            for each in self._packed:
                each.mark(self._marks, self._bits)
        elif self._packed:
            self._packed[-1].mark(self._marks, self._bits)

    def _pack(self) -> None:
        """Objects become a table, which tables that are not much longer go into."""
        rows = [*chain(*self._at_path.values())]
        made = PackedNotes.of([row for row in rows if PackedNotes.fits(row)])
        while self._packed and self._packed[-1].count < 2 * made.count:
            made = self._packed.pop().joined(made)
        self._packed.append(made)
        self._mark()
        self._at_path, self._by_tail, self._fitting = {}, {}, 0
        for row in rows:
            if not PackedNotes.fits(row):
                self.restore(row)


def _take_out(rows: dict[str, list[LetGoRow]], key: str, row: LetGoRow) -> None:
    rows[key].remove(row)
    if not rows[key]:
        del rows[key]
