"""A frozen copy of the schema, to be written to a checkpoint while commits go on."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from receiver.metadata.schema.tree_columns.growing_columns import Ints, Section

__all__ = ["FrozenSchema", "room", "size_of"]


class FrozenSchema:
    """Copies of all columns as of one commit; free of any lock."""

    __slots__ = ("_parts",)

    def __init__(self, parts: list[tuple[str, memoryview]]) -> None:
        self._parts = parts

    @classmethod
    def copy(cls, sections: Iterable[Section], memory: bytearray | mmap.mmap) -> Self:
        """Copy columns into memory that is there; those that do not fit get their own."""
        free = memoryview(memory)
        parts = []
        for name, column in sections:
            size = size_of(column)
            if size <= len(free):
                part, free = free[:size], free[size:]
                if size:
                    part[:] = memoryview(column).cast("B")
            else:
                part = memoryview(bytes(memoryview(column).cast("B")))
            parts.append((name, part.toreadonly()))
        return cls(parts)

    def sections(self) -> Iterator[tuple[str, memoryview]]:
        """(name, bytes) of each section; a checkpoint writes them as they come."""
        yield from self._parts


def room(size: int) -> mmap.mmap:
    """Memory for a copy of about this size, a little more of it.

    Most of the time of a copy goes into getting memory from the system, and that happens when it is
    touched first. With this the copy itself, for which writers wait, need not do it. A `bytearray`
    would be touched as it is made, in one piece, and no other thread runs meanwhile.
    """
    memory = mmap.mmap(-1, size + size // 16 + (1 << 16), flags=mmap.MAP_PRIVATE)
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] = 1
    return memory


def size_of(column: Ints | bytes | bytearray) -> int:
    """Bytes of a column."""
    return len(column) if isinstance(column, bytes | bytearray) else len(column) * column.itemsize
