"""Notes of files that an operator deleted, in columns: 100 bytes each instead of 670 as objects.

A table of them never changes. They are found by hashes of their paths, and of the digests of their
tails. A checkpoint holds the columns as they are in memory, and a start takes them as they are.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from receiver.metadata.schema.tree_columns.growing_columns import view
from receiver.metadata.state.packed_files import NumbersByHash, array_of, hash_of
from receiver.metadata.state.packing import cut
from receiver.metadata.state.table_rows import LetGoRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["FrozenNotes", "PackedNotes"]

_COLUMNS: Final = {"deleted": "q", "created": "Q", "senders": "I", "directories": "I"}
_DIGESTS: Final = 32
"""Bytes of MD5 and tail; the tail is zeros where it does not tell what the file is."""
_AT_ONCE: Final = 1 << 14
"""Names that are moved at once, for each byte takes more meanwhile."""
_NO_TAIL: Final = bytes(16)
_HASH = np.uint64(((1 << 32) - 1) << 32)
_LOW = np.uint64((1 << 32) - 1)


class _Texts(NamedTuple):
    senders: list[str]
    directories: list[str]


class PackedNotes:
    """A table of notes, each by its number; those that have `left` count no more.

    Attributes:
        left: a byte for each of them.
        count: of those that have not left.
    """

    def __init__(
        self,
        columns: Mapping[str, array[int]],
        *,
        digests: bytes,
        names: bytes,
        ends: array[int],
        texts: _Texts,
        by_path: array[int],
        by_tail: array[int],
        left: bytearray | None = None,
    ) -> None:
        self._columns = columns
        self._digests = digests
        self._names = names
        self._ends = ends
        self._texts = texts
        self._by_path = NumbersByHash(by_path)
        self._by_tail = NumbersByHash(by_tail)
        self.left = bytearray(len(ends) - 1) if left is None else left
        self.count = self.left.count(0)

    @classmethod
    def of(cls, rows: Sequence[LetGoRow]) -> PackedNotes:
        """A table of rows, which `fits` found to be fit for it."""
        senders: dict[str, int] = {}
        directories: dict[str, int] = {}
        columns = {name: array(code) for name, code in _COLUMNS.items()}
        digests, names = [], []
        for row in rows:
            directory, _, name = row.path.rpartition("/")
            columns["deleted"].append(row.deleted)
            columns["created"].append(row.created)
            columns["senders"].append(senders.setdefault(row.sender, len(senders)))
            columns["directories"].append(directories.setdefault(directory, len(directories)))
            digests.append(bytes.fromhex(row.md5) + (bytes.fromhex(row.tail) or _NO_TAIL))
            names.append(name.encode())
        by_path = sorted(hash_of(row.path) | number for number, row in enumerate(rows))
        by_tail = sorted(hash_of(row.tail) | n for n, row in enumerate(rows) if row.tail)
        return cls(
            columns,
            digests=b"".join(digests),
            names=b"".join(names),
            ends=array("Q", accumulate(map(len, names), initial=0)),
            texts=_Texts([*senders], [*directories]),
            by_path=array("Q", by_path),
            by_tail=array("Q", by_tail),
        )

    @staticmethod
    def fits(row: LetGoRow) -> bool:
        """Whether a row can be in such a table."""
        try:
            digests = bytes.fromhex(row.md5 + row.tail)
        except ValueError:
            return False
        is_whole = digests.hex() == row.md5 + row.tail and len(row.md5) == 32
        return is_whole and len(row.tail) in (0, 32) and row.created == row.changed

    def __iter__(self) -> Iterator[LetGoRow]:
        """All that have not left."""
        return (self.row(number) for number in range(len(self.left)) if not self.left[number])

    def row(self, number: int) -> LetGoRow:
        """A note as an object."""
        digests = self._digests[number * _DIGESTS : (number + 1) * _DIGESTS]
        tail = digests[16:]
        name = self._names[self._ends[number] : self._ends[number + 1]].decode()
        created = self._columns["created"][number]
        return LetGoRow(
            created=created,
            changed=created,
            sender=self._texts.senders[self._columns["senders"][number]],
            path=f"{self._texts.directories[self._columns['directories'][number]]}/{name}",
            md5=digests[:16].hex(),
            deleted=self._columns["deleted"][number],
            tail="" if tail == _NO_TAIL else tail.hex(),
        )

    def at_path(self, path: str, hashed: int) -> Iterator[tuple[int, LetGoRow]]:
        """Those with a path, whoever had it, each with its number; `hashed` is its `hash_of`."""
        for number in self._by_path.find(hashed):
            if not self.left[number] and (row := self.row(number)).path == path:
                yield number, row

    def of_tail(self, tail: str, hashed: int) -> Iterator[tuple[int, LetGoRow]]:
        """Those with the digest of a tail, each with its number; `hashed` is its `hash_of`."""
        for number in self._by_tail.find(hashed):
            if not self.left[number] and (row := self.row(number)).tail == tail:
                yield number, row

    def of_sender(self, sender: str, since: int) -> Iterator[LetGoRow]:
        """Those of a sender that were deleted behind a commit."""
        if sender in self._texts.senders:
            is_its = view(self._columns["senders"]) == self._texts.senders.index(sender)
            is_its &= view(self._columns["deleted"]) > since
            is_its &= np.frombuffer(self.left, np.uint8) == 0
            yield from map(self.row, np.flatnonzero(is_its).tolist())

    def mark(self, marks: bytearray, bits: int) -> None:
        """Set the byte of each path and each tail, which the highest bits of its hash name."""
        set_of = np.frombuffer(marks, np.uint8)
        for found in (self._by_path, self._by_tail):
            set_of[view(found.entries).view(np.uint64) >> np.uint64(64 - bits)] = 1

    def leave(self, number: int) -> None:
        """One counts no more."""
        self.left[number] = 1
        self.count -= 1

    # -- two become one ------------------------------------------------------------------------

    def joined(self, other: PackedNotes) -> PackedNotes:
        """A table of what both have still."""
        both = (self, other)
        stays = [np.flatnonzero(np.frombuffer(each.left, np.uint8) == 0) for each in both]
        begins = (0, len(stays[0]))
        senders = _together(self._texts.senders, other._texts.senders)
        directories = _together(self._texts.directories, other._texts.directories)
        columns = {
            name: _joined(
                _COLUMNS[name],
                [view(b._columns[name])[s] for b, s in zip(both, stays, strict=True)],
            )
            for name in ("deleted", "created")
        }
        for name, place, ids in (("senders", 0, senders), ("directories", 1, directories)):
            parts = []
            for each, numbers in zip(both, stays, strict=True):
                moved = np.array([ids[text] for text in each._texts[place]], np.uint32)
                parts.append(
                    moved[view(each._columns[name])[numbers]] if len(numbers) else moved[:0]
                )
            columns[name] = _joined("I", parts)
        digests, names, sizes = [], [], []
        for each, numbers in zip(both, stays, strict=True):
            table = np.frombuffer(each._digests, np.uint8).reshape(-1, _DIGESTS)
            digests.append(table[numbers].tobytes())
            begins_of = view(each._ends).view(np.int64)
            lengths = np.diff(begins_of)[numbers]
            every = np.frombuffer(each._names, np.uint8)
            for at in range(0, len(numbers), _AT_ONCE):
                some = slice(at, at + _AT_ONCE)
                names.append(cut(every, begins_of[numbers[some]], lengths[some]).tobytes())
            sizes.append(lengths)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(sizes))])
        return PackedNotes(
            columns,
            digests=b"".join(digests),
            names=b"".join(names),
            ends=array("Q", ends.astype(np.uint64).tobytes()),
            texts=_Texts([*senders], [*directories]),
            by_path=_found([b._by_path for b in both], stays, begins, [len(b.left) for b in both]),
            by_tail=_found([b._by_tail for b in both], stays, begins, [len(b.left) for b in both]),
        )

    # -- checkpoints ---------------------------------------------------------------------------

    def sections(self, left: bytes) -> Iterator[tuple[str, bytes | memoryview]]:
        """(name, content) of what `thawed` needs.

        Args:
            left: as it was at the moment that the checkpoint is of.
        """
        yield "texts", msgspec.msgpack.encode(self._texts)
        for name, column in self._columns.items():
            yield name, memoryview(column).cast("B")
        yield "digests", self._digests
        yield "names", self._names
        yield "ends", memoryview(self._ends).cast("B")
        yield "by-path", memoryview(self._by_path.entries).cast("B")
        yield "by-tail", memoryview(self._by_tail.entries).cast("B")
        yield "left", left

    @classmethod
    def thawed(cls, sections: Mapping[str, memoryview]) -> PackedNotes:
        """The table that `sections` gave; nothing of their memory is kept.

        Raises:
            ValueError, LookupError, msgspec.MsgspecError: they do not fit each other.
        """
        columns = {name: array_of(code, sections[name]) for name, code in _COLUMNS.items()}
        texts = msgspec.msgpack.decode(sections["texts"], type=_Texts)
        ends, left = array_of("Q", sections["ends"]), bytearray(sections["left"])
        digests, names = bytes(sections["digests"]), bytes(sections["names"])
        by_path, by_tail = array_of("Q", sections["by-path"]), array_of("Q", sections["by-tail"])
        count = len(left)
        fits = (
            all(len(column) == count for column in columns.values())
            and len(by_path) == count == len(ends) - 1
            and (len(digests), len(names)) == (_DIGESTS * count, ends[-1])
            and _is_below(columns["senders"], len(texts.senders))
            and _is_below(columns["directories"], len(texts.directories))
            and bool((np.diff(view(ends).view(np.int64)) >= 0).all())
            and all(_is_numbers(each, count) for each in (by_path, by_tail))
        )
        if not fits:
            raise ValueError("the columns of the notes of deleted files do not fit each other")
        return cls(
            columns,
            digests=digests,
            names=names,
            ends=ends,
            texts=texts,
            by_path=by_path,
            by_tail=by_tail,
            left=left,
        )


class FrozenNotes(NamedTuple):
    """All notes as of one commit, free of any lock.

    Attributes:
        packed: tables, each with what had left it.
        rows: the others.
    """

    packed: list[tuple[PackedNotes, bytes]]
    rows: list[LetGoRow]

    def sections(self) -> Iterator[tuple[str, bytes | memoryview]]:
        """(name, content) of the tables."""
        for number, (table, left) in enumerate(self.packed):
            for name, content in table.sections(left):
                yield f"{number}.{name}", content


def _together(one: Iterable[str], other: Iterable[str]) -> dict[str, int]:
    return {text: number for number, text in enumerate(dict.fromkeys([*one, *other]))}


def _joined(code: str, parts: Sequence[NDArray[np.generic]]) -> array[int]:
    return array_of(code, np.concatenate(parts).tobytes())


def _found(
    several: Sequence[NumbersByHash],
    stays: Sequence[NDArray[np.int64]],
    begins: Sequence[int],
    counts: Sequence[int],
) -> array[int]:
    """Numbers by hashes, as a table of both has them."""
    parts = []
    for found, numbers, begin, count in zip(several, stays, begins, counts, strict=True):
        moved = np.full(count, -1, np.int64)
        moved[numbers] = np.arange(begin, begin + len(numbers))
        entries = view(found.entries).view(np.uint64)
        now = moved[(entries & _LOW).astype(np.int64)]
        parts.append((entries & _HASH)[now >= 0] | now[now >= 0].astype(np.uint64))
    return array_of("Q", np.sort(np.concatenate(parts), kind="stable").tobytes())


def _is_below(column: array[int], end: int) -> bool:
    return not column or int(view(column).max()) < end


def _is_numbers(found: array[int], end: int) -> bool:
    return not found or int((view(found).view(np.uint64) & _LOW).max()) < end
