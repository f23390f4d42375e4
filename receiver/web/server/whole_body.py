"""A request body whose length is known: in one piece of memory, filled once, read in place."""

from __future__ import annotations

import io
import mmap
import threading
from typing import TYPE_CHECKING

from receiver.web.server.body_decompression import decompress

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Spares", "WholeBody"]

_SMALL = 1 << 16
_KEPT = 4
"""Pieces of memory that serve again."""


class Spares:
    """Memory for bodies: what one is done with serves the next. All calls are safe from any thread.

    It is the kernel's, a page at a time as a body comes: who announces a long body and sends none
    takes nothing. The same pages again spare the kernel giving out and clearing new ones, which
    costs as much as the copy into them. These are there before a byte has come, and nobody counts
    them: so there are few, those that bodies have among them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[mmap.mmap] = []
        self._lent: set[int] = set()
        self._used = False

    def take(self, length: int) -> bytearray | mmap.mmap:
        """Memory for so many bytes, or more; what is in it is anybody's."""
        if length < _SMALL:
            return bytearray(length)
        with self._lock:
            self._used = True
            memory = self._free.pop() if self._free else None
            if memory is not None and length <= len(memory):
                self._lent.add(id(memory))
                return memory
        return mmap.mmap(-1, length)

    def give(self, memory: bytearray | mmap.mmap) -> None:
        """Done with it; unless somebody still looks at it, it is the next one's."""
        if isinstance(memory, bytearray):
            return
        with self._lock:
            self._lent.discard(id(memory))
            try:
                memory.resize(len(memory))
            except (BufferError, OSError, SystemError, ValueError):  # looked at, or not possible
                return
            if len(self._free) + len(self._lent) < _KEPT:
                self._free.append(memory)

    def sweep(self) -> None:
        """Let go of what nothing was taken from since the last call."""
        with self._lock:
            if not self._used:
                self._free.clear()
            self._used = False


class WholeBody(io.RawIOBase):
    """What waitress takes for the buffer of a body, and an application for the file of its input.

    Attributes:
        length: bytes it will have.
        size: bytes that these become, of a body that comes compressed.
    """

    def __init__(self, length: int, spares: Spares, size: int | None = None) -> None:
        self.length = length
        self.size = size
        self._spares = spares
        self._bytes = spares.take(length)
        self._filled = 0
        self._at = 0

    def __len__(self) -> int:
        return self._filled

    def __bool__(self) -> bool:
        return True

    def room(self) -> memoryview:
        """Where the next bytes belong; who puts them there gives that part of it to `append`."""
        return memoryview(self._bytes)[self._filled : self.length]

    def append(self, data: bytes | memoryview) -> None:
        """Take what came next."""
        end = self._filled + len(data)
        if not (isinstance(data, memoryview) and data.obj is self._bytes):
            self._bytes[self._filled : end] = data
        self._filled = end

    def getfile(self) -> WholeBody:
        """Itself, to be read from where reading stands."""
        return self

    def whole(self) -> memoryview:
        """All of it, without a copy."""
        return memoryview(self._bytes)[: self._filled]

    def decompress(self) -> None:
        """Become what it is once decompressed, if it came compressed: once, by who reads it.

        Raises:
            ProtocolError: it is not what its head said; it stays as it came.
        """
        if self.size is None:
            return
        memory = self._spares.take(self.size)
        try:
            with memoryview(memory)[: self.size] as into, self.whole() as came:
                decompress(came, into)
        except Exception:
            self._spares.give(memory)
            raise
        self._spares.give(self._bytes)
        self._bytes, self._filled, self.size = memory, self.size, None
        self.length = self._filled

    def readable(self) -> bool:
        """As a file: yes."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """As a file: the next bytes; how many."""
        into = memoryview(buffer)
        size = min(len(into), self._filled - self._at)
        with self.whole() as whole:
            into[:size] = whole[self._at : self._at + size]
        self._at += size
        return size

    def close(self) -> None:
        """Let the memory go."""
        self._spares.give(self._bytes)
        self._bytes = bytearray()
        self._filled = self.length = 0
        super().close()
