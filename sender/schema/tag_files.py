"""The tags of series, in the `tlog.txt` of a database, or in one for each of its regions.

An offset that stands in a line of the log says in its upper bits which file it is in: the first
one has zeros there, so that the offsets of a single file are its own.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import xxhash

from common.digests import read_blocks, xxh3_128
from common.formats.schemawire import MAX_SLOT
from common.formats.tlogtext import SLOT, TlogSlotError, read_slot
from sender.schema.notes import Digested

if TYPE_CHECKING:
    from sender.schema.notes import SchemaNotes

__all__ = ["TagFiles", "TagsMark", "tags_at"]

TagsMark = tuple[int, str]
"""Bytes of the files and their digest; of several, the sum and the digest of theirs."""

_FILE_BITS: Final = 40
_WITHIN: Final = (1 << _FILE_BITS) - 1
_SETTLED_NS: Final = 2_000_000_000
"""A file that was written later than this before it was read may change without a new time."""
_MANY: Final = struct.Struct(">i")
_NEXT: Final = struct.Struct(">q")
_NOTHING: Final = (0, "")


def tags_at(place: int) -> int:
    """What is added to an offset in the file at a place of the row."""
    return place << _FILE_BITS


class TagFiles:
    """The files, open for the length of a round."""

    def __init__(
        self, files: Sequence[tuple[str, int | None]], clock_ns: Callable[[], int]
    ) -> None:
        """Read through descriptors that stay the caller's.

        Args:
            files: name and descriptor of each, None of one that is not there.
            clock_ns: the time.
        """
        self._files = files
        self._clock_ns = clock_ns

    def now(self, notes: SchemaNotes, keep: Sequence[str] = ()) -> TagsMark:
        """What they are now; each is read only if it may have changed.

        Args:
            notes: of this sender.
            keep: digests that are still asked for, by `until`.
        """
        marks = [self._now(name, fd, notes) for name, fd in self._files]
        mark = _joined(marks)
        if len(marks) > 1 and mark[1] not in notes.now.tag_sizes:
            known = notes.now.tag_sizes
            kept = {each: known[each] for each in keep if each in known}
            notes.update(tag_sizes={**kept, mark[1]: [size for size, _ in marks]})
        return mark

    def until(self, notes: SchemaNotes, mark: TagsMark) -> TagsMark:
        """What the part of them is that a mark is of; anything else, if that is not known."""
        alone = len(self._files) <= 1
        sizes = [mark[0]] if alone else notes.now.tag_sizes.get(mark[1], [])
        return _joined(
            [
                self._until(name, fd, size, notes)
                for (name, fd), size in zip(self._files, sizes, strict=False)
            ]
        )

    def slot(self, offset: int) -> bytes | None:
        """The slot at an offset, trimmed; None if there is no sound one."""
        place = offset >> _FILE_BITS
        descriptor = self._files[place][1] if place < len(self._files) else None
        return None if descriptor is None else _slot(descriptor, offset & _WITHIN)

    def _now(self, name: str, fd: int | None, notes: SchemaNotes) -> TagsMark:
        if fd is None:
            return _NOTHING
        found = os.fstat(fd)
        known = notes.now.tlogs.get(name)
        same = (found.st_ino, found.st_size, found.st_mtime_ns)
        if known is not None and (known.inode, known.whole, known.mtime_ns) == same:
            return (known.size, known.digest)
        settled = found.st_mtime_ns + _SETTLED_NS < self._clock_ns()
        size, digest = _digest(fd, found.st_size)
        if settled:
            read = Digested(
                size=size, digest=digest, inode=same[0], whole=same[1], mtime_ns=same[2]
            )
            there = {each for each, _ in self._files}
            others = {key: each for key, each in notes.now.tlogs.items() if key in there}
            notes.update(tlogs={**others, name: read})
        return (size, digest)

    def _until(self, name: str, fd: int | None, size: int, notes: SchemaNotes) -> TagsMark:
        if fd is None:
            return _NOTHING
        now = self._now(name, fd, notes)
        return now if now[0] == size else _digest(fd, size)


def _joined(marks: Sequence[TagsMark]) -> TagsMark:
    if len(marks) <= 1:
        return marks[0] if marks else _NOTHING
    text = "\n".join(f"{size} {digest}" for size, digest in marks)
    return (sum(size for size, _ in marks), xxh3_128(text.encode()).hex())


def _digest(fd: int, size: int) -> TagsMark:
    if size == 0:
        return _NOTHING
    digest = xxhash.xxh3_128()
    for block in read_blocks(fd, end=size):
        digest.update(block)
    return (size, digest.hexdigest())


def _slot(descriptor: int, offset: int) -> bytes | None:
    head = os.pread(descriptor, SLOT, offset)
    count = -_MANY.unpack_from(head)[0] if len(head) == SLOT else 0
    if count > 1:
        return _trimmed(_chained(descriptor, head, count))
    found = _trimmed(head)
    return found if found or len(head) < SLOT else _trimmed(os.pread(descriptor, MAX_SLOT, offset))


def _chained(descriptor: int, head: bytes, count: int) -> bytes:
    """What is in a chain of slots (from 1.3 on): their number, negative, and where the others are.

    The numbers may go on in the second one, and so on; what is left is as in a single slot.
    """
    data = head
    if count * SLOT > MAX_SLOT + 2 * SLOT:
        return b""
    for each in range(1, count):
        (at,) = _NEXT.unpack_from(data, _MANY.size + (each - 1) * _NEXT.size)
        piece = os.pread(descriptor, SLOT, at) if at >= 0 else b""
        if len(piece) < SLOT:
            return b""
        data += piece
    return data[_MANY.size + (count - 1) * _NEXT.size :]


def _trimmed(raw: bytes) -> bytes | None:
    try:
        return raw[: read_slot(raw).size]
    except TlogSlotError:
        return None
