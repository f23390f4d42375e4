"""What is put into a store: bytes that can be read twice, and whose MD5 is known."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, Self

from common.digests import md5
from common.errors import Integrity

__all__ = [
    "BytesContent",
    "ContentChangedError",
    "FileContent",
    "ObjectContent",
    "checked_blocks",
]

_BLOCK = 1 << 20


class ContentChangedError(Integrity):
    """What was to be put into the store are other bytes than the catalogue says."""

    slug = "content-changed"


class ObjectContent(Protocol):
    """Bytes that can be read twice, since an attempt to put them may have to be repeated."""

    @property
    def size(self) -> int:
        """Bytes, as the catalogue has them."""
        ...

    @property
    def md5(self) -> str:
        """Hex; of the whole, as the catalogue has it."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """So many bytes at an offset.

        Raises:
            ContentChangedError: it ends before that, or its disk fails.
        """
        ...


@dataclass(frozen=True)
class FileContent:
    """An open file; who opened it closes it.

    Attributes:
        fd: open for reading; its offset is not touched.
        size: bytes, as the catalogue has them.
        md5: hex, as the catalogue has it.
        begin: where in the file it begins.
    """

    fd: int
    size: int
    md5: str
    begin: int = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `ObjectContent.read`."""
        pieces: list[bytes] = []
        while length:
            try:
                piece = os.pread(self.fd, length, self.begin + offset)
            except OSError as error:
                raise ContentChangedError(f"the file cannot be read: {error}") from error
            if not piece:
                raise ContentChangedError(f"the file ends at {offset} of {self.size} bytes")
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@dataclass(frozen=True)
class BytesContent:
    """Bytes in memory.

    Attributes:
        data: all of them.
        md5: hex, of them.
    """

    data: bytes
    md5: str

    @classmethod
    def of(cls, data: bytes) -> Self:
        """The same of bytes whose MD5 is not known."""
        return cls(data, md5(data).hexdigest())

    @property
    def size(self) -> int:
        """See `ObjectContent.size`."""
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        """See `ObjectContent.read`."""
        return self.data[offset : offset + length]


def checked_blocks(
    content: ObjectContent, paced: Callable[[int], None] = lambda _: None, *, block: int = _BLOCK
) -> Iterator[bytes]:
    """The content in blocks; behind the last one, and before the end, its MD5 is judged.

    Args:
        content: what is read.
        paced: called with each block's size before it is given.
        block: bytes of all but the last.

    Raises:
        ContentChangedError: it has another MD5.
    """
    digest = md5()
    for offset in range(0, content.size, block):
        piece = content.read(offset, min(block, content.size - offset))
        digest.update(piece)
        paced(len(piece))
        yield piece
    if digest.hexdigest() != content.md5:
        raise ContentChangedError(
            f"its MD5 is {digest.hexdigest()}, and {content.md5} in the catalogue"
        )
