"""A request body whose length is known: in one piece of memory, filled once, read in place."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["WholeBody"]


class WholeBody(io.RawIOBase):
    """What waitress takes for the buffer of a body, and an application for the file of its input.

    Attributes:
        length: bytes it will have.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self._bytes = bytearray(length)
        self._filled = 0
        self._at = 0

    def __len__(self) -> int:
        return self._filled

    def __bool__(self) -> bool:
        return True

    def append(self, data: bytes) -> None:
        """Take what came next."""
        end = self._filled + len(data)
        self._bytes[self._filled : end] = data
        self._filled = end

    def getfile(self) -> WholeBody:
        """Itself, to be read from where reading stands."""
        return self

    def whole(self) -> memoryview:
        """All of it, without a copy."""
        return memoryview(self._bytes)[: self._filled]

    def readable(self) -> bool:
        """As a file: yes."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """As a file: the next bytes; how many."""
        into = memoryview(buffer)
        size = min(len(into), self._filled - self._at)
        into[:size] = self.whole()[self._at : self._at + size]
        self._at += size
        return size

    def close(self) -> None:
        """Let the memory go."""
        self._bytes = bytearray()
        self._filled = 0
        super().close()
