"""Where bytes come from: a file descriptor, a path, bytes in memory, or what reads them itself."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final, Protocol, TypeAlias

from common.tsfile.primitives import Corrupt

__all__ = ["ByteSource", "BytesLike", "LastBlock", "TsFileOrigin", "opened", "source_of"]

BytesLike: TypeAlias = bytes | bytearray | memoryview
_LAST_BLOCK: Final = 64 * 1024  # holds the whole index of most files: one read instead of three


class ByteSource(Protocol):
    """Random access to a file of known size."""

    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset``.

        Raises:
            OSError: from the file system.
            TsferryError: of a source of its own kind, about where the bytes are, not what they say.
            Corrupt: the file ends before that (it shrank, or an offset lies).
        """
        ...


TsFileOrigin: TypeAlias = int | BytesLike | str | os.PathLike[str] | ByteSource
"""A file descriptor (its offset is not touched), the file's bytes, its path, or what reads it."""


class _Memory:
    def __init__(self, content: BytesLike) -> None:
        self._view = memoryview(content).cast("B")
        self.size = len(self._view)

    def read(self, offset: int, length: int) -> bytes:
        piece = bytes(self._view[offset : offset + length])
        return _whole(piece, offset, length)


class _Descriptor:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = os.fstat(fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        piece = os.pread(self._fd, length, offset)
        if len(piece) == length:
            return piece
        pieces, got = [piece], len(piece)
        while piece and got < length:
            piece = os.pread(self._fd, length - got, offset + got)
            pieces.append(piece)
            got += len(piece)
        return _whole(b"".join(pieces), offset, length)


class LastBlock:
    """Another source, whose last block has been read once and is kept."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.size = source.size
        self._start = max(0, source.size - _LAST_BLOCK)
        self._block = source.read(self._start, source.size - self._start)

    def read(self, offset: int, length: int) -> bytes:
        """See ``ByteSource.read``."""
        at = offset - self._start
        if at < 0:
            return self._source.read(offset, length)
        return _whole(self._block[at : at + length], offset, length)


def _whole(piece: bytes, offset: int, length: int) -> bytes:
    if len(piece) != length:
        raise Corrupt(f"the file ends at offset {offset + len(piece)}, within what is to be read")
    return piece


def source_of(content: int | BytesLike | ByteSource) -> ByteSource:
    """A source over a descriptor or bytes, which need no closing; what is one already, itself."""
    if isinstance(content, int):
        return _Descriptor(content)
    return _Memory(content) if isinstance(content, BytesLike) else content


def opened(source: TsFileOrigin) -> contextlib.AbstractContextManager[ByteSource]:
    """Have ``source`` ready to read within a block; what was opened for it is closed behind it.

    Raises:
        OSError: it cannot be opened.
    """
    if isinstance(source, bytes | int | memoryview | bytearray):  # first: to ask for a path is slow
        return contextlib.nullcontext(source_of(source))
    if isinstance(source, str | os.PathLike):
        return _opened(source)
    return contextlib.nullcontext(source)


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[ByteSource]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield _Descriptor(fd)
    finally:
        os.close(fd)
